# SPDX-License-Identifier: Apache-2.0
"""`rollouts verify-atari` finds what differs, and says where."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from rollouts.cli import verify_atari
from rollouts.cli.main import main
from rollouts.families import native_games

GOLDEN = Path(__file__).parents[1] / "atari2600" / "golden.json"


def test_equal_games_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    games = ["ALE/Breakout-v5", "ALE/Seaquest-v5"]
    command = ["verify-atari", "--games", *games, "--frames", "300", "--actions", "human-like"]
    assert main(command) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(maxsplit=1) for line in lines] == [[g, "300 frames equal"] for g in games]


def test_an_unknown_game_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify-atari", "--games", "ALE/Pang-v5"]) == 2
    assert "unknown Atari game 'ALE/Pang-v5'" in capsys.readouterr().err


def test_the_first_difference_is_described() -> None:
    frame = verify_atari.Frame(
        np.arange(128, dtype=np.uint8), np.zeros((210, 160, 3), np.uint8), 0, 3, False
    )
    assert verify_atari.first_difference(frame, frame) is None
    ram = frame.ram.copy()
    ram[[5, 9]] = 200
    screen = np.zeros((210, 160, 3), np.uint8)
    screen[7, 11, 2] = 1
    found = [
        verify_atari.first_difference(frame, dataclasses.replace(frame, **change))
        for change in ({"ram": ram}, {"screen": screen}, {"reward": 2}, {"over": True})
    ]
    assert found == [
        "RAM 0x85 is 0x05, ALE has 0xc8 (2 bytes differ)",
        "pixel (row 7, column 11) is [0, 0, 0], ALE has [0, 0, 1] (1 pixels differ)",
        "reward is 0, ALE has 2",
        "over is False, ALE has True",
    ]


def test_a_difference_sets_the_exit_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    play = verify_atari.play

    def one_point_more(
        player: verify_atari.Player, frames: int, actions: Iterator[int]
    ) -> Iterator[verify_atari.Frame]:
        for number, frame in enumerate(play(player, frames, actions)):
            more = int(number == 20 and isinstance(player, verify_atari.NativePlayer))
            yield dataclasses.replace(frame, reward=frame.reward + more)

    monkeypatch.setattr(verify_atari, "play", one_point_more)
    assert main(["verify-atari", "--games", "ALE/Breakout-v5", "--frames", "40"]) == 1
    assert "differs in frame 20: reward is 1, ALE has 0" in capsys.readouterr().out


def test_hashes_of_ale_py_are_written_and_compared(tmp_path: Path) -> None:
    file = tmp_path / "golden.json"
    game = ["--games", "ALE/Freeway-v5"]
    assert main(["verify-atari", *game, "--frames", "100", "--record", str(file)]) == 0
    assert main(["verify-atari", *game, "--golden", str(file)]) == 0
    golden = json.loads(file.read_text())
    golden["games"]["ALE/Freeway-v5"]["sha256"] = "0" * 64
    file.write_text(json.dumps(golden))
    assert main(["verify-atari", *game, "--golden", str(file)]) == 1
    file.write_text("{}")
    assert main(["verify-atari", *game, "--golden", str(file)]) == 2


def test_the_golden_file_has_every_game_that_is_not_known_to_differ() -> None:
    golden = json.loads(GOLDEN.read_text())
    assert set(golden["games"]) == set(verify_atari.ale_game_ids()) - set(native_games.DIFFERENT)


@pytest.mark.parametrize("game", ["Asteroids", "Enduro", "Kangaroo", "MontezumaRevenge", "Qbert"])
def test_our_console_plays_as_ale_py_did(game: str) -> None:
    golden = json.loads(GOLDEN.read_text())
    assert verify_atari.compare_with_golden(f"ALE/{game}-v5", golden) is None


@pytest.mark.slow
def test_our_console_plays_every_game_as_ale_py_did() -> None:
    golden = json.loads(GOLDEN.read_text())
    different = {
        env_id: found
        for env_id in golden["games"]
        if (found := verify_atari.compare_with_golden(env_id, golden))
    }
    assert different == {}
