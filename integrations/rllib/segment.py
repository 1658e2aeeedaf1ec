# SPDX-License-Identifier: Apache-2.0
"""The steps of N environments between two calls of `sample`, and the episodes cut from them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from ray.rllib.core.columns import Columns
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.utils.metrics import WEIGHTS_SEQ_NO

from rollouts.batch import StepBatch

from .chunks import ChunkFactory

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Ended:
    """A whole episode, for metrics: its steps in all calls of `sample`."""

    length: int
    episode_return: float
    duration_s: float


@dataclass(frozen=True, slots=True)
class _End:
    """Where an episode ended: in arena row t of environment `row`."""

    t: int
    row: int
    id_: str
    length: int
    terminated: bool
    truncated: bool
    final_obs: Array


class Segment:
    """Arrays (T, N, ...) of steps, each written to its own row; `obs` has one row more.

    The rows open with up to L steps that were handed out before: the lookback of chunks that
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
        """Without steps; `begin` comes next."""
        self._num_envs, self._lookback, self._keep_infos = num_envs, lookback, keep_infos
        self._make_chunk = ChunkFactory(obs_space, action_space)
        self._capacity = 0
        self._columns: dict[str, Array] = {}
        self._infos: dict[str, Array] = {}
        self._obs: Array = np.empty((1, num_envs, *(obs_space.shape or ())), obs_space.dtype)
        self._versions = np.zeros(0, np.int64)
        self._first = self._next = 0
        self._ends: list[_End] = []
        self.ended: list[Ended] = []

    @property
    def obs(self) -> Array:
        """Observations (N, ...) to act on; a row of the arena."""
        row: Array = self._obs[self._next]
        return row

    def begin(self, obs: Array, info: Mapping[str, Array]) -> None:
        """Starts an episode everywhere; what was not taken is forgotten."""
        self._first = self._next = 0
        self._ends.clear()
        self.ended.clear()
        self._obs[0] = obs
        self._write_infos(0, info)
        self._ids = [uuid.uuid4().hex for _ in range(self._num_envs)]
        self._length = np.zeros(self._num_envs, np.int64)
        self._return = np.zeros(self._num_envs, np.float64)
        self._seconds = np.zeros(self._num_envs, np.float64)
        self.resume(0)

    def resume(self, num_steps: int) -> None:
        """Begins a call: makes room for `num_steps` and starts the clocks of the episodes."""
        self._grow(self._next + num_steps)
        self._started = np.full(self._num_envs, time.perf_counter())
        self._length_before = self._length.copy()

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
          extras: name -> (N, ...), what else the module said.
          version: Sequence number of the weights it acted with.
          outcome: What a same-step pool answered.
        """
        t = self._next
        if t == self._capacity:
            self._grow(2 * t)
        for name, array in {
            Columns.ACTIONS: action,
            Columns.REWARDS: outcome.reward,
            **extras,
        }.items():
            column = self._columns.get(name)
            if column is None:
                # rows before this one, if any, are lookback that has no such column
                column = np.zeros((self._capacity, *array.shape), array.dtype)
                self._columns[name] = column
            column[t] = array
        self._versions[t] = version
        self._obs[t + 1] = outcome.obs
        self._next = t + 1
        self._length += 1
        self._return += outcome.reward
        ended = (outcome.terminated | outcome.truncated).nonzero()[0]
        if ended.size:
            self._end(t, ended, outcome)
        self._write_infos(t + 1, outcome.info)

    @property
    def num_ended(self) -> int:
        """Episodes that ended since the last `take`."""
        return len(self._ends)

    def take(self) -> tuple[list[SingleAgentEpisode], list[SingleAgentEpisode]]:
        """Cuts the steps since the last call into chunks of episodes.

        Returns:
          Those whose episode ended, in the order of time, and those that go on, in the order
          of environments. Their arrays are new, writable and shared with nobody.
        """
        now = time.perf_counter()
        self._seconds += now - self._started
        steps = _ByEnv(self._columns, self._obs, self._infos, self._next, self._ends)
        begins = [self._first] * self._num_envs
        lookbacks = np.minimum(self._length_before, self._first).tolist()
        done = []
        for number, end in enumerate(self._ends):
            begin, lookback = begins[end.row], lookbacks[end.row]
            chunk = self._cut(steps, end.row, begin - lookback, end.t + 1, lookback, number)
            begins[end.row], lookbacks[end.row] = end.t + 1, 0
            done.append(chunk)
        going = []
        if self._next > self._first:
            for row, length in enumerate(self._length.tolist()):
                if length:
                    lookback = lookbacks[row]
                    begin = begins[row] - lookback
                    going.append(self._cut(steps, row, begin, self._next, lookback, None))
        self._roll()
        return done, going

    # -- helpers -------------------------------------------------------------------

    def _cut(
        self, steps: _ByEnv, row: int, begin: int, end: int, lookback: int, number: int | None
    ) -> SingleAgentEpisode:
        """Steps begin..end of an environment; they close with end `number`, or go on."""
        ended = None if number is None else self._ends[number]
        columns = {name: array[row, begin:end] for name, array in steps.columns.items()}
        columns[WEIGHTS_SEQ_NO] = self._versions[begin:end].copy()
        length = int(self._length[row]) if ended is None else ended.length
        num_obs = end - begin + 1
        return self._make_chunk(
            id_=self._ids[row] if ended is None else ended.id_,
            obs=steps.obs_of(row, begin, num_obs),
            columns=columns,
            infos=self._infos_of(steps, row, begin, num_obs),
            t_started=length - (end - begin - lookback),
            lookback=lookback,
            terminated=ended is not None and ended.terminated,
            truncated=ended is not None and ended.truncated,
        )

    def _infos_of(self, steps: _ByEnv, row: int, begin: int, count: int) -> list[dict[str, Any]]:
        if not self._keep_infos:
            return [{}] * count
        infos = steps.infos_of(row, begin, count) if self._infos else [{} for _ in range(count)]
        # the pool's infos of a step that ended an episode are about that one
        if any(end.row == row and end.t + 1 == begin for end in self._ends):
            infos[0] = {}
        return infos

    def _end(self, t: int, rows: Array, outcome: StepBatch) -> None:
        assert outcome.final_obs is not None
        now = time.perf_counter()
        failed = outcome.info.get("_env_error")
        for row in rows.tolist():
            # a failed environment has no observation after the last one
            lost = failed is not None and failed[row]
            end = _End(
                t=t,
                row=row,
                id_=self._ids[row],
                length=int(self._length[row]),
                terminated=bool(outcome.terminated[row]),
                truncated=bool(outcome.truncated[row]),
                final_obs=(self._obs[t] if lost else outcome.final_obs)[row].copy(),
            )
            self._ends.append(end)
            seconds = float(self._seconds[row] + now - self._started[row])
            self.ended.append(Ended(end.length, float(self._return[row]), seconds))
            self._ids[row] = uuid.uuid4().hex
        self._length[rows] = 0
        self._return[rows] = 0.0
        self._seconds[rows] = 0.0
        self._started[rows] = now

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
        for array in self._columns.values():
            array[:kept] = array[self._next - kept : self._next].copy()
        self._versions[:kept] = self._versions[self._next - kept : self._next].copy()
        for array in (self._obs, *self._infos.values()):
            array[: kept + 1] = array[self._next - kept : self._next + 1].copy()
        self._first = self._next = kept
        self._ends.clear()
        self.ended = []

    def _grow(self, capacity: int) -> None:
        capacity = max(capacity, 16)
        if capacity <= self._capacity:
            return
        self._columns = {name: _longer(a, capacity) for name, a in self._columns.items()}
        self._versions = _longer(self._versions, capacity)
        self._obs = _longer(self._obs, capacity + 1)
        self._infos = {name: _longer(a, capacity + 1) for name, a in self._infos.items()}
        self._capacity = capacity


class _ByEnv:
    """A segment's arrays once more, environment by environment: a chunk's rows are neighbours.

    In `obs` each final observation has its own row, between the observation before it and the
    first one of the next episode.
    """

    def __init__(
        self,
        columns: Mapping[str, Array],
        obs: Array,
        infos: Mapping[str, Array],
        num_steps: int,
        ends: Sequence[_End],
    ) -> None:
        self.columns = {
            name: np.ascontiguousarray(array[:num_steps].swapaxes(0, 1))
            for name, array in columns.items()
        }
        num_envs = obs.shape[1]
        # ends of an environment before row t push its later observations down
        shift = np.zeros((num_steps + 1, num_envs), np.int64)
        if ends:
            at = tuple(np.array([(end.t + 1, end.row) for end in ends]).T)
            shift[at] = 1
        shift = shift.cumsum(axis=0)
        per_env = num_steps + 1 + shift[-1]
        begin_of_env = np.cumsum(per_env) - per_env
        self._at = begin_of_env + np.arange(num_steps + 1)[:, None] + shift
        self._obs = np.empty((int(per_env.sum()), *obs.shape[2:]), obs.dtype)
        self._obs[self._at] = obs[: num_steps + 1]
        self._infos = {name: array[: num_steps + 1] for name, array in infos.items()}
        for end in ends:
            self._obs[self._at[end.t + 1, end.row] - 1] = end.final_obs

    def obs_of(self, row: int, begin: int, count: int) -> Array:
        """Observations (count, ...) from arena row `begin` on; the last may be a final one."""
        first = self._at[begin, row]
        return self._obs[first : first + count]

    def infos_of(self, row: int, begin: int, count: int) -> list[dict[str, Any]]:
        """A dict for each observation of `obs_of`."""
        names = list(self._infos)
        values = (array[begin : begin + count, row] for array in self._infos.values())
        return [dict(zip(names, each, strict=True)) for each in zip(*values, strict=True)]


def _longer(array: Array, length: int) -> Array:
    new = np.zeros((length, *array.shape[1:]), array.dtype)
    new[: len(array)] = array
    return new
