# SPDX-License-Identifier: Apache-2.0
"""Arguments that MuJoCo-v0 refuses, and its sentences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from own_robot_world import XML, make

import rollouts
from rollouts.errors import DTypeError, SpecError

MANY = ["cinert", "xmat", "cvel", "geom_xmat", "ximat", "cacc", "cfrc_int"]
BAD_OPTIONS: list[tuple[dict[str, Any], str]] = [
    (
        {"observation": ["qpos", "xpos:lowr"]},
        r"'xpos:lowr'.* has no body 'lowr'\. Did you mean 'lower'\? "
        "It has: world, upper, lower, ball",
    ),
    (
        {"observation": ["gyroo"]},
        r"neither an array nor a sensor .* Did you mean 'gyro'\? "
        "Its sensors: gyro, contact, angle; arrays: time, qpos",
    ),
    (
        {"info": ["qpos:knee"]},
        "option 'info' names 'qpos:knee'.*has no joint 'knee'.*shoulder, elbow, ball",
    ),
    ({"info": ["act:push"]}, "has no act of the actuator 'push'"),
    ({"info": ["qpos[9:]"]}, "has 9 elements there, of which the brackets leave none"),
    ({"info": ["qpos[a:]"]}, "whole numbers in the brackets"),
    ({"info": ["qpos", "qpos"]}, "names 'qpos' twice"),
    ({"info": ["mocap_pos"]}, "has none of them"),
    ({"info": [*MANY, *(f"qvel[{i}:]" for i in range(8))]}, r"\d+ numbers, expected at most 254"),
    ({"observation": []}, "option 'observation' is empty"),
    (
        {"keyframe": "raisd"},
        "has 1 keyframes, counted from 0, with the names: raised. Did you mean 'raised'",
    ),
    ({"qvel_noise": "cauchy"}, "'qvel_noise' must be 'uniform' or 'normal'"),
    ({"xml_file": ""}, "MuJoCo-v0 needs a model: pass xml_file="),
    (
        {"reward_scale": 1},
        "no option 'reward_scale'; it takes: engine, frame_skip, from_pixels, grayscale, info",
    ),
]


@pytest.mark.parametrize(("options", "message"), BAD_OPTIONS, ids=[m for _, m in BAD_OPTIONS])
def test_bad_option_is_named_with_what_the_model_has(options: dict, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        make(2, **options)


def test_what_is_no_function_or_no_name_is_refused() -> None:
    with pytest.raises(DTypeError, match="reward is 3, expected a function"):
        make(2, reward=3)
    with pytest.raises(DTypeError, match=r"'observation' is \[1\], expected names"):
        make(2, observation=[1])
    with pytest.raises(SpecError, match="a name without commas"):
        make(2, observation=["qpos,qvel"])
    with pytest.raises(SpecError, match="cannot be in a mixed pool"):
        rollouts.make_vec(["MuJoCo-v0", "MuJoCo-v0"], xml_file=XML)
    with pytest.raises(SpecError, match=r"unknown id 'MuJoCo-v1'.*Did you mean MuJoCo-v0"):
        rollouts.make_vec("MuJoCo-v1")


@pytest.mark.parametrize(
    ("name", "function", "error", "message"),
    [
        ("reward", lambda s: s["qvel"], SpecError, r"shape \(2, 8\), expected \(2,\)"),
        ("reward", lambda s: 1.0, SpecError, r"reward returned shape \(\), expected \(2,\)"),
        ("reward", lambda s: s.dt * np.nan, SpecError, r"returned nan for env_id 0 \(row 0\)"),
        ("reward", lambda s: ["a", "b"], DTypeError, "reward returned <U1, expected numbers"),
        ("terminated", lambda s: s.dt, DTypeError, "terminated returned float64, expected bool"),
        ("terminated", lambda s: s["xpos:torso"], KeyError, "'xpos:torso' is not among the names"),
        ("terminated", lambda s: s["qposs"], KeyError, "Did you mean 'qpos'"),
    ],
)
def test_what_a_function_returns_is_checked(
    name: str, function: Any, error: type[Exception], message: str
) -> None:
    with make(2, observation=["qpos", "qvel"], **{name: function}) as env:
        env.reset()
        with pytest.raises(error, match=message):
            env.step(np.zeros((2, 2), np.float32))


def test_functions_cannot_write_into_the_batch() -> None:
    def spoil(step: Any) -> Any:
        step["qpos"][:] = 0

    with make(2, observation=["qpos"], reward=spoil) as env:
        env.reset()
        with pytest.raises(ValueError, match="read-only"):
            env.step(np.zeros((2, 2), np.float32))


def test_reset_options_keep_the_arrays() -> None:
    with make(2) as env:
        env.reset(options={"reset_noise_scale": 0.0, "frame_skip": 2})
        _, _, _, _, info = env.step(np.zeros((2, 2), np.float32))
        np.testing.assert_allclose(info["time"], [[0.01], [0.01]])
        with pytest.raises(SpecError, match=r"'info'.* would change the arrays"):
            env.reset(options={"info": ["qpos"]})
        with pytest.raises(SpecError, match="unknown reset options"):
            env.reset(options={"reward": lambda step: step.dt})


def test_a_spec_is_told_without_a_pool() -> None:
    spec = rollouts.env_spec("MuJoCo-v0", xml_file=XML, observation=["gyro", "xpos[1:3]"])
    assert spec.single_observation_space.shape == (9,)
    assert spec.single_action_space.high.tolist() == [1.0, 2.0]
    assert spec.max_episode_steps is None
    assert "MuJoCo-v0" not in rollouts.env_ids()
