# SPDX-License-Identifier: Apache-2.0
"""`Registers`, a program in progress, and its numbers for elements of tensors.

Each feature of a register, each element of a parameter and each literal has a number, its
*element*. A tensor of a forward pass is described by *tags*, an int64 array of its shape: the tag
of a number that belongs to one row of the batch is `32 * element + row + 1`; the tag of a number
that all rows share is `32 * element`. To follow reshaping, indexing, splitting and joining, tags
are moved as torch moves the numbers; registers are made only for numbers that an operation reads.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollouts.policies.program import Op, Param, Program

Tags = NDArray[np.int64]
Ids = NDArray[np.int64]

# rows of the batch that is traced; few layers have this number of features, so that a literal
# (rows,) for each row is not mistaken for a vector of features
ROWS = 29
_BITS = 5
ROW_BITS = (1 << _BITS) - 1
# elements from here on are literals
_LITERALS = 1 << 40
# the tag of a number that is no element of a register, such as the place of a maximum
UNKNOWN = -1
# the most pieces of a register: more arise only from transposed images, which no network of layers
# needs
_MOST_PIECES = 1024


class Unreadable(Exception):
    """Raised where no native operation expresses what a module does; the message names it."""


@dataclass(frozen=True, slots=True)
class _Source:
    """A register, or a parameter of `shape`, whose elements begin at `first`."""

    first: int
    size: int
    register: int
    name: str = ""
    shape: tuple[int, ...] = ()


@dataclass(slots=True)
class Registers:
    """The operations so far, and the elements of all registers, parameters and literals."""

    obs_size: int
    # sizes of states, which follow the observation in register 0
    state_sizes: tuple[int, ...] = ()
    _ops: list[Op] = field(default_factory=list)
    _params: list[Param] = field(default_factory=list)
    _sources: list[_Source] = field(default_factory=list)
    _firsts: list[int] = field(default_factory=list)
    _of_register: dict[int, _Source] = field(default_factory=dict)
    _literals: dict[bytes, int] = field(default_factory=dict)
    _literal_values: list[float] = field(default_factory=list)
    _made: dict[Op, int] = field(default_factory=dict)
    # registers with a one-hot vector, by the register of its index
    one_hot: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._add_source(self.obs_size + sum(self.state_sizes), register=0)

    def add_parameter(self, name: str, shape: tuple[int, ...]) -> int:
        """Returns the element of the first number of an array of the state_dict."""
        return self._add_source(int(np.prod(shape)), register=-1, name=name, shape=shape).first

    def literals(self, values: NDArray[Any]) -> Ids:
        """The elements of numbers that do not depend on the weights."""
        values = np.asarray(values, np.float32)
        flat = values.reshape(-1)
        distinct, places = np.unique(flat.view(np.int32), return_inverse=True)
        ids = [self._literal(value) for value in distinct.view(np.float32)]
        return np.array(ids, np.int64)[places].reshape(values.shape)

    def literal_value(self, ids: Ids) -> float | None:
        """The number of the literal that all `ids` refer to; None if there is no such literal."""
        first = int(ids.flat[0])
        if first < _LITERALS or not (ids == first).all():
            return None
        return self._literal_values[first - _LITERALS]

    def emit(
        self,
        kind: str,
        inputs: tuple[int, ...] = (),
        params: tuple[int, ...] = (),
        numbers: tuple[float, ...] = (),
        *,
        size: int,
    ) -> int:
        """Returns the register that an operation writes; an equal operation is not repeated."""
        before = self.op_of(inputs[0]) if kind == "log" else None
        if before is not None and before.kind == "exp":  # a log_std that was given as a std
            return before.inputs[0]
        op = Op(kind, inputs, params, numbers, size)
        if op not in self._made:
            self._ops.append(op)
            self._made[op] = len(self._ops)
            self._add_source(size, register=len(self._ops))
        return self._made[op]

    def op_of(self, register: int) -> Op | None:
        """The operation that writes a register; None for the observation."""
        return self._ops[register - 1] if register else None

    def size(self, register: int) -> int:
        """Features of the register."""
        return self._of_register[register].size

    def elements(self, register: int) -> Ids:
        """The elements (size,) of a register."""
        source = self._of_register[register]
        return np.arange(source.first, source.first + source.size)

    def param(self, ids: Ids) -> int | None:
        """Index of the parameter with elements `ids`; None if they belong to no one parameter."""
        if not ids.size or ids.min() < 0 or ids.max() >= _LITERALS:
            return None
        source = self._source_of(int(ids.flat[0]))
        if source.register >= 0:
            return None
        start = int(ids.flat[0]) - source.first
        strides = tuple(
            int(np.take(ids, 1, axis).flat[0]) - int(ids.flat[0]) if n > 1 else 0
            for axis, n in enumerate(ids.shape)
        )
        grid = np.ix_(
            *(stride * np.arange(n) for stride, n in zip(strides, ids.shape, strict=True))
        )
        if min(strides, default=0) < 0 or ids.max() >= source.first + source.size:
            return None
        if not np.array_equal(ids - ids.flat[0], sum(grid)):
            return None
        param = Param(source.name, ids.shape, source.shape, start, strides)
        if param not in self._params:
            self._params.append(param)
        return self._params.index(param)

    def register(self, ids: Ids, *, whole: bool = True) -> int:
        """The register with features `ids` (n,): an existing one, or one made from parts of others.

        Args:
          whole: False allows a register of size 1 if all elements are the same.
        """
        if ids.size > 1 and ids[0] < _LITERALS and (ids == ids[0]).all():
            single = self.register(ids[:1])
            if not whole:
                return single
            zeros = self.emit("literal", numbers=(0.0,) * ids.size, size=ids.size)
            return self.emit("add", (zeros, single), size=ids.size)
        pieces = [self._piece(piece) for piece in self._pieces(ids)]
        return pieces[0] if len(pieces) == 1 else self.emit("concat", (*pieces,), size=ids.size)

    def program(self, outputs: list[int]) -> Program:
        """The program of all operations on which the outputs depend."""
        live, todo = set[int](), list(outputs)
        while todo:
            register = todo.pop()
            if register and register not in live:
                live.add(register)
                todo.extend(self._ops[register - 1].inputs)
        place = {0: 0} | {register: i for i, register in enumerate(sorted(live), 1)}
        ops = [self._ops[register - 1] for register in sorted(live)]
        used = list(dict.fromkeys(param for op in ops for param in op.params))
        return Program(
            self.obs_size,
            tuple(
                Op(
                    op.kind,
                    tuple(place[i] for i in op.inputs),
                    tuple(used.index(i) for i in op.params),
                    op.numbers,
                    op.size,
                )
                for op in ops
            ),
            tuple(self._params[i] for i in used),
            tuple(place[register] for register in outputs),
            self.state_sizes,
        )

    def _add_source(
        self, size: int, register: int, name: str = "", shape: tuple[int, ...] = ()
    ) -> _Source:
        last = self._sources[-1] if self._sources else _Source(0, 0, 0)
        source = _Source(last.first + last.size, size, register, name, shape)
        self._sources.append(source)
        self._firsts.append(source.first)
        if register >= 0:
            self._of_register[register] = source
        return source

    def _source_of(self, element: int) -> _Source:
        return self._sources[int(np.searchsorted(self._firsts, element, "right")) - 1]

    def _literal(self, value: np.float32) -> int:
        key = value.tobytes()
        if key not in self._literals:
            self._literals[key] = _LITERALS + len(self._literal_values)
            self._literal_values.append(float(value))
        return self._literals[key]

    def _pieces(self, ids: Ids) -> list[Ids]:
        """Cuts `ids` where they are no longer consecutive elements of one source."""
        if (ids < 0).any():
            raise Unreadable("it uses where a maximum or minimum is")
        sources = np.searchsorted(self._firsts, ids, "right")
        literal = ids >= _LITERALS
        sources[literal] = -1
        apart = (np.diff(ids) != 1) & ~literal[1:]
        cuts = np.flatnonzero((np.diff(sources) != 0) | apart) + 1
        if len(cuts) >= _MOST_PIECES:
            raise Unreadable(f"it moves {len(cuts) + 1} groups of features about")
        return np.split(ids, cuts)

    def _piece(self, ids: Ids) -> int:
        if ids[0] >= _LITERALS:
            numbers = tuple(self._literal_values[i - _LITERALS] for i in ids.tolist())
            return self.emit("literal", numbers=numbers, size=len(numbers))
        source = self._source_of(int(ids[0]))
        start = int(ids[0]) - source.first
        register = source.register if source.register >= 0 else self._constant(source)
        if len(ids) == source.size:
            return register
        return self.emit("slice", (register,), numbers=(float(start),), size=len(ids))

    def _constant(self, source: _Source) -> int:
        param = self.param(np.arange(source.first, source.first + source.size))
        assert param is not None
        return self.emit("constant", params=(param,), size=source.size)


def with_rows(ids: Ids, shape: tuple[int, ...], axis: int | None) -> Tags:
    """Tags of a tensor of `shape`, in which `ids` are the elements of one row along `axis`."""
    if axis is None:
        return np.asarray(ids.reshape(shape) << _BITS)
    rows = np.arange(1, ROWS + 1).reshape(-1, *[1] * (len(shape) - 1 - axis))
    one = ids.reshape(*shape[:axis], 1, *shape[axis + 1 :])
    return np.broadcast_to(one << _BITS, shape) + rows


def without_rows(*tags: Tags) -> tuple[int | None, list[Ids]]:
    """The common axis of rows of tags of one shape, and the elements of one row.

    Returns:
      axis: None where all rows share the numbers and there is no dimension of rows.
      ids: The elements of each operand, without that axis.
    """
    if min(int(each.min(initial=0)) for each in tags) < 0:
        raise Unreadable("it uses where a maximum or minimum is")
    rows = [each & ROW_BITS for each in tags]
    ids = [each >> _BITS for each in tags]
    are_shared = not any(each.any() for each in rows)
    # numbers that all rows share may be repeated for each row, along the first dimension
    axes = range(min(1, tags[0].ndim)) if are_shared else range(tags[0].ndim)
    for axis in axes:
        own = np.arange(1, ROWS + 1).reshape(-1, *[1] * (tags[0].ndim - 1 - axis))
        if tags[0].shape[axis] != ROWS or not all(
            ((each == 0) | (each == own)).all() for each in rows
        ):
            continue
        first = [np.take(each, [0], axis) for each in ids]
        if all((each == one).all() for each, one in zip(ids, first, strict=True)):
            return axis, [one.squeeze(axis) for one in first]
    if are_shared:
        return None, ids
    raise Unreadable("it computes with several rows of a batch together")
