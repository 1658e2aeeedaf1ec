# SPDX-License-Identifier: Apache-2.0
"""The command `rollouts bench learner`."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from rollouts.errors import RolloutsError

if TYPE_CHECKING:
    from rollouts.bench.learner import LearnerMeasurement


def add_arguments(parser: argparse.ArgumentParser, *, positive_int: Callable[[str], int]) -> None:
    """Declares its options."""
    add = parser.add_argument
    losses = ["ppo", "recurrent-ppo", "dqn", "sac", "r2d2"]
    add("--loss", nargs="+", choices=losses, default=["ppo"], metavar="LOSS",
        help="ppo, recurrent-ppo (an LSTM; B sequences of 16 steps), dqn, sac or r2d2 (a GRU; B "
        "sequences of 20 steps); several ok; default: ppo")  # fmt: skip
    add("--rows", nargs="+", type=positive_int, default=[64, 256, 2048], metavar="B",
        help="of a minibatch; several ok; default: 64 256 2048")  # fmt: skip
    add("--layers", nargs="+", type=positive_int, default=[64, 64], metavar="SIZE",
        help="hidden layers of each network; default: 64 64")  # fmt: skip
    add("--obs-size", type=positive_int, default=17, metavar="D", help="default: 17")
    add("--num-actions", type=positive_int, default=6, metavar="A", help="default: 6")
    add("--box", action="store_true", help="actions of PPO are A numbers, and not one of A")
    add("--num-threads", nargs="+", type=positive_int, default=[1, 2], metavar="T",
        help="of native code and of torch; several ok; default: 1 2")  # fmt: skip
    add("--kernels", nargs="+", metavar="SET",
        help="instruction sets of native code, each measured in a process of its own beside torch; "
        "several ok, such as avx512 avx2; default: the widest")  # fmt: skip
    add("--repeats", type=positive_int, default=7, metavar="R",
        help="of which the median counts; default: 7")  # fmt: skip
    add("--seed", type=int, default=0, help="of weights and rows; default: 0")
    add("--json", action="store_true", help="print one JSON list, nothing else")


def measure(args: argparse.Namespace) -> None:
    """Runs `bench learner`: measures and prints."""
    # imports torch, which light commands do not need
    from rollouts import _native
    from rollouts.bench import learner
    from rollouts.checks import one_of

    for name in args.kernels or ():
        one_of("--kernels", name, _native.policy_kernels())
    if args.kernels:
        each = (_measure_with(name, args) for name in dict.fromkeys(args.kernels))
        found = list(itertools.chain.from_iterable(each))
    else:
        found = _measure_here(args)
    print(json.dumps(learner.to_json(found), indent=1) if args.json else learner.to_text(found))


def _measure_here(args: argparse.Namespace) -> list[LearnerMeasurement]:
    """Measures in this process, whose instruction set cannot change any more."""
    from rollouts.bench import learner

    found: list[LearnerMeasurement] = []
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
    return found


def _measure_with(kernels: str, args: argparse.Namespace) -> list[LearnerMeasurement]:
    """Measures in a process whose native code has these kernels.

    Raises:
      RolloutsError: The process failed; its output is printed already.
    """
    from rollouts.bench import learner

    options = ["--box"] if args.box else []
    for name in ("loss", "rows", "layers", "num_threads"):
        options += [f"--{name.replace('_', '-')}", *map(str, getattr(args, name))]
    for name in ("obs_size", "num_actions", "repeats", "seed"):
        options += [f"--{name.replace('_', '-')}", str(getattr(args, name))]
    done = subprocess.run(
        [sys.executable, "-m", "rollouts", "bench", "learner", *options, "--json"],
        env=os.environ | {"ROLLOUTS_POLICY_KERNELS": kernels},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RolloutsError(
            f"the process that measured {kernels} ended with status {done.returncode}: see above"
        )
    return learner.from_json(json.loads(done.stdout))
