# SPDX-License-Identifier: Apache-2.0
"""Trains Stable-Baselines3's SAC as `sac.py` would, and draws the runs of both in one plot.

    python examples/sac.py --total-steps 100000 --run-dir runs/ours
    python examples/compare_sac.py --total-steps 100000 --run-dir runs/sb3
    python examples/compare_sac.py --draw comparison.png runs/ours runs/sb3

Options and defaults are those of `sac.py`. Stable-Baselines3 learns in its stock way, from one
environment of Gymnasium, with --updates-per-step gradient steps after each env-step. It is
evaluated like our policy: in the same environments, from the same first states.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium
import torch
from common.evaluation import Evaluation, EvaluationLog, evaluate, read_evaluations
from common.stopping import stop_on_interrupt
from common.training import run_dir
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter
from numpy.typing import NDArray
from sac import parse_args

from rollouts.support.extras import needs

with needs("sb3", "this example"):
    from stable_baselines3 import SAC
    from stable_baselines3.common.callbacks import BaseCallback

LIBRARY = "Stable-Baselines3"


class Evaluating(BaseCallback):
    """Evaluates at intervals, as SacTraining does, and stops at Ctrl-C."""

    def __init__(self, args: argparse.Namespace, log: EvaluationLog, stop: Any) -> None:
        super().__init__()
        self.args, self.log, self.stop = args, log, stop
        self.began = time.perf_counter()

    def _on_step(self) -> bool:
        # SB3 has learned from the step before this one, but not from this one
        if self.log.is_due(self.num_timesteps - 1, self.args.eval_interval):
            self.evaluate(self.num_timesteps - 1)
        return not self.stop.is_set()

    def evaluate(self, env_steps: int) -> None:
        """Measures the policy's returns, and stores them."""
        args = self.args
        options = {"num_episodes": args.eval_episodes, "seed": args.seed}
        seconds = time.perf_counter() - self.began
        returns = evaluate(self.act_greedily, args.env_id, **options)
        self.log.add(
            Evaluation(
                library=LIBRARY,
                env_steps=env_steps,
                updates=self.model._n_updates,
                seconds=seconds,
                mean_return=float(returns.mean()),
                std_return=float(returns.std()),
            )
        )

    def act_greedily(self, obs: NDArray[Any]) -> NDArray[Any]:
        """Maps obs (B, ...) to actions (B, A): the squashed means of the Gaussians."""
        action: NDArray[Any] = self.model.predict(obs, deterministic=True)[0]
        return action


def train(args: argparse.Namespace) -> EvaluationLog:
    """Trains Stable-Baselines3's SAC with the hyper-parameters of `args`, and evaluates it."""
    if args.resume or args.anneal or args.priority_exponent or args.n_step != 1:
        sys.exit("error: --resume, --anneal, --priority-exponent and --n-step are not compared")
    if not args.updates_per_step.is_integer():
        sys.exit(f"error: --updates-per-step is {args.updates_per_step}, expected a whole number")
    torch.set_num_threads(args.torch_threads)
    args.run_dir = run_dir(args)
    args.run_dir.mkdir(parents=True, exist_ok=True)
    log = EvaluationLog(args.run_dir)
    model = SAC(
        "MlpPolicy",
        gymnasium.make(args.env_id),
        learning_rate=args.learning_rate,
        buffer_size=args.replay_size,
        learning_starts=args.min_size,
        batch_size=args.batch_size,
        tau=args.tau,
        gamma=args.gamma,
        train_freq=1,
        gradient_steps=int(args.updates_per_step),
        policy_kwargs={"net_arch": [256, 256]},
        seed=args.seed,
        device=args.device,
    )
    with stop_on_interrupt() as stop:
        callback = Evaluating(args, log, stop)
        model.learn(args.total_steps, callback=callback)
        callback.evaluate(model.num_timesteps)
    return log


def draw(path: Path, runs: Sequence[Path]) -> None:
    """Writes a PNG with the returns of all runs, over env-steps and over seconds."""
    figure = Figure(figsize=(8, 8), layout="constrained")
    FigureCanvasAgg(figure)
    by_steps, by_time = figure.subplots(2, 1)
    figure.suptitle("SAC without exploration: mean and standard deviation of the episodes")
    for directory in runs:
        rows = read_evaluations(directory)
        if not rows:
            continue
        color = "C1" if rows[0].library == LIBRARY else "C0"
        label = f"{rows[0].library}: {directory.name}"
        plot(by_steps, [row.env_steps for row in rows], rows, color=color, label=label)
        plot(by_time, [row.seconds for row in rows], rows, color=color, label=label)
    by_steps.set_xlabel("training [env-steps]")
    by_steps.xaxis.set_major_formatter(EngFormatter(sep=""))
    by_time.set_xlabel("training [s]")
    for axes in (by_steps, by_time):
        axes.set_ylabel("return [reward per episode]")
        axes.grid(alpha=0.3)
        axes.legend(loc="upper left", fontsize="small")
    figure.savefig(path, dpi=120)


def plot(axes: Axes, x: list[Any], rows: list[Evaluation], *, color: str, label: str) -> None:
    """Draws one run."""
    mean = [row.mean_return for row in rows]
    low = [row.mean_return - row.std_return for row in rows]
    high = [row.mean_return + row.std_return for row in rows]
    axes.plot(x, mean, f"{color}.-", label=label)
    axes.fill_between(x, low, high, color=color, alpha=0.15, linewidth=0)


def main() -> int:
    """Trains, or draws finished trainings."""
    args = parse_args(
        doc=__doc__,
        draw={"type": Path, "nargs": "+", "help": "a PNG, and the run directories to draw in it"},
    )
    if args.draw:
        draw(args.draw[0], args.draw[1:])
        return 0
    row = train(args).rows[-1]
    print(
        f"{args.env_id}: mean return {row.mean_return:.1f} without exploration, "
        f"{row.env_steps:,} env-steps and {row.updates:,} updates in {row.seconds:.1f} s of "
        f"training ({row.updates / row.seconds:.0f} updates/s); outputs in {args.run_dir}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
