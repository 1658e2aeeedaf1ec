# SPDX-License-Identifier: Apache-2.0
"""Folders of rollouts/ in an order: each imports only what stands before it."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import rollouts

PACKAGE = Path(rollouts.__file__).parent
# folders, and modules of the root
ORDER = [
    *("errors", "support", "batch", "specs", "features", "checks", "machine", "metrics"),
    *("families", "mujoco", "own_model", "own_env", "rendering"),
    *("envs", "envs.kernel", "envs.physics", "envs.hosted", "envs.make"),
    *("checkpoint", "policies", "policy", "recurrent", "exporting", "returns", "returns_torch"),
    "run_log",
    *("collecting", "learner", "learner_shards", "device_queue"),
    *(
        "datasets",
        "workers",
        "simulation",
        "workers.on_ray",
        "replay",
        "curriculum",
        "bench",
        "tuning",
        "cli",
    ),
    "__main__",
]
DOCUMENTED = [
    *(
        "errors",
        "checkpoint",
        "policy",
        "recurrent",
        "returns",
        "returns_torch",
        "mujoco",
        "own_model",
    ),
    *(
        "metrics",
        "replay",
        "workers",
        "device_queue",
        "learner_shards",
        "envs.hosted",
        "curriculum",
    ),
]


def name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def imports(node: ast.AST) -> Iterator[str]:
    """Modules of ours that are imported below the node; what only type checkers read aside."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names if alias.name in MODULES)
        elif isinstance(child, ast.ImportFrom) and child.module in MODULES:
            for alias in child.names:
                full = f"{child.module}.{alias.name}"
                yield full if full in MODULES else child.module
        else:
            yield from imports(child)


def folder_of(module: str) -> str:
    """The entry of ORDER that a module belongs to."""
    parts = module.split(".")[1:]
    inner = ".".join(parts[:2])
    return inner if inner in ORDER else parts[0]


def place(module: str) -> int:
    return ORDER.index(folder_of(module))


def test_every_module_has_a_place() -> None:
    found = {folder_of(name) for name in MODULES if name != "rollouts"}
    assert found == {*ORDER}


def test_imports_follow_the_order() -> None:
    back = {
        (name, imported)
        for name, path in MODULES.items()
        for imported in imports(ast.parse(path.read_text()))
        # the package itself gives everything that users import
        if "rollouts" not in (name, imported) and place(imported) > place(name)
    }
    assert not back


@pytest.mark.parametrize("name", DOCUMENTED)
def test_documented_modules_can_be_imported(name: str) -> None:
    importlib.import_module(f"rollouts.{name}")
