# SPDX-License-Identifier: Apache-2.0
"""The notebooks are those of their pages, and their cells run in order."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from page_blocks import DOCS, blocks
from warm_python import run_script

sys.path.insert(0, str(DOCS / "hooks"))
from notebooks import PAGES, text_of

NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))
# takes more than some seconds
LONG = {"ppo_from_zero"}


def cells(path: Path, kind: str) -> list[str]:
    notebook: dict[str, Any] = json.loads(path.read_text())
    return [cell["source"] for cell in notebook["cells"] if cell["cell_type"] == kind]


def script_of(path: Path) -> str:
    """The cells as a script, as Jupyter runs them: files are written, `!` is the shell's."""
    lines = ["import pathlib as _p, subprocess as _s"]
    for source in cells(path, "code"):
        head, _, body = source.partition("\n")
        if head.startswith("%%writefile "):
            lines.append(f"_p.Path({head.split()[1]!r}).write_text({body!r})")
        elif head.startswith("!"):
            commands = [each.removeprefix("!") for each in source.splitlines()]
            lines += [
                f"print(_s.run({command!r}, shell=True, check=True, stdout=_s.PIPE, text=True)"
                ".stdout, flush=True)"
                for command in commands
            ]
        else:
            lines.append(source)
    return "\n".join(lines) + "\n"


def test_there_is_a_notebook_for_each_page_and_no_other() -> None:
    assert [path.stem for path in NOTEBOOKS] == sorted(PAGES)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_that_of_its_page(path: Path) -> None:
    page = DOCS / PAGES[path.stem]
    assert path.read_text() == text_of(page), "run python docs/hooks/notebooks.py"
    assert path.stat().st_size < 50_000
    # every block that the page runs is a cell
    run = [each for each in blocks(page) if each.language in ("python", "bash")]
    assert len(cells(path, "code")) == len(run)
    assert f"../notebooks/{path.name}" in page.read_text()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_of_jupyters_format(path: Path) -> None:
    notebook = json.loads(path.read_text())
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(set(ids)) == len(ids)
    for cell in notebook["cells"]:
        expected = {"cell_type", "id", "metadata", "source"}
        if cell["cell_type"] == "code":
            expected |= {"execution_count", "outputs"}
            assert cell["outputs"] == [] and cell["execution_count"] is None
        assert set(cell) == expected


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_links_of_a_notebook_lead_somewhere(path: Path) -> None:
    links = [
        link.partition("#")[0]
        for text in cells(path, "markdown")
        for link in re.findall(r"\]\(([^)\s]+)\)", text)
        if not link.startswith("http")
    ]
    assert links
    assert [link for link in links if not (path.parent / link).exists()] == []


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=pytest.mark.system if path.stem in LONG else ())
        for path in NOTEBOOKS
    ],
)
def test_cells_run_in_order(path: Path, tmp_path: Path) -> None:
    if path.stem == "first_pool":
        pytest.importorskip("ale_py")
    script = tmp_path / "cells.py"
    script.write_text(script_of(path))
    commands = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done: subprocess.CompletedProcess[str] = run_script(
        script, cwd=tmp_path, env={**os.environ, "PATH": commands}, timeout=600
    )
    assert done.returncode == 0, done.stderr[-4000:]
    wanted = {"first_pool": "reward threshold   475", "ppo_from_zero": "runs/cartpole: CartPole-v1"}
    assert wanted[path.stem] in done.stdout
