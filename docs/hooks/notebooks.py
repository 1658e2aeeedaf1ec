# SPDX-License-Identifier: Apache-2.0
"""Tutorials as notebooks: `python docs/hooks/notebooks.py` writes docs/notebooks/ from the pages.

Text becomes cells of text, blocks become cells of code; a page's output blocks are left out,
because cells print the output. A block with a title is a file that the cell writes; a `bash` block
is run with `!`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[1]
PAGES = {"first_pool": "tutorials/first_pool.md", "ppo_from_zero": "tutorials/ppo.md"}
_FENCE = re.compile(r'^```(\w+)(?: title="([^"]*)")?$')
_LINK = re.compile(r"\]\((?!https?:|#)([^)\s]+)\)")


def notebook_of(page: Path) -> dict[str, Any]:
    """The page in the format of Jupyter, version 4.5, without outputs."""
    cells = [
        {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": source}
        | ({"execution_count": None, "outputs": []} if kind == "code" else {})
        for number, (kind, source) in enumerate(_cells(page))
    ]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {
        "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def text_of(page: Path) -> str:
    """The notebook's file."""
    return json.dumps(notebook_of(page), indent=1, ensure_ascii=False) + "\n"


def _cells(page: Path) -> Iterator[tuple[str, str]]:
    """Kind and source of each cell."""
    told: list[str] = []
    lines = iter(page.read_text().splitlines())
    for line in lines:
        begin = _FENCE.match(line)
        if begin is None:
            # the notebook does not link to itself
            if "../notebooks/" not in line:
                told.append(line)
            continue
        block = list(iter(lines.__next__, "```"))
        language, title = begin.groups()
        if language == "text":
            continue
        yield from _told(told, page)
        told = []
        if title:
            yield "code", "\n".join([f"%%writefile {title}", *block])
        elif language == "bash":
            yield "code", "\n".join(f"!{each}" for each in block)
        else:
            yield "code", "\n".join(block)
    yield from _told(told, page)


def _told(lines: list[str], page: Path) -> Iterator[tuple[str, str]]:
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()
    if text:
        yield "markdown", _LINK.sub(lambda link: f"]({_from_here(link[1], page)})", text)


def _from_here(link: str, page: Path) -> str:
    """A page's link, relative to docs/notebooks/."""
    path, anchor, rest = link.partition("#")
    target = (page.parent / path).resolve()
    return Path(os.path.relpath(target, DOCS / "notebooks")).as_posix() + anchor + rest


def main() -> None:
    """Writes the notebooks."""
    (DOCS / "notebooks").mkdir(exist_ok=True)
    for name, page in PAGES.items():
        (DOCS / "notebooks" / f"{name}.ipynb").write_text(text_of(DOCS / page))


if __name__ == "__main__":
    main()
