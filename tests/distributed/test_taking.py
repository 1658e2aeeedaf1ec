# SPDX-License-Identifier: Apache-2.0
"""A learner's takes: how long it waited, how old they were, and the account after an error."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from acted_worker import worker_config
from counter_world import make_policy, weights

from rollouts.workers import Fragment, RolloutWorker
from rollouts.workers.lag import LagRule
from rollouts.workers.offers import WeightOffer
from rollouts.workers.taking import Taking

TIMEOUT_S = 300.0


def fragment(version: int) -> Fragment:
    worker = RolloutWorker(worker_config(), make_policy)
    return worker.collect(WeightOffer.of(version, weights()))


def test_arguments_go_on_and_what_came_is_returned() -> None:
    asked = []
    found = [fragment(1), fragment(2)]

    def get(num_fragments: int, timeout_s: float | None) -> list[Fragment]:
        asked.append((num_fragments, timeout_s))
        return found

    taking = Taking(LagRule())
    assert taking.take(get, 2, 1.5, lambda: 2) is found
    assert taking.take(get, 7, None, lambda: 2) is found
    assert asked == [(2, 1.5), (7, None)]


def test_the_version_is_asked_for_once_the_fragments_are_there() -> None:
    newest = [1]

    def get(num_fragments: int, timeout_s: float | None) -> list[Fragment]:
        newest[0] = 4  # somebody published while this one waited
        return [fragment(1)]

    taking = Taking(LagRule(2, "pass"))
    taking.take(get, 1, None, lambda: newest[0])
    stats = taking.stats()
    assert stats["policy_lag"] == {"min": 3, "mean": 3.0, "max": 3}
    assert stats["over_max_policy_lag"]["fragments"] == 1


def test_a_timeout_meters_nothing_and_ends_the_wait() -> None:
    def get(num_fragments: int, timeout_s: float | None) -> list[Fragment]:
        raise TimeoutError("too slow")

    def never() -> int:
        raise AssertionError("nothing was taken")

    taking = Taking(LagRule())
    with pytest.raises(TimeoutError, match="too slow"):
        taking.take(get, 1, 0.0, never)
    waited = taking.stats()["learner_wait_s"]
    assert taking.stats() == {
        "learner_wait_s": waited,  # it does not grow: nobody waits any more
        "policy_lag": None,
        "policy_lag_histogram": {},
        "over_max_policy_lag": {"env_steps": 0, "fragments": 0},
    }


def test_the_wait_counts_while_somebody_is_in_it_and_nobody_is_kept_out() -> None:
    entered, leave = threading.Event(), threading.Event()

    def slow(num_fragments: int, timeout_s: float | None) -> list[Fragment]:
        entered.set()
        assert leave.wait(TIMEOUT_S)
        return [fragment(1)]

    taking = Taking(LagRule())
    waiter = threading.Thread(target=taking.take, args=(slow, 1, None, lambda: 1), daemon=True)
    waiter.start()
    assert entered.wait(TIMEOUT_S)
    # both would block if the lock were held while the other waits
    first = taking.stats()["learner_wait_s"]
    taking.take(lambda num, timeout_s: [fragment(2)], 1, None, lambda: 2)
    assert taking.stats()["learner_wait_s"] > first > 0
    leave.set()
    waiter.join(TIMEOUT_S)
    assert not waiter.is_alive()
    assert sum(taking.stats()["policy_lag_histogram"].values()) == 16


def test_the_part_of_the_stats_has_these_names() -> None:
    names: set[str] = set(Taking(LagRule()).stats())
    expected: Any = {
        "learner_wait_s",
        "policy_lag",
        "policy_lag_histogram",
        "over_max_policy_lag",
    }
    assert names == expected
