# SPDX-License-Identifier: Apache-2.0
"""The README is one screen, and its code blocks run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).resolve().parents[2] / "README.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", README.read_text(), flags=re.MULTILINE | re.DOTALL)


def test_readme_is_short_and_shows_a_pool_and_a_collector() -> None:
    assert len(README.read_text().splitlines()) < 150
    shown = ("env.step(", "Collector(")
    assert [[name for name in shown if name in block] for block in BLOCKS] == [
        ["env.step("],
        ["Collector("],
    ]


@pytest.mark.parametrize("block", BLOCKS, ids=["step", "collector"])
def test_readme_block_runs(block: str, tmp_path: Path) -> None:
    script = tmp_path / "block.py"
    script.write_text(block)
    result = subprocess.run(
        [sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=600
    )
    assert result.returncode == 0, result.stderr[-3000:]
    assert "Error" not in result.stderr
    # a reader who runs it sees something, and what it is
    assert re.search(r"^[a-z][a-z0-9 \-,\[\]]+: ", result.stdout, re.MULTILINE), result.stdout
