# SPDX-License-Identifier: Apache-2.0
"""`rollouts bench adapter`: a library with our adapter and by itself."""

from __future__ import annotations

import argparse
import json
import sys

from comparisons.adapters import measuring as adapters
from rollouts.cli.bench import NUM_ENVS, show_progress
from rollouts.cli.values import positive_float, positive_int
from rollouts.machine.cpu_count import usable_cpus


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares its arguments."""
    add = parser.add_argument
    add("library", choices=adapters.LIBRARIES, help="whose adapter to measure")
    add("--env-id", metavar="ID",
        help="default: CartPole-v1, of several agents simple_spread_v3")  # fmt: skip
    add("--num-envs", nargs="+", action="extend", type=positive_int, metavar="N",
        help=f"one or several; default: {NUM_ENVS}")  # fmt: skip
    add("--num-threads", type=positive_int, metavar="T",
        help="of our pool, and processes of a peer that shares them out; "
        "default: the usable CPUs, at most N")  # fmt: skip
    add("--rollout-length", type=positive_int, default=128, metavar="T",
        help="steps of each environment per collect; default: 128")  # fmt: skip
    add("--peer", action="append", default=[], metavar="NAME",
        help="what to measure next to ours; repeat for several; default: all")  # fmt: skip
    add("--duration-s", type=positive_float, default=1.0, metavar="S",
        help="of one repeat of one contestant, about; default: 1")  # fmt: skip
    add("--repeats", type=positive_int, default=5, metavar="R", help="default: 5")
    add("--seed", type=int, default=0, help="default: 0")
    add("--json", action="store_true", help="print one JSON array, nothing else")


def measure(args: argparse.Namespace) -> None:
    """Measures and prints."""
    results: list[adapters.AdapterMeasurement] = []
    for num_envs in dict.fromkeys(args.num_envs or [NUM_ENVS]):
        case = adapters.Case(
            id=args.env_id or adapters.default_id(args.library),
            num_envs=num_envs,
            num_threads=args.num_threads or min(usable_cpus(), num_envs),
            rollout_length=args.rollout_length,
            seed=args.seed,
        )
        show = show_progress if sys.stderr.isatty() else None
        results += adapters.compare(
            args.library,
            case,
            peers=args.peer,
            duration_s=args.duration_s,
            repeats=args.repeats,
            on_progress=show,
        )
        if show is not None:
            show("")
    print(
        json.dumps(adapters.to_json(results), indent=1) if args.json else adapters.to_text(results)
    )
