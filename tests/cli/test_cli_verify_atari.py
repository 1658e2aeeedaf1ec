# SPDX-License-Identifier: Apache-2.0
"""`rollouts verify-atari` finds what differs, and says where."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from rollouts.cli.main import main
from rollouts.cli.verify_atari import lockstep
from rollouts.cli.verify_atari.golden import compare_with_golden
from rollouts.cli.verify_atari.lockstep import Move, Trial, draw_moves, first_difference
from rollouts.cli.verify_atari.players import ConsolePlayer, Frame, Player, Setting
from rollouts.families import native_games
from rollouts.families.atari import ale_game_ids

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


def test_processes_share_the_games(capsys: pytest.CaptureFixture[str]) -> None:
    games = ["ALE/Pong-v5", "ALE/Breakout-v5", "ALE/Freeway-v5"]
    assert main(["verify-atari", "--games", *games, "--frames", "40", "--workers", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(maxsplit=1) for line in lines] == [[g, "40 frames equal"] for g in games]


def test_games_begin_anew_at_random() -> None:
    trial = Trial("ALE/Pong-v5", 20_000, setting=Setting(seed=3))
    moves = [move for _, move in zip(range(20_000), draw_moves(trial, 18), strict=False)]
    assert 2 <= sum(move.restart for move in moves) <= 20


def test_the_first_difference_is_described() -> None:
    frame = Frame(np.arange(128, dtype=np.uint8), np.zeros((210, 160, 3), np.uint8), 0, 3, False)
    assert first_difference(frame, frame) is None
    ram = frame.ram.copy()
    ram[[5, 9]] = 200
    screen = np.zeros((210, 160, 3), np.uint8)
    screen[7, 11, 2] = 1
    found = [
        first_difference(frame, frame._replace(**change))
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
    play = lockstep.play

    def one_point_more(player: Player, frames: int, moves: Iterator[Move]) -> Iterator[Frame]:
        for number, frame in enumerate(play(player, frames, moves)):
            more = int(number == 20 and isinstance(player, ConsolePlayer))
            yield frame._replace(reward=frame.reward + more)

    monkeypatch.setattr(lockstep, "play", one_point_more)
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
    assert set(golden["games"]) == set(ale_game_ids()) - set(native_games.DIFFERENT)


@pytest.mark.parametrize("game", ["Asteroids", "Enduro", "Kangaroo", "MontezumaRevenge", "Qbert"])
def test_our_console_plays_as_ale_py_did(game: str) -> None:
    golden = json.loads(GOLDEN.read_text())
    assert compare_with_golden(f"ALE/{game}-v5", golden) is None


@pytest.mark.slow
def test_our_console_plays_every_game_as_ale_py_did() -> None:
    golden = json.loads(GOLDEN.read_text())
    different = {
        env_id: found
        for env_id in golden["games"]
        if (found := compare_with_golden(env_id, golden))
    }
    assert different == {}
