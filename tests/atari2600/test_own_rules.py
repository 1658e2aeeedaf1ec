# SPDX-License-Identifier: Apache-2.0
"""Our own reading of reward, lives and end beside ALE's, both from the same memory."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import rollouts
from comparisons.verify_atari import lockstep
from comparisons.verify_atari.players import Setting
from rollouts import EngineError, _native
from rollouts.families.atari import ale_game_ids, rom_path

pytestmark = pytest.mark.system

# what ale-py's rules know of these they are told by a reset, not by memory
OF_MODES = ["ALE/VideoCheckers-v5"]
OURS = [env_id for env_id in ale_game_ids() if _native.has_atari_rules(rom_path(env_id).stem)]
GAMES = [env_id for env_id in OURS if env_id not in OF_MODES]
# numbers that games compare with, or count from
FAVOURITES = [0, 1, 2, 3, 4, 5, 7, 8, 0x10, 0x53, 0x58, 0x59, 0x60, 0x68, 0x80, 0xA0, 0xFE, 0xFF]


def played_memory(env_id: str, frames: int, seed: int) -> NDArray[np.uint8]:
    """(1 + frames, 128) of a start and a random player, who goes on after the end of a game."""
    env = rollouts.make_vec(
        env_id, 1, engine="native", frameskip=4, noop_max=0, use_fire_reset=False, ram_info=True
    )
    rng = np.random.default_rng(seed)
    shown = [env.reset()[1]["ram"][0]]
    for _ in range(frames):
        action = rng.integers(env.single_action_space.n, size=1)
        shown.append(env.step(action)[4]["ram"][0])
    env.close()
    return np.array(shown, np.uint8)


def changed(memory: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.uint8]:
    """Some bytes of each row (128,) are random ones, favourites, or differ in one bit."""
    memory = memory.copy()
    rows = np.arange(len(memory))
    for _ in range(3):
        some = rows[rng.random(len(rows)) < 0.7]
        memory[some, rng.integers(128, size=len(some))] = rng.integers(256, size=len(some))
        some = rows[rng.random(len(rows)) < 0.7]
        memory[some, rng.integers(128, size=len(some))] = rng.choice(FAVOURITES, len(some))
        some = rows[rng.random(len(rows)) < 0.7]
        bits = np.uint8(1) << rng.integers(8, size=len(some)).astype(np.uint8)
        memory[some, rng.integers(128, size=len(some))] ^= bits
    return memory


def drawn_memory(
    played: NDArray[np.uint8], frames: int, rng: np.random.Generator
) -> NDArray[np.uint8]:
    """(frames, 128): played and changed, random, and of favourites; some stays from row to row."""
    memory = changed(played[rng.integers(len(played), size=frames)], rng)
    kinds = rng.integers(4, size=frames)
    random = rng.integers(256, size=memory.shape).astype(np.uint8)
    favourites = rng.choice(FAVOURITES, memory.shape).astype(np.uint8)
    memory[kinds == 1] = random[kinds == 1]
    memory[kinds == 2] = favourites[kinds == 2]
    stays = rng.random(memory.shape) < rng.choice([0, 0.9, 1], size=(frames, 1), p=[0.5, 0.4, 0.1])
    for row in range(1, frames):
        memory[row] = np.where(stays[row], memory[row - 1], memory[row])
    return memory


def compare(env_id: str, frames: int, seed: int) -> None:
    """Both from the beginning of a game, through memory that is `frames` rows long."""
    path = str(rom_path(env_id))
    rng = np.random.default_rng(seed)
    played = played_memory(env_id, 60, seed)
    for memory in (played, drawn_memory(played, frames, rng)):
        ours = _native.read_atari_scores(path, memory, by_ale=False)
        expected = _native.read_atari_scores(path, memory, by_ale=True)
        wrong = np.flatnonzero((ours != expected).any(axis=1))
        first = wrong[:1]
        assert not len(wrong), f"{env_id} row {first}: {ours[first]}, not {expected[first]}"
    # rewards and ends are among what was compared
    assert (expected[:, 0] != 0).any()


@pytest.mark.parametrize("mode", [1, 6, 11, 17])
def test_checkers_rewards_the_players_colour(mode: int) -> None:
    # memory is changed, and so pieces are: seeds of which games end
    for seed in (5, 11):
        setting = Setting(mode=mode, seed=seed)
        assert (
            lockstep.compare(lockstep.LockstepTrial(OF_MODES[0], 600, "random", setting, True))
            is None
        )


@pytest.mark.parametrize("env_id", GAMES)
def test_rules_equal_ales(env_id: str) -> None:
    compare(env_id, 600, 3)


def test_the_greatest_score_ends_kaboom() -> None:
    memory = np.ones((2, 128), np.uint8)
    memory[1, 0x23:0x26] = 0x99
    path = str(rom_path("ALE/Kaboom-v5"))
    for by_ale in (False, True):
        assert _native.read_atari_scores(path, memory, by_ale)[:, 2].tolist() == [0, 1]


@pytest.mark.slow
@pytest.mark.parametrize("env_id", GAMES)
def test_rules_equal_ales_in_much_memory(env_id: str) -> None:
    for seed in range(10):
        compare(env_id, 20_000, seed)


def test_some_games_have_rules_and_others_none() -> None:
    assert len(OURS) == 84
    path = str(rom_path("ALE/Adventure-v5"))
    with pytest.raises(EngineError, match="no rules of ours"):
        _native.read_atari_scores(path, np.zeros((1, 128), np.uint8), by_ale=False)
