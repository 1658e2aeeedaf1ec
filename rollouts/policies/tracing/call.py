# SPDX-License-Identifier: Apache-2.0
"""`FunctionCall`: a torch function that a traced module calls, and operations on its arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rollouts.policies.tracing import arithmetic as ops
from rollouts.policies.tracing.registers import Registers, Tags
from rollouts.policies.tracing.storage_tags import StorageTags


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A call of a torch function, whose arguments may be named."""

    registers: Registers
    memory: StorageTags
    function: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]

    def value(self, place: int, name: str, default: Any = None) -> Any:
        """The argument without conversion."""
        return self.args[place] if place < len(self.args) else self.kwargs.get(name, default)

    def tags(self, place: int, name: str) -> Tags:
        """The tags of a required argument, which is a tensor or number."""
        value = self.value(place, name)
        if value is None:
            value = self.kwargs.get("self", self.kwargs.get("tensor"))
        return self.memory.read(value)

    def tags_or_none(self, place: int, name: str) -> Tags | None:
        """The tags of an optional argument, a tensor or number; None if it is not given."""
        return None if self.value(place, name) is None else self.tags(place, name)

    @property
    def first(self) -> Tags:
        """The tags of the first argument."""
        return self.tags(0, "input")

    def unary(self, kind: str, x: Tags, *numbers: float) -> Tags:
        """See arithmetic.py; the same holds for `binary` and `number`."""
        return ops.unary(self.registers, kind, x, tuple(float(each) for each in numbers))

    def binary(self, kind: str, x: Tags, y: Tags | float) -> Tags:
        """See arithmetic.py; a number stands for itself at every place."""
        tags = self.number(y) if isinstance(y, int | float) else y
        return ops.binary(self.registers, kind, x, tags)

    def number(self, value: float) -> Tags:
        """A literal."""
        return ops.literal(self.registers, value)
