# SPDX-License-Identifier: Apache-2.0
"""Prioritised level replay: of many mazes, those with the largest errors are played again.

    python examples/curriculum.py                         seconds
    python examples/curriculum.py --uniform               all mazes equally often, for comparison
    python examples/curriculum.py --draw curriculum.png   both, drawn in one plot

A maze is the saved state in which an episode of MiniGrid begins, so that any environment can play
it. Q-learning fills a table of values by observation; the score of a maze is the mean
size of the errors of its last episode, as in Jiang et al. 2021.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import rollouts
from rollouts.curriculum import Curriculum, LevelReplay, first_states

ACTIONS = 3  # left, right, forward


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--env-id", default="MiniGrid-Empty-Random-6x6-v0")
    add("--num-levels", type=int, default=64, help="mazes")
    add("--num-envs", type=int, default=8)
    add("--total-steps", type=int, default=12_000, help="env-steps")
    add("--epsilon", type=float, default=0.05, help="how often any action is taken")
    add("--learning-rate", type=float, default=0.3)
    add("--gamma", type=float, default=0.95)
    add("--uniform", action="store_true", help="each maze as often")
    add("--seed", type=int, default=1)
    add("--draw", type=Path, metavar="PNG", help="train both ways and draw the success rates")
    return parser.parse_args(argv)


def train(args: argparse.Namespace, *, uniform: bool) -> list[tuple[int, float]]:
    """Trains; returns env-steps and the share of mazes whose last episode reached the goal."""
    rng = np.random.default_rng(args.seed)
    # values begin at the largest return, so that untried actions are tried
    values: dict[bytes, Any] = defaultdict(lambda: np.ones(ACTIONS))
    options: dict[str, Any] = {"autoreset_mode": "disabled", "max_episode_steps": 100}
    with rollouts.make_vec(args.env_id, args.num_envs, seed=args.seed, **options) as env:
        mazes = first_states(env, range(args.num_levels))
        # with a staleness of 1, the levels played longest ago are next
        replay = LevelReplay(args.num_levels, staleness=1.0 if uniform else 0.1, seed=args.seed)
        levels = Curriculum(env, mazes, replay)
        solved = np.zeros(args.num_levels, np.bool_)
        errors, steps = np.zeros(args.num_envs), np.zeros(args.num_envs)
        curve = []
        keys = [row.tobytes() for row in levels.begin()]
        for env_steps in range(0, args.total_steps, args.num_envs):
            action = np.array([values[key].argmax() for key in keys])
            explores = rng.random(args.num_envs) < args.epsilon
            action[explores] = rng.integers(0, ACTIONS, int(explores.sum()))
            obs, reward, terminated, truncated, _ = env.step(action)
            for i, (key, row) in enumerate(zip(keys, obs, strict=True)):
                following = 0.0 if terminated[i] else values[row.tobytes()].max()
                error = float(reward[i]) + args.gamma * following - values[key][action[i]]
                values[key][action[i]] += args.learning_rate * error
                errors[i] += abs(error)
            steps += 1
            ended = terminated | truncated
            if ended.any():
                solved[levels.level[ended]] = terminated[ended]
                obs = levels.end(ended, errors / steps)
                errors[ended] = steps[ended] = 0
            keys = [row.tobytes() for row in obs]
            if env_steps % 500 < args.num_envs:
                curve.append((env_steps, float(solved.mean())))
    return curve


def main() -> None:
    """Trains once, or twice for a plot."""
    args = parse_args()
    ways = [False, True] if args.draw else [args.uniform]
    curves = {way: train(args, uniform=way) for way in ways}
    names = {False: "prioritised level replay", True: "each maze as often"}
    for way, curve in curves.items():
        print(f"{names[way]}: {curve[-1][1]:.0%} of {args.num_levels} mazes solved")
    if args.draw:
        figure = Figure(figsize=(7, 3.5), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        for way, curve in curves.items():
            steps, rates = zip(*curve, strict=True)
            axes.plot(steps, [100 * rate for rate in rates], label=names[way])
        axes.set_xlabel("training [env-steps]")
        axes.set_ylabel("mazes solved when last played [%]")
        axes.grid(alpha=0.3)
        axes.legend(loc="lower right")
        figure.savefig(args.draw, dpi=120)


if __name__ == "__main__":
    main()
