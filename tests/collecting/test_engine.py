# SPDX-License-Identifier: Apache-2.0
"""Choice of the engine of a Collector's policy, and the reasons where native code does not act."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")

import gymnasium
import torch
from gymnasium import spaces
from torch import nn

import rollouts
from rollouts import _native
from rollouts.collecting.policy_engine import choose_engine, native_of
from rollouts.errors import SpecError
from rollouts.policies.native import NativePolicy
from rollouts.policy import CategoricalHead, TorchPolicy

SPACE = spaces.Box(-1, 1, (4,), np.float32)
ACTIONS = spaces.Discrete(2)


class Net(nn.Module):
    """Logits and a value."""

    def __init__(self) -> None:
        super().__init__()
        self.both = nn.Linear(4, 3)

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        both = self.both(obs)
        return both[:, :2], both[:, 2:]


class Own(TorchPolicy):
    """A class of its own, which may choose otherwise."""


class OwnHead(CategoricalHead):
    """A head of its own."""


def torch_policy(**options: Any) -> TorchPolicy:
    return TorchPolicy(Net(), ACTIONS, seed=5, **options)


@pytest.fixture
def env() -> Iterator[Any]:
    made = rollouts.make_vec("CartPole-v1", 2, autoreset_mode="same_step")
    yield made
    made.close()


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_native, "policy_kernels_in_use", lambda: "emulated")


@pytest.fixture
def fused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine where native code is chosen by itself."""
    monkeypatch.setattr(_native, "policy_kernels_in_use", lambda: "avx2")


def choose(engine: Any, env: Any, policy: Any) -> tuple[NativePolicy | None, str]:
    """Chooses for environments with one agent."""
    native, why = choose_engine(engine, env, {"": policy})
    return native and native[""], why


@pytest.mark.parametrize("engine", ["Native", "", None, "cuda"])
def test_other_engines_are_refused(engine: Any, env: Any) -> None:
    with pytest.raises(SpecError, match=f"engine is {engine!r}, expected 'auto'"):
        choose(engine, env, torch_policy())


def test_torch_is_not_read_where_it_was_asked_for(env: Any) -> None:
    native, why = choose("torch", env, object())
    assert native is None and why == "engine='torch' was asked for"


@pytest.mark.parametrize("engine", ["auto", "native"])
def test_a_policy_that_can_be_read_is_native(engine: Any, env: Any, fused: None) -> None:
    native, why = choose(engine, env, torch_policy())
    assert isinstance(native, NativePolicy) and why == ""


def test_a_native_policy_is_taken_as_it_is(env: Any, fused: None) -> None:
    policy = NativePolicy.from_torch(Net(), ACTIONS, SPACE)
    assert choose("auto", env, policy) == (policy, "")
    assert native_of(policy, SPACE) is policy


def test_without_fused_arithmetic_native_code_runs_only_where_it_must(
    env: Any, emulated: None
) -> None:
    native, why = choose("auto", env, torch_policy())
    assert native is None and "no fused multiply-add" in why
    assert choose("native", env, torch_policy())[0] is not None


@pytest.mark.parametrize("policy_class", [Own, TorchPolicy])
def test_policies_of_their_own_choose_by_themselves(
    policy_class: type[TorchPolicy], env: Any, fused: None
) -> None:
    policy = policy_class(Net(), ACTIONS)
    if policy_class is TorchPolicy:
        policy.head = OwnHead(start=0, dtype=np.dtype(np.int64))
    native, why = choose("auto", env, policy)
    assert native is None
    assert f"is a {policy_class.__name__} of its own" in why
    with pytest.raises(SpecError, match="engine='native' is not possible: the policy is a"):
        choose("native", env, policy)


@pytest.mark.parametrize("engine", ["auto", "native"])
def test_environments_that_python_steps_are_not_collected_from(engine: Any, fused: None) -> None:
    env = gymnasium.make_vec("CartPole-v1", 2, vectorization_mode="sync")
    try:
        if engine == "native":
            with pytest.raises(SpecError, match="a SyncVectorEnv is no native pool"):
                choose(engine, env, torch_policy())
        else:
            assert "run in Python" in choose(engine, env, torch_policy())[1]
    finally:
        env.close()


