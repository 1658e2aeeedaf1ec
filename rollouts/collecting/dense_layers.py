# SPDX-License-Identifier: Apache-2.0
"""`DenseLayers`: a network of linear layers in the form that tensor cores compute, in bfloat16."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from rollouts.envs.kernel.policy_launch import DenseLayerArgs, OutputPlace
from rollouts.errors import SpecError
from rollouts.policies.program import Array, Op, Program

BLOCK = 32  # features, as kDenseBlock of dense_forward.h
MOST_FEATURES = 256  # most inputs of a layer, which lie in registers
ROWS = 16  # rows of a warp
_BLOCK_BYTES = 1024  # 16 rows of 32 features
ACTIVATIONS = ("none", "tanh", "relu")  # as DenseActivation of policy_launch.h
_CONSTANTS = ("constant", "literal")
_REFUSED = "policy_dtype='bfloat16' computes linear layers with tanh or ReLU between them, and "
_INSTEAD = "; leave policy_dtype out"


@dataclass(slots=True)
class _Layer:
    """A linear layer with the activation after it, or numbers that are the same in every row.

    Attributes:
      op: The program's operation, which names the layer's parameters.
      reads: The register of its inputs; -1: it has none.
      writes: The register of its result.
      activation: One of ACTIVATIONS.
      output_row: Its first row in the network's outputs; -1: other layers read its result.
      place, read_place: Numbers of the places of hidden features that it writes and reads.
    """

    op: Op
    reads: int
    writes: int
    activation: str = "none"
    output_row: int = -1
    place: int = -1
    read_place: int = 0


@dataclass(slots=True)
class DenseLayers:
    """The layers of a program, in the order in which a kernel computes them.

    Attributes:
      outputs: The rows of each output of the program.
      num_outputs: Rows of all outputs.
      hidden_blocks: Blocks of features in each place of hidden features.
      num_places: Places of hidden features; a layer may write the place that it reads.
    """

    program: Program
    outputs: list[OutputPlace] = field(default_factory=list)
    num_outputs: int = 0
    hidden_blocks: int = 0
    num_places: int = 1
    _layers: list[_Layer] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Raises SpecError where the program has other layers, or larger ones."""
        if self.program.state_sizes:
            raise SpecError(f"{_REFUSED}the module has memory{_INSTEAD}")
        self._layers = _layers_of(self.program)
        self._place_outputs()
        self._place_hidden()
        read = [_blocks(self._num_inputs(one)) for one in self._layers]
        written = [_blocks(one.op.size) for one in self._layers if one.output_row < 0]
        self.hidden_blocks = max([*read, *written])

    def warp_bytes(self, num_room: int) -> int:
        """Bytes of a warp's memory, if choosing a row's action takes `num_room` numbers."""
        hidden = self.num_places * self.hidden_blocks * _BLOCK_BYTES
        return 4 * ROWS * self.num_outputs + max(hidden, 4 * ROWS * num_room)

    def args(self) -> bytes:
        """The layers as the bytes that a kernel reads."""
        args = [
            DenseLayerArgs(
                reads_obs=one.reads == 0,
                input=one.read_place,
                in_blocks=_blocks(self._num_inputs(one)),
                out_blocks=_blocks(one.op.size),
                output=-1 if one.output_row >= 0 else one.place,
                output_row=max(one.output_row, 0),
                size=one.op.size,
                activation=ACTIVATIONS.index(one.activation),
            )
            for one in self._layers
        ]
        return b"".join(bytes(one) for one in args)

    def __len__(self) -> int:
        """Number of layers."""
        return len(self._layers)

    def pack(self, params: Sequence[Array]) -> list[Array]:
        """Returns weights and biases in the order in which a kernel reads them, float32.

        Args:
          params: The arrays that `parameters_of` returns.
        """
        weights, biases = [np.zeros(0, np.float32)], []
        for one in self._layers:
            arrays = [params[i] for i in one.op.params]
            if one.op.kind == "linear":
                weights.append(_fragments(arrays[0]))
                bias = arrays[1] if len(arrays) == 2 else np.zeros(one.op.size, np.float32)
            else:
                bias = arrays[0] if arrays else np.array(one.op.numbers, np.float32)
            biases.append(_padded(bias.reshape(-1), (BLOCK,)))
        return [np.concatenate(weights), np.concatenate(biases)]

    def _num_inputs(self, layer: _Layer) -> int:
        return self.program.sizes[layer.reads] if layer.reads >= 0 else 0

    def _place_outputs(self) -> None:
        """Gives each output of the program the rows that its layer writes."""
        layers = {one.writes: one for one in self._layers}
        hidden = {one.reads for one in self._layers}
        for register in self.program.outputs:
            start, source = 0, register
            while source > 0 and self.program.ops[source - 1].kind == "slice":
                op = self.program.ops[source - 1]
                start, source = start + int(op.numbers[0]), op.inputs[0]
            if source not in layers or source in hidden:
                raise SpecError(f"{_REFUSED}an output is no layer of its own{_INSTEAD}")
            layer = layers[source]
            if layer.output_row < 0:
                layer.output_row = self.num_outputs
                self.num_outputs += layer.op.size
            size = self.program.sizes[register]
            self.outputs.append(OutputPlace(layer.output_row + start, size))

    def _place_hidden(self) -> None:
        """Gives hidden features places, which are free again after their last reader."""
        last = {one.reads: i for i, one in enumerate(self._layers)}
        taken: dict[int, int] = {}
        for i, one in enumerate(self._layers):
            if one.reads > 0:
                one.read_place = taken[one.reads]
                if last[one.reads] == i:
                    del taken[one.reads]
            free = next(n for n in range(len(taken) + 1) if n not in taken.values())
            if one.reads == 0:
                # each layer that reads the observation puts it there first
                one.read_place = free
            if one.output_row < 0:
                one.place = free
                taken[one.writes] = free
            self.num_places = max(self.num_places, free + 1)


