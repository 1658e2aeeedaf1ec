# SPDX-License-Identifier: Apache-2.0
"""`Teams`: worlds of agents in the form of their kernel."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from torch import Tensor

from rollouts.envs.kernel.agent_tensors import AgentRowSet, GroupSpec
from rollouts.envs.kernel.alone_shape import AloneShape, choose_alone
from rollouts.envs.kernel.device_arguments import ActionForm, ActionReader, read_obs_dtype
from rollouts.envs.kernel.device_engine import DeviceSetting
from rollouts.envs.kernel.env_arrays import WorldArrays
from rollouts.envs.kernel.kernel import BlockShape, make_kernel
from rollouts.envs.kernel.kernel_source import EnvKernelSource, KernelSource
from rollouts.envs.kernel.launch_args import Launch, TeamMemory, WorldLaunch
from rollouts.envs.kernel.team_shape import TeamShape, choose_team
from rollouts.errors import SpecError
from rollouts.own_env.registrations import env_source
from rollouts.specs import EnvSpec


def alone_shape(spec: EnvSpec, facts: Mapping[str, Any]) -> AloneShape | None:
    """The shape of worlds if one thread steps each of them; None: teams of threads do.

    Args:
      spec: The environments' groups.
      facts: `_native.device_facts` of them.
    """
    groups = [
        (
            group.num_agents,
            math.prod(group.single_observation_space.shape or ()),
            math.prod(group.single_action_space.shape or ()),
        )
        for group in spec.groups
    ]
    dtype = np.dtype(spec.groups[0].single_observation_space.dtype or np.float32)
    return choose_alone(facts["world_bytes"], groups, dtype.itemsize)


class Teams:
    """The kernel, arrays and actions of environments with groups of agents; see `Actors`."""

    info_names: tuple[str, ...] = ()

    def __init__(
        self,
        spec: EnvSpec,
        native_id: str,
        facts: dict[str, Any],
        obs_dtype: str,
        setting: DeviceSetting,
    ) -> None:
        """Compiles the kernel; `facts` are `_native.device_facts` of the environments."""
        num_envs, device = setting.num_envs, setting.device
        self._device, self._groups, self._facts = device, spec.groups, facts
        self._rows = [
            GroupSpec(
                group.num_agents,
                group.single_observation_space.shape or (),
                read_obs_dtype(obs_dtype, group.single_observation_space),
                setting.autoreset_mode is AutoresetMode.SAME_STEP,
            )
            for group in spec.groups
        ]
        self.obs_dtypes = [one.obs_dtype for one in self._rows]
        # a kernel writes observations of one type of numbers
        (self._obs_dtype,) = {*self.obs_dtypes}
        self._readers = [
            ActionReader(
                group.single_action_space,
                (num_envs, group.num_agents),
                device,
                "actions" if len(spec.groups) == 1 else f"actions of {group.name!r}",
            )
            for group in spec.groups
        ]
        self._num_agents = sum(group.num_agents for group in spec.groups)
        self._alone = alone_shape(spec, facts)
        self.source: KernelSource = EnvKernelSource(
            env_source(native_id), self._obs_dtype, alone=self._alone
        )
        self.kernel = make_kernel(self.source, device, emulated=setting.is_emulated)
        self.arrays = WorldArrays(
            native_id, num_envs, device, setting.env_id_offset, facts, self._alone is not None
        )
        # a copy, because callers may write to it
        self._env_id = self.arrays.clock["env_id"].clone()
        self._size, self._memory, self.block = self._shape(self.kernel.most_shared_bytes)

    def _shape(self, most_shared_bytes: int) -> tuple[int, TeamMemory, BlockShape]:
        """The threads of a world, their shared memory, and a block of such teams."""
        if self._alone is None:
            team = self._choose_team(most_shared_bytes)
            return team.size, team.memory, team.block
        memory, threads = self._alone.memory, self._alone.num_threads
        return 1, memory, BlockShape(threads, threads, threads * int(memory.bytes))

    def _choose_team(self, most_shared_bytes: int) -> TeamShape:
        spaces = [group.single_observation_space for group in self._groups]
        own = np.dtype(spaces[0].dtype or np.float32)
        return choose_team(
            num_agents=self._num_agents,
            team_bytes=self._facts["team_bytes"],
            world_bytes=self._facts["world_bytes"],
            action_bytes=self._facts["action_bytes"],
            obs_bytes=max(int(np.prod(space.shape or ())) for space in spaces) * own.itemsize,
            converts_obs=self._obs_dtype != own.name,
            most_shared_bytes=most_shared_bytes,
        )

    def new_launch(self) -> WorldLaunch:
        """Returns an empty launch."""
        return WorldLaunch()

    def fill(self, launch: Launch) -> None:
        """Writes numbers of agents and the team's shape into a launch."""
        assert isinstance(launch, WorldLaunch)
        launch.num_groups, launch.num_agents = len(self._groups), self._num_agents
        launch.team_size, launch.memory = self._size, self._memory

    def row_set(self, shape: tuple[int, ...], launch: Launch) -> AgentRowSet:
        """Returns rows of a shape, with the launch that writes them."""
        assert isinstance(launch, WorldLaunch)
        return AgentRowSet(self._rows, shape, self._device, launch, self._env_id)

    def block_of(self, most_shared_bytes: int) -> BlockShape:
        """Returns the block for a GPU with at most this many bytes of shared memory per block."""
        return self._shape(most_shared_bytes)[2]

    @property
    def action_forms(self) -> list[ActionForm]:
        """The `ActionReader.form` of each group."""
        return [reader.form for reader in self._readers]

    def read(self, actions: Any) -> tuple[list[Tensor], int | None]:
        """Returns each group's actions as a tensor; and K for (K, N, ...), None for (N, ...)."""
        read = [reader.read(one) for reader, one in zip(self._readers, actions, strict=True)]
        counts = {count for _, count in read}
        if len(counts) > 1:
            raise SpecError(f"actions of groups are for unlike numbers of steps: {counts}")
        return [tensor for tensor, _ in read], counts.pop()

    def empty(self, num_steps: int) -> list[Tensor]:
        """Returns an array (K, N, ...) for each group, which a launch fills with random actions.

        Raises:
          SpecError: The actions have no bounds.
        """
        return [reader.empty(num_steps) for reader in self._readers]

    def give(self, launch: Launch, actions: list[Tensor]) -> None:
        """Makes a launch read these actions."""
        for g, one in enumerate(actions):
            launch.actions[g] = one.data_ptr()
            launch.action_bytes[g] = one.element_size()

    def take(self, launch: Launch, actions: list[Tensor]) -> None:
        """Makes a launch write a step's actions into these tensors; an empty list: nowhere."""
        for g in range(len(self._groups)):
            launch.taken[g] = actions[g].data_ptr() if actions else None
