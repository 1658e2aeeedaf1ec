# SPDX-License-Identifier: Apache-2.0
"""Continuous actions (radius, theta, fire) against ale-py and against a slow oracle."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from ale_py.env import AtariEnv
from ale_py.vector_env import AtariVectorEnv
from atari_oracle import SlowAtari, load_emulator
from own_numbers import Rng

import rollouts

pytestmark = pytest.mark.system

CONTINUOUS: dict[str, Any] = {"continuous": True}
NO_CHANCE: dict[str, Any] = {"noop_max": 0, "repeat_action_probability": 0.0}
GAMES = {
    "breakout": "ALE/Breakout-v5",  # a paddle, which turns by the radius
    "pong": "ALE/Pong-v5",
    "space_invaders": "ALE/SpaceInvaders-v5",
    "seaquest": "ALE/Seaquest-v5",  # all 18 actions matter
}
# ours, and ale-py's name of it; ale-py has no third, but a reset does the same there
MODES = {"next_step": "NextStep", "same_step": "SameStep", "disabled": "NextStep"}
FIVE = ("obs", "reward", "terminated", "truncated")  # and the info, of which:
INFOS = ("lives", "frame_number", "episode_frame_number")


def draw_actions(rng: np.random.Generator, rows: int) -> np.ndarray:
    """Out of the action space, on the thresholds and around them, and beyond the space's bounds."""
    inside = rng.uniform([0, -np.pi, 0], [1, np.pi, 1], (rows, 3))
    grid = rng.integers([0, -12, 0], [11, 13, 11], (rows, 3)) * [0.1, np.pi / 12, 0.1]
    beyond = rng.uniform([-2, -50, -2], [2, 50, 2], (rows, 3))
    kind = rng.choice(3, size=(rows, 1), p=[0.6, 0.3, 0.1])
    return np.select([kind == 0, kind == 1], [inside, grid], beyond).astype(np.float32)


@pytest.mark.parametrize(
    ("rom", "mode", "options", "least"),
    [
        ("breakout", "next_step", {}, 4),
        (
            "breakout",
            "same_step",
            {"continuous_action_threshold": 0.2, "full_action_space": True},
            4,
        ),
        ("breakout", "disabled", {"continuous_action_threshold": 0.8, "frameskip": 2}, 2),
        # other games take other buttons, which the tests below press; their episodes are long
        pytest.param("pong", "next_step", {}, 1, marks=pytest.mark.slow),
        pytest.param(
            "space_invaders",
            "same_step",
            {"continuous_action_threshold": 0.3},
            2,
            marks=pytest.mark.slow,
        ),
    ],
)
def test_whole_episodes_equal_ale_py(
    rom: str, mode: str, options: dict[str, Any], least: int
) -> None:
    options = {**CONTINUOUS, **NO_CHANCE, **options}
    reference = AtariVectorEnv(rom, 2, autoreset_mode=MODES[mode], **options)
    rng = np.random.default_rng(7)
    ends = 0
    with rollouts.make_vec(GAMES[rom], 2, autoreset_mode=mode, **options) as env:
        assert env.single_action_space == reference.single_action_space
        assert env.action_space == reference.action_space
        np.testing.assert_array_equal(env.reset(seed=3)[0], reference.reset(seed=3)[0])
        while ends < least:
            action = draw_actions(rng, 2)
            ours, theirs = env.step(action), reference.step(action)
            for name, a, b in zip(FIVE, ours, theirs, strict=False):
                np.testing.assert_array_equal(a, b, err_msg=f"{name} after {ends} ends")
            for name in INFOS:
                np.testing.assert_array_equal(ours[4][name], theirs[4][name], err_msg=name)
            over = ours[2] | ours[3]
            ends += int(over.sum())
            if mode == "same_step" and over.any():
                final = np.asarray(theirs[4]["final_obs"])[over]
                np.testing.assert_array_equal(np.stack(ours[4]["final_obs"][over]), final)
            if mode == "disabled" and over.any():
                mask = {"reset_mask": over}
                np.testing.assert_array_equal(
                    env.reset(options=mask)[0], reference.reset(options=mask)[0]
                )


