# SPDX-License-Identifier: Apache-2.0
"""Our own Atari 2600 against ALE, through the whole environment: the same pool with each engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rollouts
from rollouts.errors import SpecError
from rollouts.families import native_games

pytestmark = pytest.mark.system

# cartridges of every kind, joysticks and paddles, NTSC and PAL
FEW = [
    *("Adventure", "Breakout", "Seaquest", "SpaceInvaders", "MontezumaRevenge", "Robotank"),
    *("Tutankham", "MsPacman", "Enduro", "Freeway", "BeamRider", "RoadRunner", "WizardOfWor"),
]
EQUAL = [
    env_id
    for env_id in rollouts.env_ids()
    if env_id.startswith("ALE/") and env_id not in native_games.DIFFERENT
]


def equal_batches(ours: tuple[Any, ...], theirs: tuple[Any, ...], where: str) -> None:
    """Compares what step returns, or reset, whose info comes last."""
    for a, b in zip(ours[:-1], theirs[:-1], strict=True):
        np.testing.assert_array_equal(a, b, err_msg=where)
    equal_infos(ours[-1], theirs[-1], where)


def equal_infos(ours: dict[str, Any], theirs: dict[str, Any], where: str) -> None:
    assert ours.keys() == theirs.keys()
    for name, column in ours.items():
        if isinstance(column, dict):
            equal_infos(column, theirs[name], f"{where} {name}")
        elif column.dtype == object:  # values of rows that ended; None elsewhere
            for a, b in zip(column, theirs[name], strict=True):
                np.testing.assert_array_equal(a, b, err_msg=f"{where} {name}")
        else:
            np.testing.assert_array_equal(column, theirs[name], err_msg=f"{where} {name}")


def draw(env: rollouts.VectorEnv, rng: np.random.Generator) -> Any:
    space: Any = env.single_action_space
    if hasattr(space, "n"):
        return rng.integers(space.n, size=env.num_envs)
    return rng.uniform(space.low, space.high, (env.num_envs, 3)).astype(np.float32)


def compare(env_id: str, steps: int, **options: Any) -> int:
    """Random actions in both; returns how many episodes ended."""
    options = {"seed": 5, "ram_info": True, **options}
    rng = np.random.default_rng(3)
    ended = 0
    with (
        rollouts.make_vec(env_id, 2, engine="native", **options) as ours,
        rollouts.make_vec(env_id, 2, engine="ale", **options) as theirs,
    ):
        equal_batches(ours.reset(), theirs.reset(), f"{env_id} reset")
        for step in range(steps):
            action = draw(ours, rng)
            batch = ours.step(action)
            equal_batches(batch, theirs.step(action), f"{env_id} step {step} {options}")
            over = batch[2] | batch[3]
            ended += int(over.sum())
            if over.any() and options.get("autoreset_mode") == "disabled":
                mask = {"reset_mask": over}
                equal_batches(ours.reset(options=mask), theirs.reset(options=mask), "masked reset")
        # the screen, in colour
        np.testing.assert_array_equal(ours.render(), theirs.render())
    return ended


@pytest.mark.parametrize("game", FEW)
def test_both_engines_give_the_same_data(game: str) -> None:
    compare(f"ALE/{game}-v5", 40, max_episode_steps=25)


@pytest.mark.slow
@pytest.mark.parametrize("env_id", EQUAL)
def test_both_engines_give_the_same_data_for_thousands_of_steps(env_id: str) -> None:
    compare(env_id, 1250)


OPTIONS: list[dict[str, Any]] = [
    {"autoreset_mode": "same_step", "episodic_life": True},
    {"autoreset_mode": "disabled", "frameskip": 7, "maxpool": False, "obs_type": "ram"},
    {"autoreset_mode": "next_step", "episodic_life": "restart", "repeat_action_probability": 0.5},
    {"life_loss_info": True, "noop_max": 200, "full_action_space": True},
    {"continuous": True, "repeat_action_probability": 0.0},
    {"difficulty": 1, "grayscale": False, "img_height": 210, "img_width": 160, "stack_num": 1},
]


@pytest.mark.parametrize("options", OPTIONS, ids=[str(options) for options in OPTIONS])
def test_options_mean_the_same_in_both_engines(options: dict[str, Any]) -> None:
    assert compare("ALE/Breakout-v5", 250, **options) >= 2


# the others differ in the game's own code alone
@pytest.mark.parametrize(
    "mode",
    [pytest.param(mode, marks=() if mode == 12 else pytest.mark.slow) for mode in (4, 12, 36)],
)
def test_modes_are_the_same_in_both_engines(mode: int) -> None:
    compare("ALE/Breakout-v5", 120, mode=mode, difficulty=mode % 2)


# without no-ops: Tic-Tac-Toe's FIRE keeps lines of older frames. ALE's Demon Attack is over when it
# starts
@pytest.mark.parametrize(
    ("game", "mode", "difficulty", "noop_max"),
    [
        *(("Adventure", 1, 3, 30), ("Adventure", 2, 0, 30), ("TicTacToe3D", 5, 2, 30)),
        *(("TicTacToe3D", 0, 2, 0), ("DemonAttack", 3, 0, 30)),
    ],
)
def test_modes_chosen_by_memory_are_the_same_in_both_engines(
    game: str, mode: int, difficulty: int, noop_max: int
) -> None:
    options = {"mode": mode, "difficulty": difficulty, "noop_max": noop_max}
    ended = compare(f"ALE/{game}-v5", 40, repeat_action_probability=0.25, **options)
    assert (ended > 0) == (game == "DemonAttack")


@pytest.mark.parametrize("game", ["Breakout", "Seaquest", "MontezumaRevenge"])
def test_a_state_goes_on_as_if_it_had_never_been_saved(game: str) -> None:
    env_id = f"ALE/{game}-v5"
    rng = np.random.default_rng(1)
    with (
        rollouts.make_vec(env_id, 2, seed=5, engine="native", ram_info=True) as env,
        rollouts.make_vec(env_id, 2, seed=99, engine="native", ram_info=True) as other,
    ):
        env.reset()
        for _ in range(70):
            env.step(draw(env, rng))
        states = env.get_state()
        actions = [draw(env, rng) for _ in range(80)]
        # batches are views of memory that is used again
        first = [[np.array(part) for part in env.step(action)[:4]] for action in actions]
        for pool in (env, other):
            pool.set_state(None, states)
            for action, want in zip(actions, first, strict=True):
                for a, b in zip(pool.step(action)[:4], want, strict=True):
                    np.testing.assert_array_equal(a, b)


def test_engines_may_differ_from_row_to_row() -> None:
    with (
        rollouts.make_vec("ALE/Breakout-v5", 2, seed=5, engine=["native", "ale"]) as env,
        rollouts.make_vec("ALE/Breakout-v5", 2, seed=5, engine="ale") as theirs,
    ):
        equal_batches(env.reset(), theirs.reset(), "reset")
        for _ in range(100):
            equal_batches(env.step(np.ones(2, int)), theirs.step(np.ones(2, int)), "step")


def test_a_state_of_the_other_engine_is_refused() -> None:
    with (
        rollouts.make_vec("ALE/Breakout-v5", 1, engine="native") as ours,
        rollouts.make_vec("ALE/Breakout-v5", 1, engine="ale") as theirs,
    ):
        ours.reset()
        theirs.reset()
        with pytest.raises(SpecError, match="options"):
            theirs.set_state(None, ours.get_state())


def test_an_unknown_engine_is_named() -> None:
    with pytest.raises(SpecError, match="'engine' must be 'auto' or 'native' or 'ale', got 'own'"):
        rollouts.make_vec("ALE/Breakout-v5", 1, engine="own")
