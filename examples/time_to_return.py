# SPDX-License-Identifier: Apache-2.0
"""The seconds in which `ppo.py` reaches a return, by environment and seed, as a Markdown table.

    python examples/time_to_return.py                       all of the table, five seeds
    python examples/time_to_return.py --env-id LunarLander-v3 --seeds 1 2

Options are those of `ppo.py` for the environment (PRESETS), without Ray. Seconds are of training:
rollouts, gradient steps and checkpoints; starting Python and torch takes some more seconds.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from rollouts.checkpoint import load_checkpoint

TARGETS = {
    "CartPole-v1": 475.0,
    "Acrobot-v1": -100.0,
    "Pendulum-v1": -200.0,
    "LunarLander-v3": 200.0,
    "BipedalWalker-v3": 250.0,
    "HalfCheetah-v5": 2_000.0,
    "Ant-v5": 5_300.0,
}


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a run."""

    reached: bool
    seconds: float
    env_steps: int
    mean_return: float


def train(env_id: str, target: float, seed: int, run_dir: Path, options: list[str]) -> Found:
    """Makes a run through the program's own command line."""
    script = Path(__file__).with_name("ppo.py")
    where = ["--run-dir", str(run_dir), "--num-workers", "0"]
    what = ["--env-id", env_id, "--target-return", str(target), "--seed", str(seed)]
    run = subprocess.run([sys.executable, str(script), *what, *where, *options])
    # exit status 1: the target was missed
    if run.returncode not in (0, 1):
        sys.exit(f"error: ppo.py {' '.join([*what, *where, *options])} has failed")
    history = load_checkpoint(run_dir).training["progress"]["history"]
    names = "seconds", "env_steps", "mean_return"
    return Found(run.returncode == 0, *(history[-1][name] for name in names))


def row(env_id: str, target: float, runs: list[Found]) -> str:
    """A row of the table."""
    texts = [
        f"{run.seconds:.1f}" if run.reached else f"({run.mean_return:.0f} in {run.seconds:.0f})"
        for run in runs
    ]
    middle = f"{median(run.seconds for run in runs):.1f}"
    steps = f"{median(run.env_steps for run in runs):,.0f}"
    if not all(run.reached for run in runs):
        middle = steps = ""
    return f"| {env_id} | {target:g} | {' | '.join(texts)} | {middle} | {steps} |"


def main() -> int:
    """Trains, and prints the table; returns 0, or 1 where a run missed its target."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    add = parser.add_argument
    add("--env-id", nargs="+", default=[*TARGETS], choices=[*TARGETS])
    add("--seeds", nargs="+", type=int, default=[1, 2, 3, 4, 5])
    add("--threads", type=int, default=len(os.sched_getaffinity(0)), help="step, and learn")
    add("--run-dir", type=Path, default=Path("runs/time_to_return"))
    args, options = parser.parse_known_args()
    threads = str(args.threads)
    options = ["--num-threads", threads, "--torch-threads", threads, *options]
    rows, missed = [], False
    for env_id in args.env_id:
        runs = [
            train(env_id, TARGETS[env_id], seed, args.run_dir / f"{env_id}-{seed}", options)
            for seed in args.seeds
        ]
        rows.append(row(env_id, TARGETS[env_id], runs))
        missed = missed or not all(run.reached for run in runs)
    seeds = " | ".join(f"seed {seed}" for seed in args.seeds)
    print(f"| environment | return | {seeds} | median, s | env-steps |")
    print("|---|---:|" + "---:|" * (len(args.seeds) + 2))
    print("\n".join(rows))
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
