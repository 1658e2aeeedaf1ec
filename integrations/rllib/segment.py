# SPDX-License-Identifier: Apache-2.0
"""The steps of N environments between two calls of `sample`, and the episodes cut from them."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from ray.rllib.core.columns import Columns
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.utils.metrics import WEIGHTS_SEQ_NO

from rollouts.batch import StepBatch
from rollouts.support.no_collection import no_collection

from .by_env import ByEnv, Chunks, Ends, done_chunks, going_chunks
from .chunks import ChunkFactory
from .module_states import Memory

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class EndedEpisode:
    """A whole episode, for metrics: its steps in all calls of `sample`."""

    length: int
    episode_return: float
    duration_s: float


@dataclass(frozen=True, slots=True)
class Block:
    """T steps of all environments.

    Attributes:
      columns: name -> (T, N, ...): actions, rewards, and the module's outputs.
      terminated, truncated: (T, N) bool.
      final_obs: (E, ...): last observation of each ended episode, in order of step, then of row.
    """

    columns: dict[str, Array]
    terminated: Array
    truncated: Array
    final_obs: Array

    def until(self, num_ended: int) -> Block:
        """The steps until `num_ended` episodes have ended; all steps, if fewer end."""
        counts = (self.terminated | self.truncated).sum(1).cumsum()
        last = int(np.searchsorted(counts, num_ended)) + 1
        if last >= len(counts):
            return self
        return Block(
            {name: array[:last] for name, array in self.columns.items()},
            self.terminated[:last],
            self.truncated[:last],
            self.final_obs[: counts[last - 1]],
        )


class Taken(NamedTuple):
    """The chunks of episodes that were cut from a segment.

    Attributes:
      done: Chunks whose episode ended, in the order of time.
      ended: The episodes that ended with these chunks.
      going: Chunks that go on, in the order of environments.
      done_at, going_at: The steps and environments of each chunk.
    """

    done: list[SingleAgentEpisode]
    ended: list[EndedEpisode]
    going: list[SingleAgentEpisode]
    done_at: Chunks
    going_at: Chunks


class Segment:
    """Arrays (T, N, ...) of steps, each written to its own row; `obs` has one row more.

    The first up to L rows hold steps that were handed out before: the lookback of chunks that
    go on with an episode.
    """

    def __init__(
        self,
        num_envs: int,
        obs_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        *,
        lookback: int,
        keep_infos: bool,
    ) -> None:
        """Starts without steps; `begin` comes next."""
        self._num_envs, self._lookback, self._keep_infos = num_envs, lookback, keep_infos
        self._make_chunk = ChunkFactory(obs_space, action_space)
        # states of a stateful module
        self.memory = Memory(num_envs)
        self._capacity = 0
        self._columns: dict[str, Array] = {}
        self._versions = np.zeros(0, np.int64)
        self._infos: dict[str, Array] = {}
        self._obs: Array = np.empty((1, num_envs, *(obs_space.shape or ())), obs_space.dtype)
        # the time at which each row's step was done
        self._clock = np.zeros(0, np.float64)
        self._first = self._next = 0
        self._ends: list[Ends] = []

    @property
    def obs(self) -> Array:
        """Observations (N, ...) to act on; a view of the segment's next row."""
        row: Array = self._obs[self._next]
        return row

    def begin(self, obs: Array, info: Mapping[str, Array]) -> None:
        """Starts an episode everywhere; drops steps that were not taken."""
        self._first = self._next = 0
        self._ends.clear()
        self.memory.reset()
        self._obs[0] = obs
        self._write_infos(0, info)
        self._ids = _new_ids(self._num_envs)
        # steps and returns before this call, of the episodes that go on
        self._length = np.zeros(self._num_envs, np.int64)
        self._return = np.zeros(self._num_envs, np.float64)
        self._seconds = np.zeros(self._num_envs, np.float64)
        self.resume(0)

    def resume(self, num_steps: int) -> None:
        """Begins a call: makes room for `num_steps` and starts the clocks of the episodes."""
        self._grow(self._next + num_steps)
        self._started = time.perf_counter()

    def add(
        self,
        action: Array,
        extras: Mapping[str, Array],
        version: int,
        outcome: StepBatch,
    ) -> None:
        """Writes a step of all environments.

        Args:
          action: (N, ...) as the module chose them.
          extras: name -> (N, ...), the module's other outputs.
          version: Sequence number of the weights it acted with.
          outcome: The result of a same-step pool's step.
        """
        t = self._next
        if t == self._capacity:
            self._grow(2 * t)
        columns = {Columns.ACTIONS: action, Columns.REWARDS: outcome.reward, **extras}
        self._write(t, t + 1, {name: array[None] for name, array in columns.items()}, version)
        self._clock[t] = time.perf_counter()
        self._obs[t + 1] = outcome.obs
        self._next = t + 1
        ended = (outcome.terminated | outcome.truncated).nonzero()[0]
        if ended.size:
            self._end(t, ended, outcome)
        self._write_infos(t + 1, outcome.info)

    def room(self, num_steps: int) -> Array:
        """Rows (num_steps + 1, N, ...) for the next steps' observations; the first is `obs`."""
        self._grow(self._next + num_steps)
        return self._obs[self._next : self._next + num_steps + 1]

    def add_block(self, block: Block, version: int) -> None:
        """Writes T steps of all environments, without infos; their observations are in `room`."""
        t, end = self._next, self._next + len(block.terminated)
        self._write(t, end, block.columns, version)
        # the clock was not read in between, so that each step counts as equally long
        before = self._clock[t - 1] if t > self._first else self._started
        self._clock[t:end] = np.linspace(before, time.perf_counter(), end - t + 1)[1:]
        self._next = end
        at, rows = np.nonzero(block.terminated | block.truncated)
        if at.size:
            cells = at, rows
            flags = block.terminated[cells], block.truncated[cells]
            self._ends.append(Ends(at + t, rows, *flags, block.final_obs))

    @property
    def num_ended(self) -> int:
        """Episodes that ended since the last `take`."""
        return sum(len(ends.t) for ends in self._ends)

    def take(self) -> Taken:
        """Cuts the steps since the last call into chunks of episodes.

        Returns:
          The chunks; their arrays are new, writable and not shared.
        """
        ends = Ends.joined(self._ends, self._obs[0])
        done = done_chunks(ends, self._first)
        going = going_chunks(ends, self._first, self._next, self._num_envs)
        shape = (self._capacity, self._num_envs)
        columns = {**self._columns, WEIGHTS_SEQ_NO: np.broadcast_to(self._versions[:, None], shape)}
        steps = ByEnv(columns, self._obs, self._infos, self._next, ends)
        ended = [EndedEpisode(*each) for each in zip(*self._totals(done), strict=True)]
        # a collection would look at thousands of new objects, all of which last
        with no_collection():
            # ended chunks are cut first: this gives the environments' next episodes their new ids
            chunks = self._cut(steps, done, ends), ended, self._cut(steps, going, None)
        if self._next > self._first:
            self._carry(going)
        self._roll()
        return Taken(*chunks, done, going)

    # -- helpers -------------------------------------------------------------------

    def _carry(self, going: Chunks) -> None:
        """Keeps lengths, returns and seconds of the episodes that go on, for the next call."""
        length, episode_return, seconds = self._totals(going)
        for carried in (self._length, self._return, self._seconds):
            carried[:] = 0
        self._length[going.row] = length
        self._return[going.row] = episode_return
        self._seconds[going.row] = seconds

    def _totals(self, chunks: Chunks) -> tuple[list[int], list[float], list[float]]:
        """Lengths, returns and seconds of the chunks' episodes, earlier chunks included."""
        row, begin, end, is_first = chunks.row, chunks.begin, chunks.end, chunks.is_first
        if not len(row):
            return [], [], []
        first = self._first
        rewards = self._columns[Columns.REWARDS][first : self._next]
        sums = np.zeros((len(rewards) + 1, self._num_envs))
        rewards.cumsum(0, out=sums[1:])
        clock = self._times()
        return (
            (end - begin + is_first * self._length[row]).tolist(),
            (
                sums[end - first, row] - sums[begin - first, row] + is_first * self._return[row]
            ).tolist(),
            (clock[end - first] - clock[begin - first] + is_first * self._seconds[row]).tolist(),
        )

    def _times(self) -> Array:
        """Times at which this call began and each of its steps was done."""
        return np.concatenate([[self._started], self._clock[self._first : self._next]])

    def _cut(self, steps: ByEnv, chunks: Chunks, ends: Ends | None) -> list[SingleAgentEpisode]:
        """Makes chunks; each ends as its row of `ends` says, or goes on where `ends` is None."""
        count = len(chunks.row)
        before = chunks.is_first * self._length[chunks.row]
        lookback = np.minimum(before, self._first) * chunks.is_first
        flags = (ends.terminated, ends.truncated) if ends else np.zeros((2, count), np.bool_)
        times = self._times()
        fields = (
            *(chunks.row, chunks.begin - lookback, chunks.end, chunks.is_first),
            *(lookback, before, *flags),
            *(times[chunks.begin - self._first], times[chunks.end - self._first]),
        )
        ids, new_ids = self._ids, _new_ids(count if ends else 0)
        cut = []
        for number, values in enumerate(zip(*(each.tolist() for each in fields), strict=True)):
            row, begin, end, is_first, back, started, terminated, truncated, *clock = values
            chunk = self._make_chunk(
                id_=ids[row],
                obs=steps.obs_of(row, begin, end - begin + 1),
                columns=steps.columns_of(row, begin, end),
                infos=self._infos_of(
                    steps, row, begin, end - begin + 1, follows_an_end=not is_first
                ),
                t_started=started,
                lookback=back,
                terminated=terminated,
                truncated=truncated,
                begun_s=clock[0],
                done_s=clock[1],
            )
            if ends:
                ids[row] = new_ids[number]
            cut.append(chunk)
        return cut

    def _infos_of(
        self, steps: ByEnv, row: int, begin: int, count: int, *, follows_an_end: bool
    ) -> list[dict[str, Any]]:
        if not self._keep_infos:
            return [{}] * count
        infos = steps.infos_of(row, begin, count) if self._infos else [{} for _ in range(count)]
        # after a step that ended an episode, the pool's infos are those of the ended episode
        if follows_an_end:
            infos[0] = {}
        return infos

    def _end(self, t: int, rows: Array, outcome: StepBatch) -> None:
        assert outcome.final_obs is not None
        final_obs = outcome.final_obs[rows]
        failed = outcome.info.get("_env_error")
        if failed is not None:
            # a failed environment has no final observation; the one before the step stands in
            lost = failed[rows]
            final_obs[lost] = self._obs[t][rows[lost]]
        at = np.full(len(rows), t)
        self._ends.append(
            Ends(at, rows, outcome.terminated[rows], outcome.truncated[rows], final_obs)
        )

    def _write(self, t: int, end: int, columns: Mapping[str, Array], version: int) -> None:
        """Writes columns (end - t, N, ...)."""
        for name, array in columns.items():
            column = self._columns.get(name)
            if column is None:
                # earlier rows, if any, are lookback from steps without this column
                column = np.zeros((self._capacity, *array.shape[1:]), array.dtype)
                self._columns[name] = column
            column[t:end] = array
        self._versions[t:end] = version

    def _write_infos(self, t: int, info: Mapping[str, Any]) -> None:
        if not self._keep_infos:
            return
        for name, values in info.items():
            if name in ("env_error", "_env_error"):
                continue
            if name not in self._infos:
                self._infos[name] = np.zeros((self._capacity + 1, *values.shape), values.dtype)
            self._infos[name][t] = values

    def _roll(self) -> None:
        """Moves the last L steps, and the observation after them, to the front."""
        kept = min(self._lookback, self._next)
        for array in (*self._columns.values(), self._versions):
            array[:kept] = array[self._next - kept : self._next].copy()
        for array in (self._obs, *self._infos.values()):
            array[: kept + 1] = array[self._next - kept : self._next + 1].copy()
        self._first = self._next = kept
        self._ends.clear()

    def _grow(self, capacity: int) -> None:
        capacity = max(capacity, 16)
        if capacity <= self._capacity:
            return
        self._columns = {name: _longer(a, capacity) for name, a in self._columns.items()}
        self._versions = _longer(self._versions, capacity)
        self._clock = _longer(self._clock, capacity)
        self._obs = _longer(self._obs, capacity + 1)
        self._infos = {name: _longer(a, capacity + 1) for name, a in self._infos.items()}
        self._capacity = capacity


def _new_ids(count: int) -> list[str]:
    """Ids of episodes, as long and as unlikely to be equal as those of RLlib."""
    digits = os.urandom(16 * count).hex()
    return [digits[32 * i : 32 * (i + 1)] for i in range(count)]


def _longer(array: Array, length: int) -> Array:
    new = np.zeros((length, *array.shape[1:]), array.dtype)
    new[: len(array)] = array
    return new
