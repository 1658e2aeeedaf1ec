# SPDX-License-Identifier: Apache-2.0
"""The README's code blocks run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.system

README = Path(__file__).resolve().parents[2] / "README.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", README.read_text(), flags=re.MULTILINE | re.DOTALL)


def test_readme_shows_one_block_for_each_way_in() -> None:
    shown = (
        "send(",
        "from_env_fns(",
        "num_taggers",
        "cpu-emulation",
        "ReplayBuffer(",
        "RolloutCoordinator",
        "Collector(",
        "ReplayService(",
        "MuJoCo-v0",
    )
    assert [[name for name in shown if name in block] for block in BLOCKS] == [
        [],
        ["send("],
        [],
        ["from_env_fns("],
        ["num_taggers"],
        ["cpu-emulation"],
        ["cpu-emulation", "Collector("],
        ["RolloutCoordinator"],
        ["Collector("],
        ["ReplayBuffer("],
        ["RolloutCoordinator", "ReplayService("],
        ["MuJoCo-v0"],
    ]


@pytest.mark.parametrize(
    "block",
    BLOCKS,
    ids=[
        "step",
        "send-recv",
        "options",
        "env-fns",
        "agents",
        "gpu",
        "gpu-collector",
        "ray",
        "collector",
        "replay",
        "service",
        "mujoco",
    ],
)
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
