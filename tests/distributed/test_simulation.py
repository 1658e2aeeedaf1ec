# SPDX-License-Identifier: Apache-2.0
"""Simulated runs: the state machine of the workers' layer among deaths, in simulated time."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from counter_world import assert_balanced
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rollouts.cli import main as cli
from rollouts.errors import SpecError
from rollouts.learner.fragment import FragmentHandle
from rollouts.simulation import (
    DriverModel,
    JobModel,
    LearnerModel,
    NodeModel,
    RunReport,
    WorkerModel,
    simulate,
)
from rollouts.simulation.simulate import SimulatedRun
from rollouts.workers import FaultPolicy, QueueLimits
from rollouts.workers.call_size import share_of

pytestmark = pytest.mark.system

# each is checked after hundreds of events; make test-all has a million
NUM_EXAMPLES = 10
FREE = DriverModel(
    take_us=0, further_us=0, submit_us=0, submit_further_us=0, resolve_us=0, publish_us=0
)


class AccountedRun(SimulatedRun):
    """A run whose account is checked, after each event, against what workers and learners saw."""

    def __init__(self, job: JobModel, seed: int) -> None:
        super().__init__(job, seed=seed, keep_workers=True, on_delivery=self._delivered)
        self.seen: set[tuple[int, int, int]] = set()
        self.checked = 0

    def _delivered(self, handles: Sequence[FragmentHandle]) -> None:
        for info in (handle.info for handle in handles):
            name = (info.worker_id, info.incarnation, info.seq_no)
            assert name not in self.seen
            self.seen.add(name)

    def check(self) -> None:
        self.checked += 1
        stats = self.stats()
        assert_balanced(stats)
        assert stats["fragments"]["delivered"] == len(self.seen)
        assert self.record.env_steps == len(self.seen) * self.job.workers.fragment_steps

    def check_workers(self) -> None:
        """Checks that what was delivered is what workers completed, once all is over."""
        completed = {
            (worker.worker_id, worker.incarnation): worker.num_completed for worker in self.workers
        }
        assert all(
            seq_no < completed[worker_id, incarnation]
            for worker_id, incarnation, seq_no in self.seen
        )


# coordinators, which die only where there are several, and the order in which fragments are merged
LEADERS = [(1, 0.0, "arrival"), (1, 0.0, "ordered"), (2, 0.0, "arrival"), (3, 200.0, "arrival")]


def jobs() -> st.SearchStrategy[JobModel]:
    """Small jobs in which much dies."""
    return st.sampled_from(LEADERS).flatmap(lambda leaders: jobs_of(*leaders))


def jobs_of(num_coordinators: int, deaths: float, merge: str) -> st.SearchStrategy[JobModel]:
    queues = st.builds(
        QueueLimits,
        credits_per_worker=st.integers(1, 3),
        max_policy_lag=st.sampled_from([None, 1, 4]),
        merge=st.just(merge),
        max_queued_fragments=st.sampled_from([None, 4, 64]),
    )
    return st.builds(
        JobModel,
        workers=st.builds(
            WorkerModel,
            num_workers=st.sampled_from([4, 6, 10]),
            num_envs=st.just(2),
            rollout_length=st.just(4),
            fragment_s=st.sampled_from([1.0, (0.5, 1.0, 9.0)]),
            fragment_bytes=st.sampled_from([1000, 4_000_000]),
            straggler_share=st.sampled_from([0.0, 0.3]),
            start_s=st.sampled_from([0.0, 3.0]),
        ),
        nodes=st.builds(
            NodeModel,
            workers_per_node=st.integers(1, 4),
            spare_nodes=st.integers(0, 1),
            deaths_per_hour=st.sampled_from([0.0, 40.0]),
            worker_deaths_per_hour=st.sampled_from([0.0, 60.0]),
            replace_s=st.sampled_from([1.0, 40.0]),
        ),
        learners=st.builds(
            LearnerModel,
            num_learners=st.integers(1, 2),
            fragments_per_update=st.sampled_from([2, 4]),
            steps_per_s=st.sampled_from([1e9, 20.0]),
            prefetch=st.booleans(),
            weights_from=st.sampled_from(["learner", "tree"]),
        ),
        driver=st.builds(
            DriverModel,
            deaths_per_hour=st.just(deaths),
            restart_s=st.sampled_from([0.0, 5.0]),
        ),
        num_coordinators=st.just(num_coordinators),
        sync_mode=st.just("free_running"),
        queue=queues,
        faults=st.just(FaultPolicy(max_restarts=10**6, hang_timeout_s=25.0)),
    )


@contextmanager
def without_log() -> Iterator[None]:
    """Keeps thousands of deaths that are part of a test out of the log."""
    logger = logging.getLogger("rollouts")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


@given(job=jobs(), seed=st.integers(0, 2**20))
@settings(max_examples=NUM_EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_accounts_balance_at_every_event_whatever_dies(job: JobModel, seed: int) -> None:
    run = AccountedRun(job, seed)
    with without_log():
        run.go_on(60.0, after_each=run.check)
    assert run.checked == run.loop.num_events > 100
    run.check_workers()
    limit = job.queue.max_policy_lag
    # a batch that is taken while another is learned from sees one more version
    assert limit is None or max(run.record.lags, default=0) <= limit + job.learners.prefetch


def small_jobs() -> st.SearchStrategy[JobModel]:
    """Jobs whose fragments are too small for a call each, in which a lot dies within seconds."""
    return st.sampled_from([(1, 0.0), (2, 0.0), (2, 1800.0)]).flatmap(
        lambda leaders: small_jobs_of(*leaders)
    )


def small_jobs_of(num_coordinators: int, deaths: float) -> st.SearchStrategy[JobModel]:
    return st.builds(
        JobModel,
        workers=st.builds(
            WorkerModel,
            num_workers=st.just(4),
            num_envs=st.just(2),
            rollout_length=st.just(4),
            fragment_s=st.sampled_from([0.001, (0.002, 0.004, 0.1)]),
            fragment_bytes=st.sampled_from([1000, 4_000_000]),
            start_s=st.just(0.05),
        ),
        nodes=st.builds(
            NodeModel,
            workers_per_node=st.integers(1, 4),
            deaths_per_hour=st.sampled_from([0.0, 1800.0]),
            worker_deaths_per_hour=st.sampled_from([0.0, 7200.0]),
            detect_s=st.just(0.1),
            replace_s=st.just(0.2),
        ),
        learners=st.builds(
            LearnerModel,
            fragments_per_update=st.sampled_from([4, 32]),
            updates_per_version=st.sampled_from([1, 20]),
            prefetch=st.booleans(),
        ),
        driver=st.builds(
            DriverModel, deaths_per_hour=st.just(deaths), restart_s=st.sampled_from([0.05, 8.0])
        ),
        num_coordinators=st.just(num_coordinators),
        queue=st.builds(
            QueueLimits,
            credits_per_worker=st.integers(1, 3),
            max_queued_fragments=st.just(64),
            max_fragments_per_call=st.sampled_from([3, 16]),
        ),
        faults=st.just(FaultPolicy(max_restarts=10**6, hang_timeout_s=25.0)),
    )


@given(job=small_jobs(), seed=st.integers(0, 2**20))
@settings(max_examples=NUM_EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_accounts_balance_where_fragments_share_calls(job: JobModel, seed: int) -> None:
    run = AccountedRun(job, seed)
    with without_log():
        run.go_on(2.0, after_each=run.check)
    assert run.checked == run.loop.num_events > 100
    run.check_workers()


def test_small_fragments_share_calls_so_that_the_driver_takes_more_of_them() -> None:
    def rate(**limits: int) -> tuple[float, int]:
        job = JobModel(
            workers=WorkerModel(
                num_workers=16, num_envs=4, rollout_length=4, fragment_s=0.001, spread=0.0,
                call_s=0.0, fragment_bytes=1000, start_s=0.0,
            ),
            driver=DriverModel(
                take_us=600.0, further_us=6.0, submit_us=300.0, submit_further_us=4.0,
                resolve_us=10.0, publish_us=0.0,
            ),
            learners=LearnerModel(fragments_per_update=512, weight_bytes=0),
            queue=QueueLimits(max_queued_fragments=1024, **limits),
        )  # fmt: skip
        report = simulate(job, duration_s=10.0, warm_up_s=2.0)
        assert report.bottleneck == "the driver"
        return report.fragments_per_s, report.lag_max

    # alone 600 + 300 + 10 us; 16 fragments share the 900 us, and each further one costs 6 + 4 us
    alone, lag_alone = rate(max_fragments_per_call=1)
    shared, lag_shared = rate()
    assert alone == pytest.approx(1e6 / 910, rel=0.02)
    assert shared == pytest.approx(1e6 / (900 / 16 + 10 * 15 / 16 + 10), rel=0.05)
    assert lag_shared <= lag_alone + 1


def test_a_straggler_may_ask_for_weights_older_than_all_that_its_node_keeps() -> None:
    cluster = SimulatedRun(cluster_job(1_000), seed=0).cluster
    node = cluster.nodes[0]
    newer = [cluster.weights_ready(node, version, 1.0) for version in range(10, 30)]
    assert cluster.weights_ready(node, 1, 2.0) > 2.0
    assert cluster.weights_ready(node, 29, 3.0) == newer[-1]


@pytest.mark.slow
def test_accounts_balance_over_a_million_events() -> None:
    job = JobModel(
        workers=WorkerModel(num_workers=8, fragment_s=(0.5, 1.0, 4.0), start_s=2.0),
        nodes=NodeModel(workers_per_node=2, deaths_per_hour=20.0, worker_deaths_per_hour=40.0),
        learners=LearnerModel(fragments_per_update=4),
        driver=DriverModel(deaths_per_hour=10.0, restart_s=4.0),
        num_coordinators=2,
        queue=QueueLimits(max_policy_lag=6),
        faults=FaultPolicy(max_restarts=10**9),
    )
    run = AccountedRun(job, seed=1)
    run.go_on(70_000.0, after_each=run.check)
    assert run.checked >= 1_000_000
    run.check_workers()
    assert max(run.record.lags) <= 6
    assert run.cluster.num_node_deaths > 1000 and len(run.shares) > 100


def cluster_job(num_workers: int, **changes: Any) -> JobModel:
    """Workers of 1 000 environments, of which 1 % of the nodes die in an hour."""
    learners = LearnerModel(
        num_learners=16,
        fragments_per_update=num_workers // 4,
        steps_per_s=2e7,
        prefetch=True,
        weights_from="tree",
    )
    job = JobModel(
        workers=WorkerModel(num_workers=num_workers, num_envs=1000),
        # new nodes come after 300 s: with fewer spare ones some deaths would wait for them
        nodes=NodeModel(deaths_per_hour=0.01, bytes_per_s=12.5e9, spare_nodes=8),
        driver=DriverModel(resolve_us=0),
        learners=learners,
        queue=QueueLimits(max_policy_lag=16),
    )
    return dataclasses.replace(job, **changes)


def assert_scales(job: JobModel, duration_s: float) -> RunReport:
    report = simulate(job, duration_s=duration_s)
    # shown by -rP
    print(report.to_text())
    assert report.num_node_deaths > 0
    assert report.efficiency >= 0.9
    assert report.lag_limit is not None and report.lag_max <= report.lag_limit
    assert report.recovery_s and max(report.recovery_s) <= 30.0
    account = report.account
    held = account["delivered"] + account["queued"] + account["in_flight"]
    assert account["requested"] == held + sum(account["lost"].values())
    return report


def test_nodes_that_die_cost_little_and_are_replaced_soon() -> None:
    # several of 66 nodes die in these minutes
    assert_scales(cluster_job(512, nodes=NodeModel(deaths_per_hour=1.0)), 240.0)


def hour_of_ten_thousand(num_coordinators: int, deaths_per_hour: float = 0.0) -> RunReport:
    job = cluster_job(10_000)
    return assert_scales(
        dataclasses.replace(
            job,
            learners=dataclasses.replace(job.learners, fragments_per_update=2496),
            driver=dataclasses.replace(job.driver, deaths_per_hour=deaths_per_hour),
            num_coordinators=num_coordinators,
            # the usual three restarts in ten minutes would bench a coordinator that dies more often
            faults=FaultPolicy(max_restarts=100),
        ),
        3600.0,
    )


@pytest.mark.slow
@pytest.mark.parametrize("num_coordinators", [1, 8])
def test_ten_thousand_workers_for_an_hour(num_coordinators: int) -> None:
    hour_of_ten_thousand(num_coordinators)


@pytest.mark.slow
def test_ten_thousand_workers_while_a_coordinator_dies_each_minute() -> None:
    report = hour_of_ten_thousand(8, deaths_per_hour=60 / 8)
    assert report.num_coordinator_deaths > 40
    assert report.account["lost"]["coordinator_died"] > 0


def test_others_give_what_a_dead_coordinator_does_not() -> None:
    # a fourth of 256 workers is lost each time, until others are there in their place
    job = cluster_job(256, num_coordinators=4)
    driver = dataclasses.replace(job.driver, deaths_per_hour=20.0)
    report = simulate(dataclasses.replace(job, driver=driver), duration_s=600.0)
    assert report.num_coordinator_deaths > 5
    assert report.account["lost"]["coordinator_died"] > 0
    assert report.lag_max <= 16
    # a place on a node is free at once: the coordinator's start and that of its workers. The death
    # of one without open calls is noticed at the next call
    assert min(report.recovery_s) == pytest.approx(16.0, abs=0.1)
    assert max(report.recovery_s) < 20.0
    assert report.efficiency > 0.85


def test_coordinators_bring_many_fragments_in_a_call_of_the_driver() -> None:
    job = JobModel(
        workers=WorkerModel(
            num_workers=16, num_envs=4, rollout_length=4, fragment_s=0.1, spread=0.0, call_s=0.0,
            fragment_bytes=1000, start_s=0.0,
        ),
        driver=DriverModel(
            take_us=600.0, further_us=6.0, submit_us=300.0, submit_further_us=4.0,
            resolve_us=20.0, publish_us=0.0,
        ),
        learners=LearnerModel(fragments_per_update=64, weight_bytes=0),
        num_coordinators=2,
        queue=QueueLimits(max_queued_fragments=256),
    )  # fmt: skip
    report = simulate(job, duration_s=40.0, warm_up_s=4.0)
    assert report.efficiency == pytest.approx(1.0, rel=0.03)
    per_call = share_of(256, 2)
    assert per_call == 32
    of_driver = 1e6 * report.driver_load / report.fragments_per_s
    assert of_driver == pytest.approx(900 / per_call + 10 * (1 - 1 / per_call) + 20, rel=0.05)
    # each coordinator has half of the workers, whose fragments are worth a call each
    of_coordinator = 1e6 * report.coordinator_load / (report.fragments_per_s / 2)
    assert of_coordinator == pytest.approx(920, rel=0.05)


@pytest.mark.parametrize(
    ("fragment_bytes", "num_learners", "loses"),
    [
        pytest.param(1000, 2, False, id="small ones are in the answer"),
        pytest.param(4_000_000, 1, False, id="large ones came to the learner"),
        pytest.param(4_000_000, 2, True, id="large ones wait for several learners"),
    ],
)
def test_queued_fragments_outlive_their_coordinator_unless_they_are_its_own(
    fragment_bytes: int, num_learners: int, loses: bool
) -> None:
    job = JobModel(
        workers=WorkerModel(
            num_workers=16, fragment_s=1.0, fragment_bytes=fragment_bytes, start_s=1.0
        ),
        driver=DriverModel(deaths_per_hour=120.0, restart_s=1.0),
        # so slow that fragments are queued all the time
        learners=LearnerModel(num_learners=num_learners, steps_per_s=400_000),
        num_coordinators=2,
        faults=FaultPolicy(max_restarts=100),
    )
    report = simulate(job, duration_s=300.0)
    assert report.num_coordinator_deaths > 5
    assert report.account["lost"]["coordinator_died"] > 0
    assert bool(report.account["lost"].get("lost")) == loses


def test_a_seed_makes_the_same_run_to_the_event() -> None:
    job = cluster_job(64, nodes=NodeModel(deaths_per_hour=20.0))
    first, again = (simulate(job, duration_s=100.0, seed=3) for _ in range(2))
    assert first == again
    assert first != simulate(job, duration_s=100.0, seed=4)


def test_a_driver_that_is_too_slow_is_what_ends_a_run() -> None:
    workers = WorkerModel(
        num_workers=64, num_envs=4, rollout_length=4, fragment_s=0.01, fragment_bytes=1000,
        start_s=0.0,
    )  # fmt: skip
    job = JobModel(
        workers=workers,
        driver=DriverModel(take_us=600.0, submit_us=300.0, resolve_us=100.0, publish_us=0.0),
        learners=LearnerModel(weight_bytes=0),
    )
    report = simulate(job, duration_s=20.0)
    # 1 000 us for a fragment: a thousand in a second
    assert report.fragments_per_s == pytest.approx(1000.0, rel=0.01)
    assert report.bottleneck == "the driver"
    two = simulate(dataclasses.replace(job, num_coordinators=2), duration_s=20.0)
    assert two.fragments_per_s == pytest.approx(2000.0, rel=0.01)


def test_learners_and_their_links_are_what_ends_a_run() -> None:
    workers = WorkerModel(num_workers=16, fragment_s=0.1, start_s=0.0, fragment_bytes=10_000_000)
    slow = LearnerModel(steps_per_s=128_000 * 40, prefetch=True)
    report = simulate(JobModel(workers=workers, driver=FREE, learners=slow), duration_s=60.0)
    assert report.fragments_per_s == pytest.approx(40.0, rel=0.02)
    assert report.bottleneck == "the learners"
    nodes, fast = NodeModel(bytes_per_s=5e8), LearnerModel(prefetch=True, weight_bytes=0)
    report = simulate(
        JobModel(workers=workers, nodes=nodes, driver=FREE, learners=fast), duration_s=60.0
    )
    assert report.fragments_per_s == pytest.approx(50.0, rel=0.02)
    assert report.bottleneck == "the learners' links"


def test_weights_that_nodes_pass_on_arrive_sooner_than_those_of_one_learner() -> None:
    def lag(source: str) -> float:
        learners = LearnerModel(
            weight_bytes=400_000_000,
            weights_from=source,  # type: ignore[arg-type]
            fragments_per_update=64,
            prefetch=True,
        )
        workers = WorkerModel(num_workers=64, fragment_s=2.0, start_s=0.0)
        job = JobModel(
            workers=workers, nodes=NodeModel(workers_per_node=1), driver=FREE, learners=learners
        )
        return simulate(job, duration_s=120.0).efficiency

    assert lag("tree") > 1.5 * lag("learner")


@pytest.mark.parametrize(("mode", "limit"), [("synchronous", 0), ("one_step_lag", 1)])
def test_modes_keep_their_lag(mode: Any, limit: int) -> None:
    job = JobModel(
        workers=WorkerModel(num_workers=4, fragment_s=1.0), sync_mode=mode, driver=FREE,
        learners=LearnerModel(fragments_per_update=4, steps_per_s=512_000),
    )  # fmt: skip
    report = simulate(job, duration_s=120.0)
    assert report.lag_max == limit
    # a synchronous learner's second comes after the workers', else beside it
    expected = 2.0 if mode == "synchronous" else 1.0
    assert report.steps_per_s == pytest.approx(4 * 128_000 / expected, rel=0.15)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: WorkerModel(num_workers=0), "workers.num_workers is 0"),
        (lambda: WorkerModel(num_workers=1, fragment_s=()), "workers.fragment_s is"),
        (lambda: WorkerModel(num_workers=1, fragment_s=float("nan")), "workers.fragment_s is nan"),
        (lambda: WorkerModel(num_workers=1, straggler_share=2), "a share from 0 to 1"),
        (lambda: NodeModel(bytes_per_s=0), "nodes.bytes_per_s is 0"),
        (lambda: DriverModel(take_us=-1), "driver.take_us is -1"),
        (lambda: DriverModel(deaths_per_hour=-1), "driver.deaths_per_hour is -1"),
        (lambda: LearnerModel(weights_from="all"), "learners.weights_from is 'all'"),  # type: ignore[arg-type]
        (
            lambda: JobModel(workers=WorkerModel(num_workers=3), num_coordinators=4),
            "at most workers.num_workers",
        ),
        (
            lambda: JobModel(
                workers=WorkerModel(num_workers=4),
                num_coordinators=2,
                learners=LearnerModel(fragments_per_update=4),
                queue=QueueLimits(merge="ordered"),
            ),
            "queue.merge is 'ordered'",
        ),
        (
            lambda: JobModel(
                workers=WorkerModel(num_workers=4), driver=DriverModel(deaths_per_hour=1.0)
            ),
            "num_coordinators is 1, expected several",
        ),
        (lambda: JobModel(workers=WorkerModel(num_workers=2)), "expected at most 4"),
        (
            lambda: simulate(JobModel(workers=WorkerModel(num_workers=8)), duration_s=0),
            "duration_s is 0",
        ),
    ],
)
def test_what_cannot_be_simulated_is_refused(make: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        make()


def test_the_command_prints_and_draws(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    asked = ["simulate", "--num-workers", "16", "--duration-s", "60", "--node-deaths-per-hour", "9"]
    picture = tmp_path / "run.png"
    assert cli.main([*asked, "--json", "--plot", str(picture)]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["job"]["workers"]["num_workers"] == 16
    assert found["report"]["efficiency"] > 0.5
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert cli.main(asked) == 0
    assert "of the workers' sum" in capsys.readouterr().out


def test_the_command_takes_measured_times_and_costs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    times, costs = tmp_path / "times.json", tmp_path / "costs.json"
    times.write_text("[0.5, 0.5, 2.0]")
    stages = {"submit": [80.0], "resolve": [50.0], "weights": [40.0], "queue": [30.0]}
    row = {
        "task": {"publish_every": 8},
        "costs": [{"name": "RolloutCoordinator", "cpu_us": [250.0], "stages": stages}],
    }
    costs.write_text(json.dumps([row]))
    asked = ["simulate", "--num-workers", "8", "--duration-s", "30", "--json"]
    measured = ["--fragment-times", str(times), "--driver-costs", str(costs)]
    assert cli.main([*asked, *measured]) == 0
    job = json.loads(capsys.readouterr().out)[0]["job"]
    assert job["workers"]["fragment_s"] == [0.5, 0.5, 2.0]
    costs_of_a_fragment = {"take_us": 80.0, "submit_us": 80.0, "resolve_us": 50.0}
    assert job["driver"].items() >= {**costs_of_a_fragment, "publish_us": 320.0}.items()
    times.write_text("{}")
    assert cli.main([*asked, *measured]) == 2
    assert "expected a JSON list of seconds" in capsys.readouterr().err
