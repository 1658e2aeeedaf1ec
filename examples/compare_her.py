# SPDX-License-Identifier: Apache-2.0
"""Trains Stable-Baselines3's SAC with its HerReplayBuffer as `her.py` would.

    python examples/her.py --log runs/ours.csv
    python examples/compare_her.py --log runs/sb3.csv
    python examples/her.py --draw her.png runs/ours.csv runs/sb3.csv

Options and defaults are those of `her.py`. The arms are the same, behind a VecEnv of dicts.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
from common.reaching import GOAL, REWARD, SuccessLog, make_arms, success_rate
from her import parse_args
from numpy.typing import NDArray

from rollouts.support.extras import needs

with needs("sb3", "this example"):
    from stable_baselines3 import SAC, HerReplayBuffer
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.vec_env import VecEnv


class DictArms(VecEnv):
    """The arms in Stable-Baselines3's form for goals: dicts of observation and goals."""

    def __init__(self, num_envs: int, seed: int) -> None:
        self.arms = make_arms(num_envs, seed)
        space = GOAL.space(self.arms.single_observation_space)
        super().__init__(num_envs, space, self.arms.single_action_space)

    def reset(self) -> dict[str, NDArray[Any]]:
        """Begins an episode of each arm."""
        return dicts(self.arms.reset()[0])

    def step_async(self, actions: NDArray[Any]) -> None:
        """Remembers the actions."""
        self.actions = actions

    def step_wait(self) -> Any:
        """Steps all arms; infos have the entries that Stable-Baselines3 reads at a time limit."""
        obs, reward, terminated, truncated, info = self.arms.step(self.actions)
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for i in np.flatnonzero(truncated):
            final = {name: view.copy() for name, view in GOAL.views(info["final_obs"][i]).items()}
            infos[i] = {"TimeLimit.truncated": True, "terminal_observation": final}
        return dicts(obs), reward.astype(np.float32), terminated | truncated, infos

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **_: Any) -> list[Any]:
        """Computes compute_reward."""
        assert method_name == "compute_reward"
        return [REWARD(*args)]

    def close(self) -> None:
        """Closes the arms."""
        self.arms.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Returns None for each arm: the arms have no attributes."""
        return [None] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Refuses."""
        raise AttributeError(attr_name)

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """Returns False for each arm."""
        return [False] * self.num_envs


def dicts(obs: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Copies observations (B, D) into a dict of their parts."""
    return {name: view.copy() for name, view in GOAL.views(obs).items()}


class Evaluating(BaseCallback):
    """Evaluates at intervals, and stops at the target."""

    def __init__(self, args: argparse.Namespace, log: SuccessLog) -> None:
        super().__init__()
        self.args, self.log = args, log
        self.solved: int | None = None

    def _on_step(self) -> bool:
        args, steps = self.args, self.num_timesteps
        if steps % args.eval_interval >= args.num_envs or steps < args.learning_starts:
            return True
        rate = success_rate(lambda obs: self.model.predict(dicts(obs), deterministic=True)[0])
        self.log.add(steps, rate)
        self.solved = steps if rate >= args.target else None
        return self.solved is None


def main() -> int:
    """Trains; returns 0, or 1 where the target was missed."""
    args = parse_args()
    log = SuccessLog(args.log or Path(f"runs/her-sb3-{args.seed}.csv"), "Stable-Baselines3")
    model = SAC(
        "MultiInputPolicy",
        DictArms(args.num_envs, args.seed),
        learning_rate=args.learning_rate,
        buffer_size=1_000_000,
        learning_starts=args.learning_starts,
        batch_size=args.batch_size,
        tau=args.tau,
        gamma=args.gamma,
        train_freq=1,
        gradient_steps=args.num_envs,
        policy_kwargs={"net_arch": [256, 256]},
        replay_buffer_class=HerReplayBuffer,
        replay_buffer_kwargs={
            "n_sampled_goal": round(args.share / (1 - args.share)),
            "goal_selection_strategy": args.strategy,
        },
        seed=args.seed,
        device="cpu",
    )
    callback = Evaluating(args, log)
    model.learn(args.total_steps, callback=callback)
    steps = callback.solved
    print("not solved" if steps is None else f"solved after {steps:,} env-steps")
    return int(steps is None)


if __name__ == "__main__":
    sys.exit(main())
