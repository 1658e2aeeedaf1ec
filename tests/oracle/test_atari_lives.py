# SPDX-License-Identifier: Apache-2.0
"""A lost life in every autoreset mode, against ale-py and EnvPool."""

from __future__ import annotations

from typing import Any

import ale_py
import numpy as np
import pytest
from ale_py.vector_env import AtariVectorEnv
from atari_oracle import SlowAtari
from own_numbers import Rng

import rollouts
from rollouts import SpecError
from rollouts.families import atari

pytestmark = pytest.mark.system

NO_CHANCE: dict[str, Any] = {"noop_max": 0, "repeat_action_probability": 0.0}
LIVES: list[dict[str, Any]] = [
    {},
    {"life_loss_info": True},
    {"episodic_life": "restart"},
    {"episodic_life": "restart", "life_loss_info": True},
]
# ours, and ale-py's name of it; ale-py has no third, but a reset does the same there
MODES = {"next_step": "NextStep", "same_step": "SameStep", "disabled": "NextStep"}

INFOS = ("lives", "frame_number", "episode_frame_number")
# in same-step mode each way has code of its own; the others share theirs, and make test-all has all
TRIED_LIVES = [
    (options, mode)
    for options in LIVES
    for mode in MODES
    if mode == "same_step" or options in (LIVES[0], LIVES[3])
]


def game_ended(options: dict[str, Any], terminated: bool, lives: int) -> bool:
    return terminated and ("episodic_life" in options or lives == 0)


@pytest.mark.parametrize(
    ("options", "mode"),
    [
        pytest.param(
            options,
            mode,
            id=f"{options}-{mode}",
            marks=[pytest.mark.slow] * ((options, mode) not in TRIED_LIVES),
        )
        for options in LIVES
        for mode in MODES
    ],
)
def test_lost_lives_mean_what_they_mean_in_ale_py(options: dict[str, Any], mode: str) -> None:
    theirs = {name: bool(value) for name, value in options.items()}
    reference = AtariVectorEnv("breakout", 1, autoreset_mode=MODES[mode], **NO_CHANCE, **theirs)
    rng = np.random.default_rng(5)
    ends = games = length = 0
    with rollouts.make_vec(
        "ALE/Breakout-v5", 1, autoreset_mode=mode, **NO_CHANCE, **options
    ) as env:
        np.testing.assert_array_equal(env.reset()[0], reference.reset(seed=3)[0])
        over = False
        step = 0
        while games < 2:
            step += 1
            action = rng.integers(4, size=1)
            ours, expected = env.step(action), reference.step(action)
            for name, a, b in zip(("obs", "reward", "terminated"), ours, expected, strict=False):
                np.testing.assert_array_equal(a, b, err_msg=f"{name} at {step}")
            info = ours[4]
            length = 0 if over and mode == "next_step" else length + 1
            assert info["episode_length"][0] == length, step
            ended = bool(ours[2][0])
            last = info["final_info"] if ended and mode == "same_step" else info
            lives = int(last["lives"][0])
            over = game_ended(options, ended, lives)
            ends, games = ends + ended, games + over
            # in same-step mode those of the next episode where one has begun
            for name in INFOS:
                np.testing.assert_array_equal(info[name], expected[4][name], err_msg=name)
            if mode == "same_step" and ended:
                # ale-py leaves that of a marked end unwritten
                final = expected[4]["final_obs"] if over else expected[0]
                np.testing.assert_array_equal(info["final_obs"][0], final[0])
            if over and mode != "next_step":
                length = 0
            if over and mode == "disabled":
                mask = {"reset_mask": np.ones(1, np.bool_)}
                np.testing.assert_array_equal(
                    env.reset(options=mask)[0], reference.reset(options=mask)[0]
                )
    # the last of a game's five lives is lost with the game
    assert ends == games if options.keys() != {"life_loss_info"} else ends > 4 * games


