# SPDX-License-Identifier: Apache-2.0
"""The driver's view of its shards: calls on their way, deaths, and counts."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollouts.batch import EndedEpisodes
from rollouts.errors import WorkerError
from rollouts.learner.fragment import FragmentInfo
from rollouts.replay.shards.admission import Admission
from rollouts.replay.shards.joining import share_out
from rollouts.replay.shards.loss import NO_ITEMS, Loss
from rollouts.replay.shards.service_checkpoint import ReplayCheckpoint, ShardMark
from rollouts.replay.shards.shard import (
    FragmentLostError,
    ShardHandle,
    ShardLostError,
    ShardReport,
    TableReport,
)

_log = logging.getLogger(__name__)

Array = NDArray[Any]

_MOST_EPISODE_REPORTS = 4096
_RESTART_WINDOW_S = 600.0
_FRAGMENTS_PER_SHARD = 2  # on their way: one keeps a shard busy while the other arrives


@dataclass(slots=True, eq=False)
class Add:
    """A fragment on its way into a shard; kept, so that it can be added again if the shard dies."""

    info: FragmentInfo
    payload: Any
    future: Future[ShardReport]


@dataclass(slots=True, eq=False)
class Shard:
    """One shard, over all its incarnations."""

    shard_id: int
    handle: ShardHandle
    incarnation: int = 0
    report: ShardReport = field(default_factory=ShardReport)
    adds: deque[Add] = field(default_factory=deque)
    loading: Future[ShardReport] | None = None
    is_lost: bool = False
    restarts: int = 0
    lost_at: deque[float] = field(default_factory=deque)  # s, of time.monotonic
    loss: Loss = field(default_factory=Loss)

    def table(self, name: str) -> TableReport:
        """Returns the last report on a table."""
        return self.report.tables.get(name, NO_ITEMS)

    def deletes(self, name: str) -> int:
        """Returns the number of items removed from a table, over all incarnations."""
        return self.table(name).deletes + self.loss.deletes.get(name, 0)


class ShardSet:
    """Routes fragments to shards and replaces the shards that die. Not thread-safe.

    In env-steps: produced = inserted + in_flight + sum(discarded by reason). A shard that dies
    loses the inserted data that it had not saved.
    """

    def __init__(
        self,
        launch: Callable[[int], ShardHandle],
        num_shards: int,
        *,
        num_rows: int,
        admissions: Mapping[str, Admission],
        max_restarts: int,
        wake: Callable[[], None],
    ) -> None:
        """Starts the shards without waiting for them.

        Args:
          launch: Starts an incarnation of a shard.
          num_shards: The number of shards.
          num_rows: Environments of a worker.
          admissions: The limiters' counts by table, which this object updates.
          max_restarts: Restarts of a shard in 10 minutes; one that dies more often ends the replay.
          wake: Called on any thread when a call has ended.
        """
        self._launch = launch
        self._num_rows = num_rows
        self._admissions = admissions
        self._max_restarts = max_restarts
        self._wake = wake
        self.shards = [Shard(i, launch(i)) for i in range(num_shards)]
        self.credit = {name: np.zeros(num_shards) for name in admissions}
        # the checkpoint from which a shard that died starts again
        self.checkpoint: ReplayCheckpoint | None = None
        # bounded, since the caller may never read them
        self.episodes: deque[EndedEpisodes] = deque(maxlen=_MOST_EPISODE_REPORTS)
        # added to the workers' incarnations, so that a later run's fragments have other names
        self.first_incarnation = self.newest_incarnation = 0
        self._produced = self._inserted = 0
        self.discarded: Counter[str] = Counter()

    def add(self, info: FragmentInfo, payload: Any) -> None:
        """Sends a fragment to its worker's shard, the same for all incarnations of the worker.

        Args:
          info: Info of the fragment.
          payload: Its arrays, or an argument from which ShardHandle.call makes them.
        """
        shard = self.shards[info.worker_id % len(self.shards)]
        info = replace(info, incarnation=self.first_incarnation + info.incarnation)
        self.newest_incarnation = max(self.newest_incarnation, info.incarnation)
        future = self.watched(shard.handle.call("add", info, payload))
        self._produced += info.num_steps
        shard.adds.append(Add(info, payload, future))
        self._count()

    def draw(self, table: str, batch_size: int) -> list[tuple[Shard, int, float]]:
        """Divides a batch among the shards that have items.

        Returns:
          (shard, items, share of all draws) of each shard that gets some.
        """
        reports = [NO_ITEMS if s.is_lost else s.table(table) for s in self.shards]
        mass = np.array([report.mass for report in reports])
        if not mass.any():
            mass = np.array([float(report.size) for report in reports])
        if not mass.any():
            return []
        share = mass / mass.sum()
        counts, self.credit[table] = share_out(batch_size, share, self.credit[table])
        drawn = zip(self.shards, counts.tolist(), share.tolist(), strict=True)
        return [(shard, count, part) for shard, count, part in drawn if count]

    def see(self, shard: Shard, incarnation: int, report: ShardReport) -> None:
        """Takes over a sample's report on items, unless a newer report is known."""
        same = incarnation == shard.incarnation and report.env_steps == shard.report.env_steps
        # reports that clients pass on may come in any order
        if same and not shard.loading and report.number > shard.report.number:
            shard.report = replace(report, episodes=None)
            self._count()

    def lose(self, shard: Shard, incarnation: int, error: BaseException) -> None:
        """Records that an incarnation died."""
        if shard.incarnation == incarnation and not shard.is_lost:
            # the first line has the reason, further lines all details of Ray
            _log.warning("shard %d died: %s", shard.shard_id, str(error).partition("\n")[0])
            shard.is_lost = True
            # a process that is only out of reach must not insert any more
            shard.handle.close()

    def settle(self) -> None:
        """Processes the calls that have ended, and starts shards again.

        Raises:
          WorkerError: A shard died too often.
          Exception: The error of a shard: the data does not fit the buffer.
        """
        for shard in self.shards:
            self._finish_loading(shard)
            while self._has_news(shard):
                self._finish_add(shard)
            if shard.is_lost and all(add.future.done() for add in shard.adds):
                self._start_again(shard)
        self._count()

    def read(self, checkpoint: ReplayCheckpoint) -> list[Future[None]]:
        """Makes each shard read its part of a checkpoint; the shards keep their data meanwhile."""
        return [
            self.watched(shard.handle.call("load", checkpoint.path_of(mark), mark.mean_mass))
            for shard, mark in zip(self.shards, checkpoint.shards, strict=True)
        ]

    def forget_reads(self) -> None:
        """Makes each shard drop what `read` made it read."""
        for shard in self.shards:
            shard.handle.call("finish_load", False)

    def take_over(self, checkpoint: ReplayCheckpoint) -> None:
        """Continues from a checkpoint that all shards have read; nothing may be on its way."""
        self.checkpoint = checkpoint
        self.credit = {name: np.array(credit) for name, credit in checkpoint.credit.items()}
        for shard, mark in zip(self.shards, checkpoint.shards, strict=True):
            # keys of the items so far must become invalid
            used = shard.report.env_steps > 0
            shard.incarnation = max(mark.incarnation, shard.incarnation + used)
            shard.report, shard.loss = replace(mark.report, number=0), mark.loss
            shard.handle.call("begin_incarnation", shard.incarnation)
            shard.loading = self.watched(shard.handle.call("finish_load", True))
        self.first_incarnation = max(self.newest_incarnation, checkpoint.newest_incarnation) + 1
        self.newest_incarnation = self.first_incarnation
        self._inserted = sum(m.report.env_steps + m.loss.env_steps for m in checkpoint.shards)
        self._produced = self._inserted + sum(checkpoint.discarded.values())
        self.discarded = Counter(checkpoint.discarded)
        self.episodes.clear()
        self._count()

    def watched(self, future: Future[Any]) -> Future[Any]:
        """Calls `wake` when a call has ended; returns the call's future."""
        future.add_done_callback(lambda done: self._wake())
        return future

    @property
    def num_in_flight(self) -> int:
        """Fragments on their way into shards."""
        return sum(len(shard.adds) for shard in self.shards)

    @property
    def has_room(self) -> bool:
        """Tells if all limiters would admit one more fragment after those on their way."""
        if self.num_in_flight >= _FRAGMENTS_PER_SHARD * len(self.shards):
            return False
        return all(each.can_insert() for each in self._admissions.values())

    @property
    def is_loading(self) -> bool:
        """Tells if a shard is loading a checkpoint."""
        return any(shard.loading for shard in self.shards)

    @property
    def is_idle(self) -> bool:
        """Tells if nothing is on its way."""
        return not any(s.adds or s.is_lost or s.loading for s in self.shards)

    def stats(self) -> dict[str, Any]:
        """Returns the part of ReplayService.stats that concerns shards."""
        memory = ("used_bytes", "allocated_bytes")
        return {
            "steps": {
                "produced": self._produced,
                "inserted": self._inserted,
                "in_flight": self._steps_in_flight,
                "discarded": dict(self.discarded),
                "lost_with_shards": sum(s.loss.env_steps for s in self.shards),
            },
            "items_lost": sum(sum(s.loss.items.values()) for s in self.shards),
            "episodes_cut": sum(s.report.episodes_cut + s.loss.episodes_cut for s in self.shards),
            "memory": {name: sum(getattr(s.report, name) for s in self.shards) for name in memory},
            "shard_restarts": sum(s.restarts for s in self.shards),
            "shards": [_describe(shard) for shard in self.shards],
        }

    def close(self) -> None:
        """Ends all shards."""
        for shard in self.shards:
            shard.handle.close()

    def _has_news(self, shard: Shard) -> bool:
        is_there = not (shard.is_lost or shard.loading)
        return is_there and bool(shard.adds) and shard.adds[0].future.done()

    def _finish_add(self, shard: Shard) -> None:
        add = shard.adds[0]
        error = add.future.exception()
        if isinstance(error, ShardLostError):
            self.lose(shard, shard.incarnation, error)
            return
        shard.adds.popleft()
        if isinstance(error, FragmentLostError):
            self.discarded["lost"] += add.info.num_steps
        elif error is not None:
            self.discarded["refused"] += add.info.num_steps
            raise error
        else:
            before, shard.report = shard.report, add.future.result()
            inserted = shard.report.env_steps - before.env_steps
            self._inserted += inserted
            if inserted < add.info.num_steps:
                self.discarded["duplicate"] += add.info.num_steps - inserted
            if shard.report.episodes is not None and len(shard.report.episodes.env_id):
                self.episodes.append(shard.report.episodes)

    def _start_again(self, shard: Shard) -> None:
        """Starts the next incarnation from the last checkpoint, and repeats calls on their way."""
        # some calls may have ended well before the process died
        while shard.adds and shard.adds[0].future.exception() is None:
            self._finish_add(shard)
        self._check_may_restart(shard)
        mark = None if self.checkpoint is None else self.checkpoint.shards[shard.shard_id]
        shard.loss.add(shard.report, ShardReport() if mark is None else mark.report)
        shard.handle = self._launch(shard.shard_id)
        shard.incarnation += 1
        shard.restarts += 1
        shard.is_lost = False
        shard.report, shard.loading = ShardReport(), None
        shard.handle.call("begin_incarnation", shard.incarnation)
        _log.warning(
            "shard %d is started again, %s",
            shard.shard_id,
            "empty" if mark is None else f"from {mark.file}",
        )
        if mark is not None:
            self._load(shard, mark)
        for add in shard.adds:
            add.future = self.watched(shard.handle.call("add", add.info, add.payload))

    def _check_may_restart(self, shard: Shard) -> None:
        now = time.monotonic()
        shard.lost_at.append(now)
        while now - shard.lost_at[0] > _RESTART_WINDOW_S:
            shard.lost_at.popleft()
        if len(shard.lost_at) > self._max_restarts:
            raise WorkerError(
                f"shard {shard.shard_id} died {len(shard.lost_at)} times in "
                f"{_RESTART_WINDOW_S:g} s, expected at most {self._max_restarts} "
                "(shards.max_restarts)"
            )

    def _load(self, shard: Shard, mark: ShardMark) -> None:
        assert self.checkpoint is not None
        shard.handle.call("load", self.checkpoint.path_of(mark), mark.mean_mass)
        shard.loading = self.watched(shard.handle.call("finish_load", True))
        shard.report = replace(mark.report, number=0)

    def _finish_loading(self, shard: Shard) -> None:
        """Takes over a shard's report after loading; missing items count as lost."""
        if shard.loading is None or not shard.loading.done():
            return
        loading, shard.loading = shard.loading, None
        error = loading.exception()
        if error is not None:
            self.lose(shard, shard.incarnation, error)
        elif loading.result().env_steps != shard.report.env_steps:
            _log.warning("shard %d could not read its checkpoint: it is empty", shard.shard_id)
            shard.loss.add(shard.report, loading.result())
            shard.report = loading.result()

    def _count(self) -> None:
        """Updates the limiters' counts."""
        present = [shard for shard in self.shards if not shard.is_lost]
        in_flight = Counter[int]()
        for add in (add for shard in self.shards for add in shard.adds):
            in_flight[add.info.worker_id] += add.info.num_steps
        steps = [math.ceil(num_steps / self._num_rows) for num_steps in in_flight.values()]
        for name, admission in self._admissions.items():
            admission.size = sum(shard.table(name).size for shard in present)
            admission.inserts = sum(
                shard.table(name).inserts + shard.loss.inserts.get(name, 0) for shard in self.shards
            )
            admission.expect(steps, self._num_rows)

    @property
    def _steps_in_flight(self) -> int:
        return sum(add.info.num_steps for shard in self.shards for add in shard.adds)


def _describe(shard: Shard) -> dict[str, Any]:
    report: ShardReport = shard.report
    return {
        "shard_id": shard.shard_id,
        "incarnation": shard.incarnation,
        "restarts": shard.restarts,
        "pid": report.pid,
        "size": sum(table.size for table in report.tables.values()),
        "env_steps": report.env_steps,
        "used_bytes": report.used_bytes,
        "in_flight": len(shard.adds),
    }
