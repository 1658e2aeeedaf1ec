# SPDX-License-Identifier: Apache-2.0
"""The code blocks of docs/own_environment.md, run in their order in one folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from own_envs import has_compiler, keep_between_runs, quick_compiler

PAGE = Path(__file__).resolve().parents[2] / "docs" / "own_environment.md"
BLOCKS = re.findall(
    r"^```(bash|cpp|python)\n(.*?)^```", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL
)


@pytest.mark.system
def test_the_page_runs_from_the_template_to_the_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    if not has_compiler():
        pytest.skip("needs a C++ compiler")
    keep_between_runs()
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environ = {**os.environ, "PATH": path, "CXX": quick_compiler()}
    said = []
    for language, block in BLOCKS:
        if language == "cpp":
            (tmp_path / "orchard.h").write_text(block)
            continue
        command = ["sh", "-ec", block] if language == "bash" else [sys.executable, "-c", block]
        result = subprocess.run(
            command,
            cwd=tmp_path,
            env=environ,
            capture_output=True,
            text=True,
        )
        assert result.returncode == 0, result.stdout + result.stderr
        said.append(result.stdout)
    template, tried, played, drawn = said
    assert "FAIL" not in template + tried
    breeze, gale = re.findall(r"mean return (-?[\d.]+)", played)
    assert float(breeze) > float(gale)
    assert drawn == "picture: orchard.png\n"
    assert (tmp_path / "orchard.png").read_bytes()[:4] == b"\x89PNG"
    # the page shows the picture that its code draws
    assert (PAGE.parent / "orchard.png").read_bytes()[:4] == b"\x89PNG"


def test_lines_that_the_page_quotes_are_where_it_says() -> None:
    (header,) = [block for language, block in BLOCKS if language == "cpp"]
    lines = header.splitlines()
    for number in re.findall(r"orchard\.h:(\d+):", PAGE.read_text()):
        assert 0 < int(number) <= len(lines)
    (observe,) = [i for i, line in enumerate(lines, 1) if "static void Observe(" in line]
    assert f"orchard.h:{observe}: observation" in PAGE.read_text()
