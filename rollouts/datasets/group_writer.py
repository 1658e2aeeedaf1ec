# SPDX-License-Identifier: Apache-2.0
"""`GroupWriter`: takes one group's blocks, and writes its episodes to the disk in parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rollouts.datasets.cutter import Cutter, StepBlock
from rollouts.datasets.episodes import Episode
from rollouts.datasets.set_parts import SetPart, Target
from rollouts.datasets.start_states import StartStates
from rollouts.errors import FileError
from rollouts.support.user_warnings import warn_user


class Quotas:
    """Numbers of episodes that environments may add; any number if none is set."""

    def __init__(self) -> None:
        self._by_env: list[int] | None = None

    def set(self, num_episodes: int, num_envs: int) -> None:
        """Divides the episodes: E // N for each environment, and the first E % N one more."""
        each, more = divmod(num_episodes, num_envs)
        self._by_env = [each + (index < more) for index in range(num_envs)]

    def clear(self) -> None:
        """Allows any number again."""
        self._by_env = None

    def of_env(self, env: int) -> int | None:
        """The number for an environment, by its place in the source; None: any number."""
        return None if self._by_env is None else self._by_env[env % len(self._by_env)]

    def is_full(self, writers: Mapping[str, GroupWriter]) -> bool:
        """Tells if all environments have added their numbers of episodes."""
        wanted = sum(self._by_env or ())
        return all(one.taken >= wanted * one.num_agents for one in writers.values())


class GroupWriter:
    """Cuts one group's blocks and writes parts. Used by one thread at a time.

    Attributes:
      target: The place of the parts.
      num_episodes, num_steps: Numbers in parts, published or not.
      num_dropped: Episodes that did not fit on the disk.
      taken: Episodes within the quotas since these were set.
      num_agents: Agents of the group in an environment.
    """

    def __init__(
        self,
        target: Target[Any],
        stack_num: int,
        part_bytes: int,
        *,
        num_agents: int,
        quotas: Quotas,
        starts: StartStates | None,
        drops: bool,
    ) -> None:
        """Writes nothing yet."""
        self.target, self._part_bytes, self._drops = target, part_bytes, drops
        self._cutter, self._quotas, self._starts = Cutter(stack_num), quotas, starts
        self._part: SetPart | None = None
        self._part_steps = self._published = 0
        self.num_episodes = self.num_steps = self.num_dropped = self.taken = 0
        self.num_agents = num_agents
        self._by_row: dict[int, int] = {}

    @property
    def num_cut(self) -> int:
        """Number of episodes that were left out because of a gap; see `Cutter`."""
        return self._cutter.num_cut

    def add(self, block: StepBlock) -> None:
        """Adds the episodes that end in a block; publishes full parts."""
        for episode in self._cutter.cut(block):
            if self._lets_in(episode):
                self._add(episode)

    def begin_quotas(self) -> None:
        """Starts counting episodes for the quotas."""
        self.taken = 0
        self._by_row.clear()

    def publish(self) -> None:
        """Writes the current part.

        Raises:
          FileError: The disk is full, unless episodes may be dropped.
        """
        if self._part is None or not self._part.num_episodes:
            return
        part, steps = self._part, self._part_steps
        self._part, self._part_steps = None, 0
        try:
            self.target.publish(part, steps)
            self._published += part.num_episodes
        except FileError as error:
            self.num_episodes -= part.num_episodes
            self.num_steps -= steps
            self.num_dropped += part.num_episodes
            if not self._drops:
                raise
            warn_user(f"{error}; {part.num_episodes} episodes are left out", UserWarning)

    def close(self) -> None:
        """Publishes the last part and completes the set.

        Raises:
          FileError: As `publish`; the set is complete without these episodes.
        """
        try:
            self.publish()
        finally:
            self.target.close()

    def _lets_in(self, episode: Episode) -> bool:
        limit = self._quotas.of_env(episode.env_id // self.num_agents)
        if limit is None:
            return True
        taken = self._by_row.get(episode.env_id, 0)
        if taken >= limit:
            return False
        self._by_row[episode.env_id] = taken + 1
        self.taken += 1
        return True

    def _add(self, episode: Episode) -> None:
        if self._starts is not None:
            state = self._starts.of(episode.start, episode.env_id // self.num_agents)
            episode = replace(episode, state=state)
        if self._part is None:
            self._part = self.target.part(self._published)
        self._part.add(episode)
        self.num_episodes += 1
        self.num_steps += episode.num_steps
        self._part_steps += episode.num_steps
        if self._part.nbytes >= self._part_bytes:
            self.publish()
