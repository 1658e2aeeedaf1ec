# SPDX-License-Identifier: Apache-2.0
"""Policies in bfloat16 on tensor cores, run by the host: their outputs, and who draws from them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from dense_oracle import HALF_ULP, DenseAgent, bounds_of
from torch import Tensor, nn

import rollouts
from rollouts import Collector, RolloutBatch, SpecError, TorchPolicy
from rollouts.collecting.dense_layers import DenseLayers
from rollouts.envs.kernel import kernel
from rollouts.envs.kernel.emulation import HostKernel
from rollouts.policies.program import Op, Program
from rollouts.returns import Gae

pytestmark = pytest.mark.system

EMULATION = "cpu-emulation"
GAE = Gae(gamma=0.99, gae_lambda=0.95)
TAG = {"num_taggers": 2, "num_runners": 9, "max_episode_steps": 6}


def make(env_id: str, num_envs: int, **options: Any) -> Any:
    arguments: dict[str, Any] = {"seed": 3, "autoreset_mode": "same_step", **options}
    return rollouts.make_vec(env_id, num_envs, device=EMULATION, **arguments)


def collector_of(env: Any, module: nn.Module, length: int, **options: Any) -> Collector[Any]:
    one = next(iter(env.groups.values())) if hasattr(env, "groups") else env
    policy = TorchPolicy(module, one.single_action_space, seed=5)
    return Collector(env, policy, length, **{"policy_dtype": "bfloat16", **options})


def agent_of(env: Any, **options: Any) -> DenseAgent:
    torch.manual_seed(0)
    one = next(iter(env.groups.values())) if hasattr(env, "groups") else env
    return DenseAgent(one.single_observation_space, one.single_action_space, **options)


def inputs_of(batch: RolloutBatch[Tensor]) -> list[Tensor]:
    """Inputs of the head: logits, or mean and log_std."""
    return [batch.extras[name] for name in ("logits", "mean", "log_std") if name in batch.extras]


def assert_are_the_networks(module: DenseAgent, batch: RolloutBatch[Tensor]) -> None:
    """Each recorded output is as near to the exact one as its number of terms allows."""
    obs = batch.obs.flatten(0, 1).float()
    expected = bounds_of(module, obs, HALF_ULP)
    with torch.no_grad():
        unrounded = module(obs)
    found = [*inputs_of(batch), batch.value.unsqueeze(-1)]
    for mine, plain, (exact, error) in zip(found, unrounded, expected, strict=True):
        off = (mine.flatten(0, 1).double() - exact).abs()
        assert (off <= error).all(), f"{off.max()} off, of {error.max()}"
        # what is bounded is the rounded network: the other one is farther from it
        assert error.max() == 0 or off.mean() < 0.3 * (plain - exact).abs().mean()


CASES: dict[str, tuple[str, int, dict[str, Any], dict[str, Any]]] = {
    "two layers of 256, tanh": ("CartPole-v1", 150, {}, {}),
    "ReLU, a common body": ("CartPole-v1", 17, {}, {"activation": nn.ReLU, "shared": True}),
    "sizes that are padded": ("CartPole-v1", 33, {}, {"hidden": (50, 7, 129)}),
    "one layer": ("CartPole-v1", 1, {}, {"hidden": (16,)}),
    "no hidden layer": ("CartPole-v1", 40, {}, {"hidden": ()}),
    "Gaussian": ("MountainCarContinuous-v0", 40, {}, {"shared": True}),
    "a mean of tanh": ("Pendulum-v1", 40, {}, {"hidden": (64, 64), "squashes": True}),
}


@pytest.mark.parametrize("case", CASES)
def test_outputs_are_those_of_rounded_operands(case: str) -> None:
    env_id, num_envs, options, network = CASES[case]
    env = make(env_id, num_envs, **options)
    module = agent_of(env, **network)
    names = ("mean", "log_std") if module.is_box else ("logits",)
    collector = collector_of(env, module, 6, outputs=names)
    assert collector.engine == "native" and collector.why_not_native == ""
    batch = collector.collect()
    assert_are_the_networks(module, batch)
    with torch.no_grad():
        for param in module.parameters():
            param.mul_(0.9)
    # weights are rounded anew
    assert_are_the_networks(module, collector.collect())
    collector.synchronize()
    collector.close()


def test_observations_of_whole_numbers_are_read() -> None:
    env = make("TagGridWorld-v0", 20, num_taggers=4)
    collector = collector_of(env, agent_of(env), 3, outputs=("logits",))
    for batch in collector.collect().values():
        assert_are_the_networks(collector.policies["tagger"].module, batch)
    collector.close()


class Detached(DenseAgent):
    """An agent with a body that learns from the policy alone."""

    def forward(self, obs: Tensor) -> tuple[Tensor, ...]:
        *inputs, value = super().forward(obs)
        return *inputs, value.detach()


def test_a_detached_value_is_the_same_network() -> None:
    env = make("CartPole-v1", 20)
    torch.manual_seed(0)
    module = Detached(env.single_observation_space, env.single_action_space)
    collector = collector_of(env, module, 3, outputs=("logits",))
    assert collector.engine == "native" and collector.why_not_native == ""
    assert_are_the_networks(module, collector.collect())
    collector.close()


class Recorded(nn.Module):
    """Returns what another policy's network gave, call by call."""

    def __init__(self, batch: RolloutBatch[Tensor]) -> None:
        super().__init__()
        self.last = (*(one[-1] for one in inputs_of(batch)), batch.last_value)
        steps = zip(*inputs_of(batch), batch.value, strict=True)
        self.steps = itertools.chain(steps, [self.last])

    def forward(self, obs: Tensor) -> tuple[Tensor, ...]:
        # a policy tries its module on two rows first
        if len(obs) == 2:
            return tuple(one[:2] for one in self.last)
        return next(self.steps)