@pytest.mark.parametrize(
    ("rom", "options"),
    [
        ("breakout", {}),
        ("breakout", {"repeat_action_probability": 0.6, "noop_max": 50}),
        ("breakout", {"episodic_life": True, "continuous_action_threshold": 0.25}),
        ("pong", {"frameskip": 3}),
        ("space_invaders", {"continuous_action_threshold": 0.7, "noop_max": 5}),
    ],
)
def test_chance_equals_a_slow_replay_of_the_same_draws(rom: str, options: dict[str, Any]) -> None:
    """A sticky action keeps its strength too, as in ALE."""
    seed, env_id = 2**40 + 5, 3
    options = {**CONTINUOUS, **options}
    slow = SlowAtari(rom, **options)
    actions = np.random.default_rng(11)
    height = load_emulator(rom).getScreenGrayscale().shape[0]
    size = {"img_height": height, "img_width": 160, "max_episode_steps": 60}
    with rollouts.make_vec(
        GAMES[rom], 1, seed=seed, env_id_offset=env_id, **options, **size
    ) as env:
        obs = env.reset()[0]
        for episode in range(2):
            rng = Rng(seed, env_id, episode)
            np.testing.assert_array_equal(obs[0], slow.reset(rng), err_msg=f"reset {episode}")
            over = False
            while not over:
                action = draw_actions(actions, 1)
                obs, reward, terminated, truncated, info = env.step(action)
                want, want_reward, want_terminated, want_info = slow.step(action[0], rng)
                np.testing.assert_array_equal(obs[0], want)
                assert reward[0] == want_reward and terminated[0] == want_terminated
                assert {key: info[key][0] for key in want_info} == want_info
                over = bool(terminated[0] or truncated[0])
            obs = env.step(action)[0]


def test_every_direction_presses_its_button() -> None:
    directions = list(itertools.product((-1, 0, 1), (-1, 0, 1), (0, 1)))
    rng = np.random.default_rng(0)
    shared: dict[str, Any] = {"seed": 1, "ram_info": True}
    with (
        rollouts.make_vec(GAMES["seaquest"], 1, **CONTINUOUS, **shared) as env,
        rollouts.make_vec(GAMES["seaquest"], 1, full_action_space=True, **shared) as buttons,
    ):
        np.testing.assert_array_equal(env.reset()[0], buttons.reset()[0])
        for _ in range(600):
            x, y, fire = directions[rng.integers(18)]
            axes = np.array([[0.9 * bool(x or y), np.arctan2(y, x), fire]], np.float32)
            ours = env.step(axes)
            theirs = buttons.step(np.array([AtariEnv.map_action_idx(x, y, bool(fire)).value]))
            for a, b in zip(ours[:4], theirs[:4], strict=True):
                np.testing.assert_array_equal(a, b)
            np.testing.assert_array_equal(ours[4]["ram"], theirs[4]["ram"])


@pytest.mark.parametrize("radius", [33.3, 1e4, 1e9, 3e38, -3e38])
def test_a_paddle_turned_beyond_its_end_stays_there(radius: float) -> None:
    """ALE's own arithmetic overflows from 9e4 on; ours means what 33.3 means there."""
    options: dict[str, Any] = {**NO_CHANCE, **CONTINUOUS, "ram_info": True}
    slow = SlowAtari("breakout", **NO_CHANCE, **CONTINUOUS)
    unused, rng = Rng(0, 0, 0), np.random.default_rng(0)
    with rollouts.make_vec(GAMES["breakout"], 1, **options) as env:
        env.reset()
        slow.reset(unused)
        for _ in range(40):
            theta, fire = np.pi * rng.integers(2), rng.integers(2)
            ram = env.step(np.array([[radius, theta, fire]], np.float32))[4]["ram"]
            sane = np.array([np.copysign(33.3, radius), theta, fire], np.float32)
            slow.step(sane, unused)
            np.testing.assert_array_equal(ram[0], slow.ale.getRAM())
