# SPDX-License-Identifier: Apache-2.0
"""Help for an environment's options, from the comments at their fields in the header."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rollouts import _native
from rollouts.errors import SpecError

_CONFIG = re.compile(r"( *)struct \w*Config\b.*\{$")
_FIELD = re.compile(r" *[\w:]+ (?P<name>\w+)(?: = [^;]*)?; *(?:// *(?P<beside>.*))?$")
_COMMENT = re.compile(r" *// *(.*)$")
_remembered: dict[str, str] = {}
_INCLUDE = re.compile(r'(?:#include|// options:) "rollouts/((?:envs|engines)/[^"]+)"')


@functools.cache
def option_help(header: str) -> Mapping[str, str]:
    """Reads one line of help for each option.

    A field's help is the comment beside it, or else the first sentence of the comment above it.
    Headers that the header includes, or names in a comment "options:", are read too; the header's
    own fields take precedence.

    Args:
      header: `EnvSpec.header`.

    Returns:
      Option -> help; also for some options that users cannot set.
    """
    return _read(header, ())


def _read(header: str, within: tuple[str, ...]) -> dict[str, str]:
    """Reads a header's help; `within` are headers that led to it."""
    text = _remembered.get(header)
    if text is None:
        file = Path(str(_native.__file__)).parent / "include" / "rollouts" / header
        text = file.read_text(encoding="utf-8")
    lines = text.splitlines()
    found: dict[str, str] = {}
    for name, text in _fields(lines):
        found.setdefault(name, text)
    within = (*within, header)
    for line in lines:
        if (include := _INCLUDE.match(line)) and include[1] not in within:
            found = {**_read(include[1], within), **found}
    return found


def remember_header(header: str, text: str) -> None:
    """Keeps the text of a user's header, from which `option_help` reads its options."""
    _remembered[header] = text


@contextmanager
def explained(headers: Iterable[str], options: Iterable[str]) -> Iterator[None]:
    """Adds help to the message of a SpecError, for the options that it names.

    Args:
      headers: Headers of the environments with these options.
      options: Names that were given.
    """
    try:
        yield
    except SpecError as error:
        words = set(re.findall(r"\w+", str(error)))
        known = {name: text for header in headers for name, text in option_help(header).items()}
        said = [f"{name} is: {known[name]}" for name in options if name in words and name in known]
        if not said:
            raise
        raise SpecError("; ".join([str(error), *said])) from None


def _fields(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """(name, help) of the fields of structs whose names end in Config."""
    end, above = None, ""
    for line in lines:
        if end is None:
            if config := _CONFIG.match(line):
                end, above = config[1] + "};", ""
        elif line == end:
            end = None
        elif comment := _COMMENT.match(line):
            above = f"{above} {comment[1]}".strip()
        else:
            field = _FIELD.match(line)
            if field and (field["beside"] or above):
                yield field["name"], field["beside"] or above.partition(". ")[0].removesuffix(".")
            above = ""