@pytest.mark.parametrize("env_id", ("CartPole-v1", "MountainCarContinuous-v0"))
def test_actions_are_drawn_from_the_outputs_as_by_other_kernels(env_id: str) -> None:
    env, other = make(env_id, 50), make(env_id, 50)
    outputs = ("entropy", "logits") if env_id == "CartPole-v1" else ("entropy", "mean", "log_std")
    module = agent_of(env)
    found = collector_of(env, module, 12, outputs=outputs).collect()
    options: dict[str, Any] = {"policy_dtype": "float32", "engine": "torch", "outputs": outputs}
    expected = collector_of(other, Recorded(found), 12, **options).collect()
    for name in ("obs", "action", "log_prob", "value", "reward", "terminated", "last_value"):
        assert torch.equal(getattr(found, name), getattr(expected, name)), name
    assert torch.equal(found.extras["entropy"], expected.extras["entropy"])
    if env_id == "CartPole-v1":
        drawn: Any = torch.distributions.Categorical(logits=found.extras["logits"])
        log_prob = drawn.log_prob(found.action)
        assert len(found.action.unique()) == 2
    else:
        drawn = torch.distributions.Normal(
            found.extras["mean"], found.extras["log_std"].exp().expand_as(found.extras["mean"])
        )
        log_prob = drawn.log_prob(found.action).sum(-1)
    torch.testing.assert_close(found.log_prob, log_prob, rtol=1e-5, atol=1e-6)


def test_draws_follow_the_distribution_of_the_logits() -> None:
    # many environments that all see the same
    env = make("FrozenLake-v1", 6000, is_slippery=False)
    agent = Constant(torch.tensor([0.3, 0.5, -1.0, 1.0]))
    batch = collector_of(env, agent, 1, outputs=("logits",)).collect()
    assert torch.equal(batch.extras["logits"][0, 0], agent.logits)
    counts = torch.bincount(batch.action.flatten(), minlength=4)
    share = torch.softmax(batch.extras["logits"][0, 0], 0)
    # five standard deviations of a count
    assert ((counts / 6000 - share).abs() < 5 * (share * (1 - share) / 6000).sqrt()).all()


