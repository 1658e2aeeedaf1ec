# SPDX-License-Identifier: Apache-2.0
"""The command `rollouts simulate`."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rollouts.bench import plot
from rollouts.simulation import (
    DriverModel,
    JobModel,
    LearnerModel,
    NodeModel,
    WorkerModel,
    draw_run,
    simulate,
)
from rollouts.simulation.measured import driver_of, fragment_times_of
from rollouts.workers import QueueLimits


def add_arguments(
    parser: argparse.ArgumentParser,
    *,
    positive_int: Callable[[str], int],
    positive_float: Callable[[str], float],
    whole_number: Callable[[str], int],
) -> None:
    """Declares its options."""
    add = parser.add_argument
    add("--num-workers", nargs="+", type=positive_int, required=True, metavar="N",
        help="workers; several ok")  # fmt: skip
    add("--num-coordinators", type=positive_int, default=1, metavar="C",
        help="coordinators, each with a share of the workers; default: 1")  # fmt: skip
    add("--num-envs", type=positive_int, default=1000, metavar="B",
        help="environments of each worker; default: 1000")  # fmt: skip
    add("--rollout-length", type=positive_int, default=128, metavar="T",
        help="steps of a fragment; default: 128")  # fmt: skip
    add("--fragment-s", type=positive_float, default=8.0, metavar="S",
        help="median seconds of a fragment; default: 8")  # fmt: skip
    add("--fragment-times", type=Path, metavar="FILE",
        help="a JSON list of measured seconds instead, as collect_s of fragments")  # fmt: skip
    add("--fragment-bytes", type=whole_number, default=4_000_000, metavar="N",
        help="default: 4000000")  # fmt: skip
    add("--straggler-share", type=float, default=0.0, metavar="P",
        help="share of workers that take three times as long; default: 0")  # fmt: skip
    add("--workers-per-node", type=positive_int, default=8, metavar="N", help="default: 8")
    add("--spare-nodes", type=whole_number, default=2, metavar="N", help="default: 2")
    add("--start-s", type=float, default=8.0, metavar="S",
        help="seconds that a worker takes to start; default: 8")  # fmt: skip
    add("--node-deaths-per-hour", type=float, default=0.0, metavar="P",
        help="share of the nodes that die in an hour, such as 0.01; default: 0")  # fmt: skip
    add("--worker-deaths-per-hour", type=float, default=0.0, metavar="P",
        help="share of the workers that die alone; default: 0")  # fmt: skip
    add("--coordinator-deaths-per-hour", type=float, default=0.0, metavar="R",
        help="how often each coordinator dies in an hour; default: 0")  # fmt: skip
    add("--gigabits-per-s", type=positive_float, default=25.0, metavar="G",
        help="bandwidth of a node's link, each direction; default: 25")  # fmt: skip
    add("--driver-costs", type=Path, metavar="FILE",
        help="what `rollouts bench coordinator --json` printed; default: "
        f"{DriverModel()}")  # fmt: skip
    add("--remote-learners", action="store_true",
        help="learners are actors that fetch arrays themselves")  # fmt: skip
    add("--num-learners", type=positive_int, default=1, metavar="N", help="default: 1")
    add("--fragments-per-update", type=positive_int, metavar="F",
        help="of all learners together; default: half of the workers")  # fmt: skip
    add("--learner-steps-per-s", type=positive_float, default=1e9, metavar="S",
        help="env-steps that a learner learns from in a second; default: 1e9")  # fmt: skip
    add("--prefetch", action="store_true", help="fetch the next batch meanwhile")
    add("--weight-bytes", type=whole_number, default=10_000_000, metavar="N",
        help="bytes of a version; default: 10000000")  # fmt: skip
    add("--weights-from", choices=["learner", "tree"], default="tree",
        help="who sends weights to nodes; default: tree, each node to two others")  # fmt: skip
    add("--sync-mode", choices=["synchronous", "one_step_lag", "free_running"],
        default="free_running", help="default: free_running")  # fmt: skip
    add("--max-policy-lag", type=whole_number, metavar="V",
        help="versions above which fragments are dropped; default: no limit")  # fmt: skip
    add("--credits-per-worker", type=positive_int, default=2, metavar="N", help="default: 2")
    add("--duration-s", type=positive_float, default=600.0, metavar="S",
        help="simulated seconds; default: 600")  # fmt: skip
    add("--seed", type=whole_number, default=0, help="default: 0")
    add("--json", action="store_true", help="print one JSON list, nothing else")
    add("--plot", type=Path, metavar="FILE",
        help=f"draw the last run; FILE ends in {', '.join(plot.SUFFIXES)}")  # fmt: skip


def run(args: argparse.Namespace) -> None:
    """Simulates a run for each number of workers, and prints the results.

    Raises:
      SpecError: A number is out of range, or a file has the wrong content.
    """
    if args.plot is not None:
        plot.check(args.plot)
    driver = DriverModel() if args.driver_costs is None else driver_of(args.driver_costs)
    if args.remote_learners:
        driver = dataclasses.replace(driver, resolve_us=0.0)
    driver = dataclasses.replace(driver, deaths_per_hour=args.coordinator_deaths_per_hour)
    found: list[dict[str, Any]] = []
    for num_workers in dict.fromkeys(args.num_workers):
        job = _job(args, num_workers, driver)
        report = simulate(job, duration_s=args.duration_s, seed=args.seed)
        found.append({"job": dataclasses.asdict(job), "report": report.as_dict()})
        if not args.json:
            print(f"{num_workers} workers of {args.num_envs} environments, {_of(args)}")
            print(report.to_text(), flush=True)
    if args.json:
        print(json.dumps(found))
    if args.plot is not None:
        plot.save(draw_run(report), args.plot)


def _of(args: argparse.Namespace) -> str:
    return f"{args.num_coordinators} coordinators, {args.num_learners} learners"


def _job(args: argparse.Namespace, num_workers: int, driver: DriverModel) -> JobModel:
    times = args.fragment_times
    return JobModel(
        workers=WorkerModel(
            num_workers=num_workers,
            num_envs=args.num_envs,
            rollout_length=args.rollout_length,
            fragment_s=args.fragment_s if times is None else fragment_times_of(times),
            fragment_bytes=args.fragment_bytes,
            straggler_share=args.straggler_share,
            start_s=args.start_s,
        ),
        nodes=NodeModel(
            workers_per_node=args.workers_per_node,
            spare_nodes=args.spare_nodes,
            bytes_per_s=args.gigabits_per_s * 1e9 / 8,
            deaths_per_hour=args.node_deaths_per_hour,
            worker_deaths_per_hour=args.worker_deaths_per_hour,
        ),
        driver=driver,
        learners=LearnerModel(
            num_learners=args.num_learners,
            fragments_per_update=args.fragments_per_update or max(1, num_workers // 2),
            steps_per_s=args.learner_steps_per_s,
            prefetch=args.prefetch,
            weight_bytes=args.weight_bytes,
            weights_from=args.weights_from,
        ),
        num_coordinators=args.num_coordinators,
        sync_mode=args.sync_mode,
        queue=QueueLimits(
            credits_per_worker=args.credits_per_worker, max_policy_lag=args.max_policy_lag
        ),
    )
