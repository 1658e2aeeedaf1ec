# SPDX-License-Identifier: Apache-2.0
"""Draws sentences of our prose, to be read as a stranger: `python tests/structure/sentences.py`.

They come from docstrings, comments and pages. The same seed draws the same sentences of one tree.
"""

from __future__ import annotations

import argparse
import ast
import random
import re
from collections.abc import Iterator
from pathlib import Path

from code_map import ROOT, Function

FOLDERS = ("rollouts", "integrations", "comparisons", "examples", "docs", "native")
KINDS = (".py", ".h", ".cpp", ".md")
BETWEEN_SENTENCES = re.compile(r"(?<=[.!?])\s+(?=[A-Z`\"'\[*])")
FEWEST_WORDS = 5

Part = tuple[int, str]  # line, text


def paragraphs_of_docstrings(text: str) -> Iterator[Part]:
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Module | ast.ClassDef | Function):
            continue
        docstring = ast.get_docstring(node) or ""
        begin = 0
        for paragraph in re.split(r"\n\s*\n", docstring) if docstring else []:
            begin = docstring.index(paragraph, begin)
            yield node.body[0].lineno + docstring[:begin].count("\n"), paragraph


def comments(text: str, mark: str) -> Iterator[Part]:
    """Blocks of comments, and comments behind code after two blanks or more."""
    block: list[str] = []
    for number, line in enumerate([*text.splitlines(), ""], 1):
        found = re.match(rf"^\s*{mark}+ ?(.*)", line)
        if found and "SPDX" not in line:
            block.append(found[1])
            continue
        if block:
            yield number - len(block), "\n".join(block)
            block = []
        if behind := re.search(rf"\S {{2,}}{mark} (?!type: |noqa)(.*)$", line):
            yield number, behind[1]


def paragraphs_of_page(text: str) -> Iterator[Part]:
    """Paragraphs, items of lists and rows of tables, without blocks of code and headings."""
    in_code, block = False, list[str]()
    for number, line in enumerate([*text.splitlines(), ""], 1):
        start = line.strip()
        if start.startswith("```"):
            in_code = not in_code
        ends = in_code or not start or start.startswith(("```", "#", "---", "|--"))
        if block and (ends or re.match(r"^\s*([-*]|\d+\.|\|)\s?", line)):
            yield number - len(block), "\n".join(block)
            block = []
        if not ends:
            block.append(line)


def parts(path: Path) -> Iterator[Part]:
    text = path.read_text()
    if path.suffix == ".py":
        yield from paragraphs_of_docstrings(text)
        yield from comments(text, "#")
    elif path.suffix == ".md":
        yield from paragraphs_of_page(text)
    else:
        yield from comments(text, "//")


def sentences(path: Path) -> Iterator[Part]:
    for line, part in parts(path):
        for sentence in BETWEEN_SENTENCES.split(re.sub(r"\s+", " ", part).strip()):
            if len(re.findall(r"[A-Za-z]{2,}", sentence)) >= FEWEST_WORDS:
                yield line, sentence


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=60)
    args = parser.parse_args()
    files = (path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*")))
    every = [
        (path.relative_to(ROOT), line, sentence)
        for path in files
        if path.suffix in KINDS and path.is_file()
        for line, sentence in sentences(path)
    ]
    drawn = random.Random(args.seed).sample(every, args.count)
    for number, (file, line, sentence) in enumerate(drawn, 1):
        print(f"{number}. {file}:{line}: {sentence}")


if __name__ == "__main__":
    main()
