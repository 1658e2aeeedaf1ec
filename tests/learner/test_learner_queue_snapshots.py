# SPDX-License-Identifier: Apache-2.0
"""Statistics of LearnerQueue and Fleet are of one moment, although others get meanwhile."""

from __future__ import annotations

import contextlib
import sys
import threading
from typing import Any

from fragments import make_handle
from hypothesis import given, settings
from hypothesis import strategies as st

from rollouts.errors import WorkerError
from rollouts.learner.queue import LearnerQueue

TIMEOUT_S = 120.0


def check(stats: dict[str, Any]) -> None:
    fragments, env_steps = stats["fragments"], stats["env_steps"]
    assert stats["queue_depth"] == fragments["queued"]
    assert stats["queued_bytes"] == 100 * fragments["queued"]
    assert env_steps["queued"] == 10 * fragments["queued"]
    discarded = sum(fragments["discarded"].values())
    assert fragments["produced"] == fragments["delivered"] + fragments["queued"] + discarded


def test_while_a_get_fetches_its_fragments_are_still_in_the_depth() -> None:
    seen: list[dict[str, Any]] = []
    queue = LearnerQueue(4)
    for seq_no in range(3):
        queue.put(make_handle(seq_no, on_resolve=lambda: seen.append(queue.stats())))
    queue.get(2)
    assert [stats["queue_depth"] for stats in seen] == [3, 3]
    for stats in (*seen, queue.stats()):
        check(stats)
    assert queue.stats()["queue_depth"] == 1


Operation = tuple[str, int]
OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["put", "get", "lose", "interrupt"]), st.integers(1, 4)), max_size=30
)


@settings(deadline=None)
@given(OPERATIONS)
def test_every_snapshot_within_and_between_operations_agrees_with_itself(
    operations: list[Operation],
) -> None:
    queue = LearnerQueue(8, on_change=lambda: check(queue.stats()))
    what = "get"

    def on_resolve() -> None:
        check(queue.stats())
        if what == "lose":
            raise WorkerError("node lost")
        if what == "interrupt":
            raise KeyboardInterrupt

    seq_no = 0
    for what, amount in operations:
        if what == "put":
            for _ in range(min(amount, 8 - queue.depth)):
                queue.put(make_handle(seq_no, on_resolve=on_resolve))
                seq_no += 1
        else:
            with contextlib.suppress(TimeoutError, KeyboardInterrupt):
                queue.get(amount, timeout_s=0)
        check(queue.stats())
        assert queue.levels().held == 0


def test_snapshots_beside_a_producer_and_a_consumer_agree_with_themselves() -> None:
    queue = LearnerQueue(4)
    num_fragments, seen = 400, []
    is_over, looked = threading.Event(), threading.Event()

    def look() -> None:
        while not is_over.is_set():
            seen.append(queue.stats())
            looked.set()

    def wait_for_a_look() -> None:
        looked.clear()
        assert looked.wait(TIMEOUT_S)

    def produce() -> None:
        for seq_no in range(num_fragments):
            queue.put(make_handle(seq_no, on_resolve=wait_for_a_look), TIMEOUT_S)

    threads = [threading.Thread(target=each, daemon=True) for each in (look, produce)]
    # threads change places often, so that looks fall between any two lines
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for _ in range(num_fragments // 4):
            queue.get(4, TIMEOUT_S)
    finally:
        is_over.set()
        sys.setswitchinterval(before)
    for thread in threads:
        thread.join(TIMEOUT_S)
    assert seen
    for stats in seen:
        check(stats)
    assert queue.stats()["fragments"]["delivered"] == num_fragments
