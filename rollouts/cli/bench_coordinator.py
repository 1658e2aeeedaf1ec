# SPDX-License-Identifier: Apache-2.0
"""The command `rollouts bench coordinator`."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
from collections.abc import Callable

from rollouts.support.extras import needs


def add_arguments(
    parser: argparse.ArgumentParser,
    *,
    positive_int: Callable[[str], int],
    whole_number: Callable[[str], int],
) -> None:
    """Declares its options."""
    add = parser.add_argument
    add("--num-workers", nargs="+", type=positive_int, default=[2, 8], metavar="N",
        help="Ray actors, which reserve no CPU; several ok; default: 2 8")  # fmt: skip
    add("--num-envs", nargs="+", type=positive_int, default=[4], metavar="B",
        help="CartPoles of each worker; several ok; default: 4")  # fmt: skip
    add("--rollout-length", type=positive_int, default=4, metavar="T",
        help="steps of a fragment; default: 4")  # fmt: skip
    add("--num-fragments", type=positive_int, default=1000, metavar="F",
        help="of one turn; default: 1000")  # fmt: skip
    add("--publish-every", nargs="+", type=whole_number, default=[8, 128], metavar="F",
        help="fragments between two versions of the weights; 0: one; several ok; "
        "default: 8 128")  # fmt: skip
    add("--num-coordinators", type=positive_int, default=1, metavar="C",
        help="above 1: a contestant whose workers that many lead; default: 1")  # fmt: skip
    add("--max-queued-fragments", type=positive_int, default=None, metavar="F",
        help="in flight and queued of all but the bare loop; default: by the number of "
        "workers")  # fmt: skip
    add("--repeats", type=positive_int, default=5, metavar="R",
        help="turns of each, after one that is not counted; default: 5")  # fmt: skip
    add("--json", action="store_true", help="print one JSON list, nothing else")


def measure(args: argparse.Namespace) -> None:
    """Runs `bench coordinator`: measures and prints."""
    with needs("ray", "`rollouts bench coordinator`"):
        from rollouts.bench import driver_cost

    found, rows = [], []
    asked = (args.num_workers, args.num_envs, args.publish_every)
    for num_workers, num_envs, publish_every in itertools.product(*map(dict.fromkeys, asked)):
        task = driver_cost.DriverTask(
            num_workers=num_workers,
            num_envs=num_envs,
            rollout_length=args.rollout_length,
            num_fragments=args.num_fragments,
            publish_every=publish_every,
            num_coordinators=args.num_coordinators,
            max_queued_fragments=args.max_queued_fragments,
        )
        costs = driver_cost.measure(task, repeats=args.repeats)
        if not args.json:
            print(driver_cost.to_text(task, costs), flush=True)
        rows.append((task, costs))
        costs_of_each = [dataclasses.asdict(cost) for cost in costs]
        found.append({"task": dataclasses.asdict(task), "costs": costs_of_each})
    if args.json:
        print(json.dumps(found, indent=1))
    elif len(rows) > 1:
        print(driver_cost.to_table(rows))
