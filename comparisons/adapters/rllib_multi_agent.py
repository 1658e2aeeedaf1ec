# SPDX-License-Identifier: Apache-2.0
"""RLlib with several agents: RolloutsMultiAgentEnvRunner next to RLlib's own runner.

The call that is measured is `sample(num_timesteps=T * N)` of one runner in this process; it builds
the episodes, but no learner runs. Each group of agents has a module with RLlib's default
network. RLlib's contestant steps MPE2's Python environments through RLlib's wrapper for PettingZoo;
with "rllib-over-rollouts" these are ours, one native environment at a time. Env-steps are counted,
whatever the number of agents.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.env.multi_agent_env_runner import MultiAgentEnvRunner
from ray.rllib.env.wrappers.pettingzoo_env import ParallelPettingZooEnv
from ray.tune.registry import register_env
from rollouts.integrations.pettingzoo import parallel_env
from rollouts.integrations.rllib import RolloutsMultiAgentEnvRunner

import rollouts
from comparisons.adapters.measuring import Case, Contestant
from comparisons.adapters.rllib import SamplingRunner
from rollouts.errors import EngineError


def _ours(case: Case) -> Contestant:
    config = _config(case, case.id)
    config.environment(env_config={"num_threads": case.num_threads})
    runner = RolloutsMultiAgentEnvRunner(config=config)
    assert not runner.slow_reason, runner.slow_reason
    return SamplingRunner(case, runner, random_actions=False, note="torch")


def _stock(case: Case) -> Contestant:
    return _one_by_one(case, functools.partial(_of_mpe2, case.id), "mpe2, sync")


def _over_rollouts(case: Case) -> Contestant:
    return _one_by_one(case, functools.partial(parallel_env, case.id), "ours one by one, sync")


def _one_by_one(case: Case, make: Callable[[], Any], note: str) -> Contestant:
    name = f"rllib-own/{note}/{case.id}"
    register_env(name, lambda _: ParallelPettingZooEnv(make()))
    runner = MultiAgentEnvRunner(config=_config(case, name))
    return SamplingRunner(case, runner, random_actions=False, note=note)


def _of_mpe2(id: str) -> Any:
    try:
        module = importlib.import_module(f"mpe2.{id}")
    except ImportError as error:
        raise EngineError(
            f"contestant 'rllib' steps {id} of mpe2, which has none or is not installed: "
            f"pip install mpe2, or --peer rllib-over-rollouts ({error})"
        ) from error
    return module.parallel_env()


def _config(case: Case, env: str) -> PPOConfig:
    config = PPOConfig().environment(env)
    config.env_runners(num_env_runners=0, num_envs_per_env_runner=case.num_envs)
    config.multi_agent(
        policies={group.name for group in rollouts.env_spec(case.id).groups},
        policy_mapping_fn=lambda agent, episode, **_: agent.partition("_")[0],
    )
    torch.manual_seed(case.seed)
    return config.debugging(seed=case.seed)


CONTESTANTS: dict[str, Callable[[Case], Contestant]] = {
    "rollouts": _ours,
    "rllib": _stock,
    "rllib-over-rollouts": _over_rollouts,
}
