# SPDX-License-Identifier: Apache-2.0
"""Files that are replaced as a whole, or stay as they were."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from rollouts.errors import FileError

_ENDING = ".writing"


@contextlib.contextmanager
def replace_whole(path: str | os.PathLike[str], *, lasting: bool = True) -> Iterator[BinaryIO]:
    """Yields a file to write, which replaces `path` when the block ends without an error.

    Whenever this stops, even by a crash of the machine, `path` is the old file or the new one. The
    block may read back what it wrote. A replaced file keeps its mode, and a new one is readable by
    its owner only; a link stays a link, to the new file. Files that a killed process left behind
    are removed by the next call for the same path.

    Args:
      path: The file.
      lasting: Whether the new file survives a crash of the machine after this returns.

    Raises:
      FileError: No such folder, no right to write there, no room, or `path` is a folder.
    """
    target = Path(os.path.realpath(path))
    with naming_the_file(path):
        mode = _mode(target)
        # in the same folder, because a rename is atomic only within a file system
        _remove_abandoned(target)
        file = _begin(target)
    temporary = Path(file.name)
    try:
        with naming_the_file(path):
            with file:
                yield file
                if mode is not None:
                    os.fchmod(file.fileno(), mode)
                file.flush()
                if lasting:
                    os.fsync(file.fileno())
            os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if lasting:
        _sync_folder(target.parent)


@contextlib.contextmanager
def naming_the_file(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turns an OSError into a FileError, which always names the file."""
    try:
        yield
    except FileError:
        raise
    except OSError as error:
        raise _explained(path, error) from error


def _explained(path: str | os.PathLike[str], error: OSError) -> FileError:
    folder = Path(os.path.realpath(path)).parent
    if folder.exists() and not folder.is_dir():
        advice = f"{folder} is a file, expected a folder: choose another one"
    elif not folder.is_dir():
        advice = f"there is no folder {folder}: make it first (mkdir -p), or choose another one"
    elif isinstance(error, FileExistsError):
        advice = "there is a file of that name, expected none or a folder: choose another name"
    else:
        advice = f"{error.strerror or error}: choose a folder with room, in which you may write"
    made = FileError(f"{os.fspath(path)} cannot be written, {advice}")
    made.errno = error.errno
    return made


def _mode(target: Path) -> int | None:
    """The permissions of the file to replace; None: there is no file.

    Raises:
      FileError: It is no file, such as a folder or a device.
    """
    try:
        found = target.stat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        kind = "a folder" if stat.S_ISDIR(found.st_mode) else "no regular file"
        raise FileError(f"{target} is {kind}, expected a path for a file: choose another one")
    return stat.S_IMODE(found.st_mode)


def _begin(target: Path) -> BinaryIO:
    """Opens a new file beside the target, locked for as long as it is open."""
    while True:
        path = target.with_name(f".{target.name}.{uuid.uuid4().hex}{_ENDING}")
        file = open(path, "x+b", opener=_open_private)  # noqa: SIM115
        _lock(file)
        # another process may have removed the file as abandoned before it was locked
        if os.fstat(file.fileno()).st_nlink:
            return file
        file.close()


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _remove_abandoned(target: Path) -> None:
    """Removes files that killed processes left of earlier writes: those that no process has locked.

    They stay if the file system has no locks.
    """
    for path in target.parent.glob(f".{_quoted(target.name)}.*{_ENDING}"):
        with contextlib.suppress(OSError), path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)


def _quoted(name: str) -> str:
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


def _lock(file: BinaryIO) -> None:
    with contextlib.suppress(OSError):  # not every file system has locks
        fcntl.flock(file, fcntl.LOCK_EX)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
