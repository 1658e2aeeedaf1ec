# SPDX-License-Identifier: Apache-2.0
"""One step from the same state, by Gymnasium with MuJoCo in 64 bits and by mujoco_warp in 32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

import rollouts
from rollouts.families.mujoco_engine import assets_dir
from rollouts.physics.supported import PHYSICS_IDS

wp = pytest.importorskip("warp")

NUM_STATES = 24


def put_states(env: Any, qpos: np.ndarray, qvel: np.ndarray) -> None:
    """Has each world go on from a state as if an episode had begun there."""
    pool = env._pool
    worlds, arrays = pool._worlds, pool.arrays
    with wp.ScopedDevice("cpu"):
        wp.to_torch(worlds.data.qpos).copy_(torch.from_numpy(qpos))
        wp.to_torch(worlds.data.qvel).copy_(torch.from_numpy(qvel))
        worlds.refresh("forward")
        arrays.beginning_wp.fill_(True)
        pool._launch_task(arrays.beginning_wp, is_start=True)


def visited(peer: Any, rng: np.random.Generator) -> list[tuple[np.ndarray, np.ndarray]]:
    """States along random episodes, rounded to what both can begin from."""
    states = []
    peer.reset(seed=1)
    for step in range(8 * NUM_STATES):
        action = rng.uniform(peer.action_space.low, peer.action_space.high).astype(np.float32)
        _, _, terminated, *_ = peer.step(action)
        if step % 8 == 7:
            qpos, qvel = (one.astype(np.float32) for one in (peer.data.qpos, peer.data.qvel))
            states.append((qpos, qvel))
        if terminated:
            peer.reset()
    return states


def errors(env_id: str, **options: Any) -> tuple[np.ndarray, np.ndarray, int]:
    """Errors of each observation and reward, relative to 1 + size; how many ends differ."""
    rng = np.random.default_rng(0)
    peer: Any = gymnasium.make(env_id, **options).unwrapped
    peer.model.opt.solver = 2  # Newton's, which mujoco_warp takes in place of PGS
    states = visited(peer, rng)
    qpos, qvel = (np.stack(each) for each in zip(*states, strict=True))
    actions = rng.uniform(
        peer.action_space.low, peer.action_space.high, (NUM_STATES, *peer.action_space.shape)
    ).astype(np.float32)
    with rollouts.make_vec(env_id, NUM_STATES, device="cpu-emulation", **options) as env:
        env.reset()
        put_states(env, qpos, qvel)
        obs, reward, terminated, *_ = env.step(torch.from_numpy(actions))
        env.synchronize()
    of_obs, of_reward, ends = [], [], 0
    for row in range(NUM_STATES):
        peer.reset(seed=0)
        peer.set_state(qpos[row].astype(np.float64), qvel[row].astype(np.float64))
        expected, expected_reward, end, *_ = peer.step(actions[row])
        of_obs.append(np.max(np.abs(obs[row].numpy() - expected) / (1 + np.abs(expected))))
        of_reward.append(abs(float(reward[row]) - expected_reward) / (1 + abs(expected_reward)))
        ends += int(bool(terminated[row]) != end)
    return np.array(of_obs), np.array(of_reward), ends


# the others' kernels take half a minute to compile
FAST = ("Hopper-v5",)
SYSTEM = tuple(sorted(PHYSICS_IDS - {*FAST, "Ant-v5", "MuJoCo-v0"}))


@pytest.mark.parametrize(
    "env_id", [*FAST, *(pytest.param(one, marks=pytest.mark.system) for one in SYSTEM)]
)
def test_a_step_is_mujocos(env_id: str) -> None:
    of_obs, of_reward, ends = errors(env_id)
    # 32 bits have 1e-7; accelerations of hundreds in contacts and up to twenty solves in a step
    # make of it at most a thousand times as much (1.1e-4, HumanoidStandup's contact forces)
    assert of_obs.max() < 5e-4
    assert of_reward.max() < 1e-5
    assert ends == 0


@pytest.mark.system
def test_a_step_of_ant_is_mujocos_where_friction_has_no_directions(tmp_path: Path) -> None:
    # of a steep capsule on a plane mujoco_warp 4.0 lays the friction pyramid along the world's
    # axes, MuJoCo along the capsule; in a round cone that makes no difference
    text = (assets_dir() / "ant.xml").read_text()
    round_cone = tmp_path / "ant.xml"
    round_cone.write_text(text.replace("<option ", '<option cone="elliptic" '))
    of_obs, of_reward, ends = errors("Ant-v5", xml_file=str(round_cone))
    assert of_obs.max() < 5e-4
    assert of_reward.max() < 1e-5
    assert ends == 0
