# SPDX-License-Identifier: Apache-2.0
"""Tables of torch functions, by their names without underscores at the ends.

`ARITHMETIC` has functions that compute, each as a function from a `FunctionCall` to the tags of the
result. `MOVES` has functions that copy numbers to other places. Views need neither, see
storage_tags.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rollouts.policies.program import KINDS_OF_EACH
from rollouts.policies.tracing import arithmetic as ops
from rollouts.policies.tracing.call import FunctionCall
from rollouts.policies.tracing.cells import CELLS
from rollouts.policies.tracing.choices import CHOICES, TRUTHS, truth
from rollouts.policies.tracing.registers import Tags, Unreadable
from rollouts.policies.tracing.storage_tags import tensors


def _each(kind: str) -> Callable[[FunctionCall], Tags]:
    return lambda call: call.unary(kind, call.first)


def _pair(kind: str) -> Callable[[FunctionCall], Tags]:
    def compute(call: FunctionCall) -> Tags:
        other, alpha = call.tags(1, "other"), call.value(2, "alpha", 1)
        if alpha != 1:
            other = call.binary("mul", other, alpha)
        return call.binary(kind, call.first, other)

    return compute


def _div(call: FunctionCall) -> Tags:
    if call.value(2, "rounding_mode") is not None:
        raise Unreadable("it rounds to whole numbers")
    return call.binary("div", call.first, call.tags(1, "other"))


def _abs(call: FunctionCall, x: Tags) -> Tags:
    return call.binary("maximum", x, call.binary("mul", x, -1.0))


def _pow(call: FunctionCall) -> Tags:
    x, exponent = call.first, call.value(1, "exponent")
    if exponent == 1:
        return x
    if exponent == 2:
        return call.unary("square", x)
    if exponent == 3:
        return call.binary("mul", call.unary("square", x), x)
    if exponent in (0.5, -0.5, -1):
        root = x if exponent == -1 else call.unary("sqrt", x)
        return root if exponent > 0 else call.binary("div", call.number(1.0), root)
    raise Unreadable(f"its exponent is {exponent}, known are -1, -0.5, 0.5, 1, 2 and 3")


def _gelu(call: FunctionCall) -> Tags:
    approximate = call.value(1, "approximate", "none")
    return call.unary("gelu" if approximate == "none" else "gelu_tanh", call.first)


def _softplus(call: FunctionCall) -> Tags:
    beta = float(call.value(1, "beta", 1.0))
    # above `threshold`, torch passes x on, which differs by less than rounding
    soft = call.unary("softplus", call.binary("mul", call.first, beta) if beta != 1 else call.first)
    return call.binary("mul", soft, 1 / beta) if beta != 1 else soft


def _celu(call: FunctionCall) -> Tags:
    alpha = float(call.value(1, "alpha", 1.0))
    return call.binary(
        "mul", call.unary("elu", call.binary("mul", call.first, 1 / alpha), 1.0), alpha
    )


def _selu(call: FunctionCall) -> Tags:
    alpha, scale = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
    return call.binary("mul", call.unary("elu", call.first, alpha), scale)


def _prelu(call: FunctionCall) -> Tags:
    x, slope = call.first, call.tags(1, "weight")
    below = call.binary("mul", call.binary("minimum", x, 0.0), slope)
    return call.binary("add", call.unary("relu", x), below)


def _clamp(low: tuple[int, str], high: tuple[int, str]) -> Callable[[FunctionCall], Tags]:
    def compute(call: FunctionCall) -> Tags:
        bounds = call.tags_or_none(*low), call.tags_or_none(*high)
        return ops.clamp(call.registers, call.first, *bounds)

    return compute


def _hardtanh(call: FunctionCall) -> Tags:
    return _within(call, call.value(1, "min_val", -1.0), call.value(2, "max_val", 1.0))


def _within(call: FunctionCall, low: float, high: float) -> Tags:
    """As a clamp, but the slope is 0 at the bounds, too."""
    x = call.first
    least = ops.where(
        call.registers, call.binary("greater_equal", call.number(low), x), call.number(low), x
    )
    return ops.where(
        call.registers, call.binary("greater_equal", least, high), call.number(high), least
    )


def _hardsigmoid(call: FunctionCall, x: Tags) -> Tags:
    return call.binary("mul", call.unary("clamp", call.binary("add", x, 3.0), 0.0, 6.0), 1 / 6)


def _softsign(call: FunctionCall) -> Tags:
    below = call.binary("add", _abs(call, call.first), 1.0)
    return call.binary("div", call.first, below)


def _logsigmoid(call: FunctionCall) -> Tags:
    return call.binary("mul", call.unary("softplus", call.binary("mul", call.first, -1.0)), -1.0)


def _mish(call: FunctionCall) -> Tags:
    return call.binary("mul", call.first, call.unary("tanh", call.unary("softplus", call.first)))


def _addcmul(kind: str) -> Callable[[FunctionCall], Tags]:
    def compute(call: FunctionCall) -> Tags:
        product = call.binary(kind, call.tags(1, "tensor1"), call.tags(2, "tensor2"))
        value = call.value(3, "value", 1)
        return call.binary("add", call.first, call.binary("mul", product, value))

    return compute


def _linear(call: FunctionCall) -> Tags:
    bias = call.tags_or_none(2, "bias")
    return ops.linear(call.registers, call.first, call.tags(1, "weight"), bias)


def _matmul(call: FunctionCall) -> Tags:
    names = [name for name in ("other", "mat2", "vec") if name in call.kwargs]
    return ops.matmul(call.registers, call.first, call.tags(1, names[0] if names else "other"))


def _addmm(call: FunctionCall) -> Tags:
    if (call.kwargs.get("beta", 1), call.kwargs.get("alpha", 1)) != (1, 1):
        raise Unreadable("it has an alpha or a beta")
    product = ops.matmul(call.registers, call.tags(1, "mat1"), call.tags(2, "mat2"))
    return call.binary("add", product, call.first)


def _layer_norm(call: FunctionCall) -> Tags:
    return ops.layer_norm(
        call.registers,
        call.first,
        tuple(call.value(1, "normalized_shape")),
        weight=call.tags_or_none(2, "weight"),
        bias=call.tags_or_none(3, "bias"),
        eps=float(call.value(4, "eps", 1e-5)),
    )


def _batch_norm(call: FunctionCall) -> Tags:
    x, mean, var = call.first, call.tags(1, "running_mean"), call.tags(2, "running_var")
    if x.ndim != 2:
        raise Unreadable("it normalises other things than features (B, size)")
    deviation = call.unary("sqrt", call.binary("add", var, float(call.value(7, "eps", 1e-5))))
    normal = call.binary("div", call.binary("sub", x, mean), deviation)
    weight, bias = call.tags_or_none(3, "weight"), call.tags_or_none(4, "bias")
    normal = normal if weight is None else call.binary("mul", normal, weight)
    return normal if bias is None else call.binary("add", normal, bias)


def _embedding(call: FunctionCall) -> Tags:
    if call.value(3, "max_norm") is not None:
        raise Unreadable("it has a max_norm")
    return ops.embedding(call.registers, call.first, call.tags(1, "weight"))


def _one_hot(call: FunctionCall) -> Tags:
    num_classes = call.value(1, "num_classes", -1)
    if num_classes < 1:
        raise Unreadable("it takes the number of classes from the numbers themselves")
    return ops.one_hot(call.registers, call.first, num_classes)


def _total(kind: str, *, mean: bool = False) -> Callable[[FunctionCall], Tags]:
    def compute(call: FunctionCall) -> Tags:
        x, dims = call.first, call.value(1, "dim", call.kwargs.get("axis"))
        result = ops.reduce(call.registers, kind, x, dims, call.value(2, "keepdim", False))
        return call.binary("mul", result, result.size / x.size) if mean else result

    return compute


def _extremum(kind: str) -> Callable[[FunctionCall], Tags | tuple[Tags, Tags]]:
    def compute(call: FunctionCall) -> Tags | tuple[Tags, Tags]:
        if isinstance(call.value(1, "other"), Tensor):
            return call.binary(kind, call.first, call.tags(1, "other"))
        dim = call.value(1, "dim")
        result = ops.reduce(call.registers, kind, call.first, dim, call.value(2, "keepdim", False))
        return result if dim is None else (result, ops.unknown(result.shape))

    return compute


def _softmax(call: FunctionCall) -> Tags:
    return ops.softmax(call.registers, call.first, call.value(1, "dim"))


def _log_softmax(call: FunctionCall) -> Tags:
    total = ops.logsumexp(call.registers, call.first, call.value(1, "dim"), True)
    return call.binary("sub", call.first, total)


def _logsumexp(call: FunctionCall) -> Tags:
    dim, keepdim = call.value(1, "dim"), call.value(2, "keepdim", False)
    return ops.logsumexp(call.registers, call.first, dim, keepdim)


def _copied(call: FunctionCall) -> Tags:
    return np.broadcast_to(call.tags(1, "src"), call.first.shape)


ARITHMETIC: dict[str, Callable[[FunctionCall], Tags | tuple[Tags, ...]]] = {
    **CELLS,
    **TRUTHS,
    **CHOICES,
    **{kind: _each(kind) for kind in KINDS_OF_EACH},
    "special_expit": _each("sigmoid"),
    "add": _pair("add"),
    "sub": _pair("sub"),
    "subtract": _pair("sub"),
    "mul": _pair("mul"),
    "multiply": _pair("mul"),
    "rsub": lambda call: call.binary("sub", call.tags(1, "other"), call.first),
    "div": _div,
    "divide": _div,
    "true_divide": _div,
    "rdiv": lambda call: call.binary("div", call.tags(1, "other"), call.first),
    "minimum": _pair("minimum"),
    "maximum": _pair("maximum"),
    "neg": lambda call: call.binary("mul", call.first, -1.0),
    "negative": lambda call: call.binary("mul", call.first, -1.0),
    "abs": lambda call: _abs(call, call.first),
    "reciprocal": lambda call: call.binary("div", call.number(1.0), call.first),
    "rsqrt": lambda call: call.binary("div", call.number(1.0), call.unary("sqrt", call.first)),
    "log1p": lambda call: call.unary("log", call.binary("add", call.first, 1.0)),
    "expm1": lambda call: call.binary("sub", call.unary("exp", call.first), 1.0),
    "exp2": lambda call: call.unary("exp", call.binary("mul", call.first, math.log(2))),
    "pow": _pow,
    "addcmul": _addcmul("mul"),
    "addcdiv": _addcmul("div"),
    "gelu": _gelu,
    "softplus": _softplus,
    "elu": lambda call: call.unary("elu", call.first, call.value(1, "alpha", 1.0)),
    "leaky_relu": lambda call: call.unary(
        "leaky_relu", call.first, call.value(1, "negative_slope", 0.01)
    ),
    "celu": _celu,
    "selu": _selu,
    "prelu": _prelu,
    "hardtanh": _hardtanh,
    "relu6": lambda call: _within(call, 0.0, 6.0),
    "hardsigmoid": lambda call: _hardsigmoid(call, call.first),
    "hardswish": lambda call: call.binary("mul", call.first, _hardsigmoid(call, call.first)),
    "softsign": _softsign,
    "log_sigmoid": _logsigmoid,
    "mish": _mish,
    "clamp": _clamp((1, "min"), (2, "max")),
    "clip": _clamp((1, "min"), (2, "max")),
    "clamp_min": _clamp((1, "min"), (9, "")),
    "clamp_max": _clamp((9, ""), (1, "max")),
    "linear": _linear,
    "matmul": _matmul,
    "mm": _matmul,
    "mv": _matmul,
    "addmm": _addmm,
    "layer_norm": _layer_norm,
    "batch_norm": _batch_norm,
    "embedding": _embedding,
    "one_hot": _one_hot,
    "sum": _total("add"),
    "mean": _total("add", mean=True),
    "amax": _total("maximum"),
    "amin": _total("minimum"),
    "max": _extremum("maximum"),
    "min": _extremum("minimum"),
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "logsumexp": _logsumexp,
    "fill": lambda call: np.broadcast_to(call.tags(1, "value"), call.first.shape),
    "zero": lambda call: np.broadcast_to(call.number(0.0), call.first.shape),
}

# these copy all of their tensors; other functions copy the first one, by their other arguments
_JOINS = {"cat", "concat", "concatenate", "stack", "hstack", "vstack", "dstack", "column_stack"}
_PLACES = {
    *("flatten", "reshape", "ravel", "contiguous", "clone", "repeat", "tile", "flip", "fliplr"),
    *("roll", "getitem", "index_select", "take_along_dim", "repeat_interleave", "expand"),
    *("broadcast_to", "permute", "transpose", "movedim", "unflatten", "narrow"),
}
_CASTS = {"float", "double", "to", "type", "type_as", "as_tensor", "asarray", "tensor"}
_CASTS |= {"long", "int", "cpu", "cuda", "detach", "alias"}


# names of the first argument
_FIRST = ("input", "self")


def _joined(call: FunctionCall) -> Tags:
    def as_tags(value: Any) -> Any:
        if isinstance(value, Tensor):
            return torch.from_numpy(np.array(call.memory.read(value)))
        return [as_tags(each) for each in value] if isinstance(value, list | tuple) else value

    kwargs = {name: as_tags(value) for name, value in call.kwargs.items()}
    tags: Tags = call.function(*map(as_tags, call.args), **kwargs).numpy()
    return tags


def _placed(call: FunctionCall) -> Tags:
    rest = [*call.args[1:], *(v for name, v in call.kwargs.items() if name not in _FIRST)]
    if any(call.memory.holds(each) for each in tensors(rest)):
        index = rest[0]
        is_number = isinstance(index, Tensor) and index.dtype != torch.bool
        if call.function.__name__ == "__getitem__" and is_number:
            return ops.embedding(call.registers, call.memory.read(index), call.first)
        raise Unreadable("which numbers it takes depends on others")
    args = [torch.from_numpy(np.array(call.first)), *call.args[1:]]
    kwargs = {name: v for name, v in call.kwargs.items() if name not in _FIRST}
    tags: Tags = call.function(*args, **kwargs).numpy()
    return tags


def _cast(call: FunctionCall) -> Tags:
    if any(each is torch.bool for each in (*call.args[1:], *call.kwargs.values())):
        return truth(call, call.value(0, "data", call.kwargs.get("self")))
    return call.tags(0, "data") if "data" in call.kwargs else call.first


MOVES: dict[str, Callable[[FunctionCall], Tags]] = {
    **dict.fromkeys(_JOINS, _joined),
    **dict.fromkeys(_PLACES, _placed),
    **dict.fromkeys(_CASTS, _cast),
    "copy": _copied,
}
