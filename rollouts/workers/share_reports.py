# SPDX-License-Identifier: Apache-2.0
"""ShareReports: the reports of coordinators on their shares, and the account of all together."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rollouts.workers.share import INCARNATIONS_PER_LIFE, share_size

_ACCOUNTS = ("env_steps", "fragments")


class ShareReports:
    """The newest report of each life of each coordinator. Thread-safe.

    Fragments that failed in a share and were asked for again there count as requested once more, so
    that the account balances. Those that a coordinator did not report before it died belong to its
    open calls, whose fragments count as interrupted.
    """

    def __init__(self, num_workers: int, num_coordinators: int) -> None:
        """Begins without reports."""
        self._num_workers, self._num_coordinators = num_workers, num_coordinators
        self._lock = threading.Lock()
        # by coordinator and life; reports of former lives have no rows of workers
        self._reports: dict[tuple[int, int], Mapping[str, Any]] = {}
        self._lives: dict[int, int] = {}  # coordinator -> its newest life with a report
        # sums over former lives, so that stats take no longer after many deaths; None: to be summed
        self._former: _Sums | None = None

    def scale_to(self, num_workers: int) -> None:
        """Notes how many workers all coordinators have together from now on."""
        with self._lock:
            self._num_workers = num_workers

    def note(self, coordinator: int, life: int, report: Mapping[str, Any]) -> None:
        """Keeps a report, unless there is a later one of that life."""
        with self._lock:
            kept = self._reports.get((coordinator, life))
            if kept is None or kept["number"] < report["number"]:
                self._reports[coordinator, life] = report
                newest = self._lives.get(coordinator, life)
                self._lives[coordinator] = max(newest, life)
                if life != newest:
                    self._former = None
            former = self._reports.get((coordinator, life - 1))
            if former is not None and former["workers"]:
                self._reports[coordinator, life - 1] = {**former, "workers": []}

    def stats(self, own: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the driver's `own` stats, whose "workers" are coordinators, with all reports.

        Returns:
          As `RolloutCoordinator.stats` says; "coordinators" has a row for each.
        """
        with self._lock:
            lives = {key: self._reports[key] for key in self._lives.items()}
            if self._former is None:
                self._former = _Sums.of(
                    [self._reports[key] for key in self._reports if key not in lives]
                )
            sums = self._former + _Sums.of(list(lives.values()))
        lost, interrupted = sums.lost, sums.interrupted
        total = {name: _with_lost(own[name], lost[name]) for name in _ACCOUNTS}
        total["fragments"]["requested"] += lost["fragments"].total() + interrupted.total()
        total["fragments"]["interrupted"] = dict(
            interrupted + Counter(own["fragments"]["interrupted"])
        )
        coordinators = [_row(slot) for slot in own["workers"]]
        return {
            **own,
            **total,
            "calls": sums.calls,
            "restarts": own["restarts"] + sums.restarts,
            "failures": dict(sums.failures + Counter(own["failures"])),
            "workers_wait_s": sums.workers_wait_s,
            "workers": self._workers(coordinators, lives),
            "coordinators": coordinators,
        }

    def _workers(
        self,
        coordinators: Sequence[Mapping[str, Any]],
        reports: Mapping[tuple[int, int], Mapping[str, Any]],
    ) -> list[dict[str, Any]]:
        """Returns a row for each worker; where there is no report, a row without counts.

        Workers that were taken away keep their row as long as their coordinator lives.
        """
        rows: list[dict[str, Any]] = []
        for coordinator in coordinators:
            number, life = coordinator["coordinator"], coordinator["life"]
            report = reports.get((number, life))
            is_there = coordinator["state"] in ("running", "draining")
            known = report["workers"] if report is not None and is_there else []
            rows += known
            size = share_size(self._num_workers, self._num_coordinators, number)
            # a report may be older than workers that were added
            for index in range(len(known), size):
                worker_id = number + index * self._num_coordinators
                rows.append(_row_of_nobody(worker_id, coordinator))
        return sorted(rows, key=lambda row: int(row["worker_id"]))


@dataclass(frozen=True, slots=True)
class _Sums:
    """Sums over reports."""

    lost: dict[str, Counter[str]]
    interrupted: Counter[str]
    failures: Counter[str]
    calls: int
    restarts: int
    workers_wait_s: float

    @classmethod
    def of(cls, reports: Sequence[Mapping[str, Any]]) -> _Sums:
        return cls(
            {name: _sum(report[name]["discarded"] for report in reports) for name in _ACCOUNTS},
            _sum(report["fragments"]["interrupted"] for report in reports),
            _sum(report["failures"] for report in reports),
            sum(report["calls"] for report in reports),
            sum(report["restarts"] for report in reports),
            sum(report["workers_wait_s"] for report in reports),
        )

    def __add__(self, other: _Sums) -> _Sums:
        return _Sums(
            {name: self.lost[name] + other.lost[name] for name in _ACCOUNTS},
            self.interrupted + other.interrupted,
            self.failures + other.failures,
            self.calls + other.calls,
            self.restarts + other.restarts,
            self.workers_wait_s + other.workers_wait_s,
        )


def _sum(counts: Any) -> Counter[str]:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return total


def _with_lost(account: Mapping[str, Any], lost: Counter[str]) -> dict[str, Any]:
    return {
        **account,
        "produced": account["produced"] + lost.total(),
        "discarded": dict(lost + Counter(account["discarded"])),
    }


def _row(slot: Mapping[str, Any]) -> dict[str, Any]:
    """Makes a coordinator's row from the row of its slot."""
    rest = {name: slot[name] for name in slot if name not in ("worker_id", "incarnation")}
    return {"coordinator": slot["worker_id"], "life": slot["incarnation"], **rest}


def _row_of_nobody(worker_id: int, coordinator: Mapping[str, Any]) -> dict[str, Any]:
    """Makes the row of a worker whose coordinator is not there, or has not said anything yet."""
    state = coordinator["state"]
    return {
        "worker_id": worker_id,
        "incarnation": coordinator["life"] * INCARNATIONS_PER_LIFE,
        "state": "starting" if state == "running" else state,
        "pid": None,
        "host": None,
        "in_flight": 0,
        "fragments": 0,
        "env_steps": 0,
        "recent_failures": 0,
        "last_error": coordinator["last_error"],
    }
