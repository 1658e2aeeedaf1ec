# SPDX-License-Identifier: Apache-2.0
"""The command `rollouts bench prediction`."""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from rollouts.support.extras import needs

if TYPE_CHECKING:
    from rollouts.bench.prediction import PredictedJob


def add_arguments(
    parser: argparse.ArgumentParser,
    *,
    positive_int: Callable[[str], int],
    positive_float: Callable[[str], float],
) -> None:
    """Declares its options."""
    add = parser.add_argument
    add("--num-workers", nargs="+", type=positive_int, default=[2, 4, 8, 16], metavar="N",
        help="Ray actors, which reserve no CPU; several ok, the smallest first; "
        "default: 2 4 8 16")  # fmt: skip
    add("--num-coordinators", type=positive_int, default=1, metavar="C",
        help="processes that lead the workers; default: 1")  # fmt: skip
    add("--num-envs", nargs="+", type=positive_int, default=[1], metavar="B",
        help="CartPoles of each worker, for larger fragments; several ok; default: 1")  # fmt: skip
    add("--fragment-s", type=positive_float, default=0.1, metavar="S",
        help="median seconds of a fragment, most of it slept; default: 0.1")  # fmt: skip
    add("--fragments-each", type=positive_float, default=0.5, metavar="F",
        help="fragments of an update, for each worker: where F is large and fragments take less "
        "than 20 ms, they share calls; default: 0.5")  # fmt: skip
    add("--learner-load", nargs="+", type=positive_float, default=[0.5, 1.5], metavar="L",
        help="seconds of an update as a share of those in which the workers make its fragments; "
        "above 1 the learner ends the run; several ok; default: 0.5 1.5")  # fmt: skip
    add("--seconds", type=positive_float, default=15.0, metavar="S",
        help="of one turn; default: 15")  # fmt: skip
    add("--repeats", type=positive_int, default=3, metavar="R",
        help="turns, of which the median counts; default: 3")  # fmt: skip
    add("--json", action="store_true", help="print one JSON list, nothing else")


def measure(args: argparse.Namespace) -> None:
    """Runs `bench prediction`: measures, predicts and prints."""
    with needs("ray", "`rollouts bench prediction`"):
        from rollouts.bench import paced_run, prediction

    rows: list[PredictedJob] = []
    sizes = itertools.product(dict.fromkeys(args.num_envs), dict.fromkeys(args.num_workers))
    for num_envs, num_workers in sizes:
        tasks = [
            paced_run.PacedTask(
                num_workers=num_workers,
                num_coordinators=args.num_coordinators,
                num_envs=num_envs,
                fragment_s=args.fragment_s,
                fragments_each=args.fragments_each,
                learner_load=learner_load,
                seconds=args.seconds,
            )
            for learner_load in dict.fromkeys(args.learner_load)
        ]
        for task, turns in zip(tasks, paced_run.run(tasks, repeats=args.repeats), strict=True):
            first = next((one.turns for one in rows if one.task.num_envs == num_envs), None)
            rows.append(prediction.compare(task, turns, first))
            if not args.json:
                print(prediction.to_text(rows[-1]), flush=True)
    if args.json:
        print(json.dumps([prediction.as_dict(row) for row in rows]))
    elif len(rows) > 1:
        print(prediction.to_table(rows))
