# SPDX-License-Identifier: Apache-2.0
"""MuJoCo-v0 steps over ends of both kinds, whatever it shows and whatever follows an end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rollouts
from rollouts.errors import SpecError
from rollouts.own_model import ModelStep

pytestmark = pytest.mark.system

LIMIT = 4
SMALL = {"render_width": 12, "render_height": 8}
SHOWS: dict[str, dict[str, Any]] = {
    "numbers": {},
    "float32": {"obs_dtype": "float32"},
    "pixels": {"from_pixels": True, **SMALL},
    "gray": {"from_pixels": True, "grayscale": True, **SMALL},
    "dict with pixels": {"from_pixels": True, "flatten_observation": False, **SMALL},
}
MODES = ["next_step", "same_step", "disabled"]
PICTURES = ["pixels", "gray", "dict with pixels"]


def marks(mode: str, shows: str, functions: bool) -> Any:
    """Leaves to `make test-all` most that draw, for seconds each.

    With functions, each kind of picture is shown in one mode, and each mode shows one kind; without
    them, ends of one kind are none of what is shown.
    """
    if shows not in PICTURES:
        return ()
    is_shown = PICTURES.index(shows) == MODES.index(mode)
    return () if is_shown and (functions or mode == "same_step") else pytest.mark.slow


ENDS = [
    pytest.param(
        *(mode, shows, functions),
        id=f"{mode}-{shows}-{['bare', 'functions'][functions]}",
        marks=marks(mode, shows, functions),
    )
    for mode in MODES
    for shows in SHOWS
    for functions in (False, True)
]


def moved(step: ModelStep) -> Any:
    return step["xpos:torso"][:, 0] - step.previous["xpos:torso"][:, 0]


def at_second_step(step: ModelStep) -> Any:
    # true for some environments alone
    return (step.episode_length == 2) & (step.env_ids % 2 == 0)


def make(mode: str, shows: str, functions: bool, **options: Any) -> rollouts.VectorEnv:
    given: dict[str, Any] = {"info": ["xpos:torso", "time"], **SHOWS[shows], **options}
    if functions:
        given |= {"reward": moved, "terminated": at_second_step}
    return rollouts.make_vec(
        *("MuJoCo-v0", 3),
        **{"seed": 0, "num_threads": 1, "autoreset_mode": mode, "max_episode_steps": LIMIT},
        **{"xml_file": "hopper.xml", "frame_skip": 4, "reset_noise_scale": 0.01},
        **given,
    )


def parts(obs: Any) -> list[np.ndarray]:
    return [*obs.values()] if isinstance(obs, dict) else [obs]


@pytest.mark.parametrize(("mode", "shows", "functions"), ENDS)
def test_ends_are_stepped_over(mode: str, shows: str, functions: bool) -> None:
    generator = np.random.default_rng(0)
    ends = {"terminated": 0, "truncated": 0}
    with make(mode, shows, functions) as env:
        obs, info = env.reset()
        over = np.zeros(3, np.bool_)
        for _ in range(2 * LIMIT):
            if mode == "disabled" and over.any():
                obs, info = env.reset(options={"reset_mask": over})
            shown = [one.copy() for one in parts(obs)]
            actions = generator.uniform(-1, 1, env.action_space.shape).astype(np.float32)
            obs, _, terminated, truncated, info = env.step(actions)
            assert [one.shape for one in parts(obs)] == [one.shape for one in shown]
            over = terminated | truncated
            ends["terminated"] += terminated.sum()
            ends["truncated"] += truncated.sum()
            if mode == "same_step":
                check_end(env, over, obs, info)
    assert ends["truncated"] > 0
    assert (ends["terminated"] > 0) == functions


def check_end(env: rollouts.VectorEnv, over: np.ndarray, obs: Any, info: dict[str, Any]) -> None:
    """The row shows the next episode, in its observation and in its infos; final_ the last."""
    # how long the episode that is shown has lasted by MuJoCo's own clock
    lasted = info["time"].reshape(3)
    assert (lasted[over] == 0).all() and (lasted[~over] > 0).all()
    if not over.any():
        return
    np.testing.assert_array_equal(info["_final_obs"], over)
    assert (info["final_info"]["time"].reshape(3)[over] > 0).all()
    for row in np.flatnonzero(over):
        for last, first in zip(parts(info["final_obs"][row]), parts(obs), strict=True):
            assert last.shape == first[row].shape
        if not isinstance(obs, dict) and obs.dtype != np.uint8:
            assert not np.array_equal(info["final_obs"][row], obs[row])


# rewards and ends are computed before a mode goes on from them
@pytest.mark.parametrize(
    "mode", [pytest.param(m, marks=() if m == "same_step" else pytest.mark.slow) for m in MODES]
)
def test_pictures_get_the_rewards_and_ends_of_numbers(mode: str) -> None:
    generator = np.random.default_rng(0)
    told = []
    actions = generator.uniform(-1, 1, (8, 3, 3)).astype(np.float32)
    for shows in ("numbers", "pixels"):
        rows = []
        # pictures are of MuJoCo's own steps
        with make(mode, shows, functions=True, engine="mujoco") as env:
            env.reset()
            over = np.zeros(3, np.bool_)
            for each in actions:
                if mode == "disabled" and over.any():
                    env.reset(options={"reset_mask": over})
                _, reward, terminated, truncated, info = env.step(each)
                over = terminated | truncated
                rows.append([reward, terminated, truncated, info["time"], info["episode_return"]])
        told.append(rows)
    for one, other in zip(*told, strict=True):
        for numbers, pixels in zip(one, other, strict=True):
            np.testing.assert_array_equal(numbers, pixels)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"frame_stack": 4}, r"frame_stack.*Gymnasium's wrappers"),
        ({"flatten_observation": False}, r"flatten_observation=False .* MuJoCo-v0 have none"),
    ],
)
def test_what_there_is_not_is_refused_in_a_sentence(options: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        make("same_step", "numbers", functions=True, **options)
