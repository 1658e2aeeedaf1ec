# SPDX-License-Identifier: Apache-2.0
"""`Reads`: what a module's forward reads besides its weights, and whether it is unchanged.

Weights are followed (see `Sources`); all other values are fixed in the program when the module is
read: attributes of the module and its layers, entries of dicts and lists, tensors that are no
buffers, variables of the functions around forward and of their files.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

_GONE = object()
# these are compared by value; other objects by identity
_PLAIN = (bool, int, float, complex, str, bytes)
# variables and classes of these modules are no settings of a forward
_LIBRARIES = sys.stdlib_module_names | {"torch", "numpy", "gymnasium"}
_WEIGHTS = ("_parameters", "_buffers")
# a dict or list of more entries holds data, not settings
_MOST_ENTRIES = 1000


class Reads:
    """The places that a forward reads, found by the functions that it called, with values."""

    def __init__(self, module: nn.Module, weights: Mapping[str, Tensor]) -> None:
        """Begins without any reads; `weights` are followed by `Sources`."""
        self._module = module
        self._weights = {tensor.untyped_storage().data_ptr() for tensor in weights.values()}
        self._ran: dict[types.CodeType, dict[str, Any]] = {}
        self._names: set[str] = set()
        self._known: dict[int, Any] = {}
        self._entries: list[tuple[Mapping[str, Any], Any, Any]] = []
        self._sizes: list[tuple[Any, int]] = []
        self._cells: list[tuple[types.CellType, Any]] = []
        self._lists: list[tuple[list[Any], tuple[Any, ...]]] = []
        self._slots: list[tuple[Any, str, Any]] = []
        self._tensors: list[tuple[Tensor, Any]] = []
        self._arrays: list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]] = []
        self._others: list[tuple[Callable[..., bool], list[Any]]] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Records which functions run inside the block, and then what they can read."""
        before = sys.getprofile()

        def note(frame: types.FrameType, event: str, arg: Any) -> None:
            if event == "call":
                self._ran.setdefault(frame.f_code, frame.f_globals)

        sys.setprofile(note)
        try:
            yield
        finally:
            if before is None or callable(before):
                sys.setprofile(before)
            else:  # the object of a C profiler, such as cProfile's
                before.enable()
        self._names = {name for code in self._ran for name in code.co_names}
        self._walk(self._module)
        for code, variables in self._ran.items():
            if not _is_library(variables.get("__name__")):
                self._note_entries(variables, code.co_names)

    def are_as_seen(self) -> bool:
        """Tells if all values are unchanged; takes some microseconds."""
        for mapping, key, seen in self._entries:
            now = mapping.get(key, _GONE)
            if now is not seen and not _equal(now, seen):
                return False
        for each, size in self._sizes:
            if len(each) != size:
                return False
        return not self._others or all(
            same(*place) for same, places in self._others for place in places
        )

    def forget_changed(self) -> None:
        """Drops values that have changed, because a forward that just ran writes them itself."""
        kinds: tuple[tuple[Callable[..., bool], list[Any]], ...] = (
            (_same_entry, self._entries),
            (_same_size, self._sizes),
            (_same_content, self._cells),
            (_same_items, self._lists),
            (_same_slot, self._slots),
            (_same_tensor, self._tensors),
            (_same_array, self._arrays),
        )
        for same, places in kinds:
            places[:] = [each for each in places if same(*each)]
        # most modules have none of these
        self._others = [each for each in kinds[2:] if each[1]]

    def _walk(self, value: Any) -> None:
        """Records what can be read through a value, once for each value."""
        if value is None or isinstance(value, _PLAIN) or id(value) in self._known:
            return
        self._known[id(value)] = value
        if isinstance(value, Tensor):
            if value.untyped_storage().data_ptr() not in self._weights and not value.is_meta:
                self._tensors.append((value, _seen_of(value)))
        elif isinstance(value, np.ndarray):
            if not value.dtype.hasobject:
                self._arrays.append((value, value.copy()))
        elif isinstance(value, dict | list | tuple | set | frozenset):
            self._walk_items(value)
        elif isinstance(value, types.FunctionType | types.MethodType | functools.partial):
            self._walk_function(value)
        elif isinstance(value, types.ModuleType):
            if not _is_library(value.__name__):
                self._note_entries(vars(value), self._names)
        elif isinstance(value, property):
            self._walk(value.fget)
        elif isinstance(value, type):
            self._walk_class(value)
        else:
            self._walk_object(value)

    def _walk_items(self, value: Any) -> None:
        if len(value) > _MOST_ENTRIES:
            return
        if isinstance(value, dict):
            self._sizes.append((value, len(value)))
            self._note_entries(value, value)
            return
        if isinstance(value, list):
            self._lists.append((value, tuple(value)))
        elif isinstance(value, set):
            self._sizes.append((value, len(value)))
        for each in value:
            self._walk(each)

    def _walk_function(self, value: Any) -> None:
        if isinstance(value, functools.partial):
            for each in (value.func, value.args, value.keywords):
                self._walk(each)
        elif isinstance(value, types.MethodType):
            self._walk(value.__self__)
            self._walk(value.__func__)
        elif value.__code__ in self._ran:
            for cell in value.__closure__ or ():
                content = _content(cell)
                self._cells.append((cell, content))
                self._walk(content)
            self._walk(value.__defaults__)
            self._walk(value.__kwdefaults__)
            # a function inside a wrapper
            self._walk(getattr(value, "__wrapped__", None))

    def _walk_object(self, value: Any) -> None:
        is_module = isinstance(value, nn.Module)
        own = getattr(value, "__dict__", {})
        names = self._names.difference(_WEIGHTS) if is_module else self._names
        self._sizes.append((own, len(own)))
        self._note_entries(own, names)
        if is_module:
            self._walk(value._modules)
        self._walk(type(value))
        for kind in type(value).__mro__:
            for name, member in vars(kind).items():
                if isinstance(member, types.MemberDescriptorType) and name in self._names:
                    content = getattr(value, name, _GONE)
                    self._slots.append((value, name, content))
                    self._walk(content)

    def _walk_class(self, value: type) -> None:
        for kind in value.__mro__:
            if not _is_library(kind.__module__):
                self._note_entries(vars(kind), self._names)

    def _note_entries(self, mapping: Mapping[Any, Any], keys: Any) -> None:
        for key in keys:
            if key in mapping:
                self._entries.append((mapping, key, mapping[key]))
                self._walk(mapping[key])


