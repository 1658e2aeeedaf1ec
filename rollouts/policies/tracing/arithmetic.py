# SPDX-License-Identifier: Apache-2.0
"""Layers, elementwise operations and reductions on tags, each as operations of a program.

Every function takes the `Registers` and the tags of its operands and returns the tags of its
result, in the shape that torch gives it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rollouts.policies.tracing.registers import (
    UNKNOWN,
    Ids,
    Registers,
    Tags,
    Unreadable,
    with_rows,
    without_rows,
)

Shape = tuple[int, ...]

# the most parts of a sum or a maximum over features, or of a layer applied to parts of a row
_MOST_PARTS = 128


def literal(registers: Registers, value: float) -> Tags:
    """Tags of a single number, without dimensions."""
    return with_rows(registers.literals(np.array(value)), (), None)


def unary(registers: Registers, kind: str, x: Tags, numbers: tuple[float, ...] = ()) -> Tags:
    """One operation on each element."""
    axis, (ids,) = without_rows(x)
    register = registers.register(ids.reshape(-1), whole=False)
    size = registers.size(register)
    out = registers.elements(registers.emit(kind, (register,), numbers=numbers, size=size))
    return with_rows(np.broadcast_to(out, ids.size), x.shape, axis)


def binary(registers: Registers, kind: str, x: Tags, y: Tags) -> Tags:
    """One operation on each pair of elements, broadcast to a common shape."""
    x, y = np.broadcast_arrays(x, y)
    axis, both = without_rows(x, y)
    out = _binary(registers, kind, both[0].reshape(-1), both[1].reshape(-1))
    return with_rows(np.broadcast_to(out, both[0].size), x.shape, axis)


def _binary(registers: Registers, kind: str, x: Ids, y: Ids) -> Ids:
    a, b = registers.literal_value(x), registers.literal_value(y)
    short = _with_number(kind, a, b)
    if short is not None:
        register = registers.register(y if b is None else x, whole=False)
        size = registers.size(register)
        kind, numbers = short
        return registers.elements(registers.emit(kind, (register,), numbers=numbers, size=size))
    biased = _with_bias(registers, x, y) if kind == "add" else None
    if biased is None:
        inputs = registers.register(x, whole=False), registers.register(y, whole=False)
        biased = registers.emit(kind, inputs, size=max(map(registers.size, inputs)))
    return registers.elements(biased)


def _with_number(
    kind: str, a: float | None, b: float | None
) -> tuple[str, tuple[float, float]] | None:
    """The operation on one register that replaces one on a register and a number."""
    if (a is None) == (b is None):
        return None
    number = a if b is None else b
    assert number is not None
    if not math.isfinite(number):
        return None
    short = {
        "add": (1.0, number),
        "mul": (number, 0.0),
        "sub": (1.0, -number) if a is None else (-1.0, number),
    }
    if a is None and number:
        short["div"] = (1 / number, 0.0)
    if kind in short:
        return "scale", short[kind]
    if kind == "maximum":
        return "clamp", (number, math.inf)
    return ("clamp", (-math.inf, number)) if kind == "minimum" else None


def _with_bias(registers: Registers, x: Ids, y: Ids) -> int | None:
    """The layer with the other operand as its bias, if the sum can be written so."""
    for product, bias in ((x, y), (y, x)):
        param = registers.param(bias)
        if param is None or registers.param(product) is not None:
            continue
        register = registers.register(product, whole=False)
        op = registers.op_of(register)
        if op is not None and op.kind == "linear" and len(op.params) == 1 and op.size == bias.size:
            return registers.emit("linear", op.inputs, (*op.params, param), size=op.size)
    return None


def clamp(registers: Registers, x: Tags, low: Tags | None, high: Tags | None) -> Tags:
    """Limits x to no less than `low` and no more than `high`."""
    bounds = [
        fallback if tags is None else registers.literal_value(without_rows(tags)[1][0])
        for tags, fallback in ((low, -math.inf), (high, math.inf))
    ]
    if bounds[0] is not None and bounds[1] is not None:
        return unary(registers, "clamp", x, (bounds[0], bounds[1]))
    if low is not None:
        x = binary(registers, "maximum", x, low)
    return x if high is None else binary(registers, "minimum", x, high)


def linear(registers: Registers, x: Tags, weight: Tags, bias: Tags | None) -> Tags:
    """x (..., in) times weight (out, in), plus bias."""
    axis, (ids,) = without_rows(x)
    weight_axis, (weight_ids,) = without_rows(weight)
    if axis == x.ndim - 1 or weight_axis is not None:
        raise Unreadable("it multiplies other things than features (B, in) by a weight")
    # a computed bias, or one number for all, becomes a sum of its own
    added = None if bias is None else registers.param(without_rows(bias)[1][0])
    fused = () if added is None or bias is None or bias.shape != weight.shape[:1] else (added,)
    outs = _by_parts(
        ids, lambda part: registers.elements(_linear(registers, part, weight_ids, fused))
    )
    result = with_rows(outs, (*x.shape[:-1], len(weight)), axis)
    return result if bias is None or fused else binary(registers, "add", result, bias)


def _linear(registers: Registers, x: Ids, weight: Ids, bias: tuple[int, ...]) -> int:
    register, size = registers.register(x), len(weight)
    if register in registers.one_hot:
        table = registers.param(weight.T)
        if table is not None:
            index = registers.one_hot[register]
            row = registers.emit("embedding", (index,), (table,), size=size)
            constants = [registers.emit("constant", params=(each,), size=size) for each in bias]
            return registers.emit("add", (row, *constants), size=size) if bias else row
    param = registers.param(weight)
    if param is None:
        raise Unreadable("its weight is computed, or is not in the module's state_dict")
    return registers.emit("linear", (register,), (param, *bias), size=size)


def matmul(registers: Registers, x: Tags, weight: Tags) -> Tags:
    """x (..., in) times weight (in, out) or (in,)."""
    if weight.ndim == 1:
        return linear(registers, x, weight[None], None)[..., 0]
    if weight.ndim != 2:
        raise Unreadable("it multiplies by more than one matrix")
    return linear(registers, x, weight.T, None)


def embedding(registers: Registers, index: Tags, table: Tags) -> Tags:
    """Rows of a table (n, size) for index (...)."""
    axis, (ids,) = without_rows(index)
    param = registers.param(without_rows(table)[1][0])
    if param is None:
        raise Unreadable("its table is computed, or is not in the module's state_dict")

    def row(part: Ids) -> Ids:
        size = table.shape[1]
        return registers.elements(
            registers.emit("embedding", (registers.register(part),), (param,), size=size)
        )

    return with_rows(_by_parts(ids[..., None], row), (*index.shape, table.shape[1]), axis)


def one_hot(registers: Registers, index: Tags, num_classes: int) -> Tags:
    """1 at the place of each index (...), 0 at the others of (..., num_classes)."""
    axis, (ids,) = without_rows(index)
    places = registers.register(registers.literals(np.arange(num_classes)))

    def hot(part: Ids) -> Ids:
        # 1 - |place - index|, or 0 where that is negative
        register, size = registers.register(part), num_classes
        apart = registers.emit("sub", (places, register), size=size)
        other = registers.emit("scale", (apart,), numbers=(-1.0, 0.0), size=size)
        distance = registers.emit("maximum", (apart, other), size=size)
        near = registers.emit("scale", (distance,), numbers=(-1.0, 1.0), size=size)
        result = registers.emit("relu", (near,), size=size)
        registers.one_hot[result] = register
        return registers.elements(result)

    return with_rows(_by_parts(ids[..., None], hot), (*index.shape, num_classes), axis)


def layer_norm(
    registers: Registers,
    x: Tags,
    shape: Shape,
    *,
    weight: Tags | None,
    bias: Tags | None,
    eps: float,
) -> Tags:
    """Normalises the last dimensions, of `shape`, and applies weight and bias."""
    axis, (ids,) = without_rows(x)
    size = math.prod(shape)
    params = [
        None if each is None else registers.param(without_rows(each)[1][0].reshape(-1))
        for each in (weight, bias)
    ]
    both = tuple(param for param in params if param is not None)
    fused = both if len(both) == 2 else ()

    def normal(part: Ids) -> Ids:
        register = registers.register(part)
        return registers.elements(
            registers.emit("layer_norm", (register,), fused, (eps,), size=size)
        )

    result = with_rows(_by_parts(ids.reshape(-1, size), normal), x.shape, axis)
    if not fused:
        result = result if weight is None else binary(registers, "mul", result, weight)
        result = result if bias is None else binary(registers, "add", result, bias)
    return result


def where(registers: Registers, condition: Tags, x: Tags, y: Tags) -> Tags:
    """x where the condition is not 0, else y, broadcast to a common shape."""
    tags = np.broadcast_arrays(condition, x, y)
    axis, ids = without_rows(*tags)
    inputs = tuple(registers.register(each.reshape(-1), whole=False) for each in ids)
    size = max(map(registers.size, inputs))
    out = registers.elements(registers.emit("where", inputs, size=size))
    return with_rows(np.broadcast_to(out, ids[0].size), tags[0].shape, axis)


def _by_parts(ids: Ids, function: Any) -> Ids:
    """Applies `function` to each vector along the last dimension."""
    parts = ids.reshape(-1, ids.shape[-1])
    if len(parts) > _MOST_PARTS:
        raise Unreadable(
            f"it is applied to {len(parts)} parts of each row, expected {_MOST_PARTS} at most"
        )
    return np.concatenate([function(part) for part in parts])


def reduce(registers: Registers, kind: str, x: Tags, dims: Any, keepdim: bool) -> Tags:
    """The sum ("add"), maximum or minimum over dimensions other than the rows."""
    chosen = range(x.ndim) if dims is None else ([dims] if isinstance(dims, int) else dims)
    axes = sorted({dim % x.ndim for dim in chosen})
    rest = [axis for axis in range(x.ndim) if axis not in axes]
    parts = x.transpose(*axes, *rest).reshape(-1, *(x.shape[axis] for axis in rest))
    if without_rows(x)[0] in axes:
        raise Unreadable("it computes with several rows of a batch together")
    if len(parts) > _MOST_PARTS:
        raise Unreadable(f"it takes {len(parts)} numbers together, expected {_MOST_PARTS} at most")
    total = parts[0]
    for part in parts[1:]:
        total = binary(registers, kind, total, part)
    return np.expand_dims(total, tuple(axes)) if keepdim else total


def softmax(registers: Registers, x: Tags, dim: int) -> Tags:
    """exp(x) over its sum, after the maximum is subtracted."""
    top = reduce(registers, "maximum", x, dim, True)
    exps = unary(registers, "exp", binary(registers, "sub", x, top))
    return binary(registers, "div", exps, reduce(registers, "add", exps, dim, True))


def logsumexp(registers: Registers, x: Tags, dim: int, keepdim: bool) -> Tags:
    """The logarithm of the sum of exp(x)."""
    top = reduce(registers, "maximum", x, dim, True)
    exps = unary(registers, "exp", binary(registers, "sub", x, top))
    total = unary(registers, "log", reduce(registers, "add", exps, dim, True))
    total = binary(registers, "add", total, top)
    return total if keepdim else total.squeeze(dim)


def unknown(shape: Shape) -> Tags:
    """Tags of numbers that are no result of an operation."""
    return np.full(shape, UNKNOWN, np.int64)
