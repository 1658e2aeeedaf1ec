# SPDX-License-Identifier: Apache-2.0
"""Trainers of RLlib: `train` until enough env-steps are made, with the default network.

"rollouts" has our runner and our learner, "rollouts-torch" our runner and RLlib's learner, "rllib"
RLlib's own of both. All sample and learn in the algorithm's process, as its default configuration
has it.
"""

from __future__ import annotations

import time
from typing import Any

import ray
from ray.rllib.algorithms.ppo import PPOConfig
from rollouts.integrations.rllib import RolloutsEnvRunner, RolloutsPPOLearner

from comparisons.training.whole_trainings import Task, Trainer, TrainingResult


def _trainer(learner_class: Any = None, **runners: Any) -> Trainer:
    def train(task: Task) -> TrainingResult:
        config = PPOConfig().environment(task.id)
        config.env_runners(num_env_runners=0, num_envs_per_env_runner=task.num_envs, **runners)
        if learner_class:
            config.learners(learner_class=learner_class)
        config.debugging(seed=task.seed, log_level="ERROR")
        is_ours = not ray.is_initialized()
        algorithm = config.build_algo()
        env_steps = 0
        try:
            started = time.perf_counter()
            while env_steps < task.total_steps:
                result = algorithm.train()
                env_steps = int(result["num_env_steps_sampled_lifetime"])
            seconds = time.perf_counter() - started
        finally:
            algorithm.stop()
            if is_ours:
                ray.shutdown()
        mean = float(result["env_runners"].get("episode_return_mean", float("nan")))
        return TrainingResult(seconds, env_steps, mean)

    return train


TRAINERS: dict[str, dict[str, Trainer]] = {
    "ppo": {
        "rollouts": _trainer(RolloutsPPOLearner, env_runner_cls=RolloutsEnvRunner),
        "rollouts-torch": _trainer(env_runner_cls=RolloutsEnvRunner),
        "rllib": _trainer(),
    }
}
