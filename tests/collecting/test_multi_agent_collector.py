# SPDX-License-Identifier: Apache-2.0
"""Rollouts of environments with several agents: what each group's batch says of its agents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from leaving_agents import LEAVING

import rollouts
from rollouts import Collector, PolicyOutput
from rollouts.returns import gae, nstep, vtrace

# columns that returns are computed from, step by step
NAMES = ("reward", "value", "terminated", "truncated", "bootstrap_value")


class Scripted:
    """Acts by a random stream of its own; a value is a sum of the observation."""

    policy_version = 3

    def __init__(self, seed: int, shape: tuple[int, ...] = (2,), values: int = 11) -> None:
        self.random = np.random.default_rng(seed)
        self.shape, self.values = shape, values
        self.seen: list[Any] = []

    def act(self, obs: Any) -> PolicyOutput:
        self.seen.append(obs.copy())
        action = self.random.integers(0, self.values, (len(obs), *self.shape))
        return PolicyOutput(action, np.zeros(len(obs), np.float32), self.value(obs))

    def value(self, obs: Any) -> Any:
        return obs.sum(axis=-1).astype(np.float32)

    def weights(self) -> dict[str, Any]:
        return {}

    def load_weights(self, weights: Mapping[str, Any], version: int) -> None:
        pass


def make(num_envs: int, **options: Any) -> rollouts.MultiAgentVectorEnv:
    env = rollouts.make_vec(
        "TagContinuous-v0", num_envs, seed=2, autoreset_mode="same_step", **options
    )
    assert isinstance(env, rollouts.MultiAgentVectorEnv)
    return env


def test_batches_are_what_the_environments_did() -> None:
    with make(3, **LEAVING) as env, make(3, **LEAVING) as other:
        policies = {"tagger": Scripted(1), "runner": Scripted(2)}
        collector = Collector(env, policies, 10)
        obs, _ = other.reset()
        final = np.zeros(0)
        left = 0
        for _ in range(3):
            batches = collector.collect()
            assert list(batches) == ["tagger", "runner"]
            for t in range(10):
                for name, batch in batches.items():
                    np.testing.assert_array_equal(batch.obs[t].reshape(obs[name].shape), obs[name])
                actions = {
                    name: batch.action[t].reshape(3, -1, 2) for name, batch in batches.items()
                }
                obs, reward, terminated, truncated, info = other.step(actions)
                for name, batch in batches.items():
                    active = info["active"][name].reshape(-1)
                    np.testing.assert_array_equal(batch.extras["active"][t], active)
                    np.testing.assert_array_equal(
                        batch.reward[t], reward[name].reshape(-1).astype(np.float32)
                    )
                    np.testing.assert_array_equal(batch.terminated[t], terminated[name].reshape(-1))
                    cut = truncated[name].reshape(-1)
                    np.testing.assert_array_equal(batch.truncated[t] & active, cut)
                    final = info["final_obs"][name].reshape(len(cut), -1).sum(axis=1)
                    np.testing.assert_allclose(
                        batch.bootstrap_value[t], np.where(cut, final, 0), rtol=1e-5
                    )
                left += int((~info["active"]["runner"]).sum())
        assert left > 0
        assert (batches["runner"].policy_version == 3).all()
        assert batches["runner"].env_id.tolist() == list(range(18))


def test_advantages_are_those_of_each_agents_own_episode() -> None:
    with make(4, **LEAVING) as env:
        batch = Collector(env, Scripted(5), 40).collect()["runner"]
    active = batch.extras["active"]
    assert not active.all()
    names = ("reward", "value", "terminated", "truncated", "bootstrap_value", "last_value")
    arrays = {name: getattr(batch, name) for name in names}
    advantages, _ = gae(**arrays, gamma=0.9, gae_lambda=0.8)
    for column in range(batch.reward.shape[1]):
        following = 0.0
        for t in reversed(range(40)):
            ended = batch.terminated[t, column] or batch.truncated[t, column]
            after = batch.value[t + 1, column] if t < 39 else batch.last_value[column]
            if ended:
                after, following = batch.bootstrap_value[t, column], 0.0
            delta = batch.reward[t, column] + 0.9 * after - batch.value[t, column]
            following = delta + 0.9 * 0.8 * following
            if active[t, column]:
                np.testing.assert_allclose(advantages[t, column], following, rtol=1e-3, atol=1e-3)
    assert not batch.reward[~active].any() and not batch.terminated[~active].any()


@pytest.mark.parametrize("estimator", ["gae", "nstep", "vtrace"])
def test_returns_need_no_masks(estimator: str) -> None:
    """Returns of the active steps are those of the agent's own steps alone, one after the other."""
    with make(4, **LEAVING) as env:
        batch = Collector(env, Scripted(5), 40).collect()["runner"]
    active = batch.extras["active"]
    random = np.random.default_rng(0)
    log_probs = random.normal(size=(2, *active.shape)).astype(np.float32)

    def estimate(rows: Any, column: slice) -> tuple[Any, Any]:
        cells = {name: getattr(batch, name)[:, column][rows] for name in NAMES}
        last_value = batch.last_value[column]
        reward, value = cells.pop("reward"), cells.pop("value")
        if estimator == "gae":
            return gae(reward, value, **cells, last_value=last_value, gamma=0.9, gae_lambda=0.8)
        if estimator == "nstep":
            return nstep(reward, value, **cells, last_value=last_value, gamma=0.9, n=3)
        behaviour, target = (each[:, column][rows] for each in log_probs)
        return vtrace(
            reward,
            value,
            behaviour_log_prob=behaviour,
            target_log_prob=target,
            **cells,
            last_value=last_value,
            gamma=0.9,
        )

    whole = estimate(slice(None), slice(None))
    for i in range(active.shape[1]):
        own = estimate(active[:, i], slice(i, i + 1))
        for one, other in zip(whole, own, strict=True):
            np.testing.assert_allclose(one[active[:, i], i], other[:, 0], rtol=1e-4, atol=1e-5)
    assert not active.all()


