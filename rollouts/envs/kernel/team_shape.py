# SPDX-License-Identifier: Apache-2.0
"""TeamShape: the number of threads that step a world of agents, and their shared memory."""

from __future__ import annotations

from dataclasses import dataclass

from rollouts.envs.kernel.kernel import BlockShape
from rollouts.envs.kernel.launch_args import TeamMemory
from rollouts.errors import SpecError

_WARP = 32
_MOST_THREADS = 256  # most threads of a block, for which the kernels are compiled
_BLOCK_THREADS = 128  # threads of a block of several teams
SYSTEM_BYTES = 1024  # bytes of shared memory that CUDA uses in each block
_SUM_PARTS, _SUM_BYTES = 32, 16  # kSumParts of AgentSums in native/include/rollouts/core/
_OBS_BYTES = 40 * 1024  # room for observations; more would let fewer blocks run at once


@dataclass(frozen=True, slots=True)
class TeamShape:
    """The shape of a team, which steps one world.

    Attributes:
      size: Threads of a team.
      teams: Teams of a block.
      memory: The layout of a team's shared memory.
    """

    size: int
    teams: int
    memory: TeamMemory

    @property
    def block(self) -> BlockShape:
        """The shape of a block of such teams."""
        return BlockShape(
            num_envs=self.teams,
            num_threads=self.size * self.teams,
            shared_bytes=int(self.memory.bytes) * self.teams,
        )


def choose_team(
    *,
    num_agents: int,
    team_bytes: int,
    world_bytes: int,
    action_bytes: int,
    obs_bytes: int,
    converts_obs: bool,
    most_shared_bytes: int,
    keep_worlds: bool = True,
) -> TeamShape:
    """A thread for each agent, up to 256; worlds, actions and rows in shared memory if they fit.

    Args:
      num_agents: Agents of a world.
      team_bytes: Bytes that a team always needs.
      world_bytes, action_bytes: Bytes of a world's state and actions.
      obs_bytes: Bytes of one agent's observation; where groups differ, of the largest.
      converts_obs: Whether observations are written with another type of numbers than the
        environment's, which needs shared memory.
      keep_worlds: Whether worlds are stepped in shared memory if they fit.
      most_shared_bytes: Bytes of shared memory that a block of this GPU may have.

    Raises:
      SpecError: Observations are converted, and not even one of them fits into shared memory.
    """
    size = 1
    while size < min(num_agents, _WARP):
        size *= 2
    if num_agents > _WARP:
        size = min(-(-num_agents // _WARP) * _WARP, _MOST_THREADS)
    # half of a block's limit, so that two blocks work at once; data that do not fit go through the
    # L1 cache, which gets the rest of that memory
    most = most_shared_bytes // 2 - SYSTEM_BYTES
    teams = max(1, _BLOCK_THREADS // size) if size <= _WARP else 1
    memory = TeamMemory(bytes=-(-team_bytes // 16) * 16)

    def place(count: int) -> int:
        offset: int = memory.bytes
        memory.bytes += -(-count // 16) * 16
        return offset

    sum_bytes = _SUM_PARTS * _SUM_BYTES
    if num_agents > _WARP and memory.bytes + sum_bytes <= most:
        memory.sums = place(sum_bytes)
    wanted = memory.bytes + action_bytes + world_bytes
    while teams > 1 and teams * wanted > most:
        teams //= 2
    if memory.bytes + action_bytes <= most:
        memory.actions = place(action_bytes)
    if keep_worlds and memory.bytes + world_bytes <= most:
        memory.world = place(world_bytes)

    def rows_within(room: int) -> int:
        """Number of observations that fit into this much of a block's memory."""
        left = room // teams - int(memory.bytes)
        return (min(left, _OBS_BYTES // teams) - 16) // obs_bytes

    rows = rows_within(most)
    # with only a few rows at a time, most threads would be idle
    if rows < min(num_agents, _WARP):
        rows = 0
    if converts_obs and rows == 0:
        rows = max(1, rows_within(most_shared_bytes))
        if teams * (memory.bytes + rows * obs_bytes + 16) > most_shared_bytes:
            raise SpecError(
                f"an observation of {obs_bytes} bytes is too large to be written as other "
                "numbers: leave obs_dtype out"
            )
    if rows > 0:
        memory.obs_rows = min(num_agents, size, rows)
        memory.obs = place(memory.obs_rows * obs_bytes)
    return TeamShape(size, teams, memory)
