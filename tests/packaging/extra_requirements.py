# SPDX-License-Identifier: Apache-2.0
"""Prints the requirements of extras: `python tests/packaging/extra_requirements.py dev`.

pip would build the whole package anew to install another of its extras. The Makefile hands these
lines to it in place of the package. `dependencies` stands for what the library always needs,
`build-system` for what its build does.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

PYPROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"


def requirements(extras: dict[str, list[str]], name: str) -> Iterator[str]:
    """Yields the lines of an extra; its `rollouts[a,b]` are replaced by the lines of a and b."""
    for line in extras[name]:
        if line.startswith("rollouts["):
            for part in line.removeprefix("rollouts[").removesuffix("]").split(","):
                yield from requirements(extras, part)
        else:
            yield line


if __name__ == "__main__":
    pyproject = tomllib.loads(PYPROJECT.read_text())
    extras = pyproject["project"]["optional-dependencies"]
    extras["dependencies"] = pyproject["project"]["dependencies"]
    extras["build-system"] = pyproject["build-system"]["requires"]
    for name in sys.argv[1:]:
        print(*requirements(extras, name), sep="\n")
