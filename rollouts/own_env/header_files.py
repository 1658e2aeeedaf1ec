# SPDX-License-Identifier: Apache-2.0
"""`HeaderFiles`: the text of an environment's header and of its includes, for other processes."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rollouts.errors import SpecError

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', flags=re.MULTILINE)


@dataclass(frozen=True, slots=True)
class HeaderFiles:
    """The text of a header and of the files that it includes with "", except our own headers.

    Attributes:
      name: Name of the header in `files`.
      files: Path relative to `folder` -> text.
      folder: Their folder, for messages. It need not exist on this machine.
    """

    name: str
    files: Mapping[str, str]
    folder: str

    @property
    def digest(self) -> str:
        """A digest of texts and names; 64 hex digits."""
        found = hashlib.sha256(self.name.encode())
        for name in sorted(self.files):
            content = self.files[name].encode()
            found.update(f"\0{name}\0{len(content)}\0".encode() + content)
        return found.hexdigest()

    def write_to(self, folder: Path) -> None:
        """Writes the files below a folder, at their paths relative to `self.folder`."""
        for name, text in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")


def read_header(header: str | os.PathLike[str]) -> HeaderFiles:
    """Reads a header and, in turn, the files that it includes with "".

    Raises:
      SpecError: A file cannot be read. Missing files are left to the compiler.
    """
    first = Path(header).resolve()
    texts: dict[Path, str] = {}
    waiting = [first]
    while waiting:
        path = waiting.pop()
        if path in texts:
            continue
        try:
            texts[path] = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise SpecError(f"the header {path} cannot be read: {error}") from error
        for name in _INCLUDE.findall(texts[path]):
            included = (path.parent / name).resolve()
            if included.is_file():
                waiting.append(included)
    folder = Path(os.path.commonpath([path.parent for path in texts]))
    files = {path.relative_to(folder).as_posix(): text for path, text in texts.items()}
    return HeaderFiles(first.relative_to(folder).as_posix(), files, str(folder))
