# SPDX-License-Identifier: Apache-2.0
"""A folder for compiled files that no other user can write to, because they are executed."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rollouts.errors import EngineError

_WAY_OUT = "set ROLLOUTS_CACHE_DIR to a folder of yours"


def cache_folder(part: str = "own_env") -> Path:
    """This user's folder: $ROLLOUTS_CACHE_DIR, else `rollouts` in XDG's folder for caches.

    Args:
      part: A subfolder for one kind of files.

    Raises:
      EngineError: It cannot be made, does not belong to this user, or others may write to it.
    """
    given = os.environ.get("ROLLOUTS_CACHE_DIR")
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = Path(given or os.path.join(base, "rollouts")).absolute()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        above = [parent.stat() for parent in folder.resolve().parents]
    except OSError as error:
        raise EngineError(f"the cache {folder} cannot be made: {error}; {_WAY_OUT}") from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise EngineError(
            f"{folder} must be a directory that you own and that nobody else can write to, as what "
            f"lies there is executed: remove it, or {_WAY_OUT}"
        )
    # a user who may rename a folder above could put another one in its place; a sticky folder does
    # not allow that
    if any(one.st_mode & 0o002 and not one.st_mode & stat.S_ISVTX for one in above):
        raise EngineError(f"everybody may write to a folder above {folder}: {_WAY_OUT}")
    own = folder / part
    own.mkdir(mode=0o700, exist_ok=True)
    return own


def find_or_make(folder: Path, key: str, name: str, make: Callable[[Path], None]) -> Path:
    """A file of the cache, made once even if several processes need it at the same time.

    Args:
      folder: The folder of `cache_folder`.
      key: Key of all that the file depends on; becomes the name of a folder.
      name: Name of the file in that folder.
      make: Writes the file, and perhaps others, into an empty folder, which is moved into its place
        afterwards, or removed if it raises.

    Returns:
      The complete file.
    """
    path = folder / key / name
    if _is_whole(path):
        return path
    with _locked(folder / f"{key}.lock"):
        # another process may have made it meanwhile
        if _is_whole(path):
            return path
        made = Path(tempfile.mkdtemp(dir=folder, prefix="making-"))
        try:
            make(made)
            (made / name).chmod(0o600)
            (made / "sha256").write_text(_sha256(made / name))
            # the file at this path is damaged
            shutil.rmtree(path.parent, ignore_errors=True)
            made.rename(path.parent)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return path


def _is_whole(path: Path) -> bool:
    try:
        found = path.lstat()
        is_ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid()
        return is_ours and (path.parent / "sha256").read_text() == _sha256(path)
    except OSError:
        return False


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
