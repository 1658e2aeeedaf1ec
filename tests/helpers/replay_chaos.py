# SPDX-License-Identifier: Apache-2.0
"""Kills workers and shards of a replay while a learner checks every item that it gets.

    python tests/helpers/replay_chaos.py --seconds 120 --seed 1

2 workers fill 2 shards with n-step items and sequences. Now and then a worker's or a shard's
process is killed with SIGKILL, or a checkpoint is made or loaded, all while both sides are at work.
Prints a JSON object of what happened; exits with an error if an item was torn or reached over the
end of an episode, or if an account did not balance to the step after any batch.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from counter_world import assert_balanced, weights
from replay_world import (
    STEP,
    TABLE,
    assert_replay_balanced,
    assert_whole_sequences,
    assert_whole_transitions,
    make_coordinator,
    make_service,
)

from rollouts import RolloutCoordinator
from rollouts.errors import WorkerError
from rollouts.replay import ReplayService, SampleToInsertRatio, Sequences, ShardOptions, TableConfig
from rollouts.workers import FaultPolicy

TIMEOUT_S = 300.0
LIMITER = SampleToInsertRatio(1.0, min_size=100, error_buffer=5_000.0)
TABLES = [
    TableConfig(items=TABLE.items, sampler="prioritized", limiter=LIMITER, max_size=20_000),
    TableConfig("sequences", items=Sequences(4, period=2), max_size=10_000),
]


def learn(coordinator: RolloutCoordinator, replay: ReplayService) -> None:
    """Takes a batch of each table and checks it, and then all accounts."""
    batch = replay.sample(64, timeout_s=TIMEOUT_S)
    assert_whole_transitions(batch)
    replay.update_priorities(batch.key, 1.0 + batch.obs[:, STEP] % 3)
    assert_whole_sequences(replay.sample(16, table="sequences", timeout_s=TIMEOUT_S))
    assert_replay_balanced(replay.stats())
    assert_balanced(coordinator.stats())


def disturb(
    dice: random.Random, coordinator: RolloutCoordinator, replay: ReplayService, directory: str
) -> str:
    """Kills something, or saves or loads; returns what."""
    what = dice.choices(["worker", "shard", "save", "load"], [7, 7, 5, 1])[0]
    if what in ("worker", "shard"):
        stats: dict[str, Any] = coordinator.stats() if what == "worker" else replay.stats()
        pid = dice.choice(stats[f"{what}s"])["pid"]
        if not pid:
            return "nothing"
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return what
    if what == "load" and not os.listdir(directory):
        what = "save"
    try:
        (replay.save if what == "save" else replay.load)(directory)
    except WorkerError:
        # a shard that was killed before had not been missed yet
        return f"interrupted {what}"
    return what


def main() -> None:
    """Runs as long as asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    dice, events = random.Random(args.seed), Counter[str]()
    faults = FaultPolicy(max_restarts=10**6, restart_window_s=0.0)
    with (
        tempfile.TemporaryDirectory() as directory,
        make_coordinator(faults=faults) as coordinator,
        make_service(coordinator, tables=TABLES, shards=ShardOptions(max_restarts=10**6)) as replay,
    ):
        coordinator.publish_weights(weights())
        learn(coordinator, replay)
        begin = next_event = time.monotonic()
        # on a slow machine the time may be over before each was killed once
        while (
            time.monotonic() - begin < args.seconds or not events["worker"] or not events["shard"]
        ):
            learn(coordinator, replay)
            events["batches"] += 1
            if time.monotonic() > next_event:
                events[disturb(dice, coordinator, replay, directory)] += 1
                next_event = time.monotonic() + dice.uniform(0.5, 3.0)
        stats = replay.stats()
        table = stats["tables"]["replay"]
        found = {"inserts": table["inserts"], "samples": table["samples"], **stats["steps"]}
        print(json.dumps({**events, **found, "shard_restarts": stats["shard_restarts"]}))


if __name__ == "__main__":
    main()
