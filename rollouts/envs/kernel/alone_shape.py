# SPDX-License-Identifier: Apache-2.0
"""`AloneShape`: small worlds with few agents, each stepped by one thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rollouts.envs.kernel.launch_args import TeamMemory

MOST_AGENTS = 8  # agents of a world that a thread steps alone
# bytes of a world, which a thread keeps in registers: larger ones would be in local memory
_MOST_WORLD_BYTES = 256
_MOST_OBS_BYTES = 1024  # bytes of one agent's observation: slots of 32 threads then fit
_MOST_SLOTS_BYTES = 40 * 1024  # bytes of a block's slots
_MOST_THREADS = 64  # threads of a block: few, to spread environments over the whole GPU
_WARP = 32


@dataclass(frozen=True, slots=True)
class AloneShape:
    """Numbers for which the kernel of such worlds is compiled.

    Attributes:
      world_bytes: Bytes of a world.
      groups: (agents, numbers of an observation, numbers of an action) of each group.
      obs_itemsize: Bytes of a number of an observation.
    """

    world_bytes: int
    groups: tuple[tuple[int, int, int], ...]
    obs_itemsize: int

    @property
    def cpp_type(self) -> str:
        """The type in native/include/rollouts/device/world_launch.h."""
        groups = ", ".join(
            f"rollouts::GroupShape{{{agents}, {obs}, {action}}}"
            for agents, obs, action in self.groups
        )
        return f"rollouts::AloneShape<{self.world_bytes}, {groups}>"

    @property
    def memory(self) -> TeamMemory:
        """A thread's slot, which holds the observation of one agent.

        It has an odd number of words, so that threads which write the same number of their slots
        write to different banks.
        """
        unit = max(4, self.obs_itemsize)
        words = -(-self._obs_bytes // unit) | 1
        return TeamMemory(bytes=words * unit)

    @property
    def num_threads(self) -> int:
        """Threads of a block, each with an environment."""
        threads = _MOST_THREADS
        while threads > _WARP and threads * int(self.memory.bytes) > _MOST_SLOTS_BYTES:
            threads //= 2
        return threads

    @property
    def _obs_bytes(self) -> int:
        return max(obs for _, obs, _ in self.groups) * self.obs_itemsize


def choose_alone(
    world_bytes: int, groups: Sequence[tuple[int, int, int]], obs_itemsize: int
) -> AloneShape | None:
    """Returns the shape of worlds that a thread steps alone; None for too many agents or bytes.

    Args:
      world_bytes, groups, obs_itemsize: See `AloneShape`.
    """
    shape = AloneShape(world_bytes, tuple(groups), obs_itemsize)
    few = sum(agents for agents, _, _ in groups) <= MOST_AGENTS
    small = world_bytes <= _MOST_WORLD_BYTES and shape._obs_bytes <= _MOST_OBS_BYTES
    return shape if few and small else None