class Constant(nn.Module):
    """Gives the same logits and value for whatever it sees."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.logits, self.value = nn.Parameter(logits), nn.Parameter(torch.zeros(1))

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        return self.logits.expand(len(obs), -1), self.value.expand(len(obs), -1)


def test_truncated_episodes_are_valued_by_the_same_network() -> None:
    env = make("CartPole-v1", 70, max_episode_steps=5)
    module = agent_of(env)
    collector = collector_of(env, module, 9, returns=GAE, keep_final_obs=True)
    batch = collector.collect()
    cut = batch.truncated & ~batch.terminated
    assert 30 < int(cut.sum()) < cut.numel() / 3
    assert batch.final_obs is not None
    (*_, (exact, error)) = bounds_of(module, batch.final_obs[cut], HALF_ULP)
    off = (batch.bootstrap_value[cut].double() - exact[:, 0]).abs()
    assert (off <= error[:, 0]).all()
    assert (batch.bootstrap_value[~cut] == 0).all()
    (*_, (exact, error)) = bounds_of(module, batch.last_obs, HALF_ULP)
    assert ((batch.last_value.double() - exact[:, 0]).abs() <= error[:, 0]).all()
    assert torch.isfinite(batch.extras["advantage"]).all()


@pytest.mark.parametrize("options", ({"cuda_graph": True}, {"prefetch": 1}))
def test_graphs_and_prefetching_change_nothing(options: dict[str, Any]) -> None:
    batches = []
    for each in ({}, options):
        env = make("CartPole-v1", 40)
        collector = collector_of(env, agent_of(env), 5, **each)
        batches.append([collector.collect() for _ in range(3)])
    for one, other in zip(*batches, strict=True):
        assert torch.equal(one.log_prob, other.log_prob) and torch.equal(one.obs, other.obs)


def test_the_order_of_threads_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    def collect() -> Any:
        env = make("TagContinuous-v0", 30, **TAG)
        return collector_of(env, agent_of(env), 8, returns=GAE).collect()

    forwards = collect()
    monkeypatch.setattr(
        kernel,
        "make_kernel",
        lambda source, device, *, emulated: HostKernel(source, backwards=True),
    )
    monkeypatch.setattr("rollouts.collecting.device_policy.make_kernel", kernel.make_kernel)
    backwards = collect()
    for name, one in forwards.items():
        for array in ("obs", "action", "log_prob", "value", "bootstrap_value", "last_value"):
            assert torch.equal(getattr(one, array), getattr(backwards[name], array)), array


def test_agents_of_groups_act_by_it() -> None:
    env = make("TagContinuous-v0", 30, **TAG)
    module = agent_of(env, shared=True, activation=nn.ReLU)
    collector = collector_of(env, module, 8, outputs=("logits",))
    for batch in collector.collect().values():
        assert_are_the_networks(module, batch)
        assert batch.truncated.any()
    collector.synchronize()


class Odd(DenseAgent):
    """A module with something that is not computed in bfloat16."""

    def __init__(self, env: Any, what: str) -> None:
        super().__init__(env.single_observation_space, env.single_action_space, hidden=(32, 32))
        self.what, self.norm = what, nn.LayerNorm(32)
        self.part = nn.Linear(8, 1)
        self.wide = nn.Sequential(nn.Linear(4, 300), nn.Tanh(), nn.Linear(300, 2))

    def forward(self, obs: Tensor) -> Any:
        hidden = torch.tanh(self.actor[0](obs))
        if self.what == "layer_norm":
            hidden = self.norm(hidden)
        elif self.what == "gelu":
            hidden = nn.functional.gelu(self.actor[0](obs))
        elif self.what == "300 features":
            return self.wide(obs), self.critic(obs)
        elif self.what == "is no layer of its own":
            hidden = torch.tanh(self.actor[2](hidden))
            return self.actor[4](hidden), hidden[:, :1]
        elif self.what == "a part of what":
            return self.actor[4](hidden), self.part(self.actor[2](hidden)[:, :8])
        elif self.what == "not alone":
            both = self.actor[2](hidden)
            return self.actor[4](torch.tanh(both)), self.critic[4](torch.relu(both))
        return self.actor[4](torch.tanh(self.actor[2](hidden))), self.critic(obs)


REFUSED = ("layer_norm", "gelu", "300 features", "is no layer of its own", "a part of what")


@pytest.mark.parametrize("what", (*REFUSED, "not alone"))
def test_other_modules_are_refused_in_a_sentence(what: str) -> None:
    env = make("CartPole-v1", 4)
    message = rf"policy_dtype='bfloat16' computes linear layers.*{what}.*leave policy_dtype out"
    with pytest.raises(SpecError, match=message):
        collector_of(env, Odd(env, what), 4)
    # and are computed otherwise
    assert collector_of(env, Odd(env, what), 4, policy_dtype="float32").engine == "native"


def test_what_else_it_cannot_be_had_with_is_refused() -> None:
    env = make("CartPole-v1", 4)
    with pytest.raises(SpecError, match=r"engine='torch' was asked for: leave policy_dtype out"):
        collector_of(env, agent_of(env), 4, engine="torch")
    with pytest.raises(SpecError, match=r"policy_dtype must be .*'bfloat16'.*got 'float16'"):
        collector_of(env, agent_of(env), 4, policy_dtype="float16")
    pool = rollouts.make_vec("CartPole-v1", 4, seed=3, autoreset_mode="same_step")
    with pytest.raises(SpecError, match="policy_dtype cannot be had of environments on the host"):
        collector_of(pool, agent_of(env), 4)
    with pytest.raises(SpecError, match="of shared memory for this module"):
        collector_of(env, Wide(), 4)


class Wide(nn.Module):
    """Logits whose count a warp has no memory for."""

    def __init__(self) -> None:
        super().__init__()
        self.many, self.few = nn.Linear(4, 4000), nn.Linear(4, 2)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        return self.few(obs), self.many(obs)[:, :1]


def test_weights_lie_as_the_threads_of_a_warp_read_them() -> None:
    linear = Op("linear", (0,), (0, 1), size=33)
    layers = DenseLayers(Program(40, (linear,), (), (1,)))
    numbers = np.arange(33 * 40, dtype=np.float32).reshape(33, 40)
    weights, biases = layers.pack([numbers, np.arange(33, dtype=np.float32)])
    padded = np.zeros((64, 64), np.float32)
    padded[:33, :40] = numbers
    assert weights.shape == (64 * 64,) and biases.tolist() == [*range(33), *[0] * 31]
    parts = weights.reshape(2, 4, 2, 32, 2, 2, 2)
    for block, sixteen, pair, lane, matrix, word, half in itertools.product(
        *(range(size) for size in parts.shape)
    ):
        # the formulas of the PTX ISA for matrix B of mma.m16n8k16, element 2 * word + half
        k = lane % 4 * 2 + half + (8 if word else 0)
        column = lane >> 2
        expected = padded[32 * block + 16 * pair + 8 * matrix + column, 16 * sixteen + k]
        assert parts[block, sixteen, pair, lane, matrix, word, half] == expected
