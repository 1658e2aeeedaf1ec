# SPDX-License-Identifier: Apache-2.0
"""`MultiAgentDeviceVectorEnv`: N worlds of agents that a kernel steps, with torch tensors."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from torch import Tensor

from rollouts.device.agent_rows import AgentRowSet, GroupSpec
from rollouts.device.arguments import ActionReader, read_obs_dtype
from rollouts.device.env_arrays import WorldArrays
from rollouts.device.kernel import BlockShape, make_kernel
from rollouts.device.kernel_source import EnvKernelSource
from rollouts.device.launch_args import Launch, WorldLaunch
from rollouts.device.rows import RowRing
from rollouts.device.stepping import DeviceStepping
from rollouts.device.team_shape import TeamShape, choose_team
from rollouts.device.tensor_pool import Five
from rollouts.errors import SpecError
from rollouts.own_env.registrations import env_source
from rollouts.pool.agent_groups import AgentGroups


class MultiAgentDeviceVectorEnv(AgentGroups, DeviceStepping):
    """N environments with several agents each, stepped on a GPU by one launch of a kernel.

    What MultiAgentVectorEnv is on the CPU, with the same random streams, autoreset modes and
    options, and states that either loads from the other. A team of threads steps a world: a block
    where it has more than 32 agents, else a part of a warp.

    Arrays are torch tensors on `device`: where DeviceVectorEnv has one row per environment, a dict
    of group -> (N, A, ...) is here, or the tensor alone where there is one group. Arithmetic has
    the widths that the environment's header names: Tag's is 32-bit, MPE's 64-bit. Streams, graphs,
    and what is held: as DeviceVectorEnv.

    Attributes:
      groups, agents, single_observation_spaces, single_action_spaces, observation_space,
        action_space: As MultiAgentVectorEnv.
      num_envs, device, env_id_offset, env_spec, autoreset_mode: As DeviceVectorEnv.
    """

    def _set_spaces(self) -> None:
        if not self.env_spec.groups:
            raise SpecError(f"{self.env_spec.id} has one agent: make_vec makes its pool")
        self._set_groups(self.env_spec.groups, self.num_envs)

    def _make(self, native_id: str, facts: dict[str, Any], obs_dtype: str) -> None:
        same_step = self.autoreset_mode is AutoresetMode.SAME_STEP
        rows = [
            GroupSpec(
                group.num_agents,
                group.single_observation_space.shape or (),
                read_obs_dtype(obs_dtype, group.single_observation_space),
                same_step,
            )
            for group in self.groups.values()
        ]
        self.obs_dtypes = [one.obs_dtype for one in rows]
        # a kernel writes one type of numbers
        (dtype,) = {one.obs_dtype for one in rows}
        self._readers = [
            ActionReader(
                group.single_action_space,
                (self.num_envs, group.num_agents),
                self.device,
                "actions" if len(self.groups) == 1 else f"actions of {name!r}",
            )
            for name, group in self.groups.items()
        ]
        self._source = EnvKernelSource(env_source(native_id), dtype)
        self._kernel = make_kernel(self._source, self.device, emulated=self.is_emulated)
        self._envs = WorldArrays(native_id, self.num_envs, self.device, self.env_id_offset, facts)
        self._choose = functools.partial(self._choose_team, facts, dtype)
        self._shape = self._choose(self._kernel.most_shared_bytes)
        self._block = self._shape.block

        def make(shape: tuple[int, ...]) -> AgentRowSet:
            launch = WorldLaunch()
            self._fill(launch)
            return AgentRowSet(rows, shape, self.device, launch)

        self._ring = RowRing(self.num_envs, make)

    def _choose_block(self, most_shared_bytes: int) -> BlockShape:
        return self._choose(most_shared_bytes).block

    def _choose_team(
        self, facts: dict[str, Any], obs_dtype: str, most_shared_bytes: int
    ) -> TeamShape:
        spaces = self.single_observation_spaces.values()
        own = np.dtype(next(iter(spaces)).dtype or np.float32)
        return choose_team(
            num_agents=len(self.agents),
            team_bytes=facts["team_bytes"],
            world_bytes=facts["world_bytes"],
            action_bytes=facts["action_bytes"],
            obs_bytes=max(int(np.prod(space.shape or ())) for space in spaces) * own.itemsize,
            converts_obs=obs_dtype != own.name,
            most_shared_bytes=most_shared_bytes,
        )

    def _fill(self, launch: Launch) -> None:
        assert isinstance(launch, WorldLaunch)
        super()._fill(launch)
        launch.num_groups, launch.num_agents = len(self.groups), len(self.agents)
        launch.team_size, launch.memory = self._shape.size, self._shape.memory

    def _five(self, row_set: AgentRowSet) -> Five:
        def grouped(name: str) -> Any:
            return self._grouped([tensors[name] for tensors in row_set.groups])

        info = {
            "active": grouped("active"),
            "episode_return": grouped("episode_return"),
            "env_id": self._env_ids,
            "episode_length": row_set.episode_length,
            "ended": row_set.ended,
        }
        if self.autoreset_mode is AutoresetMode.SAME_STEP:
            info["final_obs"] = grouped("final_obs")
        return (
            grouped("obs"),
            grouped("reward"),
            grouped("terminated"),
            grouped("truncated"),
            info,
        )

    def _read_actions(self, actions: Any) -> tuple[list[Tensor], int | None]:
        read = [
            reader.read(one)
            for reader, one in zip(self._readers, self._in_order(actions), strict=True)
        ]
        counts = {count for _, count in read}
        if len(counts) > 1:
            raise SpecError(f"actions of groups are for unlike numbers of steps: {counts}")
        return [tensor for tensor, _ in read], counts.pop()

    def _empty_actions(self, num_steps: int) -> list[Tensor]:
        return [reader.empty(num_steps) for reader in self._readers]

    def _give(self, launch: Launch, actions: list[Tensor]) -> None:
        for g, one in enumerate(actions):
            launch.actions[g] = one.data_ptr()
            launch.action_bytes[g] = one.element_size()
        # until the next launch is made, on the same stream
        self._held_actions = actions

    def _take(self, launch: Launch, actions: list[Tensor]) -> None:
        for g in range(len(self.groups)):
            launch.taken[g] = actions[g].data_ptr() if actions else None
