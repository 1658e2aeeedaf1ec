# SPDX-License-Identifier: Apache-2.0
"""Batches: makes rows from shared arrays, episode statistics, infos and failures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from rollouts.checks import add_errors
from rollouts.envs.hosted.leaves import Leaf, nest
from rollouts.envs.hosted.merged_infos import mask_of, merge_own_infos, object_column
from rollouts.envs.hosted.processes.failures import ProcessFailure, env_error
from rollouts.envs.hosted.processes.host import Host
from rollouts.envs.hosted.processes.records import Record
from rollouts.errors import EnvError

Array = npt.NDArray[Any]
Info = dict[str, Any]


class Batch(NamedTuple):
    """Rows that are handed out together: STEP_ARRAYS in order, then the sources of infos.

    Attributes:
      obs, final_obs: Nested (B, ...) arrays; final_obs is valid where an episode ended. None: it is
        not kept.
      records: (row, its Record), for rows that have more than arrays.
      failures: env_id and failure of each row that failed.
    """

    obs: Any
    reward: Array
    terminated: Array
    truncated: Array
    env_id: Array
    episode_return: Array
    episode_length: Array
    final_obs: Any
    records: Sequence[tuple[int, Record]]
    failures: Sequence[tuple[int, ProcessFailure]]

    def error(self) -> EnvError:
        """Returns the error to raise for the failures."""
        env_id, failure = self.failures[0]
        others = [str(other) for other, _ in self.failures[1:]]
        also = f" (and env_id {', '.join(others)})" if others else ""
        return env_error(f"env_id {env_id} failed{also}", failure)


class HostedEpisodes:
    """Keeps the statistics of N episodes, whose rows come in any order.

    Attributes:
      returns, lengths: (N,) float64 and int32, so far.
      has_ended, has_begun: (N,) bool: whether the last row ended an episode, and whether there was
        any row.
      all_can_step: Whether no environment needs a reset first.
    """

    def __init__(self, num_envs: int, mode: AutoresetMode) -> None:
        self.returns = np.zeros(num_envs, np.float64)
        self.lengths = np.zeros(num_envs, np.int32)
        self.has_ended = np.zeros(num_envs, np.bool_)
        self.has_begun = np.zeros(num_envs, np.bool_)
        self._stays_over = mode is AutoresetMode.DISABLED
        self._all_begun = self.all_can_step = False

    def add(self, rows: Any, reward: Array, ended: Array, was_reset: Array) -> tuple[Array, Array]:
        """Adds a row to each of the episodes `rows`; returns their returns and lengths so far."""
        begins = self.has_ended[rows] | was_reset
        if begins.any():
            returns = np.where(begins, 0.0, self.returns[rows]) + reward
            lengths = (np.where(begins, 0, self.lengths[rows]) + ~was_reset).astype(np.int32)
        else:
            returns, lengths = self.returns[rows] + reward, self.lengths[rows] + np.int32(1)
        self.returns[rows], self.lengths[rows] = returns, lengths
        self.has_ended[rows] = ended
        if not self._all_begun:
            self.has_begun[rows] = True
            self._all_begun = bool(self.has_begun.all())
        self.all_can_step = self._all_begun and not (self._stays_over and self.has_ended.any())
        return returns, lengths

    @property
    def needs_reset(self) -> Array:
        """(N,) bool: environments that cannot step before a reset."""
        return ~self.has_begun | (self._stays_over & self.has_ended)


class BatchReader:
    """Makes batches from the rows in which a host's environments write their results."""

    def __init__(
        self,
        host: Host,
        space: gymnasium.Space[Any],
        episodes: HostedEpisodes,
        *,
        env_id_offset: int,
        copies: bool,
    ) -> None:
        self._host, self._space, self._episodes = host, space, episodes
        self._copies = copies
        self._env_ids = np.arange(env_id_offset, env_id_offset + host.num_envs, dtype=np.int32)

    def read(self, rows: Array | None, out: Mapping[str, Array], *, same_step: bool) -> Batch:
        """Reads rows that are done and adds them to their episodes; None: all rows, in order."""
        host, arrays = self._host, self._host.arrays
        at: Any = slice(None) if rows is None else rows
        reward, terminated = arrays["reward"][at].copy(), arrays["terminated"][at].copy()
        truncated = arrays["truncated"][at].copy()
        returns, lengths = self._episodes.add(
            at, reward, terminated | truncated, arrays["was_reset"][at]
        )
        records: list[tuple[int, Record]] = []
        if host.records:
            wanted = range(host.num_envs) if rows is None else rows.tolist()
            for place, row in enumerate(wanted):
                record = host.records.pop(row, None)
                if record is not None:
                    records.append((place, record))
        final = None
        if same_step:
            final_objects = {place: record.final_objects for place, record in records}
            final = self._nested("final_obs", at, lambda place: final_objects.get(place, ()))
        failures: list[tuple[int, ProcessFailure]] = []
        for _, record in records:
            if record.failure is not None:
                failures.append((int(self._env_ids[record.index]), record.failure))
        batch = Batch(
            obs=self.observations(at),
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            env_id=self._env_ids[at].copy(),
            episode_return=returns,
            episode_length=lengths,
            final_obs=final,
            records=records,
            failures=failures,
        )
        if out:
            for name, target in out.items():
                np.copyto(target, getattr(batch, name))
            filled: dict[str, Any] = {**out}
            batch = batch._replace(**filled)
        return batch

    def observations(self, at: Any) -> Any:
        """The last observations of rows, nested as the batched space."""
        objects = self._host.objects
        chosen = range(self._host.num_envs)[at] if isinstance(at, slice) else at.tolist()
        return self._nested("obs", at, lambda place: objects[chosen[place]])

    def final_observations(self) -> Any:
        """The last observation of each environment's ended episode, as nested (N, ...) arrays."""
        return self._nested("final_obs", slice(None), lambda place: ())

    def _nested(self, group: str, at: Any, objects_of: Any) -> Any:
        host, columns, object_place = self._host, [], 0
        count = host.num_envs if isinstance(at, slice) else len(at)
        for index, leaf in enumerate(host.observation_leaves):
            if leaf.dtype is not None:
                array = host.arrays[f"{group}/{index}"][at]
                # rows picked by an index array are a copy already
                views = isinstance(at, slice) and self._copies
                columns.append(array.copy() if views else array)
                continue
            values = [objects_of(place) for place in range(count)]
            columns.append(tuple(one[object_place] if one else None for one in values))
            object_place += 1
        return nest(self._space, columns)

    def infos(self, batch: Batch, *, same_step: bool) -> Info:
        """Merges what the environments reported, in Gymnasium's layout."""
        if not (batch.records or same_step):
            return {}
        count = len(batch.env_id)
        told = [(place, record.info) for place, record in batch.records if record.info]
        info = merge_own_infos(count, [place for place, _ in told], [each for _, each in told])
        ended = np.flatnonzero(batch.terminated | batch.truncated).tolist() if same_step else []
        if ended:
            records = dict(batch.records)
            finals = [self._final_of(batch, place, records.get(place)) for place in ended]
            final_infos = [final_info for _, final_info in finals]
            info["final_obs"] = object_column(count, ended, [obs for obs, _ in finals])
            info["final_info"] = merge_own_infos(count, ended, final_infos)
            for name in ("_final_obs", "_final_info"):
                info[name] = mask_of(count, ended)
        return info

    def _final_of(self, batch: Batch, place: int, record: Record | None) -> tuple[Any, Info]:
        """The last observation and info of the episode that ended in a row."""
        if record is not None and record.final_exact:
            return record.final_exact[0], record.final_info
        final = _one(self._space, self._host.observation_leaves, batch.final_obs, place)
        return final, record.final_info if record is not None else {}


