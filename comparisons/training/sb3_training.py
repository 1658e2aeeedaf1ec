# SPDX-License-Identifier: Apache-2.0
"""Trainers of Stable-Baselines3: `learn` with the algorithms' default arguments.

"rollouts" is ours with its defaults, "rollouts-torch" the same with gradient steps by torch. The
others are SB3's own classes over its own VecEnvs, with torch's own number of threads.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rollouts.integrations.sb3 import (
    RolloutsA2C,
    RolloutsDQN,
    RolloutsPPO,
    RolloutsSAC,
    RolloutsTD3,
    RolloutsVecEnv,
)
from rollouts.integrations.shared.missing import needs

from comparisons.training.result import TrainingResult
from comparisons.training.whole_trainings import Trainer, TrainingTask

try:
    from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.logger import KVWriter, Logger
    from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv
except ImportError as error:
    raise needs("sb3", error) from error

_ALGORITHMS: dict[str, tuple[Any, Any]] = {
    "ppo": (RolloutsPPO, PPO),
    "a2c": (RolloutsA2C, A2C),
    "dqn": (RolloutsDQN, DQN),
    "sac": (RolloutsSAC, SAC),
    "td3": (RolloutsTD3, TD3),
}


def _trainer(
    algorithm: Callable[..., Any], make_env: Callable[[TrainingTask], Any], **settings: Any
) -> Trainer:
    def train(task: TrainingTask) -> TrainingResult:
        env = make_env(task)
        try:
            model = algorithm("MlpPolicy", env, seed=task.seed, device="cpu", **settings)
            curve = _Curve()
            model.set_logger(Logger(folder=None, output_formats=[curve]))
            # off-policy algorithms count log_interval in episodes, the others in rollouts
            often = {"log_interval": 1} if isinstance(model, OffPolicyAlgorithm) else {}
            started = time.perf_counter()
            model.learn(total_timesteps=task.total_steps, **often)
            seconds = time.perf_counter() - started
        finally:
            env.close()
        returns = [one["r"] for one in model.ep_info_buffer or ()]
        mean = float(np.mean(returns)) if returns else math.nan
        return TrainingResult(seconds, int(model.num_timesteps), mean, tuple(curve.points))

    return train


class _Curve(KVWriter):  # type: ignore[misc]
    """Mean returns that the library logs, by env-steps."""

    def __init__(self) -> None:
        self.points: list[tuple[int, float]] = []

    def write(
        self,
        key_values: dict[str, Any],
        key_excluded: dict[str, tuple[str, ...]],
        step: int = 0,
    ) -> None:
        if "rollout/ep_rew_mean" in key_values:
            self.points.append((step, float(key_values["rollout/ep_rew_mean"])))

    def close(self) -> None:
        pass


def _pool(task: TrainingTask) -> Any:
    return RolloutsVecEnv(task.id, task.num_envs, seed=task.seed)


def _dummy(task: TrainingTask) -> Any:
    return make_vec_env(task.id, task.num_envs, seed=task.seed, vec_env_cls=DummyVecEnv)


def _subproc(task: TrainingTask) -> Any:
    return make_vec_env(
        task.id,
        task.num_envs,
        seed=task.seed,
        vec_env_cls=SubprocVecEnv,
        # otherwise every process imports torch anew
        vec_env_kwargs={"start_method": "fork"},
    )


def _trainers(ours: Any, stock: Any) -> dict[str, Trainer]:
    found = {"rollouts": _trainer(ours, _pool)}
    if hasattr(ours, "learner_engine"):
        found["rollouts-torch"] = _trainer(ours, _pool, train_engine="torch")
    return found | {"sb3-dummy": _trainer(stock, _dummy), "sb3-subproc": _trainer(stock, _subproc)}


TRAINERS = {name: _trainers(*classes) for name, classes in _ALGORITHMS.items()}
