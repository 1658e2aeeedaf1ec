# SPDX-License-Identifier: Apache-2.0
"""What a compiler says, in a few lines that begin with the line of the user's header."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from rollouts.own_env.header_files import HeaderFiles

_MOST = 4  # messages that are shown
_MESSAGE = re.compile(r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+):(?:\d+:)? (?P<text>.*)$")
_RULE = re.compile(r"static assertion failed(?: due to requirement .*?)?: \"?rollouts: (.*?)\"?$")
_NO_TYPE = re.compile(
    r"does not name a type|not (been )?declared|is not a member|unknown type name|no (type|member) "
    "named"
)
_ERROR = re.compile(r"(?:fatal )?error: (.*)")


def explain(said: str, *, sources: Path, files: HeaderFiles, env_type: str) -> str:
    """A message for those whose header does not compile.

    Args:
      said: What the compiler wrote.
      sources: The folder of the copy that it compiled.
      files: The header.
      env_type: The type that was asked for.

    Returns:
      Rules of the contract that were broken, or else the first errors in the user's files, each
      with file and line; or else what the compiler said first.
    """
    found = [*_errors(said, sources, files)]
    header = Path(files.folder) / files.name
    rules = [rule[1] for _, text in found if (rule := _RULE.search(text))]
    if rules:
        place = f"{header}:{_line_of(files, env_type)}"
        said_of = "; ".join(dict.fromkeys(rules[:_MOST]))
        return f"{place}: {env_type} is no environment as core/env.h has it: {said_of}"
    if found and _NO_TYPE.search(found[0][1]) and not found[0][0]:
        return f"{header} has no type {env_type}: {found[0][1]}"
    own = list(dict.fromkeys(f"{place}: {text}" for place, text in found if place))
    shown = own[:_MOST] or [text for _, text in found[:1]] or said.strip().splitlines()[-3:]
    return f"{header} does not compile:\n  " + "\n  ".join(shown)


def _errors(said: str, sources: Path, files: HeaderFiles) -> Iterator[tuple[str, str]]:
    """(place in the user's files, message) of each error; the place is "" where there is none.

    Of an error in a template of ours the place is the last one of theirs that was named on the way.
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


def _line_of(files: HeaderFiles, env_type: str) -> int:
    """The line of the header that begins the type; 1 where none does."""
    name = re.escape(env_type.split("::")[-1].partition("<")[0])
    begins = re.compile(rf"\b(struct|class|using)\s+{name}\b")
    for number, line in enumerate(files.files[files.name].splitlines(), 1):
        if begins.search(line):
            return number
    return 1
