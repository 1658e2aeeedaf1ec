# SPDX-License-Identifier: Apache-2.0
"""The adding side of a ReplayBuffer: rows into streams, items into tables, snapshots of both."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from rollouts import _native
from rollouts.arguments import to_autoreset_mode
from rollouts.batch import RolloutBatch
from rollouts.errors import SpecError
from rollouts.replay.backlog import Backlog
from rollouts.replay.columns import Columns, Rows
from rollouts.replay.config import TableConfig
from rollouts.replay.streams import Made, Streams

Array = NDArray[Any]


# of the items of one call: the highest seen, one for all, or (T, B) by the step they begin at
Priority = float | Array | None


class FragmentLike(Protocol):
    """A worker's rollout with its name, such as `rollouts.distributed.fragment.Fragment`."""

    @property
    def worker_id(self) -> int: ...
    @property
    def incarnation(self) -> int: ...
    @property
    def seq_no(self) -> int: ...
    @property
    def batch(self) -> RolloutBatch: ...


class Writer:
    """Adds to the store. Thread-safe: `_lock` guards all that is here, `streams` included.

    Who waits for a rate limiter holds the lock, but lets go of it every few milliseconds if
    somebody asked for a short turn (`_short_turn`). No lock but the store's own is taken inside.
    """

    def __init__(
        self,
        store: _native.ReplayStore,
        columns: Columns,
        tables: Mapping[str, TableConfig],
        max_batch_length: int,
        history_rows: int,
    ) -> None:
        """Begins without streams."""
        self._store = store
        self._columns = columns
        self._max_batch_length = max_batch_length
        self._names = tuple(tables)
        self._kinds = [repr(table.items) for table in tables.values()]
        obs = (columns.obs_shape, columns.obs_dtype)
        kinds = [table.items for table in tables.values()]
        self.streams = Streams(store, kinds, obs, history_rows)
        self._backlog = Backlog(store, tuple(tables))
        self._lock = threading.Condition(threading.Lock())
        self._asking_lock = threading.Lock()  # guards _num_asking, always the last lock taken
        self._num_asking = 0
        self._expected: dict[int, tuple[int, int]] = {}  # worker_id -> incarnation, seq_no
        self._produced = 0
        self._discarded: Counter[str] = Counter()
        self._episodes_cut = 0
        self.policy_version = 0

    def add_batch(
        self, batch: RolloutBatch | FragmentLike, priority: Priority, timeout_s: float | None
    ) -> int:
        """See ReplayBuffer.add_batch."""
        rollout = batch if isinstance(batch, RolloutBatch) else batch.batch
        steps = len(rollout.reward)
        if steps > self._max_batch_length:
            raise SpecError(
                f"the batch has T = {steps} steps, expected at most {self._max_batch_length}: make "
                "the buffer with a larger max_batch_length"
            )
        rows = self._columns.from_batch(rollout)
        last_obs = self._columns.as_obs("last_obs", rollout.last_obs, len(rollout.env_id))
        deadline = _deadline(timeout_s)
        with self._long_turn(deadline):
            inserted = self._insert_pending(deadline)
            if not isinstance(batch, RolloutBatch) and not self._follows(batch):
                self._produced += rollout.reward.size
                self._discarded["duplicate"] += rollout.reward.size
                return inserted
            stream = self.streams.find(rollout.env_id)
            self._cut(self.streams.broken(stream, rows.columns["obs"][0]))
            self._append(stream, rows, priority)
            self.streams.remember(stream, last_obs)
            if not isinstance(batch, RolloutBatch):
                self._expected[batch.worker_id] = (batch.incarnation, batch.seq_no + 1)
            return inserted + self._backlog.insert(deadline, self._pause)

    def add_step(
        self,
        columns: dict[str, Array],
        next_obs: Array,
        env_id: Array,
        info: Mapping[str, Any],
        autoreset_mode: str | AutoresetMode,
        priority: Priority,
        timeout_s: float | None,
    ) -> int:
        """See ReplayBuffer.add_step; `columns` are (1, B, ...)."""
        mode = to_autoreset_mode(autoreset_mode)
        ended = columns["terminated"] | columns["truncated"]
        failed = np.asarray(info.get("_env_error", np.zeros(ended.shape[1], np.bool_)))
        if env_id.shape != ended.shape[1:]:
            raise SpecError(f"env_id has shape {env_id.shape}, expected {ended.shape[1:]}")
        deadline = _deadline(timeout_s)
        with self._long_turn(deadline):
            inserted = self._insert_pending(deadline)
            stream = self.streams.find(env_id)
            valid = ~self.streams.awaits_reset(stream)[None]
            ended &= valid & ~failed
            final_obs = None
            if ended.any():
                final = next_obs if mode is not AutoresetMode.SAME_STEP else _final_obs(info, ended)
                final_obs = self._columns.as_obs("final_obs", final[ended[0]], int(ended.sum()))
            self._cut(self.streams.broken(stream, columns["obs"][0]))
            self._append(stream, Rows(columns, valid, ended, final_obs), priority)

            # where the next step has to begin, if it is not the user who resets
            if mode is AutoresetMode.DISABLED:
                going = ~ended[0]
                self.streams.remember(stream[going], next_obs[going])
                self.streams.forget(stream[ended[0]])
            else:
                self.streams.remember(stream, next_obs)
            self._cut(stream[failed], keep_obs=True)
            if mode is AutoresetMode.NEXT_STEP:
                self.streams.await_reset(stream, (ended[0] | failed) & valid[0])
            return inserted + self._backlog.insert(deadline, self._pause)

    def end_episodes(self, env_id: Array | None) -> None:
        """See ReplayBuffer.end_episodes."""
        with self._short_turn():
            self._cut(self.streams.known(env_id))

    def flush(self, timeout_s: float | None) -> int:
        """See ReplayBuffer.flush."""
        deadline = _deadline(timeout_s)
        with self._long_turn(deadline):
            return self._backlog.insert(deadline, self._pause)

    def stats(self) -> dict[str, Any]:
        """Returns this side's part of ReplayBuffer.stats."""
        with self._short_turn():
            return {
                "pending": self._backlog.sizes(),
                "insert_wait_s": dict(self._backlog.wait_s),
                "steps": {"produced": self._produced, "discarded": dict(self._discarded)},
                "episodes_cut": self._episodes_cut,
            }

    def snapshot(self) -> tuple[dict[str, Any], dict[str, Array], _native.StatePieces]:
        """Returns header, arrays and native state of all, from one moment of this side."""
        with self._short_turn():
            header = {
                "config": self._config(),
                "policy_version": self.policy_version,
                "expected": [[worker, *next_one] for worker, next_one in self._expected.items()],
                "produced": self._produced,
                "discarded": dict(self._discarded),
                "episodes_cut": self._episodes_cut,
            }
            arrays = {f"streams.{n}": a.copy() for n, a in self.streams.state().items()}
            arrays |= {f"backlog.{n}": a for n, a in self._backlog.state().items()}
            pieces = self._store.state_pieces()
            return header, arrays, pieces

    def restore(self, header: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        """Takes over what `snapshot` returned.

        Raises:
          SpecError: It is of a buffer made with other arguments; nothing has changed.
        """
        if header.get("config") != self._config():
            raise SpecError(
                f"the saved buffer was made with {header.get('config')}, this one with "
                f"{self._config()}: make it with the same arguments"
            )
        with self._short_turn():
            self._store.load_state(np.ascontiguousarray(arrays["native"]))
            self.streams.load_state(_without_prefix(arrays, "streams."))
            self._backlog.load_state(_without_prefix(arrays, "backlog."))
            self.policy_version = header["policy_version"]
            self._expected = {worker: (inc, seq) for worker, inc, seq in header["expected"]}
            self._produced = header["produced"]
            self._discarded = Counter(header["discarded"])
            self._episodes_cut = header["episodes_cut"]

    def _config(self) -> dict[str, Any]:
        tables = [list(pair) for pair in zip(self._names, self._kinds, strict=True)]
        return {"columns": self._columns.describe(), "tables": tables}

    def _follows(self, fragment: FragmentLike) -> bool:
        """Whether a fragment is new; cuts its episodes if one before it is missing."""
        name = (fragment.incarnation, fragment.seq_no)
        expected = self._expected.get(fragment.worker_id)
        if expected is not None and name < expected:
            return False
        if expected is not None and name != expected:
            self._cut(self.streams.known(fragment.batch.env_id))
        return True

    def _append(self, stream: Array, rows: Rows, priority: Priority) -> None:
        """Stores rows and makes the items that they complete pending."""
        final = self._columns.final_columns(rows.final_obs)
        row = self._store.append(
            stream,
            rows.columns,
            first=self.streams.firsts(stream, rows.valid),
            ended=rows.ended,
            final=final,
            valid=rows.valid,
        )
        made = self.streams.appended(stream, row, rows.ended)
        if isinstance(priority, np.ndarray):
            self.streams.set_priorities(stream, row, priority.reshape(row.shape))
        elif self.streams.has_priorities:
            self.streams.set_priorities(stream, row, np.full(row.shape, np.nan))
        one = priority if isinstance(priority, float) else None
        self._backlog.push(made, [self._priorities(items, one) for items in made])
        self._produced += int(rows.valid.sum())
        newest = int(rows.columns["policy_version"].max(initial=0))
        self.policy_version = max(self.policy_version, newest)

    def _cut(self, stream: Array, *, keep_obs: bool = False) -> None:
        if len(stream):
            self._episodes_cut += self.streams.num_open(stream)
            made = self.streams.cut(stream, keep_obs=keep_obs)
            self._backlog.push(made, [self._priorities(items, None) for items in made])

    def _priorities(self, items: Made, one: float | None) -> Array:
        """Returns the priorities (K,) of items: one for all, or of the step each begins at."""
        if one is None and self.streams.has_priorities:
            return self.streams.priorities(items[0], items[1])
        return np.full(len(items[0]), np.nan if one is None else one)

    def _insert_pending(self, deadline: float | None) -> int:
        """Inserts what earlier calls left; TimeoutError if that cannot be done in time."""
        inserted = self._backlog.insert(deadline, self._pause) if len(self._backlog) else 0
        if len(self._backlog):
            raise TimeoutError(
                f"{len(self._backlog)} items of earlier calls wait for the rate limiter, expected "
                "the learner to sample; nothing was added, call again"
            )
        return inserted

    def _pause(self) -> None:
        """Lets short turns happen; called with the lock."""
        self._lock.wait_for(lambda: self._num_asking == 0)

    @contextmanager
    def _long_turn(self, deadline: float | None) -> Iterator[None]:
        """Holds the lock, which takes as long as the rate limiter makes the one before wait."""
        left = -1.0 if deadline is None else max(0.0, deadline - time.monotonic())
        if not self._lock.acquire(timeout=left):
            raise TimeoutError("another thread waits for the rate limiter; nothing was added")
        try:
            yield
        finally:
            self._lock.release()

    @contextmanager
    def _short_turn(self) -> Iterator[None]:
        """Holds the lock, which nobody keeps from this thread for long."""
        with self._asking_lock:
            self._num_asking += 1
        with self._lock:
            try:
                yield
            finally:
                with self._asking_lock:
                    self._num_asking -= 1
                self._lock.notify_all()


def _deadline(timeout_s: float | None) -> float | None:
    return None if timeout_s is None else time.monotonic() + timeout_s


def _final_obs(info: Mapping[str, Any], ended: NDArray[np.bool_]) -> Array:
    """Returns the final observations as one array (B, *obs_shape), zero where none is."""
    final = info.get("final_obs")
    if final is None:
        raise SpecError(
            'info has no "final_obs" though an episode ended: expected what step() of an '
            'environment with autoreset_mode="same_step" returned'
        )
    rows = np.flatnonzero(ended[0])
    dense = np.stack([np.asarray(final[row]) for row in rows])
    result = np.zeros((ended.shape[1], *dense.shape[1:]), dense.dtype)
    result[rows] = dense
    return result


def _without_prefix(arrays: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    return {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}
