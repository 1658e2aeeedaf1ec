# SPDX-License-Identifier: Apache-2.0
"""Data sets of recorders that were killed, or that had no room: whole episodes alone."""

from __future__ import annotations

import json
import os
import random
import signal
from pathlib import Path
from typing import Any

import minari
import pytest
from recorded_sets import collector_of
from warm_python import Script, run_script

import rollouts
from rollouts.datasets import open_set, play_again
from rollouts.errors import FileError

pytestmark = pytest.mark.system

PROGRAM = Path(__file__).with_name("record_until_killed.py")
KINDS = ("minari", "parquet", "hdf5")
PART_BYTES = 1 << 13
HANG_S = 300.0


def _to(kind: str, folder: Path) -> str:
    return "minari:tests/killed-v0" if kind == "minari" else str(folder / f"set.{kind}")


def _num_bytes(kind: str, folder: Path) -> int:
    """Bytes of the set's parts so far."""
    where = {
        "minari": "minari/tests/killed-v0/data/main_data.hdf5",
        "parquet": "set.parquet/part-*",
        "hdf5": "set.hdf5",
    }[kind]
    return sum(each.stat().st_size for each in folder.glob(where))


def _record_and_kill(kind: str, folder: Path, seed: int) -> Any:
    """Kills a recorder at random, once it has some parts; returns the episodes that it left."""
    folder.mkdir()
    drawn = random.Random(seed)
    environment = {**os.environ, "MINARI_DATASETS_PATH": str(folder / "minari")}
    with Script(PROGRAM, _to(kind, folder), seed, env=environment) as recorder:
        assert recorder.stdout.readline() == "begun\n"
        wanted, polls = drawn.randrange(8, 60) * PART_BYTES, drawn.randrange(0, 4000)
        while _num_bytes(kind, folder) < wanted:
            assert recorder.poll() is None
        # some more work, which ends anywhere in the writing of the next part
        for _ in range(polls):
            recorder.poll()
        recorder.kill()
        assert recorder.wait() == -signal.SIGKILL
    return list(open_set(_to(kind, folder)))


def _kill_often(kind: str, folder: Path, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with rollouts.make_vec("CartPole-v1", 1, autoreset_mode="disabled") as env:
        for seed in range(times):
            place = folder / f"{kind}{seed}"
            monkeypatch.setenv("MINARI_DATASETS_PATH", str(place / "minari"))
            episodes = _record_and_kill(kind, place, seed)
            assert episodes
            # whole ones, to the bit
            assert play_again(episodes, env) == len(episodes)
            if kind == "minari":
                data = minari.load_dataset("tests/killed-v0")
                assert data.total_steps == sum(len(each) for each in data.iterate_episodes())
                assert data.total_episodes == len(episodes)


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_recorder_leaves_whole_episodes(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _kill_often(kind, tmp_path, 1, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_hundred_kills_leave_whole_episodes_each_time(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _kill_often(kind, tmp_path, 100, monkeypatch)


LIMITED = """
import json, resource, signal, sys, warnings
sys.path.insert(0, {folder!r})
from recorded_sets import collector_of
import rollouts
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
limit = 40_000
collector = collector_of("HalfCheetah-v5", 2, {{"max_episode_steps": 50}})
recorder = rollouts.Recorder(collector, {to!r}, part_bytes=30_000, if_full={if_full!r})
recorder.record(num_episodes=8)
recorder.flush()
resource.setrlimit(resource.RLIMIT_FSIZE, (limit // 4, resource.RLIM_INFINITY))
error = ""
warnings.simplefilter("ignore")
try:
    for _ in range(12):
        recorder.add(collector.collect())
    recorder.flush()
except rollouts.FileError as found:
    error = str(found)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
if {if_full!r} == "drop":
    recorder.record(num_episodes=4)
try:
    recorder.close()
except rollouts.FileError as found:
    error = error or str(found)
print(json.dumps({{"error": error, **recorder.stats()}}))
"""


@pytest.mark.parametrize(
    ("kind", "if_full"),
    [
        *((kind, "stop") for kind in KINDS),
        ("parquet", "drop"),
        ("hdf5", "drop"),
        # a set of Minari is an HDF5 file, too
        pytest.param("minari", "drop", marks=pytest.mark.slow),
    ],
)
def test_a_full_disk_leaves_whole_episodes(
    kind: str, if_full: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    to = _to(kind, tmp_path)
    program = tmp_path / "limited.py"
    program.write_text(LIMITED.format(folder=str(PROGRAM.parent), to=to, if_full=if_full))
    ran = run_script(program, timeout=HANG_S)
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout.splitlines()[-1])
    episodes = list(open_set(to))
    assert {each.num_steps for each in episodes} == {50}
    assert len(episodes) == told["num_episodes"]
    assert told["num_dropped"] > 0
    if if_full == "stop":
        assert "cannot be written" in told["error"] and len(episodes) >= 8
    else:
        # the run went on, and what came when there was room again is there
        assert not told["error"] and len(episodes) >= 12
    with rollouts.make_vec(
        "HalfCheetah-v5", 1, autoreset_mode="disabled", max_episode_steps=50
    ) as env:
        assert play_again(episodes, env) == len(episodes)


def test_a_recorder_adds_to_no_set_that_is_there(tmp_path: Path) -> None:
    for name in ("set.hdf5", "set.parquet"):
        with collector_of("CartPole-v1", 2, {}) as collector:
            with rollouts.Recorder(collector, tmp_path / name) as recorder:
                recorder.record(num_episodes=2)
            with pytest.raises(rollouts.SpecError, match="there already"):
                rollouts.Recorder(collector, tmp_path / name)
            assert len(list(open_set(tmp_path / name))) == 2


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        collector_of("CartPole-v1", 2, {}) as collector,
        pytest.raises(FileError, match=r"set\.parquet cannot be written"),
    ):
        rollouts.Recorder(collector, tmp_path / "file" / "set.parquet")
