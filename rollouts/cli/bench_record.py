# SPDX-License-Identifier: Apache-2.0
"""`rollouts bench record`: the cost of a log of the run."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

from rollouts.bench.policy_kinds import default_policy, read_policy
from rollouts.envs.registry import env_spec
from rollouts.run_log.record_options import RunLog


def add_arguments(
    parser: argparse.ArgumentParser,
    *,
    positive_int: Callable[[str], Any],
    positive_float: Callable[[str], Any],
    option: Callable[[str], Any],
) -> None:
    """Declares its arguments."""
    add = parser.add_argument
    add("--env-id", nargs="+", action="extend", required=True, metavar="ID", help="one or several")
    add("--num-envs", type=positive_int, default=64, metavar="N", help="default: 64")
    add("--rollout-length", type=positive_int, default=128, metavar="T", help="default: 128")
    add("--policy", metavar="P", help="as of `rollouts bench collect`")
    add("--state-every", type=positive_int, default=RunLog(path="-").state_every, metavar="K",
        help="fragments between two saved states; default: RunLog's")  # fmt: skip
    add("--option", action="append", default=[], type=option, metavar="KEY=VALUE",
        help="option of the environment; repeat for several")  # fmt: skip
    add("--duration-s", type=positive_float, default=1.0, metavar="S",
        help="of one turn, about; default: 1")  # fmt: skip
    add("--repeats", type=positive_int, default=15, metavar="R", help="turns; default: 15")
    add("--json", action="store_true", help="print one JSON array, nothing else")


def measure(args: argparse.Namespace) -> None:
    """Measures and prints."""
    # imports torch
    from rollouts.bench import recording

    options, costs = dict(args.option), []
    for id in args.env_id:
        spec = env_spec(id, **options)
        observed = spec.groups[0] if spec.groups else spec
        kind = default_policy(observed.single_observation_space)
        cost = recording.measure_recording(
            id,
            args.num_envs,
            rollout_length=args.rollout_length,
            kind=kind if args.policy is None else read_policy(args.policy),
            env_options=options,
            state_every=args.state_every,
            duration_s=args.duration_s,
            repeats=args.repeats,
        )
        costs.append(cost)
    if args.json:
        print(json.dumps(recording.as_json(costs), indent=1))
    else:
        print(recording.as_table(costs))
