# SPDX-License-Identifier: Apache-2.0
"""Steps of mujoco_warp beside Gymnasium's, which are MuJoCo's 64 bits, from the same states."""

from __future__ import annotations

from typing import Any

import gymnasium
import mujoco
import numpy as np
import pytest
import torch

import rollouts

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


def errors(
    env_id: str, model: dict[str, np.ndarray] | None = None, **options: Any
) -> tuple[np.ndarray, np.ndarray, int]:
    """Errors of each observation and reward, relative to 1 + size; how many ends differ.

    Args:
      model: Fields of each state's model, (NUM_STATES, *shape).
    """
    changes = {} if model is None else {"model": model}
    rng = np.random.default_rng(0)
    peer: Any = gymnasium.make(env_id, **options).unwrapped
    peer.model.opt.solver = 2  # Newton's, which mujoco_warp takes in place of PGS
    states = visited(peer, rng)
    qpos, qvel = (np.stack(each) for each in zip(*states, strict=True))
    actions = rng.uniform(
        peer.action_space.low, peer.action_space.high, (NUM_STATES, *peer.action_space.shape)
    ).astype(np.float32)
    with rollouts.make_vec(env_id, NUM_STATES, device="cpu-emulation", **options, **changes) as env:
        env.reset()
        put_states(env, qpos, qvel)
        obs, reward, terminated, *_ = env.step(torch.from_numpy(actions))
        env.synchronize()
    of_obs, of_reward, ends = [], [], 0
    for row in range(NUM_STATES):
        for name, values in changes.get("model", {}).items():
            owner, key = (peer.model.opt, name[4:]) if "." in name else (peer.model, name)
            getattr(owner, key)[...] = values[row]
        mujoco.mj_setConst(peer.model, peer.data)
        peer.reset(seed=0)
        peer.set_state(qpos[row].astype(np.float64), qvel[row].astype(np.float64))
        expected, expected_reward, end, *_ = peer.step(actions[row])
        of_obs.append(np.max(np.abs(obs[row].numpy() - expected) / (1 + np.abs(expected))))
        of_reward.append(abs(float(reward[row]) - expected_reward) / (1 + abs(expected_reward)))
        ends += int(bool(terminated[row]) != end)
    return np.array(of_obs), np.array(of_reward), ends
