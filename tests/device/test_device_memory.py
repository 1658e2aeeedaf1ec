# SPDX-License-Identifier: Apache-2.0
"""Policies with memory that torch computes on a device, kernels as loops: as in C++ pools."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from leaving_agents import LEAVING
from torch import Tensor, nn

import rollouts
from rollouts import (
    Collector,
    RecurrentTorchPolicy,
    RolloutBatch,
    SpecError,
    TorchPolicy,
)
from rollouts.recurrent import State, unroll
from rollouts.returns import Gae

GAE = Gae(gamma=0.99, gae_lambda=0.95)
EXACT = ("action", "reward", "terminated", "truncated", "env_id")
# torch and native code add up in another order
CLOSE = ("bootstrap_value", "log_prob", "value", "last_value")


class Remembering(nn.Module):
    """An LSTM cell over numbers or over a table, and two heads."""

    def __init__(self, size: int, num_outputs: int, *, num_obs: int = 0) -> None:
        super().__init__()
        self.table = nn.Embedding(num_obs, size) if num_obs else None
        self.cell, self.first = nn.LSTMCell(size, 9), nn.Parameter(torch.linspace(-1, 1, 9))
        self.heads = nn.Linear(9, num_outputs + 1)

    def initial_state(self) -> State:
        return self.first, torch.zeros(9)

    def forward(self, obs: Tensor, state: State) -> Any:
        seen = obs.float() if self.table is None else self.table(obs)
        hidden, cell = self.cell(seen, (state[0], state[1]))
        out = self.heads(hidden)
        return out[:, :-1], out[:, -1], (hidden, cell)


class Counting(nn.Module):
    """Knows how many steps its episode has, as a number of another dtype, and values that."""

    def initial_state(self) -> State:
        return (torch.zeros((), dtype=torch.int64),)

    def forward(self, obs: Tensor, state: State) -> Any:
        (count,) = state
        return torch.zeros(len(obs), 4), count.float(), (count + 1,)


def make(env_id: str, num_envs: int, **options: Any) -> Any:
    return rollouts.make_vec(env_id, num_envs, seed=3, autoreset_mode="same_step", **options)


def assert_close(found: RolloutBatch[Tensor], expected: Any) -> None:
    for name in EXACT:
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)
    for name in CLOSE:
        np.testing.assert_allclose(
            getattr(found, name), getattr(expected, name), atol=1e-5, err_msg=name
        )
    assert found.extras.keys() == expected.extras.keys()
    for name, tensor in found.extras.items():
        np.testing.assert_allclose(tensor, expected.extras[name], atol=1e-4, err_msg=name)
    for mine, theirs in zip(found.policy_state, expected.policy_state, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-5)


@pytest.mark.parametrize("keep", [False, True])
def test_rollouts_are_those_of_the_cpu_collector(keep: bool) -> None:
    cpu = make("Taxi-v3", 40, max_episode_steps=7)
    device = make("Taxi-v3", 40, max_episode_steps=7, device="cpu-emulation")
    collectors: list[Any] = []
    modules = {}
    for env, of, engine in ((cpu, Collector, "native"), (device, Collector, "torch")):
        torch.manual_seed(0)
        module = Remembering(8, 6, num_obs=500)
        policy = RecurrentTorchPolicy(module, env.single_action_space, seed=5, keep_states=keep)
        collectors.append(of(env, policy, 10, engine=engine, returns=GAE))
        modules[collectors[-1]] = module
    for _ in range(4):
        theirs, mine = (one.collect() for one in collectors)
        assert_close(mine, theirs)
        # every limit of an episode is valued, with the memory of its last step
        assert int((mine.bootstrap_value != 0).sum()) == int(mine.truncated.sum()) > 20
        for one in collectors:
            with torch.no_grad():
                modules[one].heads.weight.mul_(0.9)
    collectors[1].synchronize()


class Scaled(Remembering):
    """Reads a number that is no parameter."""

    scale = 1.0

    def forward(self, obs: Tensor, state: State) -> Any:
        logits, value, after = super().forward(obs, state)
        return logits * self.scale, value, after


def test_a_module_that_is_read_again_goes_on_remembering() -> None:
    collectors, modules = [], []
    for of, engine, device in (
        (Collector, "native", None),
        (Collector, "native", "cpu-emulation"),
        (Collector, "torch", "cpu-emulation"),
    ):
        options = {} if device is None else {"device": device}
        env = make("Taxi-v3", 40, max_episode_steps=25, **options)
        torch.manual_seed(0)
        modules.append(Scaled(8, 6, num_obs=500))
        policy = RecurrentTorchPolicy(modules[-1], env.single_action_space, seed=5)
        collectors.append(of(env, policy, 10, engine=engine, returns=GAE))
    for scale in (1.0, 3.0, 3.0):
        for module in modules:
            module.scale = scale
        theirs, *ours = (one.collect() for one in collectors)
        for mine in ours:
            assert_close(mine, theirs)


def test_so_are_those_of_groups_of_agents() -> None:
    """Some leave early, and remember until the others end, too: against kernels on the device."""
    collectors = []
    for engine in ("native", "torch"):
        env = make("TagContinuous-v0", 5, device="cpu-emulation", **LEAVING)
        torch.manual_seed(0)
        policies = {}
        for name, group in env.groups.items():
            size = int(np.prod(group.single_observation_space.shape))
            module = Remembering(size, int(group.single_action_space.nvec.sum()))
            policies[name] = RecurrentTorchPolicy(module, group.single_action_space, seed=5)
        collectors.append(Collector(env, policies, 14, engine=engine, returns=GAE))
    for _ in range(3):
        theirs, mine = (one.collect() for one in collectors)
        for name, rollout in mine.items():
            assert_close(rollout, theirs[name])
    assert not mine["runner"].extras["active"].all()


def test_states_have_any_dtype_and_begin_with_episodes() -> None:
    env = make("FrozenLake-v1", 6, max_episode_steps=5, device="cpu-emulation")
    policy = RecurrentTorchPolicy(Counting(), env.single_action_space, keep_states=True)
    collector = Collector(env, policy, 12)  # what native code cannot read goes to torch
    for _ in range(3):
        found = collector.collect()
        count = found.extras["policy_state.0"]
        assert count.dtype == torch.int64
        assert torch.equal(count, found.episode_length.long() - 1)
        assert torch.equal(found.value, count.float())
        assert torch.equal(found.policy_state[0], count[0])
        cut = found.truncated & ~found.terminated
        assert torch.equal(found.bootstrap_value[cut], found.episode_length[cut].float())
    collector.reset()
    assert not collector.collect().policy_state[0].any()


def test_a_learner_sees_what_the_policy_saw() -> None:
    env = make("CartPole-v1", 7, max_episode_steps=9, device="cpu-emulation")
    module = Remembering(4, 2)
    policy = RecurrentTorchPolicy(module, env.single_action_space)
    collector = Collector(env, policy, 16, engine="torch")
    for _ in range(2):
        found = collector.collect()
        ended = found.terminated | found.truncated
        logits, value, _ = unroll(
            module, found.obs, found.policy_state, ended=ended, initial_state=module.initial_state()
        )
        log_prob = logits.log_softmax(-1).gather(2, found.action[..., None])[..., 0]
        assert torch.allclose(value, found.value, atol=1e-6)
        assert torch.allclose(log_prob, found.log_prob, atol=1e-6)


class Forgetful(Counting):
    def forward(self, obs: Tensor, state: State) -> Any:
        logits, value, (count,) = super().forward(obs, state)
        return logits, value, (count.float(),)


def test_what_does_not_fit_is_refused() -> None:
    env = make("FrozenLake-v1", 3, device="cpu-emulation")
    space = env.single_action_space
    with pytest.raises(SpecError, match="TorchPolicy of a module with memory, expected a Recurr"):
        Collector(env, TorchPolicy(Counting(), space), 4, engine="torch")
    collector = Collector(env, RecurrentTorchPolicy(Forgetful(), space), 4, engine="torch")
    with pytest.raises(SpecError, match=r"returned a state of .*float32.*, expected .*int64"):
        collector.collect()
