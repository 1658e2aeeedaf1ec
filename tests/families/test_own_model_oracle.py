# SPDX-License-Identifier: Apache-2.0
"""A robot of one's own against a plain Python loop, and Gymnasium's tasks rebuilt."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
import pytest
from own_robot_world import PlainRobot, draw_actions, make

import rollouts
from rollouts.own_model import ModelStep, observation_slices


def check_rows(obs: Any, info: dict[str, Any], robots: list[PlainRobot]) -> None:
    for row, robot in enumerate(robots):
        np.testing.assert_array_equal(obs[row], robot.obs())
        for name, want in robot.infos().items():
            np.testing.assert_array_equal(info[name][row], want, err_msg=name)


def test_every_step_equals_a_plain_loop_through_many_episodes() -> None:
    generator = np.random.default_rng(0)
    robots = [PlainRobot() for _ in range(3)]
    num_terminated = num_truncated = 0
    with make(3, num_threads=2) as env:
        obs, info = env.reset()
        begins, over = np.ones(3, np.bool_), np.zeros(3, np.bool_)
        for _ in range(500):
            for row in np.flatnonzero(begins):
                robots[row].begin(env.get_state([row])[0])
            check_rows(obs, info, robots)
            actions = draw_actions(generator, 3)
            obs, reward, terminated, truncated, info = env.step(actions)
            begins = over
            for row in np.flatnonzero(~begins):
                want, *ends = robots[row].step(actions[row])
                np.testing.assert_allclose(reward[row], want, rtol=1e-12, atol=1e-12)
                assert [terminated[row], truncated[row]] == ends
                np.testing.assert_allclose(info["episode_return"][row], robots[row].total)
                assert info["episode_length"][row] == robots[row].steps
            # next-step autoreset: a step that begins an episode is no step
            assert not reward[begins].any() and not info["episode_length"][begins].any()
            over = terminated | truncated
            num_terminated += int(terminated.sum())
            num_truncated += int(truncated.sum())
    assert num_terminated > 5 and num_truncated > 5


def test_own_model_fields_step_as_a_changed_model() -> None:
    generator = np.random.default_rng(0)
    robots = [PlainRobot() for _ in range(3)]
    with make(3, num_threads=2) as env:
        env.reset()
        mass = env.model_field("body_mass") * generator.uniform(0.5, 2, (3, 1))
        gravity = generator.uniform(-12, -2, (3, 3))
        obs, info = env.reset(options={"model": {"body_mass": mass, "opt.gravity": gravity}})
        for robot, masses, vector in zip(robots, mass, gravity, strict=True):
            robot.model.body_mass[:], robot.model.opt.gravity[:] = masses, vector
            mujoco.mj_setConst(robot.model, robot.data)
        begins, over = np.ones(3, np.bool_), np.zeros(3, np.bool_)
        for _ in range(150):
            for row in np.flatnonzero(begins):
                robots[row].begin(env.get_state([row])[0])
            check_rows(obs, info, robots)
            actions = draw_actions(generator, 3)
            obs, _, terminated, truncated, info = env.step(actions)
            begins, over = over, terminated | truncated
            for row in np.flatnonzero(~begins):
                robots[row].step(actions[row])


def test_a_keyframe_is_where_episodes_begin() -> None:
    with make(
        2, keyframe="raised", reset_noise_scale=0.0, observation=["qpos", "qvel", "act"]
    ) as env:
        obs, _ = env.reset()
        want = [2.5, 0.4, 0.5, 0, 0.3, 1, 0, 0, 0, 0.1, -0.2, 0, 0, 0, 0, 0, 0, 0.25]
        np.testing.assert_array_equal(obs, [want, want])
        assert observation_slices(env) == {
            "qpos": slice(0, 9),
            "qvel": slice(9, 17),
            "act": slice(17, 18),
        }


def test_a_keyframes_own_fields_are_where_episodes_begin() -> None:
    rows = np.arange(2)[:, None, None]
    options: dict[str, Any] = {
        "keyframe": "raised",
        "reset_noise_scale": 0.0,
        "observation": ["qpos", "qvel", "act", "ctrl"],
    }
    with make(2, **options) as env:
        plain = env.reset()[0].copy()
        fields = {
            name: env.model_field(name, of_file=True) + 0.01 * (1 + rows)
            for name in ("key_qpos", "key_qvel", "key_act", "key_ctrl")
        }
        obs, _ = env.reset(options={"model": fields})
        want = np.concatenate([values[:, 0] for values in fields.values()], axis=1)
        np.testing.assert_array_equal(obs, want)
        obs, _ = env.reset(options={"model": dict.fromkeys(fields)})
        np.testing.assert_array_equal(obs, plain)


# -- Gymnasium's tasks, rebuilt -----------------------------------------------------------


def ant_reward(step: ModelStep) -> Any:
    torso, before = step["xpos:torso"], step.previous["xpos:torso"]
    speed = (torso[:, 0] - before[:, 0]) / step.dt
    forces = np.clip(step["cfrc_ext"], -1, 1).reshape(len(speed), -1)
    # a Python float times a float32 is a float32
    control = np.float32(0.5) * np.square(step.actions).sum(axis=1)
    cost = control + 5e-4 * np.square(forces).sum(axis=1)
    return (speed + ~ant_terminated(step)) - cost


def ant_terminated(step: ModelStep) -> Any:
    finite = np.isfinite(step["qpos"]).all(axis=1) & np.isfinite(step["qvel"]).all(axis=1)
    z = step["qpos"][:, 2]
    return ~(finite & (z >= 0.2) & (z <= 1.0))


def hopper_reward(step: ModelStep) -> Any:
    speed = (step["qpos"][:, 0] - step.previous["qpos"][:, 0]) / step.dt
    control = np.float32(1e-3) * np.square(step.actions).sum(axis=1)
    return speed + ~hopper_terminated(step) - control


def hopper_terminated(step: ModelStep) -> Any:
    qpos, qvel = step["qpos"], step["qvel"]
    inside = (np.abs(qpos[:, 2:]) < 100).all(axis=1) & (np.abs(qvel) < 100).all(axis=1)
    return ~(inside & (qpos[:, 1] > 0.7) & (np.abs(qpos[:, 2]) < 0.2))


REBUILT: dict[str, dict[str, Any]] = {
    "Ant-v5": {
        "xml_file": "ant.xml",
        "frame_skip": 5,
        "observation": ["qpos", "qvel", "cfrc_ext"],
        "info": ["xpos:torso"],
        "reward": ant_reward,
        "terminated": ant_terminated,
        "reset_noise_scale": 0.1,
        "qvel_noise": "normal",
    },
    "Hopper-v5": {
        "xml_file": "hopper.xml",
        "frame_skip": 4,
        "reward": hopper_reward,
        "terminated": hopper_terminated,
        "reset_noise_scale": 5e-3,
    },
}


# the part of qpos that Gymnasium observes
POSITIONS = {"Ant-v5": (2, 15), "Hopper-v5": (1, 6)}


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
@pytest.mark.parametrize("env_id", REBUILT)
def test_a_task_of_gymnasium_rebuilt_is_the_native_one(env_id: str, mode: str) -> None:
    """Equal seeds draw equal starts, so that only rewards and ends of ours can differ."""
    generator = np.random.default_rng(1)
    common: dict[str, Any] = {"seed": 7, "autoreset_mode": mode, "max_episode_steps": 40}
    seen = 0
    with (
        rollouts.make_vec(env_id, 8, **common) as native,
        rollouts.make_vec("MuJoCo-v0", 8, **common, **REBUILT[env_id]) as ours,
    ):
        native.reset()
        ours.reset()
        for _ in range(150):
            shape = ours.single_action_space.shape
            actions = generator.uniform(-1, 1, (8, *shape)).astype(np.float32)
            want = native.step(actions)
            found = ours.step(actions)
            np.testing.assert_allclose(found[1], want[1], rtol=1e-11, atol=1e-12)
            np.testing.assert_array_equal(found[2], want[2])
            np.testing.assert_array_equal(found[3], want[3])
            for name in ("episode_return", "episode_length"):
                np.testing.assert_allclose(found[4][name], want[4][name], rtol=1e-11, atol=1e-12)
            first, last = POSITIONS[env_id]
            np.testing.assert_array_equal(found[0][:, first:last], want[0][:, : last - first])
            seen += int((found[2] | found[3]).sum())
    assert seen > 20
