# SPDX-License-Identifier: Apache-2.0
"""The engine of a ReplayService: a thread that feeds the shards, and the calls that wait."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from rollouts.batch import EndedEpisodes
from rollouts.errors import ClosedError, ProtocolError, SpecError, WorkerError
from rollouts.replay.clients.asking import Grant, News
from rollouts.replay.config import TableConfig
from rollouts.replay.reader import summary
from rollouts.replay.sampling import ReplayBatch
from rollouts.replay.shards.admission import Admission
from rollouts.replay.shards.keys import KeyLayout
from rollouts.replay.shards.requests import BatchRequest, Requests
from rollouts.replay.shards.saving import Saving, check_reads
from rollouts.replay.shards.service_checkpoint import ReplayCheckpoint
from rollouts.replay.shards.shard import ShardHandle
from rollouts.replay.shards.shard_set import ShardSet
from rollouts.replay.shards.signal import Signal
from rollouts.replay.shards.supply import Supply
from rollouts.support import at_exit
from rollouts.support.no_room import start_thread

if TYPE_CHECKING:
    from rollouts.workers.on_ray.coordinator import RolloutCoordinator

T = TypeVar("T")
Array = NDArray[Any]

# a waiting call checks again after this long, even without a signal
_LOOK_S = 0.5
# how often the feeding thread checks for the first weights, or for new workers where none is left
_RETRY_S = 0.05
_JOIN_TIMEOUT_S = 10.0


class ShardDriver:
    """Does ReplayService's work, except for checks of arguments and devices. Thread-safe.

    Lock order: `_file_lock`, `_feed_lock`, `_lock`, then the lock of a buffer in this process, then
    the signal's. No thread waits while it holds `_lock`.
    """

    def __init__(
        self,
        coordinator: RolloutCoordinator,
        launch: Callable[[int], ShardHandle],
        num_shards: int,
        *,
        tables: Sequence[TableConfig],
        keys: KeyLayout,
        is_remote: bool,
        max_restarts: int,
    ) -> None:
        """Starts the shards, and feeds them if there are workers.

        Args:
          coordinator: The coordinator whose fragments are taken.
          launch: See ShardSet.
          num_shards: The number of shards.
          tables: Tables of all shards together.
          keys: Keys of the items.
          is_remote: Whether the shards fetch the fragments' arrays themselves.
          max_restarts: See ShardSet.
        """
        self._coordinator = coordinator
        self._is_remote = is_remote
        self._collects_here = coordinator.num_workers == 0
        self._tables = {table.name: table for table in tables}
        self.signal = Signal()  # woken by every event; Ray's threads call this too
        self._stopping = threading.Event()
        self._file_lock = threading.Lock()  # held while a checkpoint is made or loaded
        self._feed_lock = threading.Lock()  # held while a fragment is taken and sent
        self._lock = threading.RLock()  # guards all below
        self._admissions = {table.name: Admission(table) for table in tables}
        self._shards = ShardSet(
            launch,
            num_shards,
            num_rows=coordinator.num_envs_per_worker,
            admissions=self._admissions,
            max_restarts=max_restarts,
            wake=self.signal.wake,
        )
        most = {table.name: table.most_priority for table in tables}
        self._requests = Requests(self._shards, self._admissions, keys, most)
        self._failure: Exception | None = None
        self.supply = Supply()
        self._unclaimed: deque[BatchRequest] = deque()  # requests of samples that timed out
        self._insert_wait_s = dict.fromkeys(self._tables, 0.0)
        self._sample_wait_s = dict.fromkeys(self._tables, 0.0)
        self._last: dict[str, dict[str, Any]] = {}  # age and policy_lag of the last batch
        self.policy_version = 0
        self._thread: threading.Thread | None = None
        if not self._collects_here:
            self._thread = threading.Thread(target=self._feed, name="rollouts-replay", daemon=True)
            start_thread(self._thread)
            at_exit.call_at_exit(self._join)

    def sample(
        self, table: str, batch_size: int, beta: float, timeout_s: float | None, is_endless: bool
    ) -> ReplayBatch:
        """See ReplayService.sample; `is_endless`: the caller waits without a timeout."""
        begin = time.monotonic()
        deadline = None if timeout_s is None else begin + timeout_s
        admission = self._admissions[table]
        admission.check_batch(batch_size)
        if self._collects_here and not admission.has_ratio:
            self._take_fragment(timeout_s)

        def make() -> BatchRequest | None:
            for request in self._unclaimed:
                if (request.table, request.batch_size) == (table, batch_size):
                    self._unclaimed.remove(request)
                    return request
            return self._requests.make(table, batch_size, self.policy_version)

        request = self._until(make, deadline, "admitted by the limiter", lambda: True, is_endless)
        admitted_at = time.monotonic()
        try:
            self._until(
                lambda: self._requests.is_complete(request) or None,
                deadline,
                "sampled",
                lambda: request.num_missing > 0,
                is_endless,
            )
        except TimeoutError:
            with self._lock:
                self._unclaimed.append(request)
            raise
        batch = self._requests.join(request, beta)
        with self._lock:
            self._sample_wait_s[table] += admitted_at - begin
            self._last[table] = {"age": summary(batch.age), "policy_lag": summary(batch.policy_lag)}
        # the feeding thread may insert again
        self.signal.wake()
        return batch

    def grant(
        self, table: str, num_items: int, *, is_admitted: bool, waited_s: float, fresh: int | None
    ) -> Grant | None:
        """Lets a client draw a batch or its missing items; None: not yet. Does not wait.

        Raises:
          Exception: As ReplayService.sample, except for the timeout.
        """
        with self._lock:
            self._settle()
            self._check_alive()
            grant = self._requests.grant(
                table, num_items, self.policy_version, is_admitted=is_admitted
            )
            end = self.supply.why_none(fresh) if self._shards.is_idle else None
            if grant is None and end is not None:
                raise end.with_traceback(None)
            if grant is not None and not is_admitted:
                self._sample_wait_s[table] += waited_s
        if grant is not None:
            # the feeding thread may insert again
            self.signal.wake()
        return grant

    def hear(self, news: News) -> None:
        """Takes over a client's reports."""
        with self._lock:
            self._requests.hear(news)
            for batch in news.delivered:
                self._last[batch.table] = {"age": batch.age, "policy_lag": batch.policy_lag}

    def update_priorities(self, table: str, keys: Array, priorities: Array) -> int:
        """See ReplayService.update_priorities."""
        with self._lock:
            self._check_alive()
            return self._requests.update_priorities(table, keys, priorities)

    def can_sample(self, table: str, n: int) -> bool:
        """See ReplayService.can_sample."""
        with self._lock:
            self._settle()
            return self._admissions[table].can_sample(n)

    def take_episodes(self) -> EndedEpisodes:
        """See ReplayService.take_episodes."""
        none = EndedEpisodes(np.empty(0, np.int32), np.empty(0), np.empty(0, np.int32))
        with self._lock:
            self._settle()
            reports = [none, *self._shards.episodes]
            self._shards.episodes.clear()
        return EndedEpisodes(
            *map(np.concatenate, zip(*(each[:3] for each in reports), strict=True))
        )

    def save(self, directory: Path) -> None:
        """See ReplayService.save."""
        directory.mkdir(parents=True, exist_ok=True)
        with self._file_lock:
            with self._lock:
                self._settle()
                self._check_alive()
                samples = {name: each.samples for name, each in self._admissions.items()}
                saving = Saving(
                    self._shards, directory, samples=samples, policy_version=self.policy_version
                )
            self._until(lambda: saving.is_done or None, None, "saved")
            with self._lock:
                self._settle()
                saving.finish()

    def load(self, directory: Path) -> None:
        """See ReplayService.load."""
        # both locks keep the feeding thread from inserting meanwhile
        with self._file_lock, self._feed_lock:
            checkpoint = ReplayCheckpoint.read(directory, len(self._shards.shards))
            if checkpoint.samples.keys() != self._tables.keys():
                raise SpecError(
                    f"the checkpoint has tables {sorted(checkpoint.samples)}, expected "
                    f"{sorted(self._tables)}: make the service with the same tables"
                )
            self._until(lambda: self._shards.is_idle or None, None, "idle")
            with self._lock:
                reads = self._shards.read(checkpoint)
            self._until(lambda: all(read.done() for read in reads) or None, None, "loaded")
            with self._lock:
                check_reads(self._shards, reads)
                self._shards.take_over(checkpoint)
                self._unclaimed.clear()
                for name, samples in checkpoint.samples.items():
                    self._admissions[name].samples = samples
                self.policy_version = checkpoint.policy_version
            self._until(lambda: self._shards.is_idle or None, None, "loaded")

    def stats(self) -> dict[str, Any]:
        """See ReplayService.stats."""
        with self._lock:
            self._settle()
            tables = {name: self._table_stats(name) for name in self._tables}
            return {
                "tables": tables,
                **self._shards.stats(),
                "clients": {
                    "admitted": {name: self._requests.num_admitted[name] for name in tables},
                    "delivered": {name: self._requests.num_delivered[name] for name in tables},
                },
                "stale_priorities": self._requests.num_stale_priorities,
                "policy_version": self.policy_version,
            }

    def check_open(self) -> None:
        """Raises ClosedError if `stop` was called."""
        if self._stopping.is_set():
            raise ClosedError("the replay service is closed")

    def stop(self) -> None:
        """Ends all waiting calls with ClosedError, and all later ones. Idempotent."""
        self._stopping.set()
        self.signal.wake()

    def close(self) -> None:
        """Calls `stop` and ends the shards. Idempotent."""
        self._join(_JOIN_TIMEOUT_S)
        with self._lock:
            self._shards.close()

    def _join(self, timeout_s: float = at_exit.TIMEOUT_S) -> None:
        self.stop()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _table_stats(self, name: str) -> dict[str, Any]:
        admission, max_size = self._admissions[name], self._tables[name].max_size
        return {
            "size": admission.size,
            "max_size": max_size,
            "occupancy": admission.size / max_size,
            "inserts": admission.inserts,
            "samples": admission.samples,
            "deletes": sum(shard.deletes(name) for shard in self._shards.shards),
            "samples_per_insert": admission.samples / max(1, admission.inserts),
            "insert_wait_s": self._insert_wait_s[name],
            "sample_wait_s": self._sample_wait_s[name],
            "pending": 0,
            **self._last.get(name, {}),
        }

    def _feed(self) -> None:
        """Moves fragments from the coordinator to the shards, until `close`."""
        try:
            while not self._stopping.is_set():
                self._wait_for_room()
                try:
                    self._take_fragment(_LOOK_S)
                    self.supply.came()
                except TimeoutError:
                    self.supply.came_late()
                except ProtocolError as error:  # no weights yet
                    self.supply.found_no_weights(error)
                    self._stopping.wait(_RETRY_S)
                except WorkerError as error:  # no worker is left, but there may be new ones later
                    self.supply.end = error
                    self.signal.wake()
                    self._stopping.wait(_RETRY_S)
        except ClosedError as error:
            self.supply.end = error
        except Exception as error:
            self._failure = self._failure or error
        self.signal.wake()

    def _wait_for_room(self) -> None:
        begin = time.monotonic()
        with self._lock:
            full = [name for name, each in self._admissions.items() if not each.can_insert()]
        self._until(lambda: self._shards.has_room or None, None, "room for a fragment")
        with self._lock:
            for name in full:
                self._insert_wait_s[name] += time.monotonic() - begin

    def _take_fragment(self, timeout_s: float | None, *, needs_room: bool = False) -> None:
        with self._feed_lock:
            with self._lock:
                # another thread may have taken one since the caller checked
                if needs_room and not self._shards.has_room:
                    return
            payload: Any
            if self._is_remote:
                (handle,) = self._coordinator.get_pending(1, timeout_s)
                info, payload = handle.info, handle.fetch
            else:
                (fragment,) = self._coordinator.get_fragments(1, timeout_s)
                info, payload = fragment.info, fragment.payload
            with self._lock:
                self._shards.add(info, payload)
                self.policy_version = max(self.policy_version, info.max_policy_version)

    def _until(
        self,
        attempt: Callable[[], T | None],
        deadline: float | None,
        what: str,
        wants_items: Callable[[], bool] = lambda: False,
        is_endless: bool = False,
    ) -> T:
        """Repeats an attempt, with the lock, after each event, until it has a result.

        Args:
          attempt: Returns None where there is no result yet.
          deadline: A time of time.monotonic; None: none.
          what: Words for the result, in the error "not ... in time".
          wants_items: Whether only inserts help. They are made here if no other thread makes them;
            if none can come, this raises the reason.
          is_endless: Whether missing weights are an error.
        """
        fresh = self.supply.first_fresh if is_endless else None
        while True:
            seen = self.signal.count
            with self._lock:
                self._settle()
                self._check_alive()
                result = attempt()
                if result is not None:
                    return result
                wants = wants_items()
                end = self.supply.why_none(fresh) if wants and self._shards.is_idle else None
                must_collect = self._collects_here and wants and self._shards.has_room
            if end is not None:
                raise end.with_traceback(None)
            left_s = _LOOK_S if deadline is None else min(_LOOK_S, deadline - time.monotonic())
            if left_s <= 0:
                raise TimeoutError(f"not {what} in time; {self._summary()}")
            if must_collect:
                self._take_fragment(None if deadline is None else left_s, needs_room=True)
            else:
                self.signal.wait(seen, left_s)

    def _settle(self) -> None:
        """Processes ended calls, with the lock; a failure is raised in the calls that wait."""
        if self._stopping.is_set() or self._failure is not None:
            return
        try:
            self._shards.settle()
        except Exception as error:
            self._failure = error

    def _check_alive(self) -> None:
        self.check_open()
        if self._failure is not None:
            raise self._failure.with_traceback(None)

    def _summary(self) -> str:
        with self._lock:
            return "; ".join(
                f"{name}: {each.size} items, {each.samples} samples of {each.inserts}, "
                f"{self._tables[name].limiter}"
                for name, each in self._admissions.items()
            )
