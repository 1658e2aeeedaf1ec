# SPDX-License-Identifier: Apache-2.0
"""Contestants of `rollouts bench adapter tianshou`: collectors with the same network and buffer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import torch
from rollouts.integrations.tianshou import RolloutsCollector, RolloutsVectorEnv
from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv, SubprocVectorEnv
from tianshou.utils.net.common import Net
from tianshou.utils.net.discrete import DiscreteActor

from comparisons.adapters.measuring import Case
from rollouts.collecting.policy_engine import Engine
from rollouts.errors import SpecError

# SubprocVectorEnv starts a process for each environment
_MAX_PROCESSES = 256


class _Collect:
    """A collector that collects again and again, as an on-policy trainer uses it."""

    def __init__(
        self, case: Case, kind: Any, envs: Any, note: str = "", *, engine: Engine | None = None
    ) -> None:
        self.note = note
        self._steps = len(envs) * case.rollout_length
        buffer = VectorReplayBuffer(self._steps, len(envs))
        self._collector = kind(_policy(case), envs, buffer)
        if engine is not None:
            self._collector.rollout_engine = engine
        self._collector.reset()

    def collect(self) -> int:
        """T steps of each environment."""
        self._collector.reset_buffer(keep_statistics=True)
        return int(self._collector.collect(n_step=self._steps).n_collected_steps)

    def close(self) -> None:
        """Ends worker processes and threads."""
        self._collector.close()


def _policy(case: Case) -> Any:
    """Two layers of 64, the same for all."""
    env = gym.make(case.id)
    if not isinstance(env.action_space, gym.spaces.Discrete):
        raise SpecError(f"{case.id} has actions {env.action_space}, expected Discrete")
    torch.manual_seed(case.seed)
    net = Net(state_shape=env.observation_space.shape, hidden_sizes=[64, 64])
    actor = DiscreteActor(
        preprocess_net=net, action_shape=int(env.action_space.n), softmax_output=False
    )
    return DiscreteActorPolicy(actor=actor, action_space=env.action_space)


def _rollouts(case: Case) -> RolloutsVectorEnv:
    return RolloutsVectorEnv(
        case.id, num_envs=case.num_envs, num_threads=case.num_threads, seed=case.seed
    )


def _subprocesses(case: Case) -> _Collect:
    count = min(case.num_envs, _MAX_PROCESSES)
    note = "SubprocVectorEnv: a process per environment"
    if count < case.num_envs:
        note += f"; {count} environments, {case.num_envs} processes are too many"
    envs = SubprocVectorEnv([lambda: gym.make(case.id) for _ in range(count)])
    return _Collect(case, Collector, envs, note)


def _one_process(case: Case) -> _Collect:
    envs = DummyVectorEnv([lambda: gym.make(case.id) for _ in range(case.num_envs)])
    return _Collect(case, Collector, envs, "DummyVectorEnv: one process")


CONTESTANTS: Mapping[str, Callable[[Case], Any]] = {
    "rollouts": lambda case: _Collect(case, RolloutsCollector, _rollouts(case), engine="native"),
    "rollouts-torch": lambda case: _Collect(
        case, RolloutsCollector, _rollouts(case), "torch computes the policy", engine="torch"
    ),
    "rollouts-env": lambda case: _Collect(
        case, Collector, _rollouts(case), "Tianshou's Collector on our environments"
    ),
    "tianshou": _subprocesses,
    "tianshou-dummy": _one_process,
}
