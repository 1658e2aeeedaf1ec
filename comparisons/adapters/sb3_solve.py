# SPDX-License-Identifier: Apache-2.0
"""Learners of `rollouts bench solve`: Stable-Baselines3's PPO, over our pool and over its own.

Hyper-parameters are those of examples/integrations/sb3_ppo.py, for all.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rollouts.integrations.sb3 import RolloutsPPO, RolloutsVecEnv
from rollouts.integrations.shared.missing import needs

from comparisons.report.solving import Learner
from rollouts.errors import EngineError

try:
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv
except ImportError as error:
    raise needs("sb3", error) from error

_NUM_ENVS = 16
_MAX_STEPS = 300_000
_EPISODES = 100  # number of the returns that Stable-Baselines3 keeps


class _Solved(BaseCallback):
    """Ends the training after a rollout whose last episodes reach the target."""

    def __init__(self, target: float) -> None:
        super().__init__()
        self.target, self.is_solved = target, False

    def _on_step(self) -> bool:
        return not self.is_solved

    def _on_rollout_end(self) -> None:
        found = [one["r"] for one in self.model.ep_info_buffer or ()]
        self.is_solved = len(found) >= _EPISODES and float(np.mean(found)) >= self.target


def _learner(algorithm: Callable[..., Any], make_env: Callable[[str, int], Any]) -> Learner:
    def learn(id: str, target: float, seed: int) -> tuple[float, int]:
        env, solved = make_env(id, seed), _Solved(target)
        try:
            model = algorithm(
                "MlpPolicy",
                env,
                n_steps=128,
                batch_size=256,
                learning_rate=lambda remaining: 1e-3 * remaining,
                seed=seed,
                device="cpu",
            )
            started = time.perf_counter()
            model.learn(total_timesteps=_MAX_STEPS, callback=solved)
            seconds = time.perf_counter() - started
        finally:
            env.close()
        if not solved.is_solved:
            raise EngineError(
                f"{algorithm.__name__} with seed {seed} had no {_EPISODES} episodes with a mean "
                f"return of {target:g} on {id} within {_MAX_STEPS} env-steps: give a lower "
                "target or another seed"
            )
        return seconds, int(model.num_timesteps)

    return learn


def _stock(kind: type[Any]) -> Callable[[str, int], Any]:
    return lambda env_id, seed: make_vec_env(env_id, _NUM_ENVS, seed=seed, vec_env_cls=kind)


LEARNERS: dict[str, Learner] = {
    "rollouts": _learner(
        RolloutsPPO, lambda env_id, seed: RolloutsVecEnv(env_id, _NUM_ENVS, seed=seed)
    ),
    "sb3-dummy": _learner(PPO, _stock(DummyVecEnv)),
    "sb3-subproc": _learner(PPO, _stock(SubprocVecEnv)),
}
