# SPDX-License-Identifier: Apache-2.0
"""`Collector(returns=)`: advantages and targets of a rollout, the bits of `rollouts.returns`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from small_agents import Remembering
from torch import nn

import rollouts
from rollouts.batch import RolloutBatch
from rollouts.errors import SpecError
from rollouts.policies.native import NativePolicy
from rollouts.policy import TorchPolicy
from rollouts.recurrent import RecurrentTorchPolicy
from rollouts.returns import Gae, Nstep, batch_gae, batch_nstep

RULES = [Gae(gamma=0.97, gae_lambda=0.9), Nstep(gamma=0.97, n=3), Nstep(gamma=0.99, n=1000)]
STEPS = 40
# ends of both kinds within a rollout, light and heavy
IDS = {"CartPole-v1": 11, "Pendulum-v1": 17, "Hopper-v5": 13}


class Agent(nn.Module):
    """Actor and critic of one layer each, with memory or without."""

    def __init__(self, inputs: int, outputs: int, *, is_box: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.actor, self.critic = nn.Linear(inputs, outputs), nn.Linear(inputs, 1)
        self.log_std = nn.Parameter(torch.full((outputs,), -0.5)) if is_box else None

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        obs = obs.float()
        log_std = () if self.log_std is None else (self.log_std,)
        return (self.actor(obs), *log_std, self.critic(obs))


def agent_for(env: rollouts.VectorEnv) -> Agent:
    space = env.single_action_space
    is_box = hasattr(space, "low")
    outputs = int(np.prod(space.shape)) if is_box else int(space.n)  # type: ignore[arg-type,attr-defined]
    return Agent(int(np.prod(env.single_observation_space.shape or ())), outputs, is_box=is_box)


def make(env_id: str, num_envs: int, **options: Any) -> rollouts.VectorEnv:
    return rollouts.make_vec(env_id, num_envs, seed=3, autoreset_mode="same_step", **options)


def expected(batch: RolloutBatch, rule: Gae | Nstep) -> tuple[Any, Any]:
    if isinstance(rule, Gae):
        return batch_gae(batch, gamma=rule.gamma, gae_lambda=rule.gae_lambda)
    return batch_nstep(batch, gamma=rule.gamma, n=rule.n)


def assert_has_returns(batch: RolloutBatch, rule: Gae | Nstep) -> None:
    for name, array in zip(("advantage", "target"), expected(batch, rule), strict=True):
        np.testing.assert_array_equal(batch.extras[name], array, name)
        assert batch.extras[name].dtype == np.float32


@pytest.mark.parametrize("engine", ["native", "torch"])
@pytest.mark.parametrize("rule", RULES, ids=repr)
@pytest.mark.parametrize("env_id", IDS)
def test_returns_are_those_of_the_estimators_to_the_bit(
    env_id: str, rule: Gae | Nstep, engine: Any
) -> None:
    limit = {"max_episode_steps": IDS[env_id]}
    for num_threads, num_envs in ((1, 37), (2, 150), (4, 70)):
        with make(env_id, num_envs, num_threads=num_threads, **limit) as env:
            policy = TorchPolicy(agent_for(env), env.single_action_space, seed=11)
            collect = rollouts.Collector(env, policy, STEPS, engine=engine, returns=rule)
            for _ in range(2):
                batch = collect.collect()
                assert batch.truncated.any() and batch.bootstrap_value.any()
                assert_has_returns(batch, rule)


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_returns_of_a_policy_with_memory_and_of_rollouts_ahead(rule: Gae | Nstep) -> None:
    with make("CartPole-v1", 50, num_threads=2, max_episode_steps=25) as env:
        policy = RecurrentTorchPolicy(Remembering(Agent(8, 2)), env.single_action_space)
        collect = rollouts.Collector(env, policy, STEPS, engine="native", returns=rule, prefetch=1)
        for _ in range(3):
            assert_has_returns(collect.collect(), rule)
        collect.close()


def test_returns_around_environments_that_fail() -> None:
    gravity = [9.8] * 30
    gravity[17] = 1e308

    class Clamped(Agent):
        def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return super().forward(obs.clamp(-10, 10))

    with make("CartPole-v1", 30, on_env_error="reset", gravity=gravity) as env:
        policy = TorchPolicy(Clamped(4, 2), env.single_action_space)
        rule = Gae(gamma=0.99, gae_lambda=0.95)
        batch = rollouts.Collector(env, policy, STEPS, engine="native", returns=rule).collect()
        assert batch.truncated[:, 17].any()
        assert_has_returns(batch, rule)


def test_returns_of_an_asynchronous_pool() -> None:
    with make("CartPole-v1", 12, batch_size=4) as env:
        policy = TorchPolicy(agent_for(env), env.single_action_space)
        collect = rollouts.Collector(env, policy, STEPS, returns=RULES[0])
        for _ in range(3):
            assert_has_returns(collect.collect(), RULES[0])


def test_asking_for_returns_changes_nothing_else() -> None:
    batches = []
    for returns in (None, RULES[0]):
        with make("CartPole-v1", 20) as env:
            policy = TorchPolicy(agent_for(env), env.single_action_space, seed=1)
            collect = rollouts.Collector(env, policy, STEPS, engine="native", returns=returns)
            batches.append(collect.collect())
    assert batches[0].extras == {}
    for name in ("obs", "action", "value", "reward", "last_value"):
        np.testing.assert_array_equal(getattr(batches[0], name), getattr(batches[1], name), name)


def test_what_is_no_estimator_is_refused() -> None:
    with make("CartPole-v1", 4) as env:
        policy = TorchPolicy(agent_for(env), env.single_action_space)
        with pytest.raises(SpecError, match=r"returns is \(0.99, 0.95\), expected"):
            rollouts.Collector(env, policy, 5, returns=(0.99, 0.95))  # type: ignore[arg-type]
        with pytest.raises(SpecError, match="n is 0"):
            Nstep(gamma=0.9, n=0)


def test_arrays_without_the_rule_that_fills_them_are_refused_before_anything_moves() -> None:
    with make("CartPole-v1", 4) as env:
        obs, _ = env.reset()
        policy = NativePolicy.from_torch(agent_for(env), env.single_action_space, 4)
        collect = rollouts.Collector(env, policy, 5, engine="native", returns=RULES[0])
        arrays = collect._strategy._groups[0].native_arrays(0)
        arrays["obs"][0] = obs
        with pytest.raises(SpecError, match="array advantage"):
            env.collect(policy, arrays)
        for wrong in (np.empty((5, 4), np.float64), np.empty((4, 4), np.float32)):
            with pytest.raises(SpecError, match="rollout array target has shape"):
                env.collect(policy, arrays | {"target": wrong}, rules={"returns": RULES[0].rule})
        for rules, sentence in (
            ({"reruns": True}, r"'reruns'\], expected some of keep_final_obs, returns"),
            ({"returns": RULES[0]}, r"rule returns is Gae\(.*\), which has another type"),
            ({"returns": (0.9, 1.0, -1)}, "n is -1"),
        ):
            with pytest.raises(SpecError, match=sentence):
                env.collect(policy, arrays, rules={"returns": RULES[0].rule} | rules)
        env.collect(policy, arrays, rules={"returns": RULES[0].rule})
        assert (arrays["episode_length"][0] == 1).all()
