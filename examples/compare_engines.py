# SPDX-License-Identifier: Apache-2.0
"""Trains PPO and SAC with each engine of MuJoCo's tasks, and draws the runs in one plot.

    python examples/compare_engines.py                  half an hour of one core
    python examples/compare_engines.py --programs ppo --env-id HalfCheetah-v5 --seeds 1

Runs lie in --run-dir, next to returns.png. A run that exists is drawn, and not made again.
Other options, such as --total-steps 1000000, are passed to the programs.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import numpy as np
from common.evaluation import FILE_NAME, read_evaluations
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from rollouts.checkpoint import load_checkpoint

ENGINES = {"lanes": "C0", "mujoco": "C1"}
OPTIONS = {
    # 11 500 gradient steps
    "sac": "--num-envs 16 --updates-per-step 0.125 --total-steps 96000 --min-size 4000 "
    "--learning-rate 0.001 --eval-interval 8000",
    "ppo": "",
}
Points = list[tuple[float, float]]


def train(
    program: str, env_id: str, engine: str, seed: int, run_dir: Path, others: list[str]
) -> None:
    """Makes a run by the program's own command line."""
    script = Path(__file__).with_name(f"{program}.py")
    options = ["--env-id", env_id, "--option", f"engine={engine}", "--seed", str(seed)]
    options += ["--num-workers", "0", "--run-dir", str(run_dir), *OPTIONS[program].split(), *others]
    if subprocess.run([sys.executable, str(script), *options]).returncode:
        sys.exit(f"error: {program}.py {' '.join(options)} has failed")


def returns_of(run_dir: Path) -> Points:
    """Env-steps and returns of a run: of its evaluations if there are any, else of its training."""
    if (run_dir / FILE_NAME).is_file():
        return [(row.env_steps, row.mean_return) for row in read_evaluations(run_dir)]
    history = load_checkpoint(run_dir).training["progress"]["history"]
    points = [(row["env_steps"], row["mean_return"]) for row in history]
    return [point for point in points if np.isfinite(point[1])]


def last_return(points: Points) -> float:
    """The mean over the last tenth of the env-steps."""
    return float(np.mean([value for step, value in points if step >= 0.9 * points[-1][0]]))


def main() -> int:
    """Trains missing runs, prints a table of the last returns, and draws all runs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    add = parser.add_argument
    add("--programs", nargs="+", default=[*OPTIONS], choices=[*OPTIONS])
    add("--env-id", nargs="+", default=["HalfCheetah-v5", "Ant-v5"])
    add("--seeds", nargs="+", type=int, default=[1, 2, 3])
    add("--run-dir", type=Path, default=Path("runs/engines"))
    args, others = parser.parse_known_args()

    figure = Figure(figsize=(6 * len(args.env_id), 4 * len(args.programs)), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(len(args.programs), len(args.env_id), squeeze=False)
    print("| program | environment | engine | last returns, by seed | mean |")
    print("|---|---|---|---|---|")
    for row, program in enumerate(args.programs):
        for column, env_id in enumerate(args.env_id):
            axes = grid[row, column]
            for engine, color in ENGINES.items():
                ends = []
                for seed in args.seeds:
                    run_dir = args.run_dir / f"{program}-{env_id}-{engine}-{seed}"
                    if not (run_dir / "training.png").is_file():
                        train(program, env_id, engine, seed, run_dir, others)
                    points = returns_of(run_dir)
                    ends.append(last_return(points))
                    axes.plot(*zip(*points, strict=True), color=color, label=engine, alpha=0.8)
                numbers = ", ".join(f"{end:.0f}" for end in ends)
                print(f"| {program} | {env_id} | {engine} | {numbers} | {np.mean(ends):.0f} |")
            axes.set(title=f"{program}.py, {env_id}", xlabel="env-steps", ylabel="return")
            labels = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
            axes.legend(labels.values(), labels.keys())
            axes.grid(alpha=0.3)
    figure.savefig(args.run_dir / "returns.png", dpi=120)
    return 0


if __name__ == "__main__":
    sys.exit(main())
