# SPDX-License-Identifier: Apache-2.0
"""`CollectOptions(outputs=, returns=)`: fragments have the `extras` of a Collector's batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import rollouts
from rollouts import RolloutCoordinator
from rollouts.errors import SpecError
from rollouts.policy import TorchPolicy
from rollouts.returns import Gae, Nstep
from rollouts.workers import CollectOptions, Inference, PolicySpec
from rollouts.workers.worker_config import derive_seed

SEED, STEPS, ENVS = 3, 24, 6
GAE = Gae(gamma=0.97, gae_lambda=0.9)


class Agent(nn.Module):
    """Actor and critic of one layer."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.actor, self.critic = nn.Linear(inputs, outputs), nn.Linear(inputs, 1)

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.actor(obs.flatten(1)), self.critic(obs.flatten(1))


def make_policy(spec: PolicySpec) -> TorchPolicy:
    inputs = int(np.prod(spec.single_observation_space.shape or ()))
    space: Any = spec.single_action_space
    outputs = int(space.n if hasattr(space, "n") else space.nvec.sum())
    return TorchPolicy(Agent(inputs, outputs), space)


def options(**changes: Any) -> CollectOptions:
    return CollectOptions(**({"outputs": ("entropy", "logits"), "returns": GAE} | changes))


def test_fragments_have_what_a_collector_in_this_process_returns() -> None:
    settings = {"num_workers": 0, "num_envs_per_worker": ENVS, "rollout_length": STEPS}
    with (
        RolloutCoordinator(
            "CartPole-v1", make_policy, seed=SEED, collect=options(engine="native"), **settings
        ) as coordinator,
        rollouts.make_vec("CartPole-v1", ENVS, seed=SEED, autoreset_mode="same_step") as env,
    ):
        policy = TorchPolicy(Agent(4, 2), env.single_action_space)
        policy.noise_seed = derive_seed(SEED, 0)
        collect = rollouts.Collector(
            env, policy, STEPS, engine="native", outputs=("entropy", "logits"), returns=GAE
        )
        coordinator.publish_weights(policy.weights())
        for _ in range(3):
            got, expected = coordinator.get(), collect.collect()
            assert list(got.extras) == list(expected.extras)
            assert {*got.extras} == {"entropy", "logits", "advantage", "target"}
            for name, array in expected.extras.items():
                np.testing.assert_array_equal(got.extras[name], array, name)


@pytest.mark.parametrize("engine", ["native", "torch"])
def test_fragments_of_each_group_have_them(engine: Any) -> None:
    nstep = Nstep(gamma=0.9, n=3)
    collect = options(engine=engine, outputs="entropy", returns=nstep)
    with rollouts.RolloutCoordinator[rollouts.MultiAgentRollout](
        "TagContinuous-v0",
        make_policy,
        num_workers=0,
        num_envs_per_worker=ENVS,
        rollout_length=STEPS,
        collect=collect,
        env_options={"num_taggers": 2, "num_runners": 3},
    ) as coordinator:
        inputs = {group: space.shape for group, space in _spaces().items()}
        coordinator.publish_weights(
            {group: Agent(int(np.prod(shape)), 22).state_dict() for group, shape in inputs.items()}
        )
        for batch in coordinator.get(2).values():
            assert {*batch.extras} == {"active", "entropy", "advantage", "target"}
            assert batch.extras["advantage"].any() and batch.extras["entropy"].min() > 0
            for one in np.split(np.arange(batch.reward.shape[1]), 2):
                _assert_returns(batch, one, nstep)


def test_what_a_policy_does_not_have_is_told_before_workers_start() -> None:
    settings: dict[str, Any] = {
        "num_workers": 1,
        "num_envs_per_worker": ENVS,
        "rollout_length": STEPS,
    }
    with pytest.raises(SpecError, match=r"outputs are \['mean'\], expected some of .*'logits'"):
        RolloutCoordinator(
            "CartPole-v1", make_policy, collect=options(outputs=("mean",)), **settings
        )
    with pytest.raises(SpecError, match=r"outputs are \['mean'\]"):
        rollouts.RolloutCoordinator[rollouts.MultiAgentRollout](
            "TagContinuous-v0", make_policy, collect=options(outputs=("mean",)), **settings
        )
    with pytest.raises(SpecError, match=r"collect\.outputs with inference"):
        RolloutCoordinator(
            "CartPole-v1", make_policy, collect=options(), inference=Inference(), **settings
        )
    with pytest.raises(SpecError, match=r"collect\.mask_actions with inference"):
        RolloutCoordinator(
            "CartPole-v1",
            make_policy,
            collect=CollectOptions(mask_actions=True),
            inference=Inference(),
            **settings,
        )


def _spaces() -> dict[str, Any]:
    spec = rollouts.env_spec("TagContinuous-v0", num_taggers=2, num_runners=3)
    return {group.name: group.single_observation_space for group in spec.groups}


def _assert_returns(batch: Any, columns: Any, rule: Nstep) -> None:
    advantage, target = rollouts.returns.nstep(
        batch.reward[:, columns],
        batch.value[:, columns],
        terminated=batch.terminated[:, columns],
        truncated=batch.truncated[:, columns],
        bootstrap_value=batch.bootstrap_value[:, columns],
        last_value=batch.last_value[columns],
        gamma=rule.gamma,
        n=rule.n,
    )
    np.testing.assert_array_equal(batch.extras["advantage"][:, columns], advantage)
    np.testing.assert_array_equal(batch.extras["target"][:, columns], target)
