# SPDX-License-Identifier: Apache-2.0
"""Stable-Baselines3's PPO collecting by itself, for `rollouts bench collect`."""

from __future__ import annotations

import importlib.metadata
from typing import Any

import gymnasium

from comparisons.stepping.vector_libraries import gymnasium_maker
from rollouts.bench.collect_task import Task
from rollouts.bench.policies import make_body
from rollouts.bench.policy_kinds import PolicyKind
from rollouts.support.extras import needs

with needs("sb3", "peer 'sb3'"):
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
    from stable_baselines3.common.vec_env import DummyVecEnv


class Sb3Collects:
    """PPO's `collect_rollouts` over DummyVecEnv, as `learn` calls it; it does not learn."""

    name = "SB3 PPO, DummyVecEnv"
    api = "collect_rollouts"

    def __init__(self, task: Task, num_envs: int) -> None:
        """Makes environments and model.

        Raises:
          SpecError: Gymnasium does not have the environment, or not with these options.
          EngineError: A library it needs is missing.
        """
        make, _, differs = gymnasium_maker(task.settings, task.spec)
        self.num_envs, self.num_threads = num_envs, 1
        self.notes: tuple[str, ...] = (
            "One network with two heads, as ours; MlpPolicy's default has two networks. It keeps "
            "advantages, too.",
            *differs,
        )
        self._rollout_length = task.rollout_length
        seed = task.settings.seed % 2**31
        self._env = make_vec_env(make, num_envs, seed=seed, vec_env_cls=DummyVecEnv)
        self._model = PPO(
            "MlpPolicy",
            self._env,
            n_steps=task.rollout_length,
            # a valid batch size for learning, which does not happen; SB3 warns about other sizes
            batch_size=task.rollout_length * num_envs,
            normalize_advantage=False,
            policy_kwargs={
                "net_arch": [],
                "features_extractor_class": _Body,
                "features_extractor_kwargs": {"kind": task.policy},
            },
            seed=seed,
            device="cpu",
        )
        # does what `learn` does first: resets the environments, makes callback and logger
        _, self._callback = self._model._setup_learn(2**40)

    def version(self) -> str:
        return importlib.metadata.version("stable_baselines3")

    def resume(self) -> None:
        self.collect()

    def collect(self) -> int:
        model = self._model
        model.collect_rollouts(
            self._env, self._callback, model.rollout_buffer, self._rollout_length
        )
        return self._rollout_length * self.num_envs

    def pause(self) -> None:
        """Nothing else runs during `collect_rollouts`."""

    def close(self) -> None:
        self._env.close()


class _Body(BaseFeaturesExtractor):  # type: ignore[misc]
    """Our network's layers before its heads."""

    def __init__(self, observation_space: gymnasium.Space[Any], kind: PolicyKind) -> None:
        body, width = make_body(observation_space, kind)
        super().__init__(observation_space, width)
        self.body = body

    def forward(self, observations: Any) -> Any:
        return self.body(observations)
