# SPDX-License-Identifier: Apache-2.0
"""Our own Atari 2600, frame by frame against ale-py: RAM, and the screen's palette indices."""

from __future__ import annotations

import ctypes
from pathlib import Path

import ale_py
import numpy as np
import pytest
from own_atari import Lockstep, build

ROMS = sorted(
    path.stem
    for path in (Path(ale_py.__file__).parent / "roms").glob("*.bin")
    # games for two, which ale-py has elsewhere
    if path.stem not in ("combat", "joust", "maze_craze", "warlords")
)
# games whose states do not say all: unfinished frames, paddles; test_own_game.py has them
OTHERS = {"backgammon", "blackjack", "miniature_golf", "pong", "qbert", "tetris"}
EQUAL = [rom for rom in ROMS if rom not in OTHERS]
# cartridges of every kind, joysticks and paddles, PAL
FEW = [
    *("adventure", "breakout", "seaquest", "space_invaders", "montezuma_revenge", "robotank"),
    *("tutankham", "ms_pacman", "enduro", "freeway", "beam_rider", "road_runner", "wizard_of_wor"),
]


@pytest.fixture(scope="module")
def library() -> ctypes.CDLL:
    return build()


def compare(library: ctypes.CDLL, rom: str, frames: int) -> None:
    """Random actions for some frames each, from a state of ale-py's after each reset."""
    game = Lockstep(library, rom)
    rng = np.random.default_rng(7)
    actions = [action.value for action in game.ale.getLegalActionSet()]
    action, since = 0, 0
    for frame in range(frames):
        if frame % 4 == 0:
            action = int(rng.choice(actions))
        game.step(action)
        since += 1
        ram, screen = game.shown()
        np.testing.assert_array_equal(ram, game.ale.getRAM(), err_msg=f"{rom} frame {frame}")
        # the state has no screens: what a frame leaves as it was is known after two
        if since > 2:
            expected = game.ale.getScreen()
            np.testing.assert_array_equal(screen, expected, err_msg=f"{rom} frame {frame}")
        if game.ale.game_over():
            game.ale.reset_game()
            game.load()
            since = 0
    game.close()


@pytest.mark.parametrize("rom", FEW)
def test_frames_equal_ale_py(library: ctypes.CDLL, rom: str) -> None:
    compare(library, rom, 150)


@pytest.mark.slow
@pytest.mark.parametrize("rom", EQUAL)
def test_many_frames_equal_ale_py(library: ctypes.CDLL, rom: str) -> None:
    compare(library, rom, 5000)


def test_a_damaged_state_is_refused(library: ctypes.CDLL) -> None:
    game = Lockstep(library, "seaquest")
    state = bytes(game.ale.cloneState().serialize())
    for damaged in (b"", state[:40], b"\xff" * len(state)):
        assert library.machine_load(game.machine, damaged, len(damaged)) == 1
    game.close()
