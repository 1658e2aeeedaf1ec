# SPDX-License-Identifier: Apache-2.0
"""`rollouts tune-batch`: finds the number of environments with which a policy collects fastest."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rollouts.cli.check_env import find_type
from rollouts.envs.register import register_env
from rollouts.own_env.header_files import read_header


def add_arguments(
    parser: argparse.ArgumentParser,
    *,
    positive_int: Callable[[str], Any],
    positive_float: Callable[[str], Any],
    option: Callable[[str], Any],
) -> None:
    """Declares its arguments."""
    add = parser.add_argument
    add("--env-id", required=True, metavar="ID")
    add("--option", action="append", default=[], type=option, metavar="KEY=VALUE",
        help="option of the environment; repeat for several")  # fmt: skip
    add("--header", type=Path, metavar="FILE.h",
        help="an environment of your own, which --env-id then names")  # fmt: skip
    add("--type", metavar="TYPE", help="the struct in it; default: the one there is")
    add("--policy", metavar="P",
        help="64x64, 256x256 or other widths, cnn, gru or random; default: cnn for images, 64x64 "
        "for others")  # fmt: skip
    add("--rollout-length", nargs="+", action="extend", type=positive_int, metavar="T",
        help="one or several; default: 32 128")  # fmt: skip
    add("--device", default="auto",
        help="cpu, cuda, cuda:1 or cpu-emulation; default: a GPU where there is one and the "
        "environment runs on it, else cpu")  # fmt: skip
    add("--num-threads", type=positive_int, metavar="T",
        help="of a pool on the CPU; default: the usable CPUs")  # fmt: skip
    add("--max-num-envs", type=positive_int, default=2**20, metavar="N", help="default: 1048576")
    add("--max-memory-gb", type=positive_float, metavar="GB",
        help="10^9 bytes that a size may take; default: 80 %% of what is free")  # fmt: skip
    add("--duration-s", type=positive_float, default=0.5, metavar="S",
        help="of one repeat of one size, about; default: 0.5")  # fmt: skip
    add("--repeats", type=positive_int, default=3, metavar="R", help="default: 3")
    add("--seed", type=int, default=0, help="of environments and actions; default: 0")
    add("--json", action="store_true", help="print one JSON object, nothing else")


def tune(args: argparse.Namespace) -> None:
    """Tries sizes, and prints each result as soon as it is measured."""
    # imports torch
    from rollouts import tuning

    if args.header is not None:
        files = read_header(args.header)
        register_env(args.env_id, header=files, type=args.type or find_type(files))
    found = tuning.tune_batch(
        args.env_id,
        env_options=dict(args.option),
        policy=args.policy,
        rollout_lengths=args.rollout_length or (32, 128),
        device=args.device,
        num_threads=args.num_threads,
        max_num_envs=args.max_num_envs,
        memory_bytes=args.max_memory_gb and int(args.max_memory_gb * 1e9),
        duration_s=args.duration_s,
        repeats=args.repeats,
        seed=args.seed,
        on_trial=None if args.json else _show,
        on_begin=None if args.json else _begin,
    )
    if args.json:
        print(json.dumps(_as_json(found), indent=1))
        return
    print()
    for length, why in found.stopped.items():
        print(f"T = {length} ended: {why}.")
    print(f"Device: {found.device}.{f' {found.note}.' if found.note else ''}")
    for name, one in (("Fastest", found.fastest), ("Smallest within 5 %", found.smallest)):
        assert one is not None  # tune_batch raises where the first trial fails
        print(
            f"{name}: num_envs {one.num_envs}, T {one.rollout_length}, {one.median:.3g} env-steps/s"
        )


def _begin(most_trials: int, trial_s: float) -> None:
    minutes = most_trials * trial_s / 60
    print(
        f"At most {most_trials} sizes, each of about {trial_s:.0f} s: {max(minutes, 1):.0f} min, "
        "and less where larger ones are not faster or do not fit. Ctrl-C ends it."
    )
    print(f"{'num_envs':>9}{'T':>6}{'env-steps/s':>13}{'range':>24}{'memory':>10}  policy in")


def _show(trial: Any) -> None:
    size = f"{trial.num_envs:>9}{trial.rollout_length:>6}"
    if trial.failure:
        print(f"{size}  failed: {trial.failure}", flush=True)
        return
    spread = f"{min(trial.env_steps_per_s):.3g} to {max(trial.env_steps_per_s):.3g}"
    memory = f"{trial.memory_bytes / 1e9:.2f} GB"
    print(f"{size}{trial.median:>13.3g}{spread:>24}{memory:>10}  {trial.engine}", flush=True)


def _as_json(found: Any) -> dict[str, Any]:
    return asdict(found) | {"fastest": asdict(found.fastest), "smallest": asdict(found.smallest)}