def _layers_of(program: Program) -> list[_Layer]:
    """Returns the layers of a program; raises SpecError where it has other operations."""
    readers = [register for op in program.ops for register in op.inputs]
    # register -> the layer that writes it
    layers: dict[int, _Layer] = {}
    for register, op in enumerate(program.ops, 1):
        if op.kind == "linear":
            if program.sizes[op.inputs[0]] > MOST_FEATURES:
                raise SpecError(
                    f"{_REFUSED}a layer reads {program.sizes[op.inputs[0]]} features, expected at "
                    f"most {MOST_FEATURES}{_INSTEAD}"
                )
            layers[register] = _Layer(op, op.inputs[0], register)
        elif op.kind in _CONSTANTS:
            layers[register] = _Layer(op, -1, register)
        elif op.kind in ACTIVATIONS:
            before = layers.pop(op.inputs[0], None)
            if before is None or readers.count(op.inputs[0]) > 1 or before.activation != "none":
                raise SpecError(f"{_REFUSED}a {op.kind} is not alone behind a layer{_INSTEAD}")
            before.activation, before.writes = op.kind, register
            layers[register] = before
        elif op.kind != "slice":
            raise SpecError(f"{_REFUSED}the module has a {op.kind}{_INSTEAD}")
    if any(one.reads > 0 and one.reads not in layers for one in layers.values()):
        raise SpecError(f"{_REFUSED}a layer reads a part of what another one gives{_INSTEAD}")
    return list(layers.values())


def _blocks(size: int) -> int:
    return -(-size // BLOCK)


def _padded(array: Array, multiples: tuple[int, ...]) -> Array:
    """Returns the array padded with zeros at its ends, so that each size is a multiple."""
    behind = [(0, -size % of) for size, of in zip(array.shape, multiples, strict=True)]
    padded: Array = np.pad(array, behind)
    return padded


def _fragments(weight: Array) -> Array:
    """Weights (outputs, inputs) in the order in which the threads of a warp read them.

    For each 32 outputs and 16 inputs a thread reads four words twice; a word has two weights. Four
    words are two matrices B (see matrix_unit.h) of 16 inputs by 8 outputs, with two words each.
    """
    padded = _padded(weight, (BLOCK, BLOCK))
    outputs, inputs = padded.shape
    # axes of outputs: block, pair of matrices, matrix, column; of inputs: group of sixteen, word,
    # lane, half
    parts = padded.reshape(outputs // BLOCK, 2, 2, 8, inputs // 16, 2, 4, 2)
    return np.ascontiguousarray(parts.transpose(0, 4, 1, 3, 6, 2, 5, 7)).reshape(-1)
