# SPDX-License-Identifier: Apache-2.0
"""Gymnasium's MuJoCo environments, begun where ours begin and stepped beside them."""

from __future__ import annotations

import unittest.mock
import warnings
from typing import Any

import gymnasium
import mujoco
import numpy as np

import rollouts
from rollouts.mujoco import integration_state

SPEC = mujoco.mjtState.mjSTATE_INTEGRATION

TASKS = [
    "Ant-v5",
    "HalfCheetah-v5",
    "Hopper-v5",
    "Walker2d-v5",
    "Humanoid-v5",
    "HumanoidStandup-v5",
    "InvertedPendulum-v5",
    "InvertedDoublePendulum-v5",
    "Reacher-v5",
    "Pusher-v5",
    "Swimmer-v5",
]
V4_TASKS = [env_id.replace("-v5", "-v4") for env_id in TASKS]


def make_gymnasium(env_id: str, **options: Any) -> gymnasium.Env[Any, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if env_id != "Pusher-v4":
            return gymnasium.make(env_id, disable_env_checker=True, **options)
        # its constructor refuses MuJoCo 3 and later by their name, as the physics is another than
        # in 2; what is compared here is the task on the MuJoCo that is installed
        with unittest.mock.patch.object(mujoco, "__version__", "2.3.7"):
            return gymnasium.make(env_id, disable_env_checker=True, **options)


def physics_state(env: rollouts.VectorEnv, index: int = 0) -> np.ndarray:
    """MuJoCo's integration state inside a saved state of ours."""
    return integration_state(env.get_state([env.env_id_offset + index])[0])


def begin_equal(theirs: gymnasium.Env[Any, Any], state: np.ndarray) -> np.ndarray:
    """Resets Gymnasium's environment to the start that ours drew; returns its observation."""
    theirs.reset(seed=0)
    env = theirs.unwrapped
    mujoco.mj_resetData(env.model, env.data)
    # time comes first
    qpos, qvel = state[1 : 1 + env.model.nq], state[1 + env.model.nq :][: env.model.nv]
    env.set_state(qpos, qvel)
    mine = np.empty(len(state))
    mujoco.mj_getState(env.model, env.data, mine, SPEC)
    np.testing.assert_array_equal(mine, state)
    return env._get_obs()


def own_infos(info: dict[str, Any]) -> dict[str, Any]:
    """The environment's own infos, without what the pool adds."""
    pool = {"env_id", "episode_return", "episode_length"}
    return {name: values[0] for name, values in info.items() if name not in pool}


def compare(
    env_id: str, *, episodes: int, least_steps: int = 0, seed: int = 0, **options: Any
) -> int:
    """Steps both with the same random actions to the end of each episode; returns the steps.

    Observations, ends and whole simulations are equal to the bit; rewards and infos to 1e-12
    of their size, as sums of three squares may be rounded differently. The engine is MuJoCo, to
    the bit: test_mujoco_lanes.py compares single steps of lanes.
    """
    theirs = make_gymnasium(env_id, **options)
    options["engine"] = "mujoco"
    generator = np.random.default_rng(seed)
    steps = episode = 0
    with rollouts.make_vec(env_id, 1, seed=seed, num_threads=1, **options) as ours:
        assert ours.single_observation_space == theirs.observation_space
        assert ours.single_action_space == theirs.action_space
        low, high = ours.single_action_space.low, ours.single_action_space.high
        obs, info = ours.reset()
        while episode < episodes or steps < least_steps:
            np.testing.assert_array_equal(obs[0], begin_equal(theirs, physics_state(ours)))
            check_reset_info(theirs, own_infos(info))
            over = False
            while not over:
                action = generator.uniform(low, high).astype(np.float32)
                obs, reward, terminated, truncated, info = ours.step(action[None])
                want, want_reward, *ends, want_info = theirs.step(action)
                where = f"{env_id} episode {episode}, {steps} steps"
                np.testing.assert_array_equal(obs[0], want, err_msg=where)
                np.testing.assert_allclose(reward[0], want_reward, rtol=1e-12, atol=1e-12)
                assert [terminated[0], truncated[0]] == ends, where
                check_infos(own_infos(info), want_info)
                steps += 1
                over = bool(terminated[0] or truncated[0])
            compare_simulations(ours, theirs)
            episode += 1
            obs, _, _, _, info = ours.step(action[None])
    theirs.close()
    return steps


def check_infos(found: dict[str, Any], want: dict[str, Any]) -> None:
    assert list(found) == list(want)
    for name, value in want.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-12, atol=1e-12, err_msg=name)


def check_reset_info(theirs: gymnasium.Env[Any, Any], found: dict[str, Any]) -> None:
    """Gymnasium's reset reports some of the keys; ours has zeros for the others."""
    want = theirs.unwrapped._get_reset_info()
    check_infos({name: found[name] for name in want}, want)
    assert not any(np.any(value) for name, value in found.items() if name not in want)


def compare_simulations(ours: rollouts.VectorEnv, theirs: gymnasium.Env[Any, Any]) -> None:
    state = physics_state(ours)
    want = np.empty(len(state))
    mujoco.mj_getState(theirs.unwrapped.model, theirs.unwrapped.data, want, SPEC)
    np.testing.assert_array_equal(state, want)
