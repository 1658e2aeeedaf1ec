# SPDX-License-Identifier: Apache-2.0
"""`ShareReports`: sums over all lives of all coordinators, beside a plain sum."""

from __future__ import annotations

import random
from typing import Any

from rollouts.workers.share_reports import ShareReports

OWN = {
    "env_steps": {"produced": 0, "discarded": {}},
    "fragments": {"requested": 0, "produced": 0, "discarded": {}, "interrupted": {}},
    "restarts": 0,
    "failures": {},
}


def report_of(dice: random.Random, number: int) -> dict[str, Any]:
    def counts() -> dict[str, int]:
        return {name: dice.randint(0, 9) for name in ("lag", "lost", "worker_died")}

    return {
        "number": number,
        "env_steps": {"discarded": counts()},
        "fragments": {"discarded": counts(), "interrupted": counts()},
        "failures": counts(),
        "calls": dice.randint(0, 9),
        "restarts": dice.randint(0, 9),
        "workers_wait_s": dice.randint(0, 9) / 4,
        "workers": [{"worker_id": 0}],
    }


def test_reports_of_all_lives_count_once_in_any_order() -> None:
    dice = random.Random(1)
    reports, newest = ShareReports(2, 2), dict[tuple[int, int], dict[str, Any]]()
    for _ in range(400):
        # a former life may report again, and an older report may come after a newer one
        key = dice.randint(0, 1), dice.randint(0, 5)
        report = report_of(dice, dice.randint(0, 20))
        reports.note(*key, report)
        if key not in newest or newest[key]["number"] < report["number"]:
            newest[key] = report
        slots = [
            {"worker_id": number, "incarnation": 9, "state": "starting", "last_error": None}
            for number in range(2)
        ]
        stats = reports.stats({**OWN, "workers": slots})
        every = newest.values()
        for name in ("calls", "restarts", "workers_wait_s"):
            assert stats[name] == sum(one[name] for one in every)
        for name in ("lag", "lost", "worker_died"):
            for account in ("env_steps", "fragments"):
                found = stats[account]["discarded"].get(name, 0)
                assert found == sum(one[account]["discarded"][name] for one in every)
            interrupted = sum(one["fragments"]["interrupted"][name] for one in every)
            assert stats["fragments"]["interrupted"].get(name, 0) == interrupted
            assert stats["failures"].get(name, 0) == sum(one["failures"][name] for one in every)