def _is_library(name: Any) -> bool:
    return isinstance(name, str) and name.partition(".")[0] in _LIBRARIES


def _equal(now: Any, seen: Any) -> bool:
    if now is seen:
        return True
    return type(now) is type(seen) and isinstance(now, _PLAIN) and bool(now == seen)


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing was assigned yet
        return _GONE


def _same_entry(mapping: Mapping[Any, Any], key: Any, seen: Any) -> bool:
    return _equal(mapping.get(key, _GONE), seen)


def _same_size(now: Any, seen: int) -> bool:
    return len(now) == seen


def _same_content(now: types.CellType, seen: Any) -> bool:
    return _equal(_content(now), seen)


def _same_items(now: list[Any], seen: tuple[Any, ...]) -> bool:
    return len(now) == len(seen) and all(map(_equal, now, seen))


def _same_slot(owner: Any, name: str, seen: Any) -> bool:
    return _equal(getattr(owner, name, _GONE), seen)


def _same_array(now: np.ndarray[Any, Any], seen: np.ndarray[Any, Any]) -> bool:
    return now.shape == seen.shape and now.tobytes() == seen.tobytes()


def _seen_of(tensor: Tensor) -> Any:
    """A copy; for a device's tensor, data that show without waiting if it was written to."""
    if tensor.is_cpu or tensor.is_inference():
        return tensor.detach().clone()
    return tensor.data_ptr(), tensor._version


def _same_tensor(now: Tensor, seen: Any) -> bool:
    if isinstance(seen, tuple):
        return seen == (now.data_ptr(), now._version)
    return now.dtype == seen.dtype and now.device == seen.device and torch.equal(now, seen)