@pytest.mark.parametrize("options", [*LIVES, {"episodic_life": "continue"}], ids=str)
def test_same_step_infos_are_those_of_the_end_and_of_the_next_start(
    options: dict[str, Any],
) -> None:
    """Next-step mode shows them one after the other."""
    rng = np.random.default_rng(2)
    shared = {"seed": 7, "max_episode_steps": 130, "ram_info": True, **options}
    with (
        rollouts.make_vec("ALE/Breakout-v5", 1, autoreset_mode="same_step", **shared) as env,
        rollouts.make_vec("ALE/Breakout-v5", 1, **shared) as slow,
    ):
        slow.reset()
        names = set(env.reset()[1]) - {"env_id", "episode_return", "episode_length"}
        assert names == {"lives", "raw_reward", "frame_number", "episode_frame_number", "ram"}
        ends = marks = 0
        for _ in range(400):
            action = rng.integers(4, size=1)
            _, _, terminated, truncated, info = env.step(action)
            last = slow.step(action)[4]
            if terminated[0] or truncated[0]:
                for name in names:
                    np.testing.assert_array_equal(info["final_info"][name], last[name])
                if truncated[0] or "episodic_life" in options or last["lives"][0] == 0:
                    last = slow.step(action)[4]
                    ends += 1
                else:
                    marks += 1
            for name in names:
                np.testing.assert_array_equal(info[name], last[name], err_msg=name)
    assert ends >= 3 and (marks > 0) == (options.keys() == {"life_loss_info"})


def test_frames_are_counted_from_the_seed_on_as_in_ale_py() -> None:
    reference = AtariVectorEnv("breakout", 2, **NO_CHANCE)
    with rollouts.make_vec("ALE/Breakout-v5", 2, **NO_CHANCE) as env:
        for seed in (3, None, 4, None):
            ours, expected = env.reset(seed=seed)[1], reference.reset(seed=seed)[1]
            for _ in range(5):
                for name in INFOS:
                    assert ours[name].dtype == expected[name].dtype
                    np.testing.assert_array_equal(ours[name], expected[name], err_msg=name)
                action = np.zeros(2, np.int64)
                ours, expected = env.step(action)[4], reference.step(action)[4]


def test_frames_before_the_first_observation_count_and_states_carry_both() -> None:
    options: dict[str, Any] = {"use_fire_reset": False, "noop_max": 30, "frameskip": 3}
    with rollouts.make_vec("ALE/Breakout-v5", 8, seed=1, **options) as env:
        first = env.reset()[1]["frame_number"].copy()
        assert len(set(first.tolist())) > 1 and first.max() < 30
        states = env.get_state()
        action = np.zeros(8, np.int64)
        for _ in range(2):
            for t in range(1, 4):
                info = env.step(action)[4]
                for name in ("frame_number", "episode_frame_number"):
                    np.testing.assert_array_equal(info[name], first + 3 * t)
            env.set_state(None, states)


def test_ram_is_the_console_s() -> None:
    slow = SlowAtari("breakout", noop_max=0, repeat_action_probability=0.0)
    unused, dice = Rng(0, 0, 0), np.random.default_rng(2)
    with rollouts.make_vec("ALE/Breakout-v5", 1, ram_info=True, **NO_CHANCE) as env:
        ram = env.reset()[1]["ram"]
        slow.reset(unused)
        assert ram.shape == (1, 128)
        np.testing.assert_array_equal(ram[0], slow.ale.getRAM())
        for _ in range(60):
            action = dice.integers(4, size=1)
            info = env.step(action)[4]
            slow.step(int(action[0]), unused)
            np.testing.assert_array_equal(info["ram"][0], slow.ale.getRAM())
    with rollouts.make_vec("ALE/Breakout-v5", 1) as env:
        assert "ram" not in env.reset()[1]


def test_a_marked_end_leaves_the_time_limit_alone() -> None:
    rng = np.random.default_rng(0)
    with rollouts.make_vec(
        "ALE/Breakout-v5", 1, seed=4, life_loss_info=True, max_episode_steps=60
    ) as env:
        env.reset()
        marked = 0
        for _ in range(60):
            _, _, terminated, truncated, info = env.step(rng.integers(4, size=1))
            marked += int(terminated[0])
        assert marked > 0 and truncated[0] and info["episode_length"][0] == 60


def test_true_is_continue() -> None:
    rng = np.random.default_rng(0)
    with (
        rollouts.make_vec("ALE/Breakout-v5", 1, seed=4, episodic_life=True) as one,
        rollouts.make_vec("ALE/Breakout-v5", 1, seed=4, episodic_life="continue") as other,
    ):
        np.testing.assert_array_equal(one.reset()[0], other.reset()[0])
        for _ in range(300):
            action = rng.integers(4, size=1)
            for a, b in zip(one.step(action)[:4], other.step(action)[:4], strict=True):
                np.testing.assert_array_equal(a, b)


