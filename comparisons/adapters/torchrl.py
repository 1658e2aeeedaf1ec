# SPDX-License-Identifier: Apache-2.0
"""Contestants of `rollouts bench adapter torchrl`: environments behind TorchRL's Collector."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from rollouts.integrations.torchrl import RolloutsCollector, RolloutsEnv
from tensordict.nn import TensorDictModule
from torch import nn
from torchrl.collectors import Collector
from torchrl.envs import GymEnv, GymWrapper, ParallelEnv
from torchrl.modules import ProbabilisticActor

from comparisons.adapters.measuring import Case
from rollouts.collecting.policy_engine import Engine
from rollouts.errors import SpecError

# environments of ParallelEnv, each in a process that takes about 300 MB
_PROCESSES = 8


class _Collect:
    """One environment behind an endless Collector."""

    def __init__(
        self, case: Case, env: Any, note: str = "", *, engine: Engine | None = None
    ) -> None:
        self.note = note
        self._frames = env.batch_size[0] * case.rollout_length
        kind = Collector if engine is None else RolloutsCollector
        self._collector = kind(env, _policy(case), frames_per_batch=self._frames, total_frames=-1)
        if isinstance(self._collector, RolloutsCollector) and engine is not None:
            self._collector.rollout_engine = engine
        self._batches = iter(self._collector)

    def collect(self) -> int:
        """T steps of each environment."""
        return int(next(self._batches).numel())

    def close(self) -> None:
        """Ends worker processes and threads."""
        self._collector.shutdown()


def _policy(case: Case) -> Any:
    """Two layers of 64, the same for all."""
    env = gym.make(case.id)
    obs, actions = env.observation_space, env.action_space
    if not isinstance(actions, gym.spaces.Discrete) or not isinstance(obs, gym.spaces.Box):
        raise SpecError(f"{case.id} has {obs} and {actions}, expected Box and Discrete")
    torch.manual_seed(case.seed)
    layers = nn.Sequential(
        nn.Linear(obs.shape[0], 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(),
        nn.Linear(64, int(actions.n)),
    )  # fmt: skip
    return ProbabilisticActor(
        TensorDictModule(layers, in_keys=["observation"], out_keys=["logits"]),
        in_keys=["logits"],
        distribution_class=torch.distributions.Categorical,
    )


def _rollouts(case: Case, note: str = "", *, engine: Engine | None = "native") -> _Collect:
    env = RolloutsEnv(
        case.id,
        num_envs=case.num_envs,
        num_threads=case.num_threads,
        seed=case.seed,
        categorical_action_encoding=True,
    )
    return _Collect(case, env, note, engine=engine)


def _sync(case: Case) -> _Collect:
    envs = SyncVectorEnv(
        [lambda: gym.make(case.id) for _ in range(case.num_envs)],
        autoreset_mode=AutoresetMode.SAME_STEP,
    )
    return _Collect(
        case,
        GymWrapper(envs, categorical_action_encoding=True),
        "GymWrapper around Gymnasium's SyncVectorEnv",
    )


def _parallel(case: Case) -> _Collect:
    count = min(case.num_envs, _PROCESSES)
    env = ParallelEnv(count, lambda: GymEnv(case.id, categorical_action_encoding=True))
    note = "ParallelEnv" if count == case.num_envs else f"ParallelEnv, {count} envs: a process each"
    return _Collect(case, env, note)


CONTESTANTS: Mapping[str, Callable[[Case], Any]] = {
    "rollouts": _rollouts,
    "rollouts-torch": lambda case: _rollouts(case, "torch computes the policy", engine="torch"),
    "rollouts-env": lambda case: _rollouts(
        case, "TorchRL's Collector on our environments", engine=None
    ),
    "torchrl": _sync,
    "torchrl-parallel": _parallel,
}
