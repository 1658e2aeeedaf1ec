# SPDX-License-Identifier: Apache-2.0
"""`Collector(outputs=)`: entropy and what actions are drawn from, on either engine."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from small_agents import Remembering
from torch import nn

import rollouts
from rollouts.batch import RolloutBatch
from rollouts.errors import SpecError
from rollouts.policies.native import NativePolicy
from rollouts.policy import PolicyOutput, TorchPolicy
from rollouts.recurrent import RecurrentTorchPolicy, unroll

STEPS, NUM_ENVS = 15, 21
CLOSE = {"rtol": 1e-5, "atol": 1e-5}
ENGINES: Any = pytest.mark.parametrize("engine", ["native", "torch"])


class Agent(nn.Module):
    """Actor and critic with one trunk; of `num_stds` standard deviations, or logits alone."""

    def __init__(self, inputs: int, outputs: int, num_stds: int = 0, *, of_state: bool = False):
        super().__init__()
        torch.manual_seed(0)
        self.trunk = nn.Sequential(nn.Linear(inputs, 24), nn.Tanh())
        self.actor, self.critic = nn.Linear(24, outputs), nn.Linear(24, 1)
        self.stds = nn.Linear(24, num_stds) if of_state else None
        self.log_std = nn.Parameter(torch.linspace(-0.5, 0.2, num_stds)) if num_stds else None

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        hidden = self.trunk(obs.float())
        log_std = [] if self.log_std is None else [self.log_std]
        if self.stds is not None:
            log_std = [self.stds(hidden)]
        return (self.actor(hidden), *log_std, self.critic(hidden))


class Masked(Agent):
    """Forbids the first action where the first number is positive."""

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        logits, value = super().forward(obs)
        first = torch.where(obs[:, :1] > 0, logits[:, :1] - torch.inf, logits[:, :1])
        return torch.cat([first, logits[:, 1:]], -1), value


def make(env_id: str, **options: Any) -> rollouts.VectorEnv:
    return rollouts.make_vec(env_id, NUM_ENVS, seed=3, autoreset_mode="same_step", **options)


CASES: dict[str, tuple[str, Any]] = {
    "categorical": ("CartPole-v1", lambda: Agent(4, 2)),
    "masked": ("CartPole-v1", lambda: Masked(4, 2)),
    "gaussian": ("HalfCheetah-v5", lambda: Agent(17, 6, 6)),
    "one std for all": ("HalfCheetah-v5", lambda: Agent(17, 6, 1)),
    "std of the state": ("HalfCheetah-v5", lambda: Agent(17, 6, 6, of_state=True)),
}


def assert_torchs(batch: RolloutBatch, policy: TorchPolicy) -> None:
    """Asserts that `extras` have what the module computes from these observations now."""
    flat = torch.from_numpy(batch.obs.reshape(-1, *batch.obs.shape[2:]).copy())
    action = torch.from_numpy(batch.action.reshape(-1, *batch.action.shape[2:]).copy())
    with torch.no_grad():
        *params, _ = policy.module(flat)
        entropy = policy.head.evaluate(params, action)[1]
    expected = [param.detach().expand_as(params[0]).numpy() for param in params]
    names = ["mean", "log_std"] if len(params) == 2 else ["logits"]
    said = dict(zip(names, expected, strict=True)) | {"entropy": entropy.numpy()}
    assert {*batch.extras} == {*said}
    for name, array in said.items():
        found = batch.extras[name]
        assert found.dtype == np.float32 and found.shape[:2] == batch.reward.shape
        np.testing.assert_allclose(found.reshape(array.shape), array, **CLOSE, err_msg=name)


@ENGINES
@pytest.mark.parametrize("case", CASES)
def test_outputs_are_what_the_module_says(case: str, engine: Any) -> None:
    env_id, agent = CASES[case]
    with make(env_id, max_episode_steps=9) as env:
        policy = TorchPolicy(agent(), env.single_action_space, seed=5)
        is_box = isinstance(env.single_action_space, gymnasium.spaces.Box)
        outputs = ("entropy", *(("mean", "log_std") if is_box else ("logits",)))
        collect = rollouts.Collector(env, policy, STEPS, engine=engine, outputs=outputs)
        for _ in range(2):
            batch = collect.collect()
            assert_torchs(batch, policy)
            assert np.isinf(batch.extras.get("logits", np.zeros(1))).any() == (case == "masked")
        assert policy.act(batch.obs[0]).extras == {}  # others do not pay for it


@ENGINES
@pytest.mark.parametrize("outputs", [("entropy",), ("logits",), "logits", ()])
def test_what_was_not_asked_for_is_not_there(engine: Any, outputs: Any) -> None:
    with make("CartPole-v1") as env:
        policy = TorchPolicy(Agent(4, 2), env.single_action_space)
        collect = rollouts.Collector(env, policy, STEPS, engine=engine, outputs=outputs)
        wanted = {outputs} if isinstance(outputs, str) else {*outputs}
        assert {*collect.collect().extras} == wanted


@ENGINES
def test_outputs_of_a_policy_with_memory(engine: Any) -> None:
    with make("CartPole-v1", max_episode_steps=7) as env:
        policy = RecurrentTorchPolicy(
            Remembering(Agent(8, 2)), env.single_action_space, keep_states=True
        )
        collect = rollouts.Collector(
            env, policy, STEPS, engine=engine, outputs=("entropy", "logits")
        )
        collect.collect()
        batch = collect.collect()
        assert "policy_state.0" in batch.extras
        module: Any = policy.module
        with torch.no_grad():
            logits, _, _ = unroll(
                module,
                torch.from_numpy(batch.obs.copy()),
                tuple(torch.from_numpy(state) for state in batch.policy_state),
                ended=torch.from_numpy(batch.terminated | batch.truncated),
                initial_state=module.initial_state(),
            )
            entropy = torch.distributions.Categorical(logits=logits).entropy()
        np.testing.assert_allclose(batch.extras["logits"], logits, **CLOSE)
        np.testing.assert_allclose(batch.extras["entropy"], entropy, **CLOSE)


def test_elements_of_multi_discrete_actions_have_their_logits_side_by_side() -> None:
    space = gymnasium.spaces.MultiDiscrete([3, 2])
    policy = TorchPolicy(Agent(4, 5), space, seed=1)
    native = NativePolicy.from_torch(policy.module, space, 4)
    obs = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
    for each in (policy, native):
        each.extra_outputs = ("entropy", "logits")
    expected, found = policy.act(obs).extras, native.act(obs).extras
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, **CLOSE)
    assert expected["logits"].shape == (30, 5) and expected["entropy"].shape == (30,)


@pytest.mark.parametrize("kind", [TorchPolicy, NativePolicy.from_torch])
def test_outputs_of_an_asynchronous_pool(kind: Any) -> None:
    with make("CartPole-v1", batch_size=8) as env:
        agent = Agent(4, 2)
        reference = TorchPolicy(agent, env.single_action_space)
        policy = kind(agent, env.single_action_space)
        collect = rollouts.Collector(env, policy, STEPS, outputs=("logits", "entropy"))
        assert collect.engine == "torch"
        for _ in range(3):
            assert_torchs(collect.collect(), reference)


def test_outputs_and_returns_of_rollouts_travel_together() -> None:
    with make("CartPole-v1") as env, make("CartPole-v1", env_id_offset=NUM_ENVS) as other:
        rule = rollouts.returns.Gae(gamma=0.99, gae_lambda=0.9)
        batches = [
            rollouts.Collector(
                each, TorchPolicy(Agent(4, 2), each.single_action_space), STEPS,
                outputs=("entropy",), returns=rule,
            ).collect()
            for each in (env, other)
        ]  # fmt: skip
        joined = RolloutBatch.concatenate(batches)
        assert {*joined.extras} == {"entropy", "advantage", "target"}
        assert joined.extras["target"].shape == (STEPS, 2 * NUM_ENVS)


class Own:
    """Chooses by itself."""

    policy_version = 0

    def act(self, obs: Any) -> PolicyOutput:
        zeros = np.zeros(len(obs), np.float32)
        return PolicyOutput(np.zeros(len(obs), np.int64), zeros, zeros)

    def value(self, obs: Any) -> Any:
        return np.zeros(len(obs), np.float32)


class Explorer(TorchPolicy):
    """Does not heed what it is asked for."""

    def act(self, obs: Any) -> PolicyOutput:
        return Own().act(obs)


def test_outputs_that_a_policy_does_not_have_are_told_of() -> None:
    with make("CartPole-v1") as env:
        space = env.single_action_space
        policy = TorchPolicy(Agent(4, 2), space)
        for outputs in (("mean",), ("entropy", "entropy"), ("values",)):
            with pytest.raises(SpecError, match=r"expected some of \['entropy', 'logits'\]"):
                rollouts.Collector(env, policy, 5, outputs=outputs)
        with pytest.raises(SpecError, match="a Own puts what it likes"):
            rollouts.Collector(env, Own(), 5, outputs=("entropy",))  # type: ignore[arg-type]
        explorer = rollouts.Collector(env, Explorer(Agent(4, 2), space), 5, outputs=("entropy",))
        with pytest.raises(SpecError, match="returned no 'entropy' among its extras"):
            explorer.collect()
