# SPDX-License-Identifier: Apache-2.0
"""The code blocks of a page of docs/ as one script that does what a reader would do.

Python blocks follow each other in one interpreter, lines keep the page's numbers, so that a
traceback names the page's line. A block with a title is a file that the reader writes; one of
`bash` is what they type. `text` is what they see.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from warm_python import run_script

DOCS = Path(__file__).resolve().parents[2] / "docs"
NOT_RUN = "not run here"
_FENCE = re.compile(r"^( *)```(\w+)(.*)$")
_TITLE = re.compile(r'title="([^"]*)"')
_PRELUDE = (
    "import pathlib as _p, subprocess as _s; "
    "_sh = lambda text: print("
    "_s.run(['/bin/sh', '-ec', text], check=True, stdout=_s.PIPE, text=True).stdout, flush=True); "
    "_write = lambda name, text: _p.Path(name).write_text(text)"
)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language, title ("": none), text, and the page's line of its fence."""

    language: str
    title: str
    text: str
    line: int


def pages() -> list[Path]:
    """Every page that a person wrote."""
    return sorted(DOCS.rglob("*.md"))


def blocks(page: Path) -> Iterator[Block]:
    """Blocks in their order; those of tabs are indented."""
    lines = page.read_text().splitlines()
    index = 0
    while index < len(lines):
        begin = _FENCE.match(lines[index])
        if begin is None:
            index += 1
            continue
        indent, language, info = begin.groups()
        end = lines.index(f"{indent}```", index + 1)
        title = _TITLE.search(info)
        text = textwrap.dedent("\n".join(lines[index + 1 : end])) + "\n"
        yield Block(language, title[1] if title else "", text, index + 1)
        index = end + 1


def script_of(page: Path) -> str:
    """The page as a script."""
    lines = [_PRELUDE] + [""] * len(page.read_text().splitlines())
    for block in blocks(page):
        if block.title.startswith(NOT_RUN) or block.language == "text":
            continue
        if block.title:
            lines[block.line - 1] = f"_write({block.title!r}, {block.text!r})"
        elif block.language == "bash":
            lines[block.line - 1] = f"_sh({block.text!r})"
        elif block.language == "python":
            for offset, line in enumerate(block.text.splitlines()):
                lines[block.line + offset] = line
    return "\n".join(lines) + "\n"


def run_page(
    page: Path, folder: Path, timeout: float, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs a page's blocks in a folder, with further variables of the environment."""
    script = folder / "page.py"
    script.write_text(script_of(page))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return run_script(
        script, cwd=folder, env={**os.environ, "PATH": path, **environment}, timeout=timeout
    )


def missing_output(page: Path, stdout: str) -> list[str]:
    """Lines of the page's `text` blocks that were not printed, numbers aside."""
    said = {_without_numbers(line) for line in stdout.splitlines()}
    shown = [
        line
        for block in blocks(page)
        if block.language == "text" and not block.title
        for line in block.text.splitlines()
    ]
    return [line for line in shown if _without_numbers(line) not in said | {"", "..."}]


def _without_numbers(line: str) -> str:
    line = re.sub(r"-?\d[\d_,]*(\.\d*)?(e-?\d+)?", "#", line)
    return re.sub(r"\s+", " ", line).strip()
