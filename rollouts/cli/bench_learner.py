# SPDX-License-Identifier: Apache-2.0
"""The command `rollouts bench learner`."""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Callable


def add_arguments(parser: argparse.ArgumentParser, *, positive_int: Callable[[str], int]) -> None:
    """Declares its options."""
    add = parser.add_argument
    losses = ["ppo", "recurrent-ppo", "dqn", "sac"]
    add("--loss", nargs="+", choices=losses, default=["ppo"], metavar="LOSS",
        help="ppo, recurrent-ppo (an LSTM; B sequences of 16 steps), dqn or sac; several ok; "
        "default: ppo")  # fmt: skip
    add("--rows", nargs="+", type=positive_int, default=[64, 256, 2048], metavar="B",
        help="of a minibatch; several ok; default: 64 256 2048")  # fmt: skip
    add("--layers", nargs="+", type=positive_int, default=[64, 64], metavar="SIZE",
        help="hidden layers of each network; default: 64 64")  # fmt: skip
    add("--obs-size", type=positive_int, default=17, metavar="D", help="default: 17")
    add("--num-actions", type=positive_int, default=6, metavar="A", help="default: 6")
    add("--box", action="store_true", help="actions of PPO are A numbers, and not one of A")
    add("--num-threads", nargs="+", type=positive_int, default=[1, 2], metavar="T",
        help="of native code and of torch; several ok; default: 1 2")  # fmt: skip
    add("--repeats", type=positive_int, default=7, metavar="R",
        help="of which the median counts; default: 7")  # fmt: skip
    add("--seed", type=int, default=0, help="of weights and rows; default: 0")
    add("--json", action="store_true", help="print one JSON list, nothing else")


def measure(args: argparse.Namespace) -> None:
    """`bench learner`: measures and prints."""
    # torch, which the light command does without
    from rollouts.bench import learner

    found: list[learner.LearnerMeasurement] = []
    for loss, rows in itertools.product(dict.fromkeys(args.loss), dict.fromkeys(args.rows)):
        task = learner.LearnerTask(
            rows=rows,
            layers=tuple(args.layers),
            obs_size=args.obs_size,
            num_actions=args.num_actions,
            is_box=args.box,
            loss=loss,
        )
        found += learner.measure(
            task,
            num_threads=list(dict.fromkeys(args.num_threads)),
            repeats=args.repeats,
            seed=args.seed,
        )
    print(json.dumps(learner.to_json(found), indent=1) if args.json else learner.to_text(found))
