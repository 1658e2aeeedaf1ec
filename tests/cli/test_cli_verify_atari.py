# SPDX-License-Identifier: Apache-2.0
"""`rollouts verify-atari` finds what differs, and says where."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from comparisons.verify_atari import lockstep
from comparisons.verify_atari.golden_frames import compare_with_golden
from comparisons.verify_atari.lockstep import (
    LockstepTrial,
    Move,
    draw_moves,
    first_difference,
    play,
)
from comparisons.verify_atari.players import (
    AlePlayer,
    ConsolePlayer,
    EnvPlayer,
    Frame,
    Player,
    Setting,
)
from rollouts.cli.main import main
from rollouts.families import native_games
from rollouts.families.atari import ale_game_ids

pytestmark = pytest.mark.system

GOLDEN = Path(__file__).parents[1] / "atari2600" / "golden.json"


def test_equal_games_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    # Skiing has legal actions of its own
    games = ["ALE/Breakout-v5", "ALE/Skiing-v5"]
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


def test_each_mode_and_difficulty_is_played(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["verify-atari", "--games", "ALE/Seaquest-v5", "ALE/Bowling-v5", "--frames", "20"]
    assert main([*command, "--modes"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"ALE/{game}-v5 mode {mode} difficulty {difficulty} 20 frames equal"
        for game, modes in (("Seaquest", (0,)), ("Bowling", (0, 2, 4)))
        for mode in modes
        for difficulty in (0, 1)
    ]


@pytest.mark.parametrize(
    "flags",
    [
        ["--sticky", "0.25"],
        ["--fuzz"],
        ["--sticky", "0.5", "--fuzz", "--actions", "human-like"],
        ["--snapshots"],
    ],
)
def test_equal_games_are_equal_with_more_drawn(
    flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    # Berzerk's reset has sticky actions; a frame of Qbert's ends in the next one
    games = ["ALE/Berzerk-v5", "ALE/Breakout-v5", "ALE/Qbert-v5"]
    command = ["verify-atari", "--games", *games, "--frames", "300", "--seed", "5", *flags]
    assert main(command) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(maxsplit=1) for line in lines] == [[g, "300 frames equal"] for g in games]


def test_a_score_that_begins_anew_is_ale_py_s(capsys: pytest.CaptureFixture[str]) -> None:
    # by a class of ale-py's, whose saved states restore another score
    game = "ALE/MiniatureGolf-v5"
    assert main(["verify-atari", "--games", game, "--frames", "100", "--fuzz"]) == 0
    assert capsys.readouterr().out.split(maxsplit=1) == [game, "100 frames equal\n"]


@pytest.mark.parametrize("flags", [["--sticky", "1.5"], ["--snapshots", "--fuzz"]])
def test_what_cannot_be_drawn_is_a_mistake(flags: list[str]) -> None:
    try:
        status = main(["verify-atari", "--games", "ALE/Pong-v5", *flags])
    except SystemExit as exit:
        status = exit.code
    assert status == 2


def test_other_numbers_of_sticky_actions_differ() -> None:
    trial = LockstepTrial("ALE/Breakout-v5", 300, setting=Setting(sticky=0.25, seed=1))
    ours, theirs = (
        play(player, trial.frames, draw_moves(trial, 18))
        for player in (
            ConsolePlayer(trial.id, trial.setting),
            AlePlayer(trial.id, trial.setting._replace(seed=2)),
        )
    )
    assert any(first_difference(*pair) for pair in zip(ours, theirs, strict=True))


def test_memory_is_changed_at_random() -> None:
    trial = LockstepTrial("ALE/Pong-v5", 2000, fuzz=True)
    moves = [move for _, move in zip(range(2000), draw_moves(trial, 18), strict=False)]
    pokes = [poke for move in moves for poke in move.pokes]
    assert 100 < sum(bool(move.pokes) for move in moves) < 400
    assert len({address for address, _ in pokes}) > 100
    assert all(0 <= address < 128 and 0 <= value < 256 for address, value in pokes)
    assert sum(move.restart for move in moves) > 2


def test_both_players_memory_is_changed() -> None:
    players = [ConsolePlayer("ALE/Pong-v5", Setting()), AlePlayer("ALE/Pong-v5", Setting())]
    for player in players:
        player.poke(13, 99)  # the computer's score
        assert player.act(0).reward == -99


@pytest.mark.parametrize(
    ("player", "said"),
    [(EnvPlayer, "frames behind a restore"), (AlePlayer, "ale-py never goes on as before")],
)
def test_a_state_that_is_not_restored_is_found(
    player: type, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(player, "load", lambda self, saved: None)
    command = ["verify-atari", "--games", "ALE/Breakout-v5", "--frames", "400", "--snapshots"]
    assert main(command) == 1
    assert said in capsys.readouterr().out


def test_games_begin_anew_at_random() -> None:
    trial = LockstepTrial("ALE/Pong-v5", 20_000, setting=Setting(seed=3))
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


# a cartridge of 4 KB and one that switches banks; the test below has every game
@pytest.mark.parametrize("game", ["Enduro", "MontezumaRevenge"])
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


@pytest.mark.parametrize("file", ["--record", "--golden"])
@pytest.mark.parametrize("kind", [["--modes"], ["--fuzz"], ["--snapshots"], ["--sticky", "0.2"]])
def test_hashes_are_of_a_games_own_mode(
    file: str, kind: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "hashes.json"
    assert main(["verify-atari", "--games", "ALE/Pong-v5", file, str(path), *kind]) == 2
    assert "--record and --golden are of a game's own mode" in capsys.readouterr().err
    assert not path.exists()
