# SPDX-License-Identifier: Apache-2.0
"""`examples/domain_randomisation.py` by its command line."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "examples" / "domain_randomisation.py"
LIMIT_S = 600


def test_heavier_cheetahs_fall_in_their_own_gravity() -> None:
    command = [sys.executable, str(SCRIPT), "--num-envs", "4", "--num-steps", "30"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=True)
    rows = re.findall(r"mass +([\d.]+) kg  gravity +(-[\d.]+) m/s\^2", done.stdout)
    mass, gravity = zip(*[(float(one), float(other)) for one, other in rows], strict=True)
    assert list(mass) == [7.0, 14.0, 21.0, 28.0]
    assert len(set(gravity)) == 4 and all(-10.5 <= one < -9 for one in gravity)
