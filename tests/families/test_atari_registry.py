# SPDX-License-Identifier: Apache-2.0
"""Ids, ROMs and versions of Atari games, as Python finds them."""

from __future__ import annotations

import importlib.metadata
import shutil
import subprocess
import sys
from pathlib import Path

import gymnasium
import pytest

import rollouts
from rollouts.errors import EngineError, SpecError
from rollouts.families import atari


@pytest.fixture
def fresh_engine():
    """Forgets what was found about the installed ale-py, before and after the test."""
    for cached in (atari.load_engine, atari._rom_hashes):
        cached.cache_clear()
    yield
    for cached in (atari.load_engine, atari._rom_hashes):
        cached.cache_clear()


def test_ids_are_those_that_gymnasium_registers() -> None:
    import ale_py

    gymnasium.register_envs(ale_py)
    registered = {name for name in gymnasium.registry if name.startswith("ALE/")}
    assert set(atari.ale_game_ids()) == registered
    assert len(registered) == 104


def test_listing_games_does_not_import_ale_py() -> None:
    code = "import sys, rollouts; print(len(rollouts.env_ids()), 'ale_py' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    count, imported = said.stdout.split()
    assert int(count) > 104 and imported == "False"


def test_unknown_game_suggests_close_ones() -> None:
    with pytest.raises(SpecError, match=r"ALE/Pongg-v5.*ALE/Pong-v5"):
        rollouts.make_vec("ALE/Pongg-v5", 1)


@pytest.mark.parametrize("env_id", ["ALE/Combat-v5", "ALE/Joust-v5"])
def test_games_for_several_players_only_are_no_ids(env_id: str) -> None:
    with pytest.raises(SpecError, match="unknown Atari game"):
        rollouts.make_vec(env_id, 1)


def test_roms_come_from_ale_roms_dir_when_it_is_set(tmp_path: Path, monkeypatch) -> None:
    packaged = atari.rom_path("ALE/Pong-v5")
    monkeypatch.setenv("ALE_ROMS_DIR", str(tmp_path))
    with pytest.raises(EngineError, match=r"no ROM of ALE/Pong-v5.*ALE_ROMS_DIR"):
        atari.rom_path("ALE/Pong-v5")
    shutil.copy(packaged, tmp_path)
    assert atari.rom_path("ALE/Pong-v5") == tmp_path / "pong.bin"
    (tmp_path / "pong.bin").write_bytes(b"corrupt")
    with pytest.raises(EngineError, match="expected MD5"):
        atari.rom_path("ALE/Pong-v5")


def test_missing_ale_py_says_what_to_install(monkeypatch, fresh_engine) -> None:
    monkeypatch.setattr(atari, "_installed_version", lambda: None)
    assert atari.ale_game_ids() == []
    with pytest.raises(EngineError, match=r'missing: pip install "ale-py>=0.12,<0.13"'):
        atari.rom_path("ALE/Pong-v5")


@pytest.mark.parametrize("version", ["0.11.2", "0.13.0", "1.0"])
def test_unsupported_ale_py_says_what_to_install(version, monkeypatch, fresh_engine) -> None:
    monkeypatch.setattr(atari, "_installed_version", lambda: version)
    with pytest.raises(EngineError, match=rf"ale-py {version} is installed.*pip install"):
        atari.rom_path("ALE/Pong-v5")


def test_installed_ale_py_is_supported() -> None:
    atari.load_engine()
    assert importlib.metadata.version("ale-py").startswith("0.12.")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"img_height": 4097}, "img_height, img_width is 4097, 84, expected 1 to 4096"),
        ({"frameskip": 0}, "frameskip is 0, expected 1 or more"),
        ({"stack_num": 0}, "stack_num is 0, expected 1 or more"),
        ({"noop_max": -1}, "noop_max is -1, expected 0 or more"),
        ({"repeat_action_probability": 1.5}, "repeat_action_probability is 1.5"),
        ({"repeat_action_probability": float("nan")}, "repeat_action_probability is nan"),
        ({"continuous_action_threshold": 1.01}, "continuous_action_threshold is 1.01.* 0 to 1"),
        ({"continuous_action_threshold": -0.1}, "continuous_action_threshold is -0.1"),
        ({"continuous_action_threshold": float("nan")}, "continuous_action_threshold is nan"),
        ({"continuous_action_threshold": "half"}, "'continuous_action_threshold' must be a float"),
        ({"continuous": 1}, "option 'continuous' must be a bool, got an int"),
        ({"mode": 77}, "mode is 77, expected -1"),
        ({"difficulty": 9}, "difficulty is 9, expected -1"),
        ({"frame_skip": 4}, "no option 'frame_skip'"),
    ],
)
def test_bad_option_is_named_with_what_is_expected(options, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        rollouts.make_vec("ALE/Pong-v5", 1, **options)


def test_mode_and_difficulty_change_the_game() -> None:
    with (
        rollouts.make_vec("ALE/Breakout-v5", 1, seed=0, noop_max=0) as default,
        rollouts.make_vec("ALE/Breakout-v5", 1, seed=0, noop_max=0, mode=12) as other,
    ):
        assert (default.reset()[0] != other.reset()[0]).any()
