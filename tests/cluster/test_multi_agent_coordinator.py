# SPDX-License-Identifier: Apache-2.0
"""Coordinators of environments with several agents: whose data, whose weights, whose death."""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from acted_worker import worker_config
from counter_world import assert_balanced
from leaving_agents import LEAVING

import rollouts
from rollouts import (
    CollectOptions,
    Inference,
    MultiAgentRollout,
    PolicyOutput,
    RolloutCoordinator,
)
from rollouts.errors import ProtocolError, SpecError
from rollouts.policy import TorchPolicy
from rollouts.returns import Gae
from rollouts.workers import Fragment, PolicySpec

pytestmark = pytest.mark.system

TIMEOUT_S = 300.0
STEPS = 12
NAMES = ("obs", "action", "reward", "terminated", "truncated")


class Following:
    """Acts by the observation alone, both numbers of an action; its value counts weights loaded."""

    def __init__(self, spec: PolicySpec) -> None:
        self.policy_version = 0
        self.loaded = 0
        self.start = {"tagger": 0.0, "runner": 100.0}.get(spec.policy or "", 200.0)

    def weights(self) -> dict[str, np.ndarray]:
        return {"w": np.zeros(1)}

    def load_weights(self, weights: Mapping[str, np.ndarray], version: int) -> None:
        self.policy_version = version
        self.loaded += 1

    def act(self, obs: np.ndarray) -> PolicyOutput:
        mixed = np.abs(obs * 7919).sum(axis=1).astype(np.int64)
        action = np.stack([mixed % 11, mixed // 11 % 11], axis=1)
        return PolicyOutput(action, np.zeros(len(obs), np.float32), self.value(obs))

    def value(self, obs: np.ndarray) -> np.ndarray:
        return np.full(len(obs), self.start + self.loaded, np.float32)


def start(make_policy: Any = Following, **changes: Any) -> RolloutCoordinator[MultiAgentRollout]:
    settings = {
        "id": "TagContinuous-v0",
        "num_workers": 0,
        "num_envs_per_worker": 6,
        "rollout_length": STEPS,
        "seed": 3,
        "env_options": LEAVING,
    } | changes
    return RolloutCoordinator[MultiAgentRollout](make_policy=make_policy, **settings)


W = {"w": np.zeros(1)}


def data_by_env(num_fragments: int, **changes: Any) -> dict[int, dict[str, np.ndarray]]:
    """Collects `num_fragments` of every worker; returns arrays (T, agents, ...) by env_id."""
    parts: dict[int, dict[str, list[np.ndarray]]] = defaultdict(lambda: defaultdict(list))
    counts: dict[int, int] = defaultdict(int)
    with start(**changes) as coordinator:
        coordinator.publish_weights({"tagger": W, "runner": W})
        while len(counts) < max(1, coordinator.num_workers) or min(counts.values()) < num_fragments:
            (fragment,) = coordinator.get_fragments(1, TIMEOUT_S)
            counts[fragment.worker_id] += 1
            if counts[fragment.worker_id] > num_fragments:
                continue
            envs = fragment.batches.num_envs
            for group, batch in fragment.batches.items():
                for env in range(envs):
                    num_agents = batch.reward.shape[1] // envs
                    agents = slice(env * num_agents, (env + 1) * num_agents)
                    arrays = {name: getattr(batch, name) for name in NAMES} | batch.extras
                    for name, array in arrays.items():
                        key = fragment.worker_id * envs + env
                        parts[key][f"{group} {name}"].append(array[:, agents])
    return {
        env: {name: np.concatenate(found) for name, found in arrays.items()}
        for env, arrays in parts.items()
    }


@pytest.mark.parametrize(
    "num_workers",
    # one has nothing to share, and two share as three do
    [*(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2)), 3],
    ids=lambda n: f"{n} workers",
)
def test_data_do_not_depend_on_the_number_of_workers(ray_session: object, num_workers: int) -> None:
    collect = CollectOptions(returns=Gae(gamma=0.97, gae_lambda=0.9))
    expected = data_by_env(4, collect=collect)
    own = {"num_workers": num_workers, "num_envs_per_worker": 6 // num_workers}
    got = data_by_env(4, collect=collect, **own)
    assert sorted(got) == sorted(expected) == list(range(6))
    left = 0
    for env, arrays in expected.items():
        left += int((~arrays["runner active"]).sum())
        assert arrays["runner advantage"].any()
        for name, array in arrays.items():
            np.testing.assert_array_equal(got[env][name], array, err_msg=f"{env} {name}")
    assert left > 0


def test_weights_travel_by_policy_and_versions_are_all_policies() -> None:
    with start() as coordinator:
        with pytest.raises(ProtocolError, match="no weights yet"):
            coordinator.get()
        assert coordinator.publish_weights({"tagger": W}) == 1
        first = coordinator.get()
        assert coordinator.publish_weights({"runner": W}) == 2
        second = coordinator.get()
        assert coordinator.publish_weights({"runner": W, "tagger": W}) == 3
        third = coordinator.get(2)
        num_bytes = coordinator.stats()["weights_bytes"]
    for version, rollout, values in (
        (1, first, (1, 100)),
        (2, second, (1, 101)),
        (3, third, (2, 102)),
    ):
        for value, batch in zip(values, rollout.values(), strict=True):
            assert (batch.policy_version == version).all()
            assert (batch.value == value).all()
    assert num_bytes == 4 * 8
    assert third.num_envs == 12 and third["runner"].reward.shape == (STEPS, 72)
    assert third.num_steps == 12 * STEPS and third.num_agent_steps == 96 * STEPS


@pytest.mark.parametrize("num_workers", [0, 1])
def test_each_group_keeps_what_its_episodes_ended_with(
    ray_session: object, num_workers: int
) -> None:
    env = rollouts.make_multi_agent_vec(
        "TagContinuous-v0", 6, seed=3, autoreset_mode="same_step", **LEAVING
    )
    policies: Any = {group: Following(SimpleNamespace(policy=group)) for group in env.groups}
    with (
        env,
        start(num_workers=num_workers, collect=CollectOptions(keep_final_obs=True)) as coordinator,
    ):
        theirs = rollouts.Collector(env, policies, STEPS, keep_final_obs=True)
        coordinator.publish_weights({"tagger": W, "runner": W})
        num_rows = 0
        for _ in range(3):
            expected, got = theirs.collect(), coordinator.get(1, TIMEOUT_S)
            for group, batch in expected.items():
                assert batch.final_obs is not None
                np.testing.assert_array_equal(got[group].final_obs, batch.final_obs)
                num_rows += len(batch.final_obs)
    assert num_rows


def test_environments_of_ones_own_may_have_one_agent_or_several() -> None:
    def make_env(config: Any) -> Any:
        return rollouts.make_vec(
            "CartPole-v1" if config.id == "one" else "TagContinuous-v0",
            config.num_envs,
            autoreset_mode="same_step",
            env_id_offset=config.env_id_offset,
            seed=config.env_seed,
        )

    def make_policy(spec: PolicySpec) -> TorchPolicy:
        class Net(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.layer = torch.nn.LazyLinear(1)
                self.layer(torch.zeros(1, *spec.single_observation_space.shape))

            def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
                value = self.layer(obs)
                return value.expand(-1, 2 if spec.policy is None else 22), value

        made[spec.policy] = policy = TorchPolicy(Net(), spec.single_action_space)
        return policy

    made: dict[str | None, TorchPolicy] = {}
    collect = CollectOptions(make_env=make_env)
    with start(make_policy, id="one", env_options={}, collect=collect) as coordinator:
        assert coordinator.publish_weights(made[None].weights()) == 1
        (fragment,) = coordinator.get_fragments()
        assert fragment.batch.obs.shape == (STEPS, 6, 4)
        with pytest.raises(SpecError, match=r"weights\['agent'\] is dict, expected"):
            coordinator.publish_weights({"agent": made[None].weights()})
        assert coordinator.get_fragments()
    made.clear()
    with start(make_policy, id="several", env_options={}, collect=collect) as coordinator:
        for wrong in (made["tagger"].weights(), {"agent": made["tagger"].weights()}):
            with pytest.raises(SpecError, match=r"one of \['tagger', 'runner'\]"):
                coordinator.publish_weights(wrong)
        assert coordinator.publish_weights({p: one.weights() for p, one in made.items() if p}) == 1
        assert {*coordinator.get()} == {*made} == {"tagger", "runner"}


def test_groups_may_share_a_policy() -> None:
    made: list[PolicySpec] = []

    def make(spec: PolicySpec) -> Following:
        made.append(spec)
        return Following(spec)

    shared = CollectOptions(policies={"tagger": "both", "runner": "both"})
    options = LEAVING | {"use_full_observation": False, "num_other_agents_observed": 3}
    with start(make, collect=shared, env_options=options) as coordinator:
        coordinator.publish_weights({"both": W})
        batches = coordinator.get()
        with pytest.raises(SpecError, match=r"unknown policy 'tagger', expected .* \['both'\]"):
            coordinator.publish_weights({"tagger": W})
    assert [(spec.policy, spec.group) for spec in made] == [("both", "tagger")]
    assert all((batch.value == 201).all() for batch in batches.values())


def test_native_policies_are_seeded_apart() -> None:
    class Zero(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            zero = self.layer(obs[:, :1] * 0) * 0
            return zero.expand(-1, 22), zero

    def make(spec: PolicySpec) -> TorchPolicy:
        return TorchPolicy(Zero(), spec.single_action_space)

    with start(make, num_envs_per_worker=32) as coordinator:
        weights = Zero().state_dict()
        coordinator.publish_weights({"tagger": weights, "runner": weights})
        batches = coordinator.get()
    tagger = batches["tagger"].action.reshape(STEPS, 32, 2, 2)[:, :, 0]
    runner = batches["runner"].action.reshape(STEPS, 32, 6, 2)[:, :, 0]
    assert 0.03 < (tagger == runner).mean() < 0.16


def replayed(life: tuple[int, int], fragments: list[Fragment]) -> None:
    """Steps the life's own environments again with its actions: every step is there, once."""
    worker_id, incarnation = life
    config = replace(worker_config(), worker_id=worker_id, incarnation=incarnation, seed=3)
    env = rollouts.make_multi_agent_vec(
        "TagContinuous-v0",
        3,
        seed=config.env_seed,
        autoreset_mode="same_step",
        env_id_offset=worker_id * 3,
        **LEAVING,
    )
    with env:
        obs, _ = env.reset()
        assert [fragment.seq_no for fragment in fragments] == list(range(len(fragments)))
        for fragment in fragments:
            batches = fragment.batches
            for t in range(STEPS):
                for name, batch in batches.items():
                    np.testing.assert_array_equal(batch.obs[t].reshape(obs[name].shape), obs[name])
                actions = {name: b.action[t].reshape(3, -1, 2) for name, b in batches.items()}
                obs, reward, _, _, info = env.step(actions)
                for name, batch in batches.items():
                    expected = reward[name].ravel().astype(np.float32)
                    np.testing.assert_array_equal(batch.reward[t], expected)
                    active = info["active"][name].ravel()
                    np.testing.assert_array_equal(batch.extras["active"][t], active)


def test_sigkill_leaves_every_trajectory_whole(ray_session: object) -> None:
    with start(num_workers=2, num_envs_per_worker=3) as coordinator:
        coordinator.publish_weights({"tagger": W, "runner": W})
        lives: dict[tuple[int, int], list[Fragment]] = defaultdict(list)

        def take_until(life: tuple[int, int], count: int) -> None:
            while len(lives[life]) < count:
                (fragment,) = coordinator.get_fragments(1, TIMEOUT_S)
                lives[fragment.worker_id, fragment.incarnation].append(fragment)

        take_until((0, 0), 3)
        take_until((1, 0), 3)
        for worker_id in (0, 1):
            os.kill(coordinator.stats()["workers"][worker_id]["pid"], signal.SIGKILL)
            take_until((worker_id, 1), 5)
        for life, fragments in lives.items():
            replayed(life, fragments)
        stats = coordinator.stats()
        assert_balanced(stats)
        assert stats["restarts"] == 2


def test_what_is_not_for_agents_is_refused() -> None:
    for changes, message in (
        (
            {"collect": CollectOptions(batch_size=2)},
            "collect.batch_size cannot be had of environments with several",
        ),
        ({"collect": CollectOptions(mask_actions=True)}, "action_mask'\\]; leave collect.mask_a"),
        ({"collect": CollectOptions(policies={"x": "y"})}, "the unknown group 'x'"),
        ({"inference": Inference(), "num_workers": 1}, "several agents: the inference actor has o"),
        (
            {"id": "CartPole-v1", "env_options": {}}
            | {"collect": CollectOptions(policies={"agent": "p"})},
            "one agent: the one agent has one policy; leave collect.policies out",
        ),
        (
            {"id": "simple_tag_v3", "env_options": {}}
            | {"collect": CollectOptions(policies={"adversary": "p", "agent": "p"})},
            "'p' for groups 'adversary' and 'agent', whose single_observation_spaces differ",
        ),
    ):
        with pytest.raises(SpecError, match=message):
            start(**changes)
    with pytest.raises(SpecError, match="expected a dict of group -> policy's name"):
        CollectOptions(policies={"a": 1})  # type: ignore[dict-item]
    with start() as coordinator:
        for weights in ({}, {"w": np.zeros(1)}, [1]):
            with pytest.raises(SpecError, match="expected a dict of one of"):
                coordinator.publish_weights(weights)  # type: ignore[arg-type]
        coordinator.publish_weights({"tagger": W})
        with pytest.raises(SpecError, match="w"):
            coordinator.publish_weights({"tagger": {"w": np.ones(1)}, "runner": {"w": "text"}})  # type: ignore[dict-item]
        (fragment,) = coordinator.get_fragments()
        # nothing of what was refused
        assert (fragment.batches["tagger"].value == 1).all()
        assert (fragment.batches["tagger"].policy_version == 1).all()
        with pytest.raises(ProtocolError, match="has a batch for each group: batches"):
            _ = fragment.batch
