# SPDX-License-Identifier: Apache-2.0
"""Comparisons with other libraries, which no wheel holds: see README.md beside this file."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).parents[1]


def environment() -> dict[str, str]:
    """The environment of a Python process that imports this package from any folder."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