def test_the_reason_names_what_keeps_a_policy_out_of_a_pools_threads(fused: None) -> None:
    with rollouts.make_vec("CartPole-v1", 4, batch_size=2) as env:
        assert "batch_size 2 of 4" in choose("auto", env, torch_policy())[1]
    hosted = rollouts.from_env_fns([lambda: gymnasium.make("CartPole-v1")] * 2, num_processes=0)
    with hosted:
        why = choose("auto", hosted, torch_policy())[1]
        assert "is no native pool" in why and "statistics" not in why


def test_a_pool_whose_rules_python_computes_says_so(fused: None) -> None:
    with rollouts.make_vec("MuJoCo-v0", 2, xml_file="swimmer.xml", frame_skip=2) as env:
        assert "Python computes rewards" in choose("auto", env, torch_policy())[1]


def test_asynchronous_pools_are_not_collected_from(fused: None) -> None:
    env = rollouts.make_vec("CartPole-v1", 4, batch_size=2, autoreset_mode="same_step")
    try:
        native, why = choose("auto", env, torch_policy())
        assert native is None and "batch_size == num_envs" in why
    finally:
        env.close()


def test_where_nobody_imported_torch_a_policy_is_none_of_ours(
    env: Any, fused: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("rollouts.policy", "rollouts.policies.native"):
        monkeypatch.delitem(sys.modules, module)
    native, why = choose("auto", env, object())
    assert native is None and why == "a object chooses its actions itself"
    assert "rollouts.policies.native" not in sys.modules


def test_a_module_that_cannot_be_read_says_why(env: Any, fused: None) -> None:
    class Folded(Net):
        def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return super().forward(torch.fft.rfft(obs).real.repeat(1, 2)[:, :4])

    native, why = choose("auto", env, TorchPolicy(Folded(), ACTIONS))
    assert native is None and "fft" in why


def test_weights_are_the_policys_own() -> None:
    policy = torch_policy()
    native = native_of(policy, SPACE)
    with torch.no_grad():
        policy.module.both.weight.zero_()
        policy.module.both.bias.copy_(torch.tensor([0.0, 0.0, 4.0]))
    assert native.value(np.ones((3, 4), np.float32)).tolist() == [4, 4, 4]


def test_noise_is_that_of_the_policys_seed() -> None:
    module, obs = Net(), np.ones((64, 4), np.float32)
    first, same, other = (
        native_of(TorchPolicy(module, ACTIONS, seed=seed), SPACE).act(obs).action.tolist()
        for seed in (5, 5, 6)
    )
    assert first == same != other


class Layered(nn.Module):
    """An actor-critic of CartPole whose layers are in one Sequential."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(4, 8), nn.Tanh())
        self.actor, self.critic = nn.Linear(8, 2), nn.Linear(8, 1)

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = self.body(obs)
        return self.actor(hidden), self.critic(hidden)


def test_a_layer_that_is_replaced_is_read_again() -> None:
    with rollouts.make_vec("CartPole-v1", 4, seed=1, autoreset_mode="same_step") as env:
        policy = TorchPolicy(Layered(), env.single_action_space)
        collector = rollouts.Collector(env, policy, 5, engine="native")
        collector.collect()
        policy.module.body[1] = nn.ReLU()  # type: ignore[index, operator]
        batch = collector.collect()
        expected = policy.value(batch.obs.reshape(-1, 4)).reshape(5, 4)
        np.testing.assert_allclose(batch.value, expected, atol=1e-5)


def test_a_module_that_gets_hooks_goes_on_with_torch(fused: None) -> None:
    with rollouts.make_vec("CartPole-v1", 4, seed=1, autoreset_mode="same_step") as env:
        policy = TorchPolicy(Layered(), env.single_action_space)
        collector = rollouts.Collector(env, policy, 5)
        collector.collect()
        assert collector.engine == "native"
        policy.module.critic.register_forward_hook(lambda layer, given, value: value + 5)  # type: ignore[union-attr, operator]
        batch = collector.collect()
        assert (
            collector.engine == "torch" and "'critic' has forward hooks" in collector.why_not_native
        )
        expected = policy.value(batch.obs.reshape(-1, 4)).reshape(5, 4)
        np.testing.assert_allclose(batch.value, expected, atol=1e-5)


def test_a_policy_that_gets_a_readable_module_goes_on_natively(fused: None) -> None:
    with rollouts.make_vec("CartPole-v1", 4, seed=1, autoreset_mode="same_step") as env:
        policy = TorchPolicy(Layered(), env.single_action_space)
        hook = policy.module.critic.register_forward_hook(lambda layer, given, value: value + 5)  # type: ignore[union-attr, operator]
        collector = rollouts.Collector(env, policy, 5)
        last_obs = collector.collect().last_obs
        assert collector.engine == "torch"
        # in a call that is given no time it makes one step at most
        with pytest.raises(rollouts.CallTimeoutError):
            collector.collect(timeout_s=0)
        readable = copy.deepcopy(policy.module)
        readable.critic._forward_hooks.clear()  # type: ignore[union-attr, operator]
        policy.module = readable
        # a rollout that is under way is torch's to its end
        for engine in ("torch", "native", "native"):
            batch = collector.collect()
            assert (collector.engine, bool(collector.why_not_native)) == (engine, engine == "torch")
            np.testing.assert_array_equal(batch.obs[0], last_obs)
            last_obs = batch.last_obs
        expected = policy.value(batch.obs.reshape(-1, 4)).reshape(5, 4)
        np.testing.assert_allclose(batch.value, expected, atol=1e-5)
        hook.remove()


class Gated(nn.Module):
    """Logits, a value and a memory of CartPole."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.both = nn.GRUCell(4, 8), nn.Linear(8, 3)

    def initial_state(self) -> tuple[torch.Tensor]:
        return (torch.full((8,), 0.5),)

    def forward(self, obs: torch.Tensor, state: tuple[torch.Tensor]) -> Any:
        hidden = self.cell(obs, state[0])
        return self.both(hidden)[:, :2], self.both(hidden)[:, 2:], (hidden,)


def test_what_torch_remembers_stays_with_it(fused: None) -> None:
    with rollouts.make_vec("CartPole-v1", 4, seed=1, autoreset_mode="same_step") as env:
        policy = rollouts.RecurrentTorchPolicy(Gated(), env.single_action_space)
        assert rollouts.Collector(env, policy, 5).engine == "native"
        policy.module.both.register_forward_hook(lambda layer, given, value: value)  # type: ignore[union-attr, operator]
        collector = rollouts.Collector(env, policy, 5)
        assert collector.engine == "torch"
        before = collector.collect()
        readable = Gated()
        readable.load_state_dict(policy.module.state_dict())
        policy.module = readable
        after = collector.collect()
        assert collector.engine == "torch"
        np.testing.assert_array_equal(after.obs[0], before.last_obs)


def test_a_native_policy_reads_a_layer_that_is_replaced() -> None:
    module = Layered()
    policy = NativePolicy.from_torch(module, spaces.Discrete(2))
    module.body[1] = nn.ReLU()
    obs = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    expected = module(torch.from_numpy(obs))[1].detach().numpy().reshape(-1)
    np.testing.assert_allclose(policy.value(obs), expected, atol=1e-5)


def test_a_native_policy_says_that_its_layers_got_hooks() -> None:
    module = Layered()
    policy = NativePolicy.from_torch(module, spaces.Discrete(2))
    module.body[0].register_forward_hook(lambda *args: None)
    with pytest.raises(SpecError, match=r"layer 'body\.0' has forward hooks"):
        policy.value(np.zeros((1, 4), np.float32))
