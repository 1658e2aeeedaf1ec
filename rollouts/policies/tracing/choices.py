# SPDX-License-Identifier: Apache-2.0
"""Comparisons, truth values and choices by them, with which modules mask actions.

A truth value is a feature that is 0 or 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from rollouts.policies.tracing import arithmetic as ops
from rollouts.policies.tracing.call import FunctionCall
from rollouts.policies.tracing.registers import Tags, Unreadable


def truth(call: FunctionCall, value: Any) -> Tags:
    """Returns whether each number is not 0."""
    tags = call.memory.read(value)
    if isinstance(value, bool) or (isinstance(value, Tensor) and value.dtype == torch.bool):
        return tags
    return _not(call, call.binary("equal", tags, 0.0))


def choose(call: FunctionCall, condition: Any, yes: Any, no: Any) -> Tags:
    """Returns one of two numbers at each place."""
    tags = truth(call, condition), call.memory.read(yes), call.memory.read(no)
    return ops.where(call.registers, *tags)


def _not(call: FunctionCall, tags: Tags) -> Tags:
    return call.binary("sub", call.number(1.0), tags)


def _compared(
    kind: str, *, swapped: bool = False, negated: bool = False
) -> Callable[[FunctionCall], Tags]:
    def compute(call: FunctionCall) -> Tags:
        x, y = call.first, call.tags(1, "other")
        found = call.binary(kind, y, x) if swapped else call.binary(kind, x, y)
        return _not(call, found) if negated else found

    return compute


def _of_both(kind: str) -> Callable[[FunctionCall], Tags]:
    def compute(call: FunctionCall) -> Tags:
        x, y = call.value(0, "input"), call.value(1, "other")
        if not all(isinstance(each, bool) or each.dtype == torch.bool for each in (x, y)):
            raise Unreadable("it combines other things than truth values")
        return call.binary(kind, truth(call, x), truth(call, y))

    return compute


def _negated(call: FunctionCall) -> Tags:
    x = call.value(0, "input")
    if x.dtype != torch.bool:
        raise Unreadable("it negates other things than truth values")
    return _not(call, call.memory.read(x))


def _where(call: FunctionCall) -> Tags:
    args = call.args
    if len(args) != 3 or call.kwargs:
        raise Unreadable("it is not called as where(condition, x, y)")
    # the method is x.where(condition, y)
    is_method = call.function == torch.Tensor.where
    return choose(call, args[1], args[0], args[2]) if is_method else choose(call, *args)


def _masked_fill(call: FunctionCall) -> Tags:
    return choose(call, call.value(1, "mask"), call.value(2, "value"), call.value(0, "input"))


_GREATER, _LESS = _compared("greater"), _compared("greater", swapped=True)
_NOT_LESS, _NOT_GREATER = (
    _compared("greater_equal"),
    _compared("greater_equal", swapped=True),
)
_DIFFERS = _compared("equal", negated=True)

# functions whose results are truth values
TRUTHS: dict[str, Callable[[FunctionCall], Tags]] = {
    **dict.fromkeys(("gt", "greater"), _GREATER),
    **dict.fromkeys(("lt", "less"), _LESS),
    **dict.fromkeys(("ge", "greater_equal"), _NOT_LESS),
    **dict.fromkeys(("le", "less_equal"), _NOT_GREATER),
    "eq": _compared("equal"),
    **dict.fromkeys(("ne", "not_equal"), _DIFFERS),
    **dict.fromkeys(("and", "logical_and", "bitwise_and"), _of_both("mul")),
    **dict.fromkeys(("or", "logical_or", "bitwise_or"), _of_both("maximum")),
    **dict.fromkeys(("invert", "logical_not", "bitwise_not"), _negated),
    "bool": lambda call: truth(call, call.value(0, "input")),
}
CHOICES: dict[str, Callable[[FunctionCall], Tags]] = {"where": _where, "masked_fill": _masked_fill}
