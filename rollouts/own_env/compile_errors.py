# SPDX-License-Identifier: Apache-2.0
"""Shortens a compiler's output to a few lines, the line of the user's header first."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from rollouts.own_env.header_files import HeaderFiles

_MOST = 4  # messages that are shown
_MESSAGE = re.compile(r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+):(?:\d+:)? (?P<text>.*)$")
# messages of g++ and of clang from 16 on, and the older "static_assert failed"
_RULE = re.compile(r"static(?: assertion|_assert) failed\b.*?\brollouts: (.*?)\"?$")
_NO_TYPE = re.compile(
    r"does not name a type|not (been )?declared|is not a member|unknown type name|no (type|member) "
    "named"
)
_AMBIGUOUS = re.compile(r"reference to .* is ambiguous")
_ERROR = re.compile(r"(?:fatal )?error: (.*)")


def explain(said: str, *, sources: Path, files: HeaderFiles, env_type: str) -> str:
    """A message for users whose header does not compile.

    Args:
      said: Output of the compiler.
      sources: The folder of the copy that was compiled.
      files: The header.
      env_type: The environment's type.

    Returns:
      Rules of the contract that were broken, or else the first errors in the user's files, each
        with file and line, or else the first line of the output.
    """
    found = [*_errors(said, sources, files)]
    header = Path(files.folder) / files.name
    rules = [rule[1] for _, text in found if (rule := _RULE.search(text))]
    if rules:
        place = place_of(files, env_type)
        said_of = "; ".join(dict.fromkeys(rules[:_MOST]))
        return f"{place}: {env_type} is no environment as core/env.h has it: {said_of}"
    if any(_AMBIGUOUS.search(text) and not place for place, text in found):
        return (
            f"{place_of(files, env_type)}: {env_type} is a type of this header and one of ours: "
            f"say type='::{env_type}' for the first, type='rollouts::{env_type}' for the second"
        )
    if found and _NO_TYPE.search(found[0][1]) and not found[0][0]:
        return f"{header} has no type {env_type}: {found[0][1]}"
    own = list(dict.fromkeys(f"{place}: {text}" for place, text in found if place))
    shown = own[:_MOST] or [text for _, text in found[:1]] or said.strip().splitlines()[-3:]
    return f"{header} does not compile:\n  " + "\n  ".join(shown)


def _errors(said: str, sources: Path, files: HeaderFiles) -> Iterator[tuple[str, str]]:
    """(place in the user's files, message) of each error; the place is "" if there is none.

    For an error in one of our templates, the place is the line of the user's file that led there
    last.
    """
    nearest = ""
    for line in said.splitlines():
        message = _MESSAGE.match(line)
        if message is None:
            continue
        place = ""
        if Path(message["file"]).is_relative_to(sources):
            name = Path(message["file"]).relative_to(sources)
            place = f"{Path(files.folder) / name}:{message['line']}"
            nearest = place
        if error := _ERROR.match(message["text"]):
            yield place or nearest, error[1]
            nearest = ""


def place_of(files: HeaderFiles, env_type: str, part: str = "") -> str:
    """The place "file:line" of a type in the header, or of a line after it.

    Args:
      files: The header.
      env_type: The type; the place is line 1 if it is not found.
      part: A pattern of the line to find; without a match, the place of the type is returned.
    """
    name = re.escape(env_type.partition("<")[0].split("::")[-1])
    lines = files.files[files.name].splitlines()
    begins = _first(rf"\b(struct|class|using)\s+{name}\b", lines, 0)
    found = _first(part, lines, begins or 0) if part else begins
    chosen = begins if found is None else found
    return f"{Path(files.folder) / files.name}:{(chosen or 0) + 1}"


def _first(pattern: str, lines: list[str], start: int) -> int | None:
    return next((i for i in range(start, len(lines)) if re.search(pattern, lines[i])), None)
