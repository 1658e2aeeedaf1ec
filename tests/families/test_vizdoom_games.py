# SPDX-License-Identifier: Apache-2.0
"""Processes of games: what comes of one that dies, of ours that dies, and what they leave."""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import psutil
import pytest
from processes import HANG_S

import rollouts
from rollouts.errors import EngineError, EnvError, SpecError
from rollouts.families import vizdoom

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(not vizdoom.listed_ids(), reason="needs the vizdoom package"),
]
BASIC = "VizdoomBasic-v1"
SHM = Path("/dev/shm")


@pytest.fixture(autouse=True)
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Games of a test have a temporary and a working directory of their own."""
    for name in ("temporary", "working"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.chdir(tmp_path / "working")


def make(num_envs: int = 1, **arguments: object) -> rollouts.VectorEnv:
    arguments = {"seed": 3, "num_threads": 2, "frame_skip": 4} | arguments
    return rollouts.make_vec(BASIC, num_envs, **arguments)


def games_of(process: psutil.Process) -> list[psutil.Process]:
    """The games below a process, in the order in which they started."""
    found = [one for one in process.children(recursive=True) if one.name() == "vizdoom"]
    return sorted(found, key=lambda one: (one.create_time(), one.pid))


def shared_memory_of(games: list[psutil.Process]) -> list[Path]:
    names = []
    for game in games:
        arguments = game.cmdline()
        names.append(arguments[arguments.index("+viz_instance_id") + 1])
    return [path for path in SHM.iterdir() if path.name.endswith(tuple(names))]


def wait_until_gone(processes: list[psutil.Process], files: list[Path]) -> None:
    gone, alive = psutil.wait_procs(processes, timeout=HANG_S)
    assert not alive and len(gone) == len(processes)
    assert not [path for path in files if path.exists()]


def test_close_leaves_nothing(tmp_path: Path) -> None:
    me = psutil.Process()
    before = me.children(recursive=True)  # children of other tests, such as Ray's
    env = make(3)
    env.reset()
    children = [one for one in me.children(recursive=True) if one not in before]
    files = shared_memory_of(games_of(me))
    assert len(games_of(me)) == 3 and len(files) == 9
    env.close()
    wait_until_gone(children, files)
    assert [*(tmp_path / "temporary").iterdir(), *(tmp_path / "working").iterdir()] == []


def test_a_game_that_is_killed_costs_its_episode_alone() -> None:
    with make(2, on_env_error="reset", num_threads=1) as env, make(2, num_threads=1) as other:
        env.reset()
        other.reset()
        for step in range(12):
            if step == 5:
                mine = games_of(psutil.Process())
                # the first two started are env's, the first of them environment 0's
                mine[0].kill()
                mine[0].wait(HANG_S)
            actions = np.array([step % 4, step % 3])
            obs, _, _, truncated, info = env.step(actions)
            want = other.step(actions)
            np.testing.assert_array_equal(obs[1], want[0][1])
            if step == 5:
                assert truncated.tolist() == [True, False]
                assert "ViZDoom" in str(info["env_error"][0]) and info["env_error"][1] is None
            elif step == 6:
                assert info["episode_length"].tolist() == [0, 7]
                # the seed is that of the stream's next episode
                assert info["game_seed"][0] != want[4]["game_seed"][0]
                assert obs[0].any()
        assert len(games_of(psutil.Process())) == 4


def test_a_game_that_is_killed_is_an_error() -> None:
    with make() as env:
        env.reset()
        (game,) = games_of(psutil.Process())
        files = shared_memory_of([game])
        game.kill()
        with pytest.raises(EnvError, match="env_id 0: ViZDoom: "):
            env.step([0])
        wait_until_gone([game], files)
        env.recv()
        env.step([0])


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_games_end_with_a_process_that_is_killed(how: signal.Signals, tmp_path: Path) -> None:
    code = (
        "import rollouts, sys\n"
        f"env = rollouts.make_vec({BASIC!r}, 2, seed=1, num_threads=2)\n"
        "env.reset()\n"
        "print('ready', flush=True)\n"
        "sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdout.readline() == b"ready\n"
        parent = psutil.Process(process.pid)
        children, files = parent.children(recursive=True), shared_memory_of(games_of(parent))
        assert len(children) == 4 and len(files) == 6
        process.send_signal(how)
        process.wait(HANG_S)
        wait_until_gone(children, files)
    assert [*(tmp_path / "temporary").iterdir(), *(tmp_path / "working").iterdir()] == []


def test_a_game_holds_no_files_of_ours() -> None:
    readable, writable = os.pipe()
    os.set_inheritable(writable, True)
    with make() as env:
        env.reset()
        os.close(writable)
        # the end of the pipe: nobody else holds its other side
        assert os.read(readable, 1) == b""
    os.close(readable)


def test_a_game_that_cannot_start_is_an_error(tmp_path: Path) -> None:
    bad = tmp_path / "bad.wad"
    bad.write_bytes(b"no WAD" * 100)
    with make(iwad_file=str(bad)) as env, pytest.raises(EnvError, match="last words"):
        env.reset()
    assert games_of(psutil.Process()) == []


def test_own_config_files(tmp_path: Path) -> None:
    # its paths are relative to its own
    shutil.copy(vizdoom.load_engine() / "scenarios" / "basic.wad", tmp_path)
    mine = tmp_path / "mine.cfg"
    mine.write_text(
        "doom_scenario_path = basic.wad\nepisode_timeout = 20\n"
        "available_buttons = { MOVE_LEFT ATTACK }\nscreen_resolution = RES_160X120\n"
        "screen_format = GRAY8\n"
    )
    with rollouts.make_vec("ViZDoom-v0", 1, cfg_file=str(mine), seed=1) as env:
        assert env.single_observation_space.shape == (120, 160, 1)
        assert env.single_action_space.nvec.tolist() == [2, 2]
        _, info = env.reset()
        assert "gamevariables" not in info
        for _ in range(19):
            assert not env.step(np.zeros((1, 2), int))[3][0]
        _, _, terminated, truncated, _ = env.step(np.zeros((1, 2), int))
        assert terminated[0] and truncated[0]
    mine.write_text("mode = SPECTATOR\navailable_buttons = { ATTACK }\n")
    with pytest.raises(EngineError, match="another mode than PLAYER"):
        rollouts.make_vec("ViZDoom-v0", 1, cfg_file=str(mine))


@pytest.mark.parametrize(
    ("rule", "ends"), [(True, (True, True)), (False, (True, False)), ("alone", (False, True))]
)
def test_timeouts_end_episodes_as_asked(rule: bool | str, ends: tuple[bool, bool]) -> None:
    options = {"treat_episode_timeout_as_truncation": rule, "episode_timeout": 8}
    with make(**options) as env:
        env.reset()
        env.step([0])
        _, _, terminated, truncated, _ = env.step([0])
        assert (terminated[0], truncated[0]) == ends


def test_frames_are_shrunk_and_stacked() -> None:
    cv2 = pytest.importorskip("cv2")
    shape = {"img_height": 84, "img_width": 84, "stack_num": 3, "screen_format": "GRAY8"}
    with make(**shape) as env, make(screen_format="GRAY8") as plain:
        assert env.single_observation_space.shape == (3, 84, 84)
        frames = [np.zeros((84, 84), np.uint8)] * 3
        obs, screen = env.reset()[0], plain.reset()[0]
        for step in range(20):
            small = cv2.resize(screen[0, ..., 0], (84, 84), interpolation=cv2.INTER_AREA)
            frames = [*frames[1:], small]
            np.testing.assert_array_equal(obs[0], np.stack(frames))
            obs, screen = env.step([step % 4])[0], plain.step([step % 4])[0]


def test_wrong_options_say_what_is_expected() -> None:
    for options, said in [
        ({"frame_skip": 0}, "frame_skip is 0, expected 1 or more"),
        ({"doom_skill": 6}, "doom_skill is 6, expected 0 to 5"),
        ({"screen_format": "BGR24"}, "expected 'RGB24' or 'GRAY8'"),
        ({"screen_resolution": "8x8"}, "such as 'RES_160X120'"),
        ({"wad_file": "nowhere.wad"}, "wad_file is 'nowhere.wad', which is no file"),
        ({"img_height": 500}, "frames are only shrunk"),
        ({"stack_num": 2, "flatten_observation": False}, "for screens alone"),
    ]:
        with pytest.raises(SpecError, match=said):
            rollouts.make_vec(BASIC, 1, **options)
    with pytest.raises(SpecError, match="ViZDoom-v0 needs cfg_file"):
        rollouts.make_vec("ViZDoom-v0", 1)
    with pytest.raises(SpecError, match=r"Did you mean VizdoomBasic-v1"):
        rollouts.make_vec("VizdoomBasik-v1", 1)


def test_ids_are_those_that_vizdoom_registers() -> None:
    importlib.import_module("vizdoom.gymnasium_wrapper")
    theirs = {
        name: spec.kwargs
        for name, spec in gymnasium.registry.items()
        if "vizdoom" in str(spec.entry_point)
    }
    ours = vizdoom.scenarios()
    assert {*theirs} == {*ours}
    for name, keywords in theirs.items():
        assert keywords["scenario_config_file"] == f"{ours[name].cfg}.cfg"
        assert keywords["max_buttons_pressed"] == ours[name].max_buttons_pressed
        assert keywords.get("doom_map", "") == ours[name].doom_map
        assert keywords.get("doom_skill", 0) == ours[name].doom_skill


def test_whole_games_by_map_and_skill() -> None:
    with rollouts.make_vec("VizdoomFreedoom2MAP02-S4-v0", 1, seed=1, frame_skip=4) as env:
        assert env.single_action_space.shape == (19,)
        env.reset()
        arguments = games_of(psutil.Process())[0].cmdline()
        assert arguments[arguments.index("+map") + 1] == "MAP02"
        assert arguments[arguments.index("-skill") + 1] == "4"
        assert env.step(np.zeros((1, 19), int))[0].any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"doom_map": "map99"},
            "doom_map is 'map99', which is not in basic.wad, .*; expected one of MAP01, ",
        ),
        ({"game_args": "-iwad /nope"}, "has '-iwad', which ViZDoom sets itself.*use iwad_file"),
        ({"game_args": "+sv_cheats 1 +MAP map02"}, r"has '\+MAP'.*use doom_map"),
        ({"game_args": "-file nope.wad"}, "names the file 'nope.wad', which is none"),
    ],
)
def test_what_a_game_would_ignore_is_refused_before_it_starts(
    options: dict[str, str], message: str
) -> None:
    with pytest.raises(SpecError, match=message):
        make(**options)
    assert games_of(psutil.Process()) == []


def test_maps_of_the_main_wad_and_of_the_scenario_s_are_played() -> None:
    for doom_map in ("map01", "MAP31"):
        with make(doom_map=doom_map) as env:
            env.reset()
            env.step([0])


def test_a_game_that_says_nothing_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    with make(2, num_threads=2) as env:
        env.reset()
        # a game that is not stopped may need seconds on a busy machine
        monkeypatch.setenv("ROLLOUTS_GAME_TIMEOUT_S", "5")
        game, other = games_of(psutil.Process())
        files = shared_memory_of([game])
        game.send_signal(signal.SIGSTOP)
        with pytest.raises(EnvError, match="ViZDoom: the game said nothing for 5 s and was ended"):
            env.step([0, 0])
        wait_until_gone([game], files)
        assert other.is_running()
        # the other game goes on, and a new one, which takes time to start, begins an episode
        monkeypatch.delenv("ROLLOUTS_GAME_TIMEOUT_S")
        env.recv()
        env.step([0, 0])
        assert len(games_of(psutil.Process())) == 2


def test_a_wrong_time_limit_says_what_is_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLOUTS_GAME_TIMEOUT_S", "soon")
    with pytest.raises(SpecError, match="is 'soon', expected a whole number of seconds"):
        make()


def test_the_guardian_touches_no_folder_but_a_game_s(tmp_path: Path) -> None:
    guardian = Path(str(rollouts._native.__file__)).parent / "game_guardian"
    folder = tmp_path / "mine"
    (folder / "kept").mkdir(parents=True)
    (folder / "run").symlink_to(guardian)
    (folder / "file").write_text("mine")
    # by its own name, in the folder it stands in, and in one below a game's
    other = tmp_path / "rollouts-doom-1-x" / "deeper"
    other.mkdir(parents=True)
    (other / "run").symlink_to(guardian)
    for program in ("./run", str(folder / "run"), str(other / "run")):
        ended = subprocess.run([program], executable=str(guardian), cwd=folder, timeout=HANG_S)
        assert ended.returncode == 127
    assert sorted(one.name for one in folder.iterdir()) == ["file", "kept", "run"]
    assert [one.name for one in other.iterdir()] == ["run"]
