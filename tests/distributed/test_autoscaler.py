# SPDX-License-Identifier: Apache-2.0
"""The number of workers that an Autoscaler chooses, from a job whose speeds are known."""

from __future__ import annotations

import math
from typing import Any

import pytest

import rollouts
from rollouts import Autoscaler, SpecError


class Job:
    """A learner that takes `needed` workers' data while it waits for none.

    With fewer workers the learner waits for the rest of the time; of more, each waits as long. The
    driver brings the data of at most `brought` workers.
    """

    def __init__(self, num_workers: int, needed: float, brought: float = math.inf) -> None:
        self.num_workers, self.needed, self.now = num_workers, needed, 0.0
        self.brought = brought
        self.num_starting = 0
        self.learner_wait_s = self.workers_wait_s = 0.0
        self.scaled: list[int] = []

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        busy = min(self.num_workers, self.needed, self.brought)
        self.learner_wait_s += seconds * (1 - busy / self.needed)
        self.workers_wait_s += seconds * (self.num_workers - busy)

    def stats(self) -> dict[str, Any]:
        running = self.num_workers - self.num_starting
        states = ["running"] * running + ["starting"] * self.num_starting + ["stopped"]
        return {
            "learner_wait_s": self.learner_wait_s,
            "workers_wait_s": self.workers_wait_s,
            "workers": [{"state": state} for state in states],
        }

    def scale_to(self, num_workers: int) -> None:
        self.scaled.append(num_workers)
        self.num_workers = num_workers


def steps(job: Job, scaler: Autoscaler, num_intervals: int) -> list[int]:
    chosen = []
    for _ in range(num_intervals):
        job.pass_time(30.0)
        chosen.append(scaler.step())
    return chosen


def scaler_of(job: Job, **options: Any) -> Autoscaler:
    return Autoscaler(job, **{"max_workers": 100, **options}, clock=lambda: job.now)


@pytest.mark.parametrize("num_workers", [1, 3, 9, 10, 12, 30, 100])
def test_it_comes_to_as_many_workers_as_the_learner_needs(num_workers: int) -> None:
    job = Job(num_workers, needed=10.0)
    chosen = steps(job, scaler_of(job), 8)
    # the learner waits for a tenth of the time at most, and workers for less than a third
    assert 9 <= chosen[-1] <= 14
    # and there it stays
    assert len({*chosen[-3:]}) == 1
    assert job.num_workers == chosen[-1]


def test_a_step_changes_the_number_by_a_factor_of_two_at_most() -> None:
    few, many = Job(1, needed=64.0), Job(100, needed=1.0)
    assert steps(few, scaler_of(few), 3) == [2, 4, 8]
    assert steps(many, scaler_of(many), 3) == [50, 25, 13]


@pytest.mark.parametrize("num_workers", [1, 4, 32, 100])
def test_no_workers_are_added_where_the_driver_is_the_slowest(num_workers: int) -> None:
    job = Job(num_workers, needed=10.0, brought=4.0)
    assert steps(job, scaler_of(job), 8)[-1] <= max(16, num_workers)


def test_it_keeps_to_its_bounds() -> None:
    few, many = Job(1, needed=64.0), Job(8, needed=0.1)
    assert steps(few, scaler_of(few, max_workers=3), 4) == [2, 3, 3, 3]
    assert steps(many, scaler_of(many, min_workers=3), 4) == [4, 3, 3, 3]


def test_nothing_changes_before_an_interval_is_over() -> None:
    job = Job(2, needed=10.0)
    scaler = scaler_of(job, interval_s=60.0)
    assert steps(job, scaler, 1) == [2] and not job.scaled
    assert steps(job, scaler, 1) == [4] and job.scaled == [4]


def test_nothing_changes_while_workers_start() -> None:
    job = Job(4, needed=10.0)
    scaler = scaler_of(job)
    job.num_starting = 2
    assert steps(job, scaler, 2) == [4, 4]
    job.num_starting = 0
    # only the waits since then count
    assert steps(job, scaler, 1) == [8]
    assert scaler.num_workers == 8


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_workers": 0}, "max_workers is 0, expected a whole number of at least 1"),
        ({"min_workers": 0}, "min_workers is 0"),
        ({"min_workers": 5, "max_workers": 4}, "max_workers is 4, .* at least 5"),
        ({"interval_s": 0.0}, "interval_s is 0.0, expected a number of seconds above 0"),
        ({"interval_s": float("nan")}, "interval_s is nan"),
        ({"learner_wait": 0.0}, "learner_wait is 0.0, expected a share of the time"),
        ({"workers_wait": 1.0}, "workers_wait is 1.0"),
    ],
)
def test_numbers_out_of_range_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        scaler_of(Job(1, 1.0), **options)


def test_a_coordinator_has_all_that_it_reads() -> None:
    from rollouts.bench.random_policy import make_random_policy

    sizes = {"num_workers": 0, "num_envs_per_worker": 1, "rollout_length": 1}
    with rollouts.RolloutCoordinator("CartPole-v1", make_random_policy, **sizes) as here:
        assert {"learner_wait_s", "workers_wait_s", "workers"} <= here.stats().keys()
