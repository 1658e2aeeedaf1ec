# SPDX-License-Identifier: Apache-2.0
"""`rollouts soak`: what processes hold is counted, and a round does what it says."""

from __future__ import annotations

import json
import mmap
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from processes import run_in_child

from comparisons.report.soak import held, read_soak
from rollouts.cli.main import main

linux = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="no /proc")


@linux
def test_memory_files_threads_and_shared_memory_are_counted() -> None:
    run_in_child(assert_all_is_counted)


def assert_all_is_counted() -> None:
    before = held()
    # pages of its own, which no memory freed earlier can serve; many, for a kernel that reclaims
    # idle pages takes some of the others meanwhile
    block = mmap.mmap(-1, 200_000_000, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    block.write(b"x" * 200_000_000)
    ends = threading.Event()
    threads = [threading.Thread(target=ends.wait) for _ in range(5)]
    for thread in threads:
        thread.start()
    try:
        with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
            file.write(b"x" * 20_000_000)
            file.flush()
            with mmap.mmap(file.fileno(), 0):
                now = held()
    finally:
        ends.set()
        for thread in threads:
            thread.join()
    assert now["own_memory_mb"] - before["own_memory_mb"] > 100
    assert now["threads"] - before["threads"] >= 5
    assert now["open_files"] - before["open_files"] >= 1
    assert now["shared_memory_mb"] - before["shared_memory_mb"] == pytest.approx(20, abs=1)
    block.close()


@linux
def test_what_a_child_holds_counts_too() -> None:
    run_in_child(assert_a_child_counts)


def assert_a_child_counts() -> None:
    code = "data = b'x' * 60_000_000; print('ready', flush=True); input()"
    before = held()
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None and child.stdin is not None
        child.stdout.readline()
        now = held()
        child.stdin.close()
    assert now["processes"] - before["processes"] >= 1
    assert now["memory_mb"] - before["memory_mb"] > 50


@pytest.mark.system
def test_a_round_of_everything_is_written_down(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "soak.json"
    assert main(["soak", "--minutes", "0.4", "--out", str(file)]) == 0
    soak = read_soak(file)
    assert soak.values[-1]["seconds"] >= 0.4 * 60
    assert all(one["processes"] > 3 and one["memory_mb"] > 50 for one in soak.values)
    assert json.loads(file.read_text())["command"].startswith("rollouts soak")


def test_a_file_that_cannot_be_written_is_found_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file" / "soak.json", tmp_path):
        assert main(["soak", "--out", str(path)]) == 2
        assert "give another --out" in capsys.readouterr().err
