# SPDX-License-Identifier: Apache-2.0
"""Peer `mujoco-batch`: its simulations, episodes and observations are those of our environments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import rollouts
from rollouts.bench import OpenEnv, Settings, compare, stepper
from rollouts.bench.interleaved import action_batches
from rollouts.envs.registry import env_spec
from rollouts.mujoco import integration_state

pytestmark = pytest.mark.system

GYMNASIUM = [
    *("Ant", "HalfCheetah", "Hopper", "Humanoid", "HumanoidStandup", "InvertedDoublePendulum"),
    *("InvertedPendulum", "Pusher", "Reacher", "Swimmer", "Walker2d"),
]
# one task of each domain whose geoms are planes, spheres and capsules
SUITE = [
    *("AcrobotSwingup-v1", "CartpoleSwingup-v1", "CheetahRun-v1", "HopperHop-v1"),
    *("HumanoidRun-v1", "HumanoidCMURun-v1", "LqrLqr62-v1", "PendulumSwingup-v1"),
    *("PointMassEasy-v1", "ReacherEasy-v1", "SwimmerSwimmer6-v1", "WalkerRun-v1"),
]


def mujocos_own_steps(env_id: str) -> dict[str, Any]:
    """Options with which our environments take mj_step, bit for bit."""
    return {"engine": "mujoco"} if "engine" in env_spec(env_id).options else {}


def states_of(env: rollouts.VectorEnv) -> NDArray[Any]:
    return np.stack([integration_state(state) for state in env.get_state()])


def opened(env_id: str, num_envs: int, limit: int) -> tuple[OpenEnv, list[NDArray[Any]]]:
    spec = env_spec(env_id, max_episode_steps=limit)
    settings = Settings(env_id, num_envs, num_envs, 1, seed=3, max_episode_steps=limit)
    peer = stepper("mujoco-batch").make(settings, spec)
    return peer, action_batches(spec.single_action_space, num_envs, seed=0)


@pytest.mark.parametrize("env_id", [f"{name}-{v}" for name in GYMNASIUM for v in ("v4", "v5")])
def test_first_episodes_end_where_those_of_our_environments_end(env_id: str) -> None:
    limit, num_envs = 40, 4
    peer, batches = opened(env_id, num_envs, limit)
    running = np.ones(num_envs, bool)
    options = mujocos_own_steps(env_id)
    with rollouts.make_vec(env_id, num_envs, seed=3, max_episode_steps=limit, **options) as env:
        env.reset()
        peer.start()
        for call in range(limit):
            actions = batches[call % len(batches)]
            _, _, terminated, truncated, _ = env.step(actions)
            obs = peer.env.step(actions)
            ended = peer.env.ended
            np.testing.assert_array_equal(ended[running], (terminated | truncated)[running])
            ours = states_of(env)[running]
            # time comes first; positions and velocities are observed first
            np.testing.assert_array_equal(peer.env._batch.state[running], ours)
            size = peer.env._batch.bind("qpos").shape[1] + peer.env._batch.bind("qvel").shape[1]
            np.testing.assert_array_equal(obs[running, :size], ours[:, 1 : 1 + size])
            running &= ~ended
    assert not running.any()
    peer.close()


@pytest.mark.parametrize("env_id", SUITE)
def test_it_steps_the_models_of_the_suite_as_often_as_our_environments(env_id: str) -> None:
    pytest.importorskip("dm_control", reason="needs the dm-control package")
    peer, batches = opened(env_id, 2, 5)
    with rollouts.make_vec(env_id, 2, seed=3, **mujocos_own_steps(env_id)) as env:
        env.reset()
        peer.start()
        times = []
        for batch in batches[:5]:
            env.step(batch)
            peer.env.step(batch)
            times.append((states_of(env)[:, 0], peer.env._batch.bind("time").copy()))
    for ours, theirs in times:
        np.testing.assert_array_equal(theirs, ours)
    assert peer.env.ended.all()
    peer.close()


def test_an_ended_episode_is_followed_by_another_one_in_the_next_step() -> None:
    peer, batches = opened("HalfCheetah-v5", 3, 2)
    peer.start()
    times = peer.env._batch.bind("time")
    seen = []
    for batch in batches[:6]:
        peer.env.step(batch)
        seen.append(np.round(times / (5 * 0.01)).astype(int).tolist())
    assert seen == [[1] * 3, [2] * 3, [0] * 3, [1] * 3, [2] * 3, [0] * 3]
    peer.close()


def test_it_observes_what_the_options_name_without_contact_forces() -> None:
    settings = Settings("Humanoid-v5", 2, 2, 1, duration_s=0.01, repeats=1)
    _, peer = compare(settings, [stepper("mujoco-batch")]).measurements
    assert peer.options["observed"] == ["qpos", "qvel", "cinert", "cvel", "qfrc_actuator"]
    assert any("No rewards" in note for note in peer.notes)
