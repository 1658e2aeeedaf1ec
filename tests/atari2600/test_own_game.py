# SPDX-License-Identifier: Apache-2.0
"""Our own Atari 2600 from being switched on, frame by frame against ale-py."""

from __future__ import annotations

import ctypes
from pathlib import Path

import ale_py
import numpy as np
import pytest
from own_game import Twins, build_games

pytestmark = pytest.mark.system

ROMS = sorted(
    path.stem
    for path in (Path(ale_py.__file__).parent / "roms").glob("*.bin")
    # games for two, which ale-py has elsewhere
    if path.stem not in ("combat", "joust", "maze_craze", "warlords")
)
# cartridges of every kind, joysticks and paddles, PAL, sticky actions within a reset
FEW = [
    *("adventure", "blackjack", "breakout", "pong", "seaquest", "montezuma_revenge", "robotank"),
    *("tutankham", "ms_pacman", "road_runner", "wizard_of_wor", "elevator_action", "berzerk"),
]
# games whose keys are pressed until RAM has the mode: how often depends on random numbers, on
# the game before and on the difficulty
WATCHED_MODES = ("adventure", "demon_attack", "double_dunk", "tic_tac_toe_3d")
# random numbers of which some decide within a reset; make test-all goes on with more
STICKY = [
    pytest.param(0.0, marks=pytest.mark.slow),
    0.25,
    pytest.param(0.6, marks=pytest.mark.slow),
]
SEEDS = [pytest.param(seed, marks=() if seed < 2 else pytest.mark.slow) for seed in range(6)]


@pytest.fixture(scope="module")
def library() -> ctypes.CDLL:
    return build_games()


def play(twins: Twins, frames: int, label: str) -> None:
    """Random actions with resets at the ends of episodes."""
    rng = np.random.default_rng(7)
    actions = [action.value for action in twins.ale.getLegalActionSet()]
    assert not twins.difference(), label
    action = 0
    for frame in range(frames):
        if frame % 4 == 0:
            action = int(rng.choice(actions))
        twins.act(action)
        assert not twins.difference(), f"{label} frame {frame}"
        if twins.ale.game_over():
            twins.reset()
            assert not twins.difference(), f"{label} reset in frame {frame}"


@pytest.mark.parametrize("rom", FEW)
def test_a_game_equals_ale_py_from_power_on(library: ctypes.CDLL, rom: str) -> None:
    twins = Twins(library, rom, 5, 0.25)
    play(twins, 150, rom)
    twins.reset()
    play(twins, 30, rom)
    twins.close()


@pytest.mark.slow
@pytest.mark.parametrize("sticky", [0.0, 0.25])
@pytest.mark.parametrize("rom", ROMS)
def test_many_frames_equal_ale_py_from_power_on(
    library: ctypes.CDLL, rom: str, sticky: float
) -> None:
    twins = Twins(library, rom, 5, sticky)
    play(twins, 3000, rom)
    twins.close()


@pytest.mark.parametrize("sticky", STICKY)
@pytest.mark.parametrize("rom", WATCHED_MODES)
def test_modes_chosen_by_memory_equal_ale_py(library: ctypes.CDLL, rom: str, sticky: float) -> None:
    twins = Twins(library, rom, 11, sticky)
    modes, difficulties = twins.ale.getAvailableModes(), twins.ale.getAvailableDifficulties()
    rng = np.random.default_rng(2)
    for mode, difficulty in rng.permutation([(m, d) for m in modes for d in difficulties]):
        twins.reset(int(mode), int(difficulty))
        play(twins, int(rng.integers(1, 20)), f"{rom} mode {mode} difficulty {difficulty}")
        twins.reset()
        assert not twins.difference(), f"{rom} mode {mode} difficulty {difficulty} again"
    twins.close()


@pytest.mark.parametrize(
    ("rom", "mode"), [("berzerk", 5), ("double_dunk", 15), ("video_cube", 200)]
)
@pytest.mark.parametrize("seed", SEEDS)
def test_sticky_actions_within_a_reset_draw_as_ale_py_s(
    library: ctypes.CDLL, rom: str, mode: int, seed: int
) -> None:
    twins = Twins(library, rom, seed, 0.5)
    twins.reset(mode)
    play(twins, 100, f"{rom} seed {seed}")
    twins.close()


@pytest.mark.slow
@pytest.mark.parametrize("rom", ROMS)
def test_modes_and_difficulties_equal_ale_py(library: ctypes.CDLL, rom: str) -> None:
    twins = Twins(library, rom)
    difficulties = twins.ale.getAvailableDifficulties()
    # a cube has 153 modes, most of which differ in how often a key is pressed
    for count, mode in enumerate(twins.ale.getAvailableModes()[:40]):
        difficulty = difficulties[count % len(difficulties)]
        twins.reset(mode, difficulty)
        play(twins, 100, f"{rom} mode {mode} difficulty {difficulty}")
    twins.close()


def test_a_copy_goes_on_as_the_original(library: ctypes.CDLL) -> None:
    twins = Twins(library, "seaquest", 1, 0.25)
    play(twins, 50, "seaquest")
    copy = library.game_clone(twins.player)
    for _ in range(30):
        twins.act(3)
        library.game_act(copy, 3, 0.25)
    assert ctypes.string_at(library.game_ram(copy), 128) == twins.shown()[0].tobytes()
    library.game_delete(copy)
    twins.close()


def test_a_damaged_rom_is_no_game(library: ctypes.CDLL) -> None:
    rom = bytearray(Path(str(ale_py.roms.get_rom_path("pong"))).read_bytes())
    rom[100] ^= 1
    assert not library.game_new(bytes(rom), len(rom), 0)
    assert not library.game_new(b"", 0, 0)
