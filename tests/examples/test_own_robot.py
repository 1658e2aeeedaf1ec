# SPDX-License-Identifier: Apache-2.0
"""`examples/own_robot.py`: a search finds a controller that swings the pole up."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "own_robot.py"


def test_the_search_gets_better() -> None:
    command = [sys.executable, str(EXAMPLE), "--rounds", "6", "--num-envs", "32", "--steps", "150"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    means = [float(line.split()[-1]) for line in result.stdout.splitlines()]
    assert len(means) == 6
    # hanging still is -150
    assert max(means) > means[0] + 10
