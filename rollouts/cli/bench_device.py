# SPDX-License-Identifier: Apache-2.0
"""`rollouts bench device`: pools of a GPU beside the C++ pool, or beside mujoco_warp alone."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from typing import Any

from rollouts.envs.physics.supported import PHYSICS_IDS


def add_arguments(
    parser: argparse.ArgumentParser,
    *,
    positive_int: Callable[[str], Any],
    positive_float: Callable[[str], Any],
    option: Callable[[str], Any],
) -> None:
    """Declares its arguments."""
    add = parser.add_argument
    add("--env-id", action="append", required=True, metavar="ID", help="repeat for several")
    add("--num-envs", nargs="+", action="extend", type=positive_int, metavar="N",
        help="one or several; default: 100000, of MuJoCo's tasks 8192")  # fmt: skip
    add("--device", default="cuda", help="cuda, cuda:1 or cpu-emulation; default: cuda")
    add("--option", action="append", default=[], type=option, metavar="KEY=VALUE",
        help="option of the environment; repeat for several")  # fmt: skip
    add("--num-steps", type=positive_int, default=100, metavar="K",
        help="of one launch, where a kernel of ours steps; default: 100")  # fmt: skip
    add("--duration-s", type=positive_float, default=1.0, metavar="S",
        help="of one repeat of one way, about; default: 1")  # fmt: skip
    add("--repeats", type=positive_int, default=5, metavar="R", help="default: 5")
    add("--arch", metavar="sm_90",
        help="measure nothing: say what kernels take of a GPU, and what bounds them")  # fmt: skip
    add("--bandwidth", type=positive_float, default=4.3, metavar="TB/S",
        help="of that GPU's memory; default: 4.3, an H200's")  # fmt: skip
    add("--json", action="store_true", help="print one JSON array, nothing else")


def measure(args: argparse.Namespace) -> None:
    """Measures and prints."""
    if args.arch is not None:
        # imports torch
        from rollouts.envs.kernel import kernel_cost as cost

        costs = [
            one
            for env_id in args.env_id
            for one in cost.kernel_costs(
                env_id, args.arch, env_options=dict(args.option), bandwidth=args.bandwidth * 1e12
            )
        ]
        print(json.dumps(cost.as_json(costs), indent=1) if args.json else cost.as_table(costs))
        return
    tables, found = [], []
    for module, rows in _measured(args):
        tables.append(module.as_table(rows))
        found += module.as_json(rows)
    print(json.dumps(found, indent=1) if args.json else "\n\n".join(tables))


def _measured(args: argparse.Namespace) -> Iterator[tuple[Any, list[Any]]]:
    """Yields a module and its rows: those of our own kernels, then those of physics."""
    common = {
        "env_options": dict(args.option),
        "duration_s": args.duration_s,
        "repeats": args.repeats,
    }
    ids = [one for one in args.env_id if one not in PHYSICS_IDS]
    if ids:
        from rollouts.bench import device

        yield (
            device,
            [
                row
                for env_id in ids
                for num_envs in args.num_envs or [100_000]
                for row in device.measure_device(
                    env_id, num_envs, args.device, num_steps=args.num_steps, **common
                )
            ],
        )
    ids = [one for one in args.env_id if one in PHYSICS_IDS]
    if ids:
        from rollouts.bench import physics_device as physics

        yield (
            physics,
            [
                row
                for env_id in ids
                for num_envs in args.num_envs or [8192]
                for row in physics.measure_physics(env_id, num_envs, args.device, **common)
            ],
        )
