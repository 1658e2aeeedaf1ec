# SPDX-License-Identifier: Apache-2.0
"""The comparisons with other libraries, which are in a source checkout but in no wheel."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

import rollouts

# commands, and subjects of `bench`, that exist only in a checkout
COMMANDS = frozenset({"report", "soak", "verify-atari", "verify-mujoco"})
SUBJECTS = frozenset({"adapter", "latency", "memory", "states", "solve", "train"})
WHERE_TO_GET_IT = (
    "comparisons with other libraries lie in the source checkout, not in the installed package: "
    "clone the repository, run `pip install -e .` in it, and give the command again"
)


@functools.cache
def from_checkout(module: str) -> Any | None:
    """A module of `comparisons/`; None where rollouts is not imported from a checkout."""
    root = Path(rollouts.__file__).resolve().parents[1]
    if not (root / "comparisons" / f"{module}.py").is_file():
        return None
    if str(root) not in sys.path:
        # last, so that the checkout hides no other package; started processes get this path, too
        sys.path.append(str(root))
    # a package of this name in the working directory is ignored
    found = importlib.util.find_spec("comparisons")
    if found is None or found.origin != str(root / "comparisons" / "__init__.py"):
        return None
    return importlib.import_module(f"comparisons.{module}")
