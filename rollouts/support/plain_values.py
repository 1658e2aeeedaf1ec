# SPDX-License-Identifier: Apache-2.0
"""Values of Python's own types, which any file format holds, made from a program's values."""

from __future__ import annotations

import operator
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rollouts.errors import SpecError

_NUMBERS = "biuf"  # dtype kinds: bool, int, unsigned int, float


def plain_option(name: str, value: Any) -> Any:
    """Copies a value into numbers, text, None, lists and dicts with text keys; arrays become lists.

    Args:
      name: Name of the value, for messages.
      value: A program's value; NumPy's numbers and arrays, paths and tuples are converted.

    Raises:
      SpecError: It is, or holds, something else.
    """
    return _guarded(_option, name, value)


def plain_state(name: str, value: Any) -> Any:
    """Copies a value into numbers, text, bytes, None, tensors, lists, tuples, sets and dicts.

    NumPy's arrays become tensors. Arguments and errors are those of `plain_option`.
    """
    return _guarded(_state, name, value)


def plain_text(name: str, value: Any) -> str:
    """Text of exactly the type str, also from a path.

    Raises:
      SpecError: It is something else.
    """
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if not isinstance(value, str):
        raise SpecError(f"{name} is {shown(value)}, expected text: give a str")
    return str.__str__(value)


def plain_path(name: str, value: Any, expected: str) -> str:
    """A path as text that is not empty.

    Args:
      expected: The rest of the message's sentence, such as "a folder such as 'runs/first'".

    Raises:
      SpecError: It is no path.
    """
    try:
        text = os.fsdecode(value)
    except TypeError:
        text = ""
    if not text or "\0" in text:
        raise SpecError(f"{name} is {shown(value)}, expected {expected}")
    return text


def plain_int(name: str, value: Any, *, least: int | None = 0) -> int:
    """A whole number of exactly the type int, also from NumPy's; True and False are refused.

    Raises:
      SpecError: It is something else, or below `least`.
    """
    try:
        number = None if isinstance(value, bool | np.bool_) else operator.index(value)
    except TypeError:
        number = None
    if number is None or (least is not None and number < least):
        bound = "" if least is None else f" of at least {least}"
        raise SpecError(f"{name} is {shown(value)}, expected a whole number{bound}: give an int")
    return number


def shown(value: Any) -> str:
    """A short text of a value for messages; its repr may fail."""
    try:
        text = repr(value)
    except Exception:
        text = f"a {type(value).__name__}"
    return text if len(text) <= 200 else f"{text[:190]}... (a {type(value).__name__})"


def first_sentence(error: Exception) -> str:
    """The first sentence of an error's first line, for messages; torch adds advice to its own."""
    line = next(iter(str(error).splitlines()), "")
    return line.split(". ")[0].rstrip(".")[:200] or type(error).__name__


def _guarded(convert: Any, name: str, value: Any) -> Any:
    try:
        return convert(name, value)
    except RecursionError:
        raise SpecError(
            f"{name} holds itself, or is nested too deeply, expected a tree of numbers, text and "
            "tensors: leave the reference out"
        ) from None


def _option(name: str, value: Any) -> Any:
    found = _scalar(value)
    if found is not _NO_SCALAR:
        return found
    if isinstance(value, np.ndarray) and value.dtype.kind in _NUMBERS:
        # Python's float has 64 bits
        return (value.astype(np.float64) if value.dtype.kind == "f" else value).tolist()
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        return [_option(f"{name}[{index}]", one) for index, one in enumerate(value)]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {str.__str__(k): _option(f"{name}[{k!r}]", one) for k, one in value.items()}
    raise SpecError(
        f"{name} is {shown(value)}, which a checkpoint cannot hold: expected numbers, text, None, "
        "and arrays, lists and dicts of them"
    )


def _state(name: str, value: Any) -> Any:
    from torch import Size, Tensor, device, dtype

    found = _scalar(value)
    if found is not _NO_SCALAR:
        return found
    # other types that torch reads with weights_only=True
    if type(value) in (bytes, bytearray, complex, Size, device, dtype):
        return value
    if isinstance(value, Tensor):
        return value.detach()
    if isinstance(value, np.ndarray):
        return as_tensor(name, value)
    if isinstance(value, set | frozenset):
        return {_state(f"an element of {name}", one) for one in value}
    if isinstance(value, tuple):
        return tuple(_state(f"{name}[{index}]", one) for index, one in enumerate(value))
    if isinstance(value, Sequence) and not isinstance(value, memoryview):  # deque, range
        return [_state(f"{name}[{index}]", one) for index, one in enumerate(value)]
    if isinstance(value, Mapping):
        return {_key(name, key): _state(f"{name}[{key!r}]", one) for key, one in value.items()}
    raise SpecError(
        f"{name} is {shown(value)}, which a checkpoint cannot hold: expected numbers, text, bytes, "
        f"None, tensors, arrays, and lists, tuples, sets and dicts of them{_advice(value)}"
    )


def _key(name: str, key: Any) -> Any:
    found = _scalar(key)
    if found is not _NO_SCALAR:
        return found
    if isinstance(key, tuple):
        return tuple(_key(name, one) for one in key)
    raise SpecError(
        f"{name} has the key {shown(key)}, which a checkpoint cannot hold: expected text, numbers "
        "or tuples of them"
    )


def as_tensor(name: str, value: Any) -> Any:
    """A tensor with an array's values, in its own memory and this machine's byte order.

    Raises:
      SpecError: No tensor has the array's dtype.
    """
    import torch

    array = np.asarray(value)
    try:
        return torch.from_numpy(np.array(array, array.dtype.newbyteorder("="), order="C"))
    except (TypeError, ValueError):
        raise SpecError(
            f"{name} is an array of dtype {array.dtype}, which no tensor has: expected numbers or "
            "bool, so give another dtype by .astype"
        ) from None


def _advice(value: Any) -> str:
    if hasattr(value, "state_dict"):
        return "; give its state_dict()"
    if hasattr(value, "__dataclass_fields__"):
        return "; give dataclasses.asdict(it)"
    if callable(value):
        return "; no code is kept in a checkpoint, so give what it is made from"
    return "; give it as such, or leave it out"


_NO_SCALAR = object()


def _scalar(value: Any) -> Any:
    """A number, text or None of exactly Python's type; _NO_SCALAR for other values."""
    if isinstance(value, np.generic):
        python = {"b": bool, "i": int, "u": int, "f": float, "U": str}.get(value.dtype.kind)
        return _NO_SCALAR if python is None else python(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return operator.index(value)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, os.PathLike):
        path = os.fspath(value)
        return str.__str__(path) if isinstance(path, str) else os.fsdecode(path)
    return _NO_SCALAR
