# SPDX-License-Identifier: Apache-2.0
"""Our docstrings as Markdown: their columns of shapes and their lists of errors stay as written.

Parsers of Google's style need one name per line, from the signature; our docstrings may write
`min_envs, max_envs:` or contain a table of arrays.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from typing import Any

import griffe

_SECTION = re.compile(r"^(Args|Attributes|Returns|Yields|Raises|Example|Examples|Source):$", re.M)
_ENTRY = re.compile(r"^([\w*`.]+(?:, [\w*`.]+)*(?: \([^)]*\))?): ?(.*)$")


class Docstrings(griffe.Extension):
    """Rewrites each docstring before it is rendered, as Markdown that is not parsed again."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called for every module, class, function and attribute that griffe has read."""
        if obj.docstring is not None:
            obj.docstring.value = markdown_of(obj.docstring.value)


def markdown_of(docstring: str) -> str:
    """The docstring with a bold word for each section, and lists of its entries."""
    text = textwrap.dedent(docstring.expandtabs())
    pieces = _SECTION.split(text)
    parts = [pieces[0].rstrip()]
    for name, body in zip(pieces[1::2], pieces[2::2], strict=True):
        parts += [f"**{name}**", _section(name, body)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _section(name: str, body: str) -> str:
    rest = ""
    lines = body.strip("\n").splitlines()
    # a paragraph that is not indented belongs to the description
    for index, line in enumerate(lines):
        if line and not line.startswith(" "):
            lines, rest = lines[:index], "\n".join(lines[index:])
            break
    inner = textwrap.dedent("\n".join(lines)).rstrip()
    if name in ("Args", "Attributes"):
        shown = "\n".join(_entries(inner))
    elif name.startswith("Example"):
        shown = f"```python\n{inner}\n```"
    elif re.search(r"\S {2,}\S", inner):
        shown = f"```plain\n{inner}\n```"  # columns
    else:
        shown = inner
    return f"{shown}\n\n{rest}" if rest else shown


def _entries(text: str) -> Iterator[str]:
    """A list item for each `name: meaning`, with unchanged columns within a meaning."""
    meaning: list[str] = []
    for line in [*text.splitlines(), "end: "]:
        begins = None if line.startswith(" ") else _ENTRY.match(line)
        if begins is None:
            meaning.append(line)
            continue
        if meaning:
            yield from _item(meaning)
        meaning = [f"- `{begins[1]}`: {begins[2]}"]


def _item(lines: list[str]) -> Iterator[str]:
    first, *more = lines
    if not first.startswith("- "):
        yield from (*lines, "")
    elif any(re.search(r"\S {3,}\S", line.strip()) for line in more):
        body = textwrap.indent(textwrap.dedent("\n".join(more)), "    ")
        yield f"{first}\n\n    ```plain\n{body}\n    ```\n"
    else:
        yield " ".join([first, *(line.strip() for line in more)]).rstrip()
