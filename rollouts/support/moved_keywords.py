# SPDX-License-Identifier: Apache-2.0
"""An error for a keyword that is a field of another argument: which ones are, and who says so."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, TypeVar, cast

from rollouts.errors import SpecError

Function = TypeVar("Function", bound=Callable[..., Any])


def moved_to(argument: str, options: type[Any], **renamed: str) -> dict[str, str]:
    """Returns what `explains_moved` takes for the fields of a dataclass.

    Args:
      argument: Name of the argument that takes the dataclass.
      options: The dataclass.
      renamed: field -> the keyword that it is looked for under; the others have their own names.
    """
    unknown = renamed.keys() - {field.name for field in fields(options)}
    assert not unknown, f"{options.__name__} has no fields {unknown}"
    return {
        renamed.get(field.name, field.name): f"{argument}={options.__name__}({field.name}={{}})"
        for field in fields(options)
    }


def explains_moved(moved: Mapping[str, str]) -> Callable[[Function], Function]:
    """Makes a function say how such a keyword is written, in place of "unexpected keyword".

    Type checkers, `help` and `inspect.signature` see the function's own signature.

    Args:
      moved: keyword -> how it is written, such as "faults=FaultPolicy(max_restarts={})", where
        {} stands for the value.
    Raises:
      SpecError: raised by the function that is returned, where such a keyword is given.
    """

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def checked(*args: Any, **keywords: Any) -> Any:
            for name in keywords.keys() & moved.keys():
                where, written = moved[name].partition("=")[0], moved[name]
                raise SpecError(
                    f"{name} is a field of {where}: {written.format(repr(keywords[name]))}"
                )
            return function(*args, **keywords)

        return cast(Function, checked)

    return decorate
