# SPDX-License-Identifier: Apache-2.0
"""Steps of mujoco_warp beside Gymnasium's, which are MuJoCo's 64 bits, from the same states."""

from __future__ import annotations

from typing import Any

import gymnasium
import mujoco
import numpy as np
import pytest
import torch
from long_forms import slow_beside

import rollouts
from rollouts import _native
from rollouts.envs.physics.supported import SUITE_IDS

wp = pytest.importorskip("warp")

NUM_STATES = 24
# tolerance of 64-bit draws at a start, relative to 1 + size, where it is not rounded once: cheetah
# has gone 200 substeps in 32 bits; quadruped and dog show accelerations and forces; where quadruped
# fetches, its toes are on the ground at 52 centimetres to the last bit, which decides whether it
# begins there or at 53
START_ERRORS = {
    **{f"Dog{name}-v1": 1e-4 for name in ("Fetch", "Run", "Stand", "Trot", "Walk")},
    "CheetahRun-v1": 5e-5,
    "QuadrupedFetch-v1": 0.0101,
    "QuadrupedRun-v1": 1e-5,
    "QuadrupedWalk-v1": 1e-5,
}


# models of many bodies: half a minute to compile kernels for each
LARGE = ("Dog", "HumanoidCMU", "Quadruped")


def one_of_each_task() -> list[Any]:
    """Ids of the suite as parameters, of which one of each task's class is not slow.

    The others have its code, and a model of the same parts. `make test-all` goes through them, and
    through those of large models.
    """
    of_class: dict[str, list[str]] = {}
    for env_id in sorted(SUITE_IDS):
        facts = _native.task_facts(env_id, {}, 1, of_model=False)
        of_class.setdefault(facts["type"], []).append(env_id)
    chosen = {alike[0] for alike in of_class.values() if not alike[0].startswith(LARGE)}
    return slow_beside(chosen, sorted(SUITE_IDS))


def put_states(
    env: Any,
    qpos: np.ndarray,
    qvel: np.ndarray,
    act: np.ndarray | None = None,
    refresh: str = "forward",
) -> None:
    """Makes each world go on from a state as if an episode had begun there.

    Args:
      refresh: As of `Worlds.refresh`.
    """
    pool = env.engine.steps.pool
    worlds, arrays = pool._worlds, pool.arrays
    with wp.ScopedDevice("cpu"):
        wp.to_torch(worlds.data.qpos).copy_(torch.from_numpy(qpos))
        wp.to_torch(worlds.data.qvel).copy_(torch.from_numpy(qvel))
        if act is not None:
            wp.to_torch(worlds.data.act).copy_(torch.from_numpy(act))
        worlds.refresh(refresh)
        arrays.beginning_wp.fill_(True)
        pool._task.look(arrays.beginning_wp, is_start=True)


def are_exact(host: Any, qpos: np.ndarray) -> np.ndarray:
    """Marks states (N, nq) without contacts that mujoco_warp finds otherwise than MuJoCo.

    It finds those of capsules and boxes with ellipsoids in 32 bits to a millimetre, and fewer of
    two boxes.
    """
    kinds, exact = mujoco.mjtGeom, []
    data = mujoco.MjData(host)
    for row in qpos:
        data.qpos[:] = row
        mujoco.mj_fwdPosition(host, data)
        pairs = [{*host.geom_type[one.geom].tolist()} for one in data.contact]
        vague = [
            one == {kinds.mjGEOM_BOX}
            or (kinds.mjGEOM_ELLIPSOID in one and kinds.mjGEOM_PLANE not in one)
            for one in pairs
        ]
        exact.append(not any(vague))
    return np.array(exact)


def start_alike(env_id: str, *starts: np.ndarray) -> np.ndarray:
    """Rows of observations whose starts 64 bits and 32 draw alike, (N,).

    Objects that manipulator begins with in their receptacles touch them to the last bit, which
    decides whether a start is drawn again.
    """
    rows = np.ones(len(starts[0]), np.bool_)
    if env_id.startswith("ManipulatorInsert"):
        # object_pos, object_vel, target_pos
        for obs in starts:
            rows &= np.abs(obs[:, -11:-9] - obs[:, -4:-2]).max(axis=1) > 1e-5
    return rows


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
