# SPDX-License-Identifier: Apache-2.0
"""Trainers of RLlib: `train` until the env-steps are reached, with the default network.

"rollouts" has our runner and our learner, "rollouts-torch" our runner and RLlib's learner, "rllib"
RLlib's own runner and learner. All sample and learn in the algorithm's process, as in RLlib's
default configuration. Each training has a Ray of its own, unless the process has one: RLlib would
join any cluster that it finds on the machine or in RAY_ADDRESS.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.sac import SACConfig
from rollouts.integrations.rllib import (
    RolloutsDQNLearner,
    RolloutsEnvRunner,
    RolloutsPPOLearner,
    RolloutsSACLearner,
)

from comparisons.training.result import TrainingResult
from comparisons.training.whole_trainings import Trainer, TrainingTask
from rollouts.workers.on_ray import shared_ray


def _trainer(make_config: Any, learner_class: Any = None, **runners: Any) -> Trainer:
    def train(task: TrainingTask) -> TrainingResult:
        config = make_config().environment(task.id)
        config.env_runners(num_env_runners=0, num_envs_per_env_runner=task.num_envs, **runners)
        if learner_class:
            config.learners(learner_class=learner_class)
        config.debugging(seed=task.seed, log_level="ERROR")
        session = shared_ray.enter("local", num_cpus=1.0, timeout_s=10.0)
        try:
            return _train(config.build_algo(), task.total_steps)
        finally:
            session.leave()

    return train


def _train(algorithm: Any, total_steps: int) -> TrainingResult:
    """Trains an algorithm until it has made the steps, and stops it."""
    env_steps, mean = 0, math.nan
    curve: list[tuple[int, float]] = []
    try:
        started = time.perf_counter()
        while env_steps < total_steps:
            result = algorithm.train()
            env_steps = int(result["num_env_steps_sampled_lifetime"])
            mean = _mean_return(result, mean)
            curve.append((env_steps, mean))
        seconds = time.perf_counter() - started
    finally:
        algorithm.stop()
    return TrainingResult(seconds, env_steps, mean, tuple(curve))


def _mean_return(result: Mapping[str, Any], before: float) -> float:
    """The mean return of an iteration's episodes; `before` where none ended."""
    mean = float(result["env_runners"].get("episode_return_mean", math.nan))
    return before if math.isnan(mean) else mean


def _trainers(make_config: Any, learner_class: Any) -> dict[str, Trainer]:
    return {
        "rollouts": _trainer(make_config, learner_class, env_runner_cls=RolloutsEnvRunner),
        "rollouts-torch": _trainer(make_config, env_runner_cls=RolloutsEnvRunner),
        "rllib": _trainer(make_config),
    }


TRAINERS = {
    "ppo": _trainers(PPOConfig, RolloutsPPOLearner),
    "dqn": _trainers(DQNConfig, RolloutsDQNLearner),
    "sac": _trainers(SACConfig, RolloutsSACLearner),
}
