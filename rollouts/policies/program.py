# SPDX-License-Identifier: Apache-2.0
"""`Program`: a network as a list of operations on registers, which native code runs without torch.

A register holds `size` float32 features for each row of a batch. Register 0 is the flattened
observation, followed by the memory of the episode, if there is any. Operation i writes register i +
1, and no register is written twice. `rollouts.policies.trace` makes a program from a torch module.
The program does not contain the weights: `parameters_of` reads them from the module's state_dict
whenever they change.

kind          inputs  params                numbers      what is written
linear        x       weight, [bias]                     weight (size, in) @ x + bias (size,)
embedding     index   table (n, size)                    row `index` of the table; index has size 1
constant              array (size,)                      the same in every row
literal                                     size values  the same in every row
layer_norm    x       [gamma, beta]         eps          (x - mean) / sqrt(var + eps) of all
                                                         features, times gamma, plus beta
concat        x, ...                                     one after the other
slice         x                             start        x[start : start + size]
add, sub, mul, div, minimum, maximum
              x, y                                       equal sizes, or one of size 1
greater, greater_equal, equal
              x, y                                       1 where it holds, else 0; sizes as above
where         c, x, y                                    c is not 0 ? x : y; sizes as above
clamp         x                             low, high    infinite where there is no bound
scale         x                             a, b         a * x + b
elu           x                             alpha        x > 0 ? x : alpha * (exp(x) - 1)
leaky_relu    x                             slope        x > 0 ? x : slope * x
detach        x                                          x, through which no gradient goes
tanh, relu, sigmoid, silu, gelu, gelu_tanh, softplus, exp, log, sqrt, square
              x                                          of each feature; gelu_tanh is gelu's
                                                         approximation

Values that depend only on parameters and literals are equal in every row: they may be computed once
for each new set of weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import DTypeLike, NDArray

from rollouts.errors import SpecError

Array = NDArray[Any]
# float32, unless a program is evaluated in float64
Floats = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Param:
    """An array that an operation reads: one of the state_dict, or evenly spaced elements of it.

    Attributes:
      name: Key of the state_dict.
      shape: Shape of the array that the operation reads.
      source_shape: Shape of the array in the state_dict.
      start, strides: Element (i, j) is number start + i * strides[0] + j * strides[1] of the
        flattened source, so that a transposed weight or a part of one can be read.
    """

    name: str
    shape: tuple[int, ...]
    source_shape: tuple[int, ...]
    start: int
    strides: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def places(self) -> Array:
        """The number of each element in the flattened source, (size,)."""
        places: Array = np.asarray(self.start)
        for count, stride in zip(self.shape, self.strides, strict=True):
            places = np.add.outer(places, np.arange(count) * stride)
        return places.ravel()


@dataclass(frozen=True, slots=True)
class Op:
    """One operation; see the module's docstring for the kinds.

    Attributes:
      inputs: Registers.
      params: Indices into Program.params.
      size: Features of the register that it writes.
    """

    kind: str
    inputs: tuple[int, ...] = ()
    params: tuple[int, ...] = ()
    numbers: tuple[float, ...] = ()
    size: int = 0


@dataclass(frozen=True, slots=True)
class Program:
    """Operations that map observations to the results of a module's forward.

    Attributes:
      obs_size: Features of an observation.
      ops: Operation i writes register i + 1.
      outputs: Registers of forward's results, in that order. Register 0 stands for the observation
        itself, and one register may occur twice. The last ones are the new states.
      state_sizes: Features of each state, for a module with memory.
    """

    obs_size: int
    ops: tuple[Op, ...]
    params: tuple[Param, ...]
    outputs: tuple[int, ...]
    state_sizes: tuple[int, ...] = ()

    @property
    def sizes(self) -> tuple[int, ...]:
        """Features of each register."""
        return (self.obs_size + sum(self.state_sizes), *(op.size for op in self.ops))

    def params_of(self, outputs: Sequence[int]) -> set[int]:
        """Indices of the parameters that these registers depend on."""
        needed, found = set(outputs), set[int]()
        for place in reversed(range(len(self.ops))):
            if place + 1 in needed:
                needed.update(self.ops[place].inputs)
                found.update(self.ops[place].params)
        return found

    def without_detach(self) -> Program:
        """The program without the operations that matter for gradients alone; it only acts."""
        place, ops = [0], list[Op]()
        for op in self.ops:
            inputs = tuple(place[i] for i in op.inputs)
            if op.kind == "detach":
                place.append(inputs[0])
                continue
            ops.append(replace(op, inputs=inputs))
            place.append(len(ops))
        return replace(self, ops=tuple(ops), outputs=tuple(place[i] for i in self.outputs))

    def described(self) -> tuple[list[tuple[Any, ...]], list[tuple[str, int]]]:
        """The operations, and the names and sizes of the parameters, in the form of native code."""
        return (
            [(op.kind, op.inputs, op.params, op.numbers, op.size) for op in self.ops],
            [(param.name, param.size) for param in self.params],
        )

    def evaluate(
        self, params: Sequence[Array], obs: Array, dtype: DTypeLike = np.float32
    ) -> tuple[Floats, ...]:
        """Computes the outputs (B, size) in NumPy, slow and plain, as a reference for comparisons.

        Args:
          params: What `parameters_of` returns.
          obs     (B, obs_size) or (B, *obs_shape); with states (B, obs_size + sum(state_sizes))
          dtype: float64, compared with float32, shows the effect of rounding.
        """
        registers: list[Floats] = [obs.reshape(len(obs), self.sizes[0]).astype(dtype)]
        with np.errstate(all="ignore"):
            for op in self.ops:
                inputs = [registers[i] for i in op.inputs]
                arrays = [params[i] for i in op.params]
                value = _FUNCTIONS[op.kind](op, inputs, arrays)
                registers.append(np.broadcast_to(value, (len(obs), op.size)).astype(dtype))
        return tuple(registers[i] for i in self.outputs)


def parameters_of(program: Program, state: Mapping[str, Array]) -> list[Floats]:
    """Returns the arrays of `program.params`, float32 and C-contiguous, from those of a state_dict.

    Arrays that have this form already are not copied.

    Raises:
      SpecError: A name is missing, or a shape differs, or a value is NaN or infinite.
    """
    return [_parameter(param, state) for param in program.params]


def _parameter(param: Param, state: Mapping[str, Array]) -> Floats:
    if param.name not in state:
        known = ", ".join(list(state)[:8])
        raise SpecError(
            f"parameter {param.name!r} is missing, expected the state_dict of the module that was "
            f"read, got {known or 'an empty one'}"
        )
    source = np.asarray(state[param.name])
    if source.shape != param.source_shape:
        raise SpecError(
            f"parameter {param.name!r} has shape {source.shape}, expected {param.source_shape} as "
            "when the module was read: make a new policy of a module of other shapes"
        )
    flat = np.ascontiguousarray(source, np.float32).reshape(-1)
    if not np.isfinite(flat).all():
        raise SpecError(
            f"parameter {param.name!r} has a value that is nan or infinite: has the training "
            "diverged? Lower the learning rate, or look at the gradients"
        )
    strides = tuple(stride * flat.itemsize for stride in param.strides)
    return np.ascontiguousarray(as_strided(flat[param.start :], param.shape, strides))


Function = Callable[[Op, list[Floats], Sequence[Array]], Array]


def _of_each(function: Callable[[Floats], Array]) -> Function:
    return lambda op, inputs, arrays: function(inputs[0])


def _of_two(function: Callable[[Floats, Floats], Array]) -> Function:
    return lambda op, inputs, arrays: function(*inputs)


def _layer_norm(op: Op, inputs: list[Floats], arrays: Sequence[Array]) -> Array:
    x = inputs[0]
    centred = x - x.mean(1, keepdims=True)
    normal: Array = centred / np.sqrt(
        (centred**2).mean(1, keepdims=True) + np.float32(op.numbers[0])
    )
    return normal * arrays[0] + arrays[1] if arrays else normal


def _linear(op: Op, inputs: list[Floats], arrays: Sequence[Array]) -> Array:
    product: Array = inputs[0] @ arrays[0].T
    return product + arrays[1] if len(arrays) == 2 else product


def _slice(op: Op, inputs: list[Floats], arrays: Sequence[Array]) -> Array:
    start = int(op.numbers[0])
    return inputs[0][:, start : start + op.size]


def _sigmoid(x: Floats) -> Array:
    result: Array = 0.5 * (1 + np.tanh(0.5 * x))
    return result


def _gelu(x: Floats) -> Array:
    erf = np.vectorize(math.erf, otypes=[np.float64])
    result: Array = 0.5 * x * (1 + erf(x / math.sqrt(2)))
    return result


def _gelu_tanh(x: Floats) -> Array:
    result: Array = 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return result


# torch has functions of these names too, which `trace` reads under the same names
_OF_EACH: dict[str, Callable[[Floats], Array]] = {
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": _sigmoid,
    "silu": lambda x: x * _sigmoid(x),
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "softplus": lambda x: np.logaddexp(x, np.float32(0)),
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "square": np.square,
}
_FUNCTIONS: dict[str, Function] = {
    "linear": _linear,
    "embedding": lambda op, inputs, arrays: arrays[0][inputs[0][:, 0].astype(np.intp)],
    "constant": lambda op, inputs, arrays: arrays[0][None],
    "literal": lambda op, inputs, arrays: np.array([op.numbers], np.float32),
    "layer_norm": _layer_norm,
    "concat": lambda op, inputs, arrays: np.concatenate(inputs, 1),
    "slice": _slice,
    "add": _of_two(np.add),
    "sub": _of_two(np.subtract),
    "mul": _of_two(np.multiply),
    "div": _of_two(np.divide),
    "minimum": _of_two(np.minimum),
    "maximum": _of_two(np.maximum),
    "greater": _of_two(np.greater),
    "greater_equal": _of_two(np.greater_equal),
    "equal": _of_two(np.equal),
    "where": lambda op, inputs, arrays: np.where(inputs[0] != 0, inputs[1], inputs[2]),
    "detach": _of_each(np.copy),
    "clamp": lambda op, inputs, arrays: np.clip(inputs[0], op.numbers[0], op.numbers[1]),
    "scale": lambda op, inputs, arrays: op.numbers[0] * inputs[0] + op.numbers[1],
    "elu": lambda op, inputs, arrays: np.where(
        inputs[0] > 0, inputs[0], op.numbers[0] * np.expm1(inputs[0])
    ),
    "leaky_relu": lambda op, inputs, arrays: np.where(
        inputs[0] > 0, inputs[0], op.numbers[0] * inputs[0]
    ),
    **{kind: _of_each(function) for kind, function in _OF_EACH.items()},
}
KINDS = frozenset(_FUNCTIONS)
KINDS_OF_EACH = frozenset(_OF_EACH)  # one feature in, one out, no numbers