def test_one_policy_may_act_for_all_groups() -> None:
    env = rollouts.make_vec("TagGridWorld-v0", 2, autoreset_mode="same_step")
    assert isinstance(env, rollouts.MultiAgentVectorEnv)
    with env:
        policy = Scripted(1, (), 5)
        batches = Collector(env, policy, 4).collect()
        assert batches["tagger"].reward.shape == (4, 20)
        assert batches["runner"].reward.shape == (4, 2)
        assert [len(obs) for obs in policy.seen] == [20, 2] * 4


def test_a_memory_is_one_groups() -> None:
    class Remembering(Scripted):
        def act_rows(self, obs: Any, rows: Any, begins: Any) -> PolicyOutput:
            return self.act(obs)

    with make(2) as env:
        shared = Remembering(1)
        for policies in (shared, {"tagger": shared, "runner": shared}):
            with pytest.raises(rollouts.SpecError, match="remembers cannot act for several groups"):
                Collector(env, policies, 4)
        Collector(env, {"tagger": shared, "runner": Remembering(2)}, 4)


def test_what_cannot_be_collected_is_refused() -> None:
    with make(2) as env:
        for policies, message in (
            ({"tagger": Scripted(1)}, "no policy for group 'runner'"),
            ({"tagger": Scripted(1), "runner": Scripted(1), "x": Scripted(1)}, "group 'x'"),
        ):
            with pytest.raises(rollouts.SpecError, match=message):
                Collector(env, policies, 4)
    with (
        rollouts.make_vec("TagGridWorld-v0", 2) as env,
        pytest.raises(rollouts.SpecError, match="SAME_STEP"),
    ):
        Collector(env, Scripted(1), 4)  # type: ignore[arg-type]
