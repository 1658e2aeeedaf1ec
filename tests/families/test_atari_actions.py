# SPDX-License-Identifier: Apache-2.0
"""Atari's two kinds of actions: their spaces, and what a pool does not take."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

import rollouts
from rollouts.errors import DTypeError, SpecError

GAME = "ALE/Breakout-v5"
SPACE = gymnasium.spaces.Box(
    np.array([0, -np.pi, 0], np.float32), np.array([1, np.pi, 1], np.float32), dtype=np.float32
)


def axes(*rows: tuple[float, float, float]) -> np.ndarray:
    return np.array(rows, np.float32)


def test_continuous_decides_the_action_space_and_full_action_space_does_not() -> None:
    for full in (False, True):
        spec = rollouts.env_spec(GAME, continuous=True, full_action_space=full)
        assert spec.single_action_space == SPACE
    assert rollouts.env_spec(GAME).single_action_space == gymnasium.spaces.Discrete(4)
    assert rollouts.env_spec(GAME).options["continuous"] is False
    assert rollouts.env_spec(GAME).options["continuous_action_threshold"] == 0.5


@pytest.mark.parametrize("name", ["make", "make_vec"])
def test_gymnasium_ids_take_it(name: str) -> None:
    env = getattr(gymnasium, name)("rollouts/ALE-Breakout-v5", continuous=True)
    assert getattr(env, "single_action_space", env.action_space) == SPACE
    env.reset(seed=1)
    env.action_space.seed(1)
    for _ in range(3):
        env.step(env.action_space.sample())
    env.close()


@pytest.mark.parametrize(
    ("action", "error", "message"),
    [
        (axes((0, 0, 0), (0, np.nan, 0)), SpecError, "row 1, element 1 is nan, expected a finite"),
        (axes((np.inf, 0, 0), (0, 0, 0)), SpecError, "row 0, element 0 is inf"),
        (np.zeros(2, np.int64), SpecError, r"shape \(2,\), expected \(2, 3\)"),
        (axes((0, 0, 0)), SpecError, r"shape \(1, 3\), expected \(2, 3\)"),
        (np.zeros((2, 4), np.float32), SpecError, r"shape \(2, 4\), expected \(2, 3\)"),
        (np.zeros((2, 3), np.bool_), DTypeError, "expected float32"),
        (np.full((2, 3), "left"), DTypeError, "expected float32"),
    ],
)
def test_what_is_no_continuous_action_is_an_error(action: Any, error: Any, message: str) -> None:
    with (
        rollouts.make_vec(GAME, 2, seed=1, continuous=True) as env,
        rollouts.make_vec(GAME, 2, seed=1, continuous=True) as other,
    ):
        env.reset()
        other.reset()
        with pytest.raises(error, match=message):
            env.step(action)
        # nothing was sent
        good = axes((1, 0, 1), (0.7, 3, 0))
        np.testing.assert_array_equal(env.step(good)[0], other.step(good)[0])


def test_a_discrete_pool_takes_no_floats() -> None:
    with rollouts.make_vec(GAME, 2) as env:
        env.reset()
        for action in (axes((0, 0, 0), (0, 0, 0)), np.zeros(2, np.float32)):
            with pytest.raises(DTypeError, match="dtype float32, expected an integer dtype"):
                env.step(action)
        with pytest.raises(SpecError, match=r"shape \(2, 3\), expected \(2,\)"):
            env.step(np.zeros((2, 3), np.int64))


def test_whole_numbers_and_doubles_are_read_as_float32() -> None:
    options: dict[str, Any] = {"seed": 1, "continuous": True}
    given = [np.array([[1, 0, 1], [1, 3, 0]]), np.full((2, 3), 0.7), [[1, 3, 0], [1, 0, 1]]]
    with (
        rollouts.make_vec(GAME, 2, **options) as env,
        rollouts.make_vec(GAME, 2, **options) as other,
    ):
        env.reset()
        other.reset()
        for action in given:
            want = other.step(np.asarray(action, np.float32))[0]
            np.testing.assert_array_equal(env.step(action)[0], want)


def test_thresholds_may_differ_by_environment_and_change_at_a_reset() -> None:
    shared: dict[str, Any] = {"repeat_action_probability": 0.0, "noop_max": 0, "ram_info": True}
    left = axes((0.5, np.pi, 0), (0.5, np.pi, 0))
    with rollouts.make_vec(
        GAME, 2, continuous=True, continuous_action_threshold=[0.4, 0.6], **shared
    ) as env:

        def moves() -> list[bool]:
            before = env.step(axes((0, 0, 0), (0, 0, 0)))[4]["ram"].copy()
            after = env.step(left)[4]["ram"]
            # the paddle's place
            return [bool(a != b) for a, b in zip(before[:, 72], after[:, 72], strict=True)]

        env.reset()
        assert moves() == [True, False]
        env.reset(options={"continuous_action_threshold": [0.6, 0.4]})
        assert moves() == [False, True]
        with pytest.raises(SpecError, match="would change the action space"):
            env.reset(options={"continuous": False})
    with pytest.raises(SpecError, match="differ in the action space"):
        rollouts.make_vec(GAME, 2, continuous=[False, True])


def test_continuous_games_share_a_pool() -> None:
    games = ["ALE/Pong-v5", GAME]
    with rollouts.make_vec(games, continuous=True) as env:
        assert env.single_action_space == SPACE
        env.reset()
        env.step(axes((1, 0, 0), (1, 1, 1)))
