# SPDX-License-Identifier: Apache-2.0
"""`Collector(prefetch=1)`: the next rollout is collected while the caller learns."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from small_agents import CartPoleAgent
from torch import nn

import rollouts
from rollouts.batch import RolloutBatch
from rollouts.collecting.deadline import Deadline
from rollouts.collecting.rollout_ahead import Prefetch
from rollouts.errors import ClosedError, SpecError
from rollouts.policies.native import NativePolicy
from rollouts.policy import TorchPolicy

ARRAYS = ("obs", "action", "log_prob", "value", "reward", "terminated", "truncated",
          "bootstrap_value", "last_value", "last_obs", "policy_version")  # fmt: skip


def make(num_envs: int = 6, **options: Any) -> rollouts.VectorEnv:
    return rollouts.make_vec("CartPole-v1", num_envs, seed=3, autoreset_mode="same_step", **options)


def collector(env: Any, prefetch: int, steps: int = 40, **options: Any) -> rollouts.Collector:
    policy = TorchPolicy(CartPoleAgent(), env.single_action_space, seed=11)
    return rollouts.Collector(env, policy, steps, prefetch=prefetch, **options)


def learn(collect: rollouts.Collector, version: int) -> None:
    """Changes the weights in place, as an optimiser does."""
    policy = collect.policy
    assert isinstance(policy, TorchPolicy)
    with torch.no_grad():
        for parameter in policy.module.parameters():
            parameter.add_(0.01)
    policy.policy_version = version


def assert_equal(found: RolloutBatch, expected: RolloutBatch) -> None:
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), name)


def test_each_rollout_is_of_the_weights_before_the_last_update() -> None:
    """The same bits as a collector whose caller learns one rollout later."""
    with make() as env, make() as other:
        ahead, behind = collector(env, 1), collector(other, 0)
        expected = [behind.collect()]
        for version in range(4):
            batch = ahead.collect()
            learn(ahead, version + 1)
            # the first two are of the first weights
            assert {*batch.policy_version.flat} == {max(0, version - 1)}
            assert_equal(batch, expected[version])
            expected.append(behind.collect())
            learn(behind, version + 1)
        ahead.close()


def test_a_module_that_native_code_cannot_read_is_told_of() -> None:
    with make() as env:
        collect = collector(env, 1)
        collect.collect()
        assert isinstance(collect.policy, TorchPolicy)
        collect.policy.module = nn.Identity()
        with pytest.raises(SpecError, match="prefetch=1 needs the native engine"):
            collect.collect()
        # it does not go on with torch and without prefetch afterwards
        with pytest.raises(SpecError, match="prefetch=1 needs the native engine"):
            collect.collect()
        collect.close()


def test_after_reset_episodes_are_new_ones() -> None:
    with make() as env:
        collect = collector(env, 1)
        assert np.abs(collect.collect().last_obs).max() > 0.05
        collect.reset()
        # where CartPole's episodes begin
        assert np.abs(collect.collect().obs[0]).max() <= 0.05
        collect.close()


def test_a_rollout_that_is_dropped_ends_at_its_next_poll() -> None:
    started = threading.Event()

    def collect(poll: Callable[[], None]) -> RolloutBatch:
        started.set()
        while True:
            poll()

    prefetch = Prefetch()
    prefetch.start(collect)
    assert started.wait(60)
    prefetch.drop()
    assert prefetch.take(Deadline(None)) is None
    prefetch.close()


class WideAgent(nn.Module):
    """A million multiplications for each step, which take any core some microseconds."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 1024), nn.Tanh(), nn.Linear(1024, 1024), nn.Tanh())
        self.actor, self.critic = nn.Linear(1024, 2), nn.Linear(1024, 1)

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = self.body(obs)
        return self.actor(hidden), self.critic(hidden)


def test_poll_ends_a_rollout_of_the_pool() -> None:
    """Half a second of one thread at the least: more than there is between two polls."""
    asked = []

    def poll() -> None:
        asked.append(1)
        raise KeyError("enough")

    with make(64, num_threads=1) as env:
        env.reset()
        native = NativePolicy.from_torch(WideAgent(), env.single_action_space)
        cells = (2000, 64)
        arrays: dict[str, Any] = {
            name: np.empty(cells, np.float32)
            for name in ("log_prob", "value", "reward", "bootstrap_value")
        }
        arrays |= {name: np.empty(cells, np.bool_) for name in ("terminated", "truncated")}
        arrays |= {
            "obs": np.empty((cells[0] + 1, 64, 4), np.float32),
            "action": np.empty(cells, np.int64),
            "episode_return": np.empty(cells),
            "episode_length": np.empty(cells, np.int32),
            "last_value": np.empty(64, np.float32),
        }
        arrays["obs"][0] = 0
        with pytest.raises(KeyError, match="enough"):
            env.collect(native.freeze(), arrays, poll=poll)
        assert asked == [1]


def test_what_ends_the_rollout_is_raised_by_the_next_collect() -> None:
    with make() as env:
        collect = collector(env, 1)
        collect.collect()
        env.close()
        with pytest.raises(ClosedError):
            for _ in range(3):
                collect.collect()


def test_weights_that_are_not_finite_lose_no_rollout() -> None:
    with make() as env:
        collect = collector(env, 1)
        collect.collect()
        assert isinstance(collect.policy, TorchPolicy)
        bias = collect.policy.module.actor.bias  # type: ignore[union-attr]
        with torch.no_grad():
            bias[0] = torch.nan
        assert np.isfinite(collect.collect().log_prob).all()
        with pytest.raises(SpecError, match=r"actor\.bias"):
            collect.collect()
        with torch.no_grad():
            bias[0] = 0.0
        assert collect.collect().obs.shape == (40, 6, 4)
        collect.close()


def test_where_the_pool_cannot_collect_ahead() -> None:
    with make() as env:
        for prefetch in (2, -1, True, 0.5):
            with pytest.raises(SpecError, match="prefetch"):
                collector(env, prefetch)  # type: ignore[arg-type]
        with pytest.raises(SpecError, match=r"prefetch=1 needs the native engine.*was asked for"):
            collector(env, 1, engine="torch")
    with make(batch_size=2) as env, pytest.raises(SpecError, match="batch_size == num_envs"):
        collector(env, 1)
