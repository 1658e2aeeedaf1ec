# SPDX-License-Identifier: Apache-2.0
"""`replace_whole`: old or new, with the old one's mode, and nothing beside it."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import rollouts
from rollouts.support.whole_file import replace_whole

# writes, says so, and waits to be killed
WRITES_FOR_EVER = """
import sys, time
from rollouts.support.whole_file import replace_whole
with replace_whole(sys.argv[1]) as file:
    file.write(b"half")
    file.flush()
    print("writing", flush=True)
    sys.stdin.read()
"""


def write(path: Path, content: bytes = b"new") -> None:
    with replace_whole(path) as file:
        file.write(content)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("before", [0o600, 0o640, 0o644, 0o664])
def test_a_file_keeps_its_mode(before: int, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(before)
    write(path)
    assert (path.read_bytes(), mode(path)) == (b"new", before)


def test_a_new_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    write(tmp_path / "file")
    assert mode(tmp_path / "file") == 0o600


def test_a_link_stays_a_link_to_the_new_file(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    path = tmp_path / "latest"
    path.symlink_to(tmp_path / "shared" / "file")
    write(path, b"one")
    write(path, b"two")
    assert path.is_symlink()
    assert (tmp_path / "shared" / "file").read_bytes() == b"two"


def test_the_block_may_read_what_it_wrote(tmp_path: Path) -> None:
    with replace_whole(tmp_path / "file") as file:
        file.write(b"new")
        file.seek(0)
        assert file.read() == b"new"
    assert (tmp_path / "file").read_bytes() == b"new"


def test_what_a_killed_process_left_goes_with_the_next_write(tmp_path: Path) -> None:
    path = tmp_path / "fi[l]e*"
    command = [sys.executable, "-c", WRITES_FOR_EVER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None and writer.stdout.readline() == b"writing\n"
        # one that is written now is nobody's to remove
        write(path, b"mine")
        assert len(list(tmp_path.iterdir())) == 2
        writer.send_signal(signal.SIGKILL)
        writer.wait(60)
    (tmp_path / ".other.0.writing").touch()  # another file's
    assert len(list(tmp_path.iterdir())) == 3
    write(path)
    assert sorted(each.name for each in tmp_path.iterdir()) == [".other.0.writing", path.name]


def test_two_writers_of_one_file_do_not_disturb_each_other(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with replace_whole(path) as first:
        first.write(b"first")
        write(path, b"second")
        assert path.read_bytes() == b"second"
    assert path.read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none/file", r"none/file cannot be written, there is no folder .*none: make it first"),
        ("file/file", r"file/file cannot be written, .*/file is a file, expected a folder: choose"),
        ("folder", r"folder is a folder, expected a path for a file"),
        ("pipe", r"pipe is no regular file, expected a path for a file"),
        ("x" * 300, r"x cannot be written, File name too long"),
    ],
)
def test_what_cannot_be_written_is_named(name: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(OSError, match=message) as caught:
        write(tmp_path / name)
    assert isinstance(caught.value, rollouts.RolloutsError)
    assert sorted(os.listdir(tmp_path)) == before


def test_a_full_disk_leaves_the_old_file_and_is_named(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    path = tmp_path / "file"
    path.write_bytes(b"old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Python ignores the signal, so that a write beyond the limit fails
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(OSError, match="cannot be written, File too large: choose"):
            write(path, bytes(200_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]
