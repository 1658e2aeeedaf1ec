# SPDX-License-Identifier: Apache-2.0
"""READMEs in reading order: what they name is there, and they name every folder."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from code_map import ROOT
from test_native_layers import NATIVE, ORDER

PYTHON = ROOT / "rollouts"
INCLUDED = NATIVE / "include" / "rollouts"
SOURCES = {".py", ".h", ".cpp", ".inc"}
# README -> the folders in which a name is looked for, and those whose folders it has to name
PLACES = {
    PYTHON / "README.md": ([PYTHON], [PYTHON]),
    NATIVE / "README.md": (
        [NATIVE, INCLUDED, NATIVE / "src"],
        [INCLUDED, NATIVE / "src", NATIVE / "bindings"],
    ),
}


def cells(readme: Path) -> list[str]:
    """The column of names of the table in reading order."""
    rows = re.findall(r"^\| *\d* *\|([^|]*`[^|]*)\|", readme.read_text(), flags=re.MULTILINE)
    return [str(row) for row in rows]


def found(cell: str, folders: list[Path]) -> dict[str, list[Path]]:
    """Files and folders by the name in a cell; a name may lie where the ones before it lie."""
    places: dict[str, list[Path]] = {}
    near = list(folders)
    for name in re.findall(r"`([\w/.*]+)`", cell):
        places[name] = [path for folder in near for path in sorted(folder.glob(name))]
        near = [*{path.parent for path in places[name]}, *near]
    return places


def inside(folder: Path) -> str:
    """The folder's name below its root: include/rollouts/ and src/ have the same folders."""
    roots = [root for root in (INCLUDED, NATIVE / "src") if folder.is_relative_to(root)]
    return str(folder.relative_to(*roots or [ROOT]))


@pytest.mark.parametrize("readme", PLACES, ids=lambda path: path.parent.name)
def test_what_a_readme_names_is_there(readme: Path) -> None:
    folders, _ = PLACES[readme]
    rows = cells(readme)
    assert len(rows) > 35
    missing = [name for cell in rows for name, there in found(cell, folders).items() if not there]
    assert missing == []


@pytest.mark.parametrize("readme", PLACES, ids=lambda path: path.parent.name)
def test_a_readme_names_every_folder(readme: Path) -> None:
    folders, roots = PLACES[readme]
    named = {
        inside(folder)
        for cell in cells(readme)
        for there in found(cell, folders).values()
        for path in there
        for folder in (path if path.is_dir() else path.parent,)
    }
    there = {
        inside(path.parent)
        for root in roots
        for path in root.rglob("*")
        if path.suffix in SOURCES and path.parent != root
    }
    assert sorted(there - named) == []


def test_the_readme_names_functions_that_its_files_define() -> None:
    table = (PYTHON / "README.md").read_text().split("## Where it is decided")[1].split("\n## ")[0]
    rows = re.findall(r"^\|[^|]*\|([^|]*`[^|]*)\|([^|]*`[^|]*)\|", table, flags=re.MULTILINE)
    assert len(rows) > 10
    missing = [
        (str(path.relative_to(ROOT)), name)
        for files, names in rows
        for there in found(files, [ROOT]).values()
        for path in there or [ROOT / files.strip()]
        for name in re.findall(r"`(\w+)`", names)
        if not path.is_file() or not defines(path, name)
    ]
    assert missing == []


def defines(path: Path, name: str) -> bool:
    """True where a file defines a function or a class of that name."""
    begin = r"^\s*(?:def|class) " if path.suffix == ".py" else r"^[^/=;]*[\w>] "
    return re.search(rf"{begin}{name}\b[(:]", path.read_text(), flags=re.MULTILINE) is not None


def test_the_native_readme_has_the_order_of_includes() -> None:
    text = (NATIVE / "README.md").read_text()
    listed = text.split("(`tests/structure/test_native_layers.py`):")[1].split(". So a pool")[0]
    rows = [tuple(re.findall(r"`(\w+)/?`", row)) for row in listed.split(";")]
    assert rows == ORDER
