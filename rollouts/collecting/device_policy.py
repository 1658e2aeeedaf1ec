# SPDX-License-Identifier: Apache-2.0
"""`DevicePolicy`: a native policy in the form of its kernel: instructions, weights and memory."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from rollouts.collecting.actor_rows import ActorRows
from rollouts.collecting.device_network import as_bytes, make_network
from rollouts.envs.kernel.kernel import Kernel, make_kernel
from rollouts.envs.kernel.kernel_source import PolicyDtype
from rollouts.envs.kernel.policy_launch import (
    HeadArgs,
    KernelAgents,
    KernelPolicy,
    OutputPlace,
    PolicyLaunch,
)
from rollouts.errors import SpecError
from rollouts.policies.native import NativePolicy

if TYPE_CHECKING:
    from rollouts.collecting.device_torch import TorchForward

_HALVES = ("float16", "bfloat16")


class DevicePolicy:
    """The parts of a policy that stay the same from launch to launch.

    Attributes:
      rows: The rows for which the policy acts.
      forward: Torch computes the network, and the kernel takes its outputs as observations; or
        None.
      state_shapes: Shapes of the recurrent state of one row.
      head_sizes: Sizes of the outputs that the head reads.
    """

    def __init__(
        self,
        policy: NativePolicy,
        rows: ActorRows,
        device: torch.device,
        *,
        emulated: bool,
        forward: TorchForward | None = None,
        dtype: PolicyDtype = "float32",
    ) -> None:
        """Compiles the kernel, or takes it from the cache.

        Args:
          policy: The policy.
          rows: The rows for which the policy acts.
          device: The device of the rows.
          emulated: Whether the host runs the kernel.
          forward: See the attribute.
          dtype: The numbers that the network multiplies; "bfloat16" needs tensor cores.

        Raises:
          SpecError: The policy does not fit the environments, or `dtype`. EngineError: As
            `make_kernel`.
        """
        layout = policy.refresh().layout()
        self.rows, self.native, self.forward = rows, policy, forward
        read = rows
        if forward is not None:
            read = replace(rows, obs_shape=(policy.program.obs_size,), obs_dtype="float32")
        self.state_shapes: tuple[tuple[int, ...], ...] = policy.state_shapes
        # its arrays are read by launches
        self._network = network = make_network(policy, read.obs_dtype, device, dtype)
        num_inputs = layout["num_head_inputs"]
        places, num_states = network.places, layout["num_states"]
        outputs, states = places[: len(places) - num_states], places[len(places) - num_states :]
        self.head_sizes = [one.size for one in outputs[:num_inputs]]
        _check_fits(layout, self.head_sizes, [one.size for one in outputs[num_inputs:]], read)

        self.weights = network.weights
        self._arrays = {
            **network.arrays,
            "nvec": torch.tensor(layout["nvec"] or [0], dtype=torch.int32, device=device),
            "states": as_bytes(b"".join(bytes(one) for one in states), device),
            "initial": self.weights.initial,
            "bounds": torch.from_numpy(layout["bounds"]).to(device),
        }
        value = outputs[num_inputs] if len(outputs) > num_inputs else OutputPlace(0, 0)
        self._told = KernelPolicy(
            **{name: one.data_ptr() for name, one in self._arrays.items()},
            head=HeadArgs.from_buffer_copy(layout["head"]),
            num_elements=len(layout["nvec"]),
            num_states=num_states,
            obs_size=layout["obs_size"],
            state_size=layout["state_size"],
            first=outputs[0],
            second=outputs[1] if num_inputs == 2 else OutputPlace(0, 0),
            value=value,
        )
        self._kernel: Kernel = make_kernel(network.source, device, emulated=emulated)
        self._shape = network.tell(
            self._told,
            self.head_sizes[0] + len(layout["nvec"]),
            rows.num_rows,
            self._kernel.most_shared_bytes,
        )
        self._scratch = torch.zeros(self._shape.num_scratch, device=device)
        self._state = torch.zeros(layout["state_size"], rows.num_rows, device=device)
        self.begins = torch.zeros(rows.num_rows, dtype=torch.bool, device=device)
        self._bounds: list[Tensor] = []
        self.env_action: Tensor | None = None  # actions of a Box: (N, A, *shape), clipped
        if isinstance(rows.action_space, spaces.Box):
            self._clip_to(rows.action_space, device)

    def _clip_to(self, space: spaces.Box, device: torch.device) -> None:
        """Makes the tensor of clipped actions for the environments."""
        bounds = (np.array(one, np.float32) for one in (space.low, space.high))
        self._bounds = [torch.from_numpy(one).to(device) for one in bounds]
        agents = (self.rows.num_agents,) if self.rows.has_groups else ()
        shape = (self.rows.num_envs, *agents, *space.shape)
        self.env_action = torch.zeros(shape, device=device)

    def fill(self, launch: PolicyLaunch) -> None:
        """Writes into a launch what all launches of this policy share."""
        rows = self.rows
        launch.num_rows, launch.policy = rows.num_rows, self._told
        launch.agents = KernelAgents(rows.num_agents, rows.first_agent, rows.all_agents)
        launch.state = self._state.data_ptr()
        launch.scratch = self._scratch.data_ptr() if self._shape.num_scratch else None
        launch.scratch_rows = self._shape.scratch_rows
        if self.env_action is not None:
            launch.chosen.env_action = self.env_action.data_ptr()
            launch.chosen.low, launch.chosen.high = (one.data_ptr() for one in self._bounds)

    def go_on_from(self, before: DevicePolicy) -> None:
        """Takes over the states of the policy that it replaces, if their shapes are equal."""
        if self.state_shapes == before.state_shapes and self._state.shape == before._state.shape:
            self._state, self.begins = before._state, before.begins
        if self.forward is not None and before.forward is not None:
            mine, theirs = self.forward.memory, before.forward.memory
            if mine is not None and theirs is not None and mine.parts == theirs.parts:
                mine.go_on_from(theirs)

    def refresh(self) -> None:
        """Takes over the module's weights; does not wait for the device.

        Raises:
          SpecError: A layer was replaced since the module was read.
        """
        self.weights.refresh()
        if self.forward is not None:
            self.forward.refresh()

    @property
    def key(self) -> Any:
        """Equal as long as torch's work before a launch is the same."""
        return self.forward and self.forward.key

    def launch(self, launch: PolicyLaunch) -> None:
        """Puts a launch on the stream."""
        shape = self._shape
        self._kernel.launch(launch, shape.num_blocks, shape.num_threads, shape.shared_bytes)


def _check_fits(
    layout: dict[str, Any], inputs: list[int], values: list[int], rows: ActorRows
) -> None:
    """Raises SpecError where a policy does not fit the environments' spaces."""
    if rows.obs_dtype in _HALVES:
        raise SpecError(
            f"observations are {rows.obs_dtype}, expected float32 for a policy on the device: "
            "leave obs_dtype out"
        )
    size = math.prod(rows.obs_shape)
    if layout["obs_size"] != size:
        raise SpecError(
            f"the policy reads observations of {layout['obs_size']} numbers, and those of the "
            f"environments have {size}"
        )
    if values not in ([], [1]):
        raise SpecError(f"the policy gives {values[0]} values for an observation, expected 1")
    space = rows.action_space
    if isinstance(space, spaces.MultiDiscrete):
        fits = layout["nvec"] == [int(n) for n in np.ravel(space.nvec)]
    elif isinstance(space, spaces.Discrete):
        fits = not layout["nvec"] and inputs == [int(space.n)]
    else:
        count = math.prod(space.shape or ())
        fits = len(inputs) == 2 and inputs[0] == count and inputs[1] in (1, count)
    if not fits:
        raise SpecError(
            f"the policy gives {inputs} numbers for its head, which does not fit actions of {space}"
        )
