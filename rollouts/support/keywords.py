# SPDX-License-Identifier: Apache-2.0
"""Errors for unknown arguments: they list the known ones, and guess what was meant."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

from rollouts.errors import DTypeError

Function = TypeVar("Function", bound=Callable[..., Any])
Class = TypeVar("Class", bound=type)


def explains_keywords(name: str) -> Callable[[Function], Function]:
    """Makes a function's error list its arguments, if a call has others.

    Type checkers, `help` and `inspect.signature` see the function's own signature; a correct call
    costs nothing more.

    Args:
      name: The function's name in messages.
    Raises:
      DTypeError: raised by the function that is returned, where an argument is unknown or missing.
    """

    def decorate(function: Function) -> Function:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def checked(*args: Any, **keywords: Any) -> Any:
            try:
                return function(*args, **keywords)
            except TypeError:
                try:
                    signature.bind(*args, **keywords)
                except TypeError as error:
                    raise DTypeError(_sentence(name, signature, keywords, error)) from None
                raise

        return cast(Function, checked)

    return decorate


def explains_fields(kind: Class) -> Class:
    """Makes a dataclass's error list its fields, if a call has others; put it above `dataclass`."""
    kind.__init__ = explains_keywords(kind.__name__)(kind.__init__)  # type: ignore[misc]
    return kind


def _sentence(
    name: str, signature: inspect.Signature, keywords: dict[str, Any], error: TypeError
) -> str:
    known = [each for each in signature.parameters if each != "self"]
    unknown = next((each for each in keywords if each not in known), None)
    if unknown is None:
        what = str(error)
        if "positional" in what:
            what += ", whose fields are given by name"
        return f"{name}: {what}; expected {', '.join(known)}"
    close = difflib.get_close_matches(unknown, known, n=1, cutoff=0.5)
    near = [each for each in known if each.startswith(unknown) or unknown in each] or close
    hint = f"; did you mean {near[0]}={keywords[unknown]!r}?" if near else ""
    return f"{name} has no {unknown!r}, expected some of {', '.join(known)}{hint}"
