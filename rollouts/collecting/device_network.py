# SPDX-License-Identifier: Apache-2.0
"""A policy's network on a device: the kernel that computes it, its arrays and its blocks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rollouts.collecting.dense_layers import DenseLayers
from rollouts.collecting.policy_shape import PolicyShape, dense_shape, policy_shape
from rollouts.envs.kernel.kernel_source import PolicyDtype, PolicyKernelSource
from rollouts.envs.kernel.policy_launch import DenseNetworkArgs, KernelPolicy, OutputPlace
from rollouts.errors import SpecError
from rollouts.policies.native import NativePolicy
from rollouts.policies.program import parameters_of
from rollouts.policies.sources import state_of

# the arrays of a network's parameters as a kernel reads them, float32
Pack = Callable[[Sequence[Any]], list[Any]]


class DeviceWeights:
    """A module's weights in the order in which kernels read them. They are gathered on the device,
    without a copy to the host.

    Attributes:
      packed: The arrays of `pack`, with the weights of the last `refresh`.
      initial: The state that an episode begins with.
    """

    def __init__(
        self,
        policy: NativePolicy,
        device: torch.device,
        pack: Pack,
        dtypes: Sequence[torch.dtype] = (torch.float32,),
    ) -> None:
        """Finds the place of each weight in the packed arrays.

        Args:
          policy: The policy.
          device: The device on which kernels read them.
          pack: Lays out the parameters of the program.
          dtypes: The dtypes to which the arrays of `pack` are rounded.

        Raises:
          SpecError: There are more than 2^24 weights.
        """
        self._policy = policy
        tensors = policy.sources.tensors()
        count = 1 + sum(one.numel() for one in tensors.values())
        if count > 2**24:
            raise SpecError(
                f"the module has {count} weights, expected at most 2^24 on a GPU: make it smaller, "
                "or call it yourself between steps of the pool"
            )
        # the numbers 1, 2, ... stand for the weights while they are packed; 0 stands for padding
        labels, first = {}, 1
        for name, one in tensors.items():
            labels[name] = np.arange(first, first + one.numel()).reshape(tuple(one.shape))
            first += one.numel()
        packed = pack(parameters_of(policy.program, labels))
        zeros = {name: np.zeros_like(label) for name, label in labels.items()}
        literals = pack(parameters_of(policy.program, zeros))
        self._orders = [
            torch.from_numpy(np.where(one == literal, 0, one).astype(np.int64)).to(device)
            for one, literal in zip(packed, literals, strict=True)
        ]
        self._literals = [torch.from_numpy(one).to(device) for one in literals]
        self.packed = [
            torch.zeros(one.shape, dtype=dtype, device=device)
            for one, dtype in zip(literals, dtypes, strict=True)
        ]
        self.initial = torch.zeros(
            sum(math.prod(shape) for shape in policy.state_shapes), device=device
        )
        self.refresh()

    @torch.no_grad()
    def refresh(self) -> None:
        """Takes over the weights that the module has now; does not wait for the device.

        Raises:
          SpecError: A layer was replaced since the module was read.
        """
        to = self.initial.device
        parts = [one.detach().reshape(-1).to(to) for one in self._policy.sources.tensors().values()]
        flat = torch.cat([torch.zeros(1, device=to), *(part.float() for part in parts)])
        for packed, order, literals in zip(self.packed, self._orders, self._literals, strict=True):
            packed.copy_(torch.where(order == 0, literals, flat[order]))
        if self.initial.numel():
            state = [one.reshape(-1).to(to) for one in state_of(self._policy.sources.module)]
            self.initial.copy_(torch.cat(state))


class ThreadNetwork:
    """A program whose instructions a thread runs for one row after the other, in float32.

    Attributes:
      source: The kernel.
      places: The rows of each output of the program.
      weights: The module's weights.
      arrays: Arrays by the members of `KernelPolicy` that take their addresses.
    """

    def __init__(self, policy: NativePolicy, obs_dtype: str, device: torch.device) -> None:
        """Lays out the program.

        Raises:
          SpecError: See `DeviceWeights`.
        """
        native = policy.refresh()
        self._layout = native.layout()
        self.source = PolicyKernelSource(obs_dtype)
        self.places = [OutputPlace(row, size) for row, size in self._layout["outputs"]]
        self.weights = DeviceWeights(policy, device, lambda params: [native.pack(params)])
        (packed,) = self.weights.packed
        self.arrays: dict[str, Tensor] = {
            "instructions": as_bytes(self._layout["instructions"], device),
            "params": packed,
        }

    def tell(
        self, policy: KernelPolicy, num_room: int, num_rows: int, most_shared_bytes: int
    ) -> PolicyShape:
        """Writes the program's facts into `policy`, and chooses the blocks.

        Args:
          policy: The part of the arguments that all launches share.
          num_room: Numbers that the action of a row takes.
          num_rows: Rows of all environments.
          most_shared_bytes: Most shared memory of a block.
        """
        policy.num_instructions = self._layout["num_instructions"]
        policy.num_rows = self._layout["num_rows"]
        return policy_shape(policy.num_rows + num_room, num_rows, most_shared_bytes)


class DenseNetwork:
    """Linear layers on tensor cores, with the attributes of `ThreadNetwork`."""

    def __init__(self, policy: NativePolicy, obs_dtype: str, device: torch.device) -> None:
        """Reads the layers.

        Raises:
          SpecError: The program has other layers, or the GPU has no such cores; see also
            `DeviceWeights`.
        """
        if device.type == "cuda" and torch.cuda.get_device_capability(device) < (8, 0):
            name = torch.cuda.get_device_name(device)
            raise SpecError(
                f"policy_dtype='bfloat16' needs compute capability 8.0, which {name} has not: "
                "leave policy_dtype out"
            )
        self._layers = DenseLayers(policy.program.without_detach())
        self.source = PolicyKernelSource(obs_dtype, "bfloat16")
        self.places = self._layers.outputs
        dtypes = (torch.bfloat16, torch.float32)
        self.weights = DeviceWeights(policy, device, self._layers.pack, dtypes)
        self._args = as_bytes(self._layers.args(), device)
        self.arrays: dict[str, Tensor] = {}

    def tell(
        self, policy: KernelPolicy, num_room: int, num_rows: int, most_shared_bytes: int
    ) -> PolicyShape:
        """See `ThreadNetwork.tell`. Raises SpecError where memory is too small for a warp."""
        layers = self._layers
        weights, biases = self.weights.packed
        policy.dense = DenseNetworkArgs(
            layers=self._args.data_ptr(),
            weights=weights.data_ptr(),
            biases=biases.data_ptr(),
            num_layers=len(layers),
            hidden_blocks=layers.hidden_blocks,
            num_outputs=layers.num_outputs,
            warp_bytes=layers.warp_bytes(num_room),
        )
        return dense_shape(policy.dense.warp_bytes, num_rows, most_shared_bytes)


def make_network(
    policy: NativePolicy, obs_dtype: str, device: torch.device, dtype: PolicyDtype
) -> ThreadNetwork | DenseNetwork:
    """Makes the network for the dtype that is multiplied; raises SpecError as its class does."""
    kind = ThreadNetwork if dtype == "float32" else DenseNetwork
    return kind(policy, obs_dtype, device)


def as_bytes(data: bytes, device: torch.device) -> Tensor:
    """Copies bytes to a device."""
    # torch makes no tensor from zero bytes
    return torch.frombuffer(bytearray(data or bytes(4)), dtype=torch.uint8).to(device)