def test_continue_goes_on_as_envpool() -> None:
    """EnvPool's shortest pause after a life, with one frame a step, is our step of no-op."""
    envpool = pytest.importorskip("envpool")
    shared: dict[str, Any] = {"repeat_action_probability": 0.0, "stack_num": 1, "noop_max": 1}
    shared |= {"use_fire_reset": False, "episodic_life": True}
    reference = envpool.make_gymnasium(
        "Breakout-v5", num_envs=1, frame_skip=1, reward_clip=True, max_episode_steps=10**6, **shared
    )
    rng = np.random.default_rng(0)
    ends = 0
    with rollouts.make_vec(
        "ALE/Breakout-v5",
        1,
        frameskip=1,
        maxpool=False,
        max_episode_steps=0,
        ram_info=True,
        **shared,
    ) as env:
        reference.reset()
        env.reset()
        env.step(np.array([0]))  # EnvPool begins a game with a frame of no-op
        for step in range(3000):
            action = rng.integers(4, size=1)
            obs, reward, terminated, _, info = env.step(action)
            theirs = reference.step(action)
            # as in ale-py, the frame that ends an episode is not shown here
            if not terminated[0]:
                np.testing.assert_array_equal(obs, theirs[0], err_msg=f"at {step}")
            np.testing.assert_array_equal(reward, theirs[1])
            np.testing.assert_array_equal(terminated, theirs[2])
            np.testing.assert_array_equal(info["lives"], theirs[4]["lives"])
            np.testing.assert_array_equal(info["ram"], theirs[4]["ram"])
            ends += int(terminated[0])
            if terminated[0] and info["lives"][0] == 0:
                break
    assert ends == 5


def test_other_ways_are_refused() -> None:
    for value in ("no", 1, 0.5):
        with pytest.raises(SpecError, match="episodic_life"):
            rollouts.make_vec("ALE/Breakout-v5", 1, episodic_life=value)


# games that ALE begins with actions of its own, whose frames it counts
STARTED = ["AirRaid", "Backgammon", "BasicMath", "Berzerk", "Crossbow", "DoubleDunk", "FlagCapture"]
STARTED += ["HumanCannonball", "LostLuggage", "NameThisGame", "Othello", "Pacman", "Pooyan"]
STARTED += ["SpaceWar", "Surround", "YarsRevenge"]


@pytest.mark.slow  # it starts each of the 104 games; the test below has some of these
def test_games_that_ale_begins_with_actions_are_these() -> None:
    found = []
    for env_id in rollouts.env_ids():
        if env_id.startswith("ALE/"):
            ale = ale_py.ALEInterface()
            ale.loadROM(str(atari.rom_path(env_id)))
            ale.reset_game()
            found += [env_id] if ale.getFrameNumber() else []
    assert found == [f"ALE/{game}-v5" for game in STARTED]


# the frames are counted by each engine's one way: make test-all tries all games in both
@pytest.mark.parametrize(
    ("game", "engine"),
    [
        pytest.param(game, engine, marks=[pytest.mark.slow] * (game not in some))
        for engine, some in (
            ("native", [*STARTED[::3], "Breakout"]),
            ("ale", [STARTED[0], "Breakout"]),
        )
        for game in [*STARTED, "Breakout"]
    ],
)
def test_frames_that_ale_begins_a_game_with_are_counted(game: str, engine: str) -> None:
    env_id = f"ALE/{game}-v5"
    rom = atari.rom_path(env_id).stem
    reference = AtariVectorEnv(rom, 1, autoreset_mode="NextStep", use_fire_reset=False, **NO_CHANCE)
    options: dict[str, Any] = {"use_fire_reset": False, "engine": engine} | NO_CHANCE
    with rollouts.make_vec(env_id, 1, **options) as env:
        for _ in range(2):
            ours, expected = env.reset()[1], reference.reset()[1]
            for _ in range(3):
                for name in ("frame_number", "episode_frame_number"):
                    np.testing.assert_array_equal(ours[name], expected[name], err_msg=name)
                action = np.zeros(1, np.int64)
                ours, expected = env.step(action)[4], reference.step(action)[4]
