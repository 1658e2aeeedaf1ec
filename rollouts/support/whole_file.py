# SPDX-License-Identifier: Apache-2.0
"""Files that are there as a whole or as they were."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


@contextlib.contextmanager
def replace_whole(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Gives a file to write, which takes the place of `path` when the block ends without an error.

    Whenever this stops, by a crash of the machine too, `path` is the old file or the new one.

    Raises:
      OSError: The directory is not there, or cannot be written.
    """
    target = Path(path)
    # in the same directory, because only within a file system is a rename atomic
    descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    directory = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
