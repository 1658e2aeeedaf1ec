# SPDX-License-Identifier: Apache-2.0
"""Finds habits of prose that make riddles: `python tests/structure/prose.py [FOLDER ...]`.

A docstring begins with a noun or with a verb in -s; a comment has a subject; a relative clause has
its noun. Only what a pattern can find is found.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from code_map import ROOT, module_at

FOLDERS = ("rollouts", "integrations", "comparisons", "examples", "tests", "native", "docs")
CLAUSES = (
    "What|How|Which|Who|Whose|Whether|Why|Where|When|While|Since|Has|Does what|That|Not|Cannot"
    "|At|By|For|From|In|Of|With|Without"
)
DOCSTRING = re.compile(rf"({CLAUSES})\b")
# a declaration's comment in C++ is a sentence; one in a function begins with a small letter
DECLARATION = re.compile(rf"({CLAUSES.replace('|For|', '|')})\b")
# an argument or attribute in a docstring: "path: Of the file."
ENTRY = re.compile(
    r"^\s+[\w*]+(?:, [\w*]+)*: (Of|That(?! of)|Which|Whose|Who|With|For)\b", re.IGNORECASE
)
COMMENT = re.compile(r"(of|which|whose|who|than|that(?! of| is\b))\b", re.IGNORECASE)
ANYWHERE = re.compile(r"\b(whoever|for who)\b", re.IGNORECASE)
HAS = re.compile(
    r"\bhas (?:(?!(?:to|that|which|what|not|no|a|all|than|been)\b)[\w`'-]+ ){1,5}?"
    r"(?:be|begin|come|do|draw|give|go|know|learn|make|run|send|start|stop|tell|wait|write)\b",
    re.IGNORECASE,
)
# a comment that stands alone, or behind code after two blanks or more
PYTHON_COMMENT = re.compile(r"^\s*# ?(?P<alone>.*)|\S {2,}# (?P<behind>.*)$")
NATIVE_COMMENT = re.compile(r"^\s*//+ ?(?P<alone>.*)|\S {2,}// (?P<behind>.*)$")
DOCSTRING_BEGINS = "docstrings begin with a noun or a verb in -s"
ENTRY_BEGINS = "arguments and attributes in docstrings begin with a noun or a verb in -s"
COMMENT_BEGINS = "comments do not begin with of, which, who, that or than"
DECLARATION_BEGINS = "declarations in C++ begin with a noun or a verb in -s"
WHOEVER = 'neither "whoever" nor "for who"'
HAS_DO = 'not "has X do Y"'

Place = tuple[str, str, int, str]  # rule, file, line, text


def comments(path: Path) -> Iterator[tuple[int, str]]:
    """The first line of each block of comments, with its number."""
    pattern = PYTHON_COMMENT if path.suffix == ".py" else NATIVE_COMMENT
    inside = False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        found = None if "SPDX-License-Identifier" in line else pattern.search(line)
        alone = found is not None and found["alone"] is not None
        if found is not None and not (alone and inside):
            yield number, found["alone"] or found["behind"] or ""
        inside = alone


def riddles(path: Path) -> Iterator[Place]:
    """Places in one file that break a rule."""
    file = str(path.relative_to(ROOT))
    if path.suffix == ".py":
        for number, text in module_at(path).docstrings():
            if DOCSTRING.match(text):
                yield DOCSTRING_BEGINS, file, number, text.splitlines()[0]
            for row, line in enumerate(text.splitlines()):
                if row and ENTRY.match(line):
                    yield ENTRY_BEGINS, file, number + row, line.strip()
    if path.suffix != ".md":
        for number, text in comments(path):
            if COMMENT.match(text):
                yield COMMENT_BEGINS, file, number, text
            elif path.suffix != ".py" and DECLARATION.match(text):
                yield DECLARATION_BEGINS, file, number, text
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if ANYWHERE.search(line):
            yield WHOEVER, file, number, line.strip()
        if HAS.search(line):
            yield HAS_DO, file, number, line.strip()


def sources(*folders: str) -> list[Path]:
    kinds = (".py", ".h", ".cpp", ".md")
    roots = [ROOT / folder for folder in folders or FOLDERS]
    found = {path for root in roots for path in ([root] if root.is_file() else root.rglob("*"))}
    # what names the habits: this file and its tests
    found -= {Path(__file__), Path(__file__).with_name("test_ratchet.py")}
    return sorted(path for path in found if path.suffix in kinds)


def counts() -> dict[str, dict[str, int]]:
    """Counts, by rule and file, the places that break it."""
    rules = (DOCSTRING_BEGINS, ENTRY_BEGINS, COMMENT_BEGINS, DECLARATION_BEGINS, WHOEVER, HAS_DO)
    found: dict[str, Counter[str]] = {rule: Counter() for rule in rules}
    for path in sources():
        for rule, file, *_ in riddles(path):
            found[rule][file] += 1
    return {rule: dict(files) for rule, files in found.items()}


def main() -> None:
    for path in sources(*sys.argv[1:]):
        for _, file, number, text in riddles(path):
            print(f"{file}:{number}: {text}")


if __name__ == "__main__":
    main()
