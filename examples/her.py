# SPDX-License-Identifier: Apache-2.0
"""Hindsight experience replay: an arm learns to reach goals; rewards are 0 at the goal, else -1.

    python examples/her.py                            stops once nearly all goals are reached
    python examples/her.py --share 0                  without hindsight, for comparison
    python examples/her.py --draw her.png runs/*.csv  success rates of several trainings

As Andrychowicz et al. 2017, with SAC: of the transitions that are sampled, four in five get a goal
that the arm came to later in the same episode. Native code makes the gradient steps where it can
read the networks. `compare_her.py` trains the same with Stable-Baselines3.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
import sac
import torch
from common.reaching import (
    EPISODE,
    GOAL,
    REWARD,
    SuccessLog,
    draw,
    make_arms,
    options,
    success_rate,
)

from rollouts.replay import Acted, Hindsight, ReplayBuffer, TableConfig


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    """Reads the command line, which `compare_her.py` shares."""
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n\n")[0] if __doc__ else None,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--total-steps", type=int, default=40_000, help="env-steps to train for at most")
    add("--target", type=float, default=0.95, help="stop at this success rate")
    add("--num-envs", type=int, default=4, help="arms that are stepped at the same time")
    add("--share", type=float, default=0.8, help="of samples that get another goal")
    add("--strategy", choices=["future", "final", "episode"], default="future")
    add("--learning-starts", type=int, default=1_000, help="env-steps before the first update")
    add("--batch-size", type=int, default=256)
    add("--learning-rate", type=float, default=1e-3)
    add("--gamma", type=float, default=0.95)
    add("--tau", type=float, default=0.02, help="of an update that the target network takes over")
    add("--eval-interval", type=int, default=1_000, help="env-steps between evaluations")
    add("--seed", type=int, default=1)
    add("--log", type=Path, help="a CSV file of success rates; by default runs/her-<seed>.csv")
    add("--draw", type=Path, metavar="PNG", help="draw the logs named, and train nothing")
    add("logs", type=Path, nargs="*", help="what --draw draws")
    return parser.parse_args(argv)


def make_learner(args: argparse.Namespace, folder: Path) -> sac.Learner:
    """Makes SAC's networks and optimisers for the arm."""
    settings = sac.parse_args(["--env-id", "MuJoCo-v0"])
    plain = {name: value for name, value in options(folder).items() if name != "model"}
    settings.option = list(plain.items())
    for name in ("seed", "learning_rate", "tau", "gamma"):
        setattr(settings, name, getattr(args, name))
    return sac.Learner(settings)


def train(args: argparse.Namespace, log: SuccessLog, folder: Path) -> int | None:
    """Trains until the target; returns the env-steps it took, None where it was not reached."""
    learner = make_learner(args, folder)
    items = Hindsight(
        GOAL, REWARD, args.strategy, args.share, discount=args.gamma, max_length=EPISODE
    )
    with make_arms(args.num_envs, args.seed) as env:
        spaces = env.single_observation_space, env.single_action_space
        table = TableConfig(items=items, max_size=1_000_000)
        buffer = ReplayBuffer(*spaces, table, autoreset_mode="same_step", seed=args.seed)
        rng = np.random.default_rng(args.seed)
        obs, _ = env.reset()
        for env_steps in range(0, args.total_steps, args.num_envs):
            if env_steps % args.eval_interval < args.num_envs and env_steps >= args.learning_starts:
                rate = success_rate(learner.act_greedily)
                log.add(env_steps, rate)
                if rate >= args.target:
                    return env_steps
            if env_steps < args.learning_starts:
                action = rng.uniform(-1, 1, env.action_space.shape).astype(np.float32)
            else:
                action = explore(learner, obs)
            step = env.step(action)
            buffer.add_step(Acted(obs, action), step)
            obs = step[0]
            if env_steps >= args.learning_starts and buffer.size():
                for _ in range(args.num_envs):
                    batch = buffer.sample(args.batch_size, device="cpu")
                    learner.learn(batch, learning_rate=args.learning_rate)
    return None


@torch.no_grad()
def explore(learner: sac.Learner, obs: Any) -> Any:
    """Draws actions (B, A) of the policy."""
    action, _ = learner.sample_action(torch.from_numpy(np.array(obs)))
    return learner.head.scaled(action).numpy().astype(np.float32)


def main() -> int:
    """Trains; returns 0, or 1 where the target was missed."""
    args = parse_args()
    if args.draw:
        draw(args.draw, args.logs)
        return 0
    log = SuccessLog(args.log or Path(f"runs/her-{args.seed}.csv"), "rollouts")
    log.path.parent.mkdir(parents=True, exist_ok=True)
    steps = train(args, log, log.path.parent)
    print("not solved" if steps is None else f"solved after {steps:,} env-steps")
    return int(steps is None)


if __name__ == "__main__":
    sys.exit(main())
