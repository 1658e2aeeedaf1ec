# SPDX-License-Identifier: Apache-2.0
"""Collectors, coordinators and checkpoints with pools that are wrapped."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import rollouts
from rollouts import (
    Collector,
    RolloutCoordinator,
    RolloutWorker,
    RunningStatistics,
    SpecError,
)
from rollouts.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from rollouts.policy import TorchPolicy
from rollouts.workers import PolicySpec
from rollouts.workers.shared_statistics import SharedStatistics
from rollouts.workers.weight_store import WeightStore
from rollouts.workers.worker_config import WorkerConfig

NORMALIZED: dict[str, Any] = {"normalize_observation": {"clip": 10.0}, "normalize_reward": True}
FRAMES: dict[str, Any] = {"time_aware": "fraction", "frame_stack": 3, "rescale_action": True}


def network(num_inputs: int, num_outputs: int) -> torch.nn.Module:
    torch.manual_seed(0)

    class ActorCritic(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = torch.nn.Sequential(
                torch.nn.Flatten(), torch.nn.Linear(num_inputs, 16), torch.nn.Tanh()
            )
            self.actor = torch.nn.Linear(16, num_outputs)
            self.critic = torch.nn.Linear(16, 1)
            self.log_std = torch.nn.Parameter(torch.zeros(num_outputs))

        def forward(self, obs: torch.Tensor) -> Any:
            hidden = self.body(obs.float())
            mean = self.actor(hidden)
            return mean, self.log_std.expand_as(mean), self.critic(hidden)[..., 0]

    return ActorCritic()


def policy_of(env: Any) -> TorchPolicy:
    size = int(np.prod(env.single_observation_space.shape))
    module = network(size, env.single_action_space.shape[0])
    return TorchPolicy(module, env.single_action_space, seed=1)


def pool(num_threads: int = 2, **wrappers: Any) -> rollouts.VectorEnv:
    return rollouts.make_vec("Pendulum-v1", 8, seed=2, autoreset_mode="same_step",
                             max_episode_steps=12, num_threads=num_threads, **wrappers)  # fmt: skip


def test_native_rollouts_see_what_steps_see() -> None:
    wrappers = {**FRAMES, **NORMALIZED, "clip_reward": 3.0}
    with pool(**wrappers) as env, pool(1, **wrappers) as stepped:
        statistics = {
            "observation": RunningStatistics(np.full((3, 4), 0.1), np.full((3, 4), 0.5), 100.0),
            "reward": RunningStatistics(np.zeros(()), np.full((), 40.0), 100.0),
        }
        for each in (env, stepped):
            each.observation_statistics = statistics["observation"]
            each.reward_statistics = statistics["reward"]
            each.update_statistics = False
        batch = Collector(env, policy_of(env), 30, engine="native").collect()
        obs, _ = stepped.reset()
        np.testing.assert_array_equal(batch.obs[0], obs)
        for t in range(30):
            action = np.clip(batch.action[t], -1, 1)
            obs, reward, _, truncated, _ = stepped.step(action)
            np.testing.assert_array_equal(batch.reward[t], reward.astype(np.float32))
            np.testing.assert_array_equal(batch.truncated[t], truncated)
            if t < 29:
                np.testing.assert_array_equal(batch.obs[t + 1], obs)


def make_policy(spec: PolicySpec) -> TorchPolicy:
    return policy_of(spec)


def coordinator(num_workers: int) -> RolloutCoordinator:
    options = {**NORMALIZED, "max_episode_steps": 12}
    return RolloutCoordinator("Pendulum-v1", make_policy, num_workers=num_workers,
                              num_envs_per_worker=4, rollout_length=8, seed=2,
                              env_options=options, sync_mode="synchronous")  # fmt: skip


def share(num_workers: int, rounds: int) -> None:
    with pool(**NORMALIZED) as probe:
        policy = policy_of(probe)
    with coordinator(num_workers) as shared:
        assert shared.statistics == {}
        steps = 0
        for _ in range(rounds):
            shared.publish_weights(policy.weights())
            (fragment,) = shared.get_fragments(1)
            steps += fragment.num_steps
            statistics = shared.statistics
            # each row counts once: those of steps, and those of resets as observations
            assert statistics["reward"].count == pytest.approx(steps + 1e-4, abs=1e-6)
            assert statistics["observation"].count >= steps
            assert (statistics["observation"].var > 0).all()
        # another run goes on from there
        with coordinator(0) as resumed:
            resumed.statistics = {
                kind: RunningStatistics.from_state_dict(one.state_dict())
                for kind, one in statistics.items()
            }
            resumed.publish_weights(policy.weights())
            first = resumed.get().obs[0]
            plain = rollouts.make_vec("Pendulum-v1", 4, seed=2, max_episode_steps=12)
            rows, _ = plain.reset()
            counted = statistics["observation"]
            batch = RunningStatistics(rows.mean(0, np.float64), rows.astype(float).var(0), 4)
            merged = counted.merged(batch)
            want = (rows - merged.mean) / np.sqrt(merged.var + 1e-8)
            np.testing.assert_allclose(first, want, rtol=1e-5, atol=1e-6)
            plain.close()


def test_the_learners_process_shares_statistics() -> None:
    share(num_workers=0, rounds=3)


def test_what_travels_between_workers_and_learner_survives_pickling() -> None:
    with pool(**NORMALIZED) as probe:
        weights = policy_of(probe).weights()
    config = WorkerConfig(
        id="Pendulum-v1", num_envs=4, rollout_length=8,
        num_threads=1, seed=2, env_options=NORMALIZED,
    )  # fmt: skip
    workers = [RolloutWorker(replace(config, worker_id=w), make_policy) for w in range(2)]
    store, shared = WeightStore(), SharedStatistics()
    for round_ in range(1, 4):
        store.publish(weights, shared.common)
        for worker in workers:
            offer = pickle.loads(pickle.dumps(store.latest))
            fragment = pickle.loads(pickle.dumps(worker.collect(offer)))
            shared.add([fragment.info])
        # two workers of 4 environments, 8 steps in each round
        assert shared.common["reward"].count == pytest.approx(round_ * 64 + 1e-4, abs=1e-6)
    for worker in workers:
        worker.close()


@pytest.mark.system
def test_workers_share_statistics_through_the_coordinator(ray_session: Any) -> None:
    share(num_workers=2, rounds=4)


def test_a_coordinator_refuses_what_are_no_statistics() -> None:
    with coordinator(0) as shared:
        for bad in ({"obs": RunningStatistics(np.zeros(3), np.ones(3), 1)}, {"reward": 3}, None):
            with pytest.raises(SpecError, match="statistics must be a dict"):
                shared.statistics = bad  # type: ignore[assignment]


def test_checkpoints_of_the_examples_hold_statistics(tmp_path: Any) -> None:
    from examples.common.checkpoint import Checkpointed

    class Learner(Checkpointed):
        saved = ("statistics",)

        def __init__(self) -> None:
            self.statistics = RunningStatistics(np.zeros((2, 3)), np.ones((2, 3)), 1e-4)

    learner, fresh = Learner(), Learner()
    learner.statistics = RunningStatistics(np.arange(6.0).reshape(2, 3), np.full((2, 3), 2.5), 17.0)
    saved = Checkpoint(id="Ant-v5", weights={}, program="", training=learner.state())
    save_checkpoint(tmp_path, saved)
    fresh.load_state(dict(load_checkpoint(tmp_path).training))
    np.testing.assert_array_equal(fresh.statistics.mean, learner.statistics.mean)
    np.testing.assert_array_equal(fresh.statistics.var, learner.statistics.var)
    assert fresh.statistics.count == 17.0
