# SPDX-License-Identifier: Apache-2.0
"""Folders of the C++ core in an order: each includes only what stands before it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

NATIVE = Path(__file__).resolve().parents[2] / "native"
# include/rollouts/ and src/ have these folders; those of one row do not include each other
ORDER = [
    ("core",),
    ("support",),
    ("data", "atari2600", "lanes"),
    ("engines",),
    ("envs", "pool", "replay", "device"),
    ("policy", "plugin", "wrappers"),
    ("registry",),
    ("bindings",),
]
ROOTS = ("include/rollouts", "src", ".")
ROWS = {folder: row for row, folders in enumerate(ORDER) for folder in folders}
FILES = [
    path
    for folder in ("include", "src", "bindings")
    for path in sorted((NATIVE / folder).rglob("*"))
    if path.suffix in (".h", ".cpp", ".inc")
]


def folder_of(path: Path) -> str:
    root = next(NATIVE / root for root in ROOTS if path.is_relative_to(NATIVE / root))
    return path.relative_to(root).parts[0]


def included(path: Path) -> Iterator[Path]:
    """Files of ours that a file includes; what the build generates, of envs.cmake, aside."""
    for name in re.findall(r'^#include "([^"]+)"', path.read_text(), flags=re.MULTILINE):
        if not name.startswith("registry_"):
            places = (path.parent / name, NATIVE / "include" / name, NATIVE / "src" / name)
            yield next(place for place in (*places, NATIVE / name) if place.exists())


def test_every_file_has_a_place() -> None:
    assert {folder_of(path) for path in FILES} == {*ROWS}


def test_includes_follow_the_order() -> None:
    back = [
        (str(path.relative_to(NATIVE)), str(other.relative_to(NATIVE)))
        for path in FILES
        for other in included(path)
        if folder_of(other) != folder_of(path) and ROWS[folder_of(other)] >= ROWS[folder_of(path)]
    ]
    assert back == []


def test_only_the_registry_includes_the_table_of_environments() -> None:
    tables = {path for path in FILES if re.search(r'#include "registry_', path.read_text())}
    assert {folder_of(path) for path in tables} == {"registry"}


def test_light_environments_include_core_alone() -> None:
    # they also compile for a GPU, where there is no other folder
    for family in ("classic", "toy_text"):
        for path in sorted((NATIVE / "include" / "rollouts" / "envs" / family).glob("*.h")):
            assert {folder_of(other) for other in included(path)} == {"core"}, path


def test_tasks_that_kernels_run_include_core_and_views_alone() -> None:
    tasks = NATIVE / "include" / "rollouts" / "envs" / "mujoco"
    seen: set[Path] = set()
    todo = [tasks / name for name in ("v4_bodies.h", "v4_runners.h", "v4_small.h")]
    while todo:
        path = todo.pop()
        seen.add(path)
        todo += [other for other in included(path) if other not in seen]
    ours = {path for path in seen if folder_of(path) != "core"}
    assert {path.name for path in ours if folder_of(path) != "envs"} == {"mujoco_views.h"}
    # NVRTC has no standard library
    assert [path for path in ours if re.search("^#include <", path.read_text(), re.MULTILINE)] == []