class BatchInfos:
    """Makes the infos of batches, as `step` and as `recv_batch` return them."""

    def __init__(
        self, reader: BatchReader, *, same_step: bool, has_statistics: bool, reports_errors: bool
    ) -> None:
        """Takes the reader of the environments' own infos, and options for additions to them."""
        self._reader, self._same_step = reader, same_step
        self._has_statistics, self._reports_errors = has_statistics, reports_errors

    def of_step(self, batch: Batch) -> Info:
        """The environments' own infos, statistics, final infos and failures; see `from_env_fns`."""
        info = self._reader.infos(batch, same_step=self._same_step)
        if self._has_statistics:
            info = add_statistics(info, batch, same_step=self._same_step)
        if self._reports_errors:
            add_failures(info, batch)
        return info

    def columns(self, batch: Batch) -> Info:
        """Arrays that the environments reported, without nested dicts; and failures."""
        info = self._reader.infos(batch, same_step=False)
        info = {name: value for name, value in info.items() if not isinstance(value, dict)}
        if self._reports_errors:
            add_failures(info, batch)
        return info


def _one(space: gymnasium.Space[Any], leaves: tuple[Leaf, ...], batch: Any, place: int) -> Any:
    """One environment's observation, in memory of its own."""
    parts = [leaf.of(batch) for leaf in leaves]
    # the dots make the result an array even where it has no dimension
    rows = (p[place, ...].copy() if isinstance(p, np.ndarray) else p[place] for p in parts)
    return nest(space, rows)


def add_statistics(info: Info, batch: Batch, *, same_step: bool) -> Info:
    """Adds env_id, episode_return and episode_length as a native pool has them."""
    told: Info = {
        "env_id": batch.env_id,
        "episode_return": batch.episode_return,
        "episode_length": batch.episode_length,
    }
    ended = batch.terminated | batch.truncated
    if same_step and ended.any():
        final_info = info["final_info"]
        for name, values in told.items():
            final_info[name] = np.where(ended, values, np.zeros((), values.dtype))
            final_info[f"_{name}"] = ended
    return {**told, **info}


def add_failures(info: Info, batch: Batch) -> None:
    """Adds env_error where an environment failed."""
    add_errors(info, batch.env_id, [(env_id, each.message) for env_id, each in batch.failures])
