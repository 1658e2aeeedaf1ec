# SPDX-License-Identifier: Apache-2.0
"""The adding side of a ReplayBuffer: rows into streams, items into tables, snapshots of both."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from rollouts import _native
from rollouts.batch import RolloutBatch
from rollouts.errors import ProtocolError, ReplayWarning, SpecError
from rollouts.learner.fragment import Fragment
from rollouts.replay.acted import Outcome
from rollouts.replay.alone import is_only_sampler
from rollouts.replay.columns import Columns
from rollouts.replay.config import TableConfig
from rollouts.replay.items import native_kind
from rollouts.support.user_warnings import warn_user

Array = NDArray[Any]

# how long a wait may hold the buffer's lock at a time
_SLICE_S = 0.05

# priorities of a call's items: one for all, or (T, B) by their first step; None: the highest seen
Priority = float | Array | None

_NATIVE_MODES = {
    AutoresetMode.NEXT_STEP: 0,
    AutoresetMode.SAME_STEP: 1,
    AutoresetMode.DISABLED: 2,
}
_SAME_STEP = _NATIVE_MODES[AutoresetMode.SAME_STEP]
_NO_MODE = -1


class Writer:
    """Adds to the store. Thread-safe: `_lock` guards all attributes, including the core's part.

    A thread that waits for a rate limiter holds the lock, but releases it every few milliseconds if
    another thread asked for a short turn (`_short_turn`). While it is held, no lock is taken except
    the store's own.
    """

    def __init__(
        self,
        store: _native.ReplayStore,
        columns: Columns,
        tables: Mapping[str, TableConfig],
        max_batch_length: int,
        history_rows: int,
        autoreset_mode: AutoresetMode | None,
    ) -> None:
        """Begins without streams."""
        self._mode = _NO_MODE if autoreset_mode is None else _NATIVE_MODES[autoreset_mode]
        self._store = store
        self._columns = columns
        self._max_batch_length = max_batch_length
        self._names = tuple(tables)
        self._kinds = [repr(table.items) for table in tables.values()]
        kinds = [native_kind(table.items) for table in tables.values()]
        self._native = _native.ReplayWriter(store, kinds, history_rows, columns.convert)
        self._lock = threading.Condition(threading.Lock())
        self._asking_lock = threading.Lock()  # guards _num_asking, always the last lock taken
        self._num_asking = 0
        self._expected: dict[int, tuple[int, int]] = {}  # worker_id -> incarnation, seq_no
        self._discarded: Counter[str] = Counter()
        self._wait_s = dict.fromkeys(tables, 0.0)
        self._told_of_cuts = False
        self._env_id: NDArray[np.int64] = np.zeros(0, np.int64)

    @property
    def policy_version(self) -> int:
        """The newest version that was added or set."""
        return self._native.policy_version

    @policy_version.setter
    def policy_version(self, version: int) -> None:
        self._native.policy_version = version

    @property
    def env_id(self) -> NDArray[np.int64]:
        """The env_ids by stream (N,)."""
        found = self._env_id
        if len(found) < self._native.num_streams:
            self._env_id = found = self._native.env_ids()
        return found

    def add_batch(
        self, batch: RolloutBatch | Fragment, priority: Priority, timeout_s: float | None
    ) -> int:
        """See ReplayBuffer.add_batch."""
        fragment = batch if isinstance(batch, Fragment) else None
        rollout = batch.batch if isinstance(batch, Fragment) else batch
        steps = len(rollout.reward)
        if steps > self._max_batch_length:
            raise SpecError(
                f"the batch has T = {steps} steps, expected at most {self._max_batch_length}: make "
                "the buffer with a larger max_batch_length"
            )
        columns = self._columns.of_batch(rollout)
        deadline = _deadline(timeout_s)
        with self._long_turn(deadline):
            inserted = self._insert_pending(deadline)
            if fragment is not None and not self._follows(fragment):
                self._native.produced += rollout.reward.size
                self._discarded["duplicate"] += rollout.reward.size
                return inserted
            final_obs, active = _of_active(rollout)
            inserted += self._native.add_batch(
                columns, rollout.last_obs, rollout.env_id, final_obs, active, priority
            )
            if fragment is not None:
                info = fragment.info
                self._expected[info.worker_id] = (info.incarnation, info.seq_no + 1)
            inserted += self._wait(deadline)
            news = self._news_of_cuts()
        _tell(news)
        return inserted

    def add_step(
        self,
        columns: tuple[Any, ...],
        outcome: Outcome,
        priority: Priority,
        timeout_s: float | None,
    ) -> int:
        """See ReplayBuffer.add_step; `columns` are (B, ...)."""
        if self._mode != _SAME_STEP:
            self._check_mode(outcome)
        deadline = None if timeout_s is None else _deadline(timeout_s)
        native = self._native
        # this is `_long_turn` without a generator, which would take as long as a step of few
        # environments
        if not self._lock.acquire(blocking=False):
            self._acquire(deadline)
        try:
            inserted = self._insert_pending(deadline) if native.num_pending else 0
            inserted += native.add_step(columns, *outcome, self._mode, priority)
            if native.num_pending:
                inserted += self._wait(deadline)
            news = self._news_of_cuts()
        finally:
            self._lock.release()
        _tell(news)
        return inserted

    def end_episodes(self, env_id: Array | None) -> None:
        """See ReplayBuffer.end_episodes."""
        with self._short_turn():
            self._native.end_episodes(env_id)

    def flush(self, timeout_s: float | None) -> int:
        """See ReplayBuffer.flush."""
        deadline = _deadline(timeout_s)
        with self._long_turn(deadline):
            inserted = self._native.insert_now() + self._wait(deadline)
            news = self._news_of_cuts()
        _tell(news)
        return inserted

    def stats(self) -> dict[str, Any]:
        """Returns this side's part of ReplayBuffer.stats."""
        with self._short_turn():
            pending = {name: self._native.pending(i) for i, name in enumerate(self._names)}
            return {
                "pending": pending,
                "insert_wait_s": dict(self._wait_s),
                "steps": {
                    "produced": self._native.produced,
                    "discarded": dict(self._discarded),
                },
                "episodes_cut": self._native.episodes_cut,
            }

    def snapshot(self) -> tuple[dict[str, Any], dict[str, Array], _native.StatePieces]:
        """Returns header, arrays and native state, all of one moment of this side."""
        with self._short_turn():
            header = {
                "config": self._config(),
                "policy_version": self.policy_version,
                "expected": [[worker, *next_one] for worker, next_one in self._expected.items()],
                "produced": self._native.produced,
                "discarded": dict(self._discarded),
                "episodes_cut": self._native.episodes_cut,
            }
            return header, self._native.state(), self._store.state_pieces()

    def restore(self, header: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        """Takes over what `snapshot` returned.

        Raises:
          SpecError: It comes from a buffer made with other arguments; nothing has changed.
        """
        if header.get("config") != self._config():
            raise SpecError(
                f"the saved buffer was made with {header.get('config')}, this one with "
                f"{self._config()}: make it with the same arguments"
            )
        with self._short_turn():
            before = self._native.state()
            self._native.load_state(dict(arrays))
            try:
                self._store.load_state(np.ascontiguousarray(arrays["native"]))
            except BaseException:
                self._native.load_state(before)
                raise
            self._env_id = self._native.env_ids()
            self.policy_version = header["policy_version"]
            self._expected = {worker: (inc, seq) for worker, inc, seq in header["expected"]}
            self._native.produced = header["produced"]
            self._discarded = Counter(header["discarded"])
            self._native.episodes_cut = header["episodes_cut"]

    def _config(self) -> dict[str, Any]:
        tables = [list(pair) for pair in zip(self._names, self._kinds, strict=True)]
        return {"columns": self._columns.describe(), "tables": tables}

    def _check_mode(self, outcome: Outcome) -> None:
        """Raises SpecError where the step cannot come from environments in the buffer's mode."""
        if self._mode == _NO_MODE:
            raise SpecError(
                "the buffer was made without autoreset_mode, which add_step needs: give "
                "ReplayBuffer the mode of the environments"
            )
        *_, finals = outcome
        if finals.get("final_obs") is not None:
            raise SpecError(
                'the step has final_obs, as those of autoreset_mode="same_step" alone: make the '
                "ReplayBuffer with the mode of the environments"
            )

    def _follows(self, fragment: Fragment) -> bool:
        """Returns whether a fragment is new; cuts its episodes if one before it is missing."""
        name = (fragment.info.incarnation, fragment.info.seq_no)
        expected = self._expected.get(fragment.info.worker_id)
        if expected is not None and name < expected:
            return False
        if expected is not None and name != expected:
            self._native.end_episodes(fragment.batch.env_id)
        return True

    def _insert_pending(self, deadline: float | None) -> int:
        """Inserts what earlier calls left pending; TimeoutError if the time is too short."""
        if not self._native.num_pending:
            return 0
        inserted = self._native.insert_now() + self._wait(deadline)
        if self._native.num_pending:
            raise TimeoutError(
                f"{self._native.num_pending} items of earlier calls wait for the rate limiter, "
                "expected the learner to sample; nothing was added, call again"
            )
        return inserted

    def _wait(self, deadline: float | None) -> int:
        """Inserts what is pending until `deadline`."""
        inserted = 0
        for index, name in enumerate(self._names if self._native.num_pending else ()):
            begin = time.monotonic()
            while self._native.pending(index) and (deadline is None or time.monotonic() < deadline):
                # checked before the table: a thread may sample and then end
                is_alone = deadline is None and is_only_sampler()
                left = _SLICE_S if deadline is None else max(0.0, deadline - time.monotonic())
                count = self._native.insert(index, 0.0 if is_alone else min(left, _SLICE_S))
                if is_alone and not count:
                    self._raise_alone(index)
                inserted += count
                # lets threads with short turns go first
                self._lock.wait_for(lambda: self._num_asking == 0)
            self._wait_s[name] += time.monotonic() - begin
        return inserted

    def _raise_alone(self, index: int) -> None:
        name = self._names[index]
        info = self._store.info(name)
        raise ProtocolError(
            f"adding: the rate limiter of table {name!r} lets no more in, and no other thread is "
            "there that could sample, so this one would wait for itself: the table has "
            f"{info['size']} items after {info['num_inserts']} inserts and {info['num_samples']} "
            f"samples; {self._native.pending(index)} items are pending, and are not to be added "
            "again. Sample first, then call flush(), or give timeout_s"
        )

    def _news_of_cuts(self) -> str | None:
        """Returns a warning about items that were cut; None: none were, or it was given before."""
        if self._told_of_cuts or not self._native.has_cut_away:
            return None
        self._told_of_cuts = True
        counts = zip(self._names, self._kinds, self._native.cut_away, strict=True)
        lost = [f"{count} of table {name!r} ({kind})" for name, kind, count in counts if count]
        return (
            f"{self._native.episodes_cut} open episodes were cut, because the next step's obs was "
            "not the next_obs of the step before: no item reaches over such a place, and items of "
            f"several steps became shorter or were left out, so far {', '.join(lost)}. Add each "
            "environment's steps in their order, with its own env_id; call end_episodes where "
            "environments were reset; steps in any other order make items of one step "
            '(NStep(1)). This is told once; stats()["episodes_cut"] goes on counting'
        )

    def _acquire(self, deadline: float | None) -> None:
        left = -1.0 if deadline is None else max(0.0, deadline - time.monotonic())
        if not self._lock.acquire(timeout=left):
            raise TimeoutError("another thread waits for the rate limiter; nothing was added")

    @contextmanager
    def _long_turn(self, deadline: float | None) -> Iterator[None]:
        """Holds the lock, after waiting for as long as rate limiters delay earlier calls."""
        self._acquire(deadline)
        try:
            yield
        finally:
            self._lock.release()

    @contextmanager
    def _short_turn(self) -> Iterator[None]:
        """Holds the lock after a short wait, because long turns release it for this."""
        with self._asking_lock:
            self._num_asking += 1
        with self._lock:
            try:
                yield
            finally:
                with self._asking_lock:
                    self._num_asking -= 1
                self._lock.notify_all()


def _tell(news: str | None) -> None:
    # last and without the lock: if warnings are errors, all work is done already
    if news is not None:
        warn_user(news, ReplayWarning)


def _of_active(rollout: RolloutBatch) -> tuple[Array | None, Array | None]:
    """Returns final_obs of the steps to store, and a mask of these steps; None: all."""
    active, final_obs = rollout.active, rollout.final_obs
    if active is not None and final_obs is not None:
        # one row for each end, except for agents that are no longer active
        final_obs = final_obs[active[rollout.terminated | rollout.truncated]]
    return final_obs, active


def _deadline(timeout_s: float | None) -> float | None:
    return None if timeout_s is None else time.monotonic() + timeout_s
