# SPDX-License-Identifier: Apache-2.0
"""Allowed imports and includes; orders of folders are in test_layers, test_native_layers."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def imported_modules(path: Path) -> set[str]:
    """Full names of the modules that a Python file imports, at any depth."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
    return names


def python_files(*folders: str) -> list[Path]:
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


def includes(path: Path) -> list[str]:
    return re.findall(r'^#include [<"]([^>"]+)[>"]', path.read_text(), flags=re.MULTILINE)


def defined_classes(header: Path) -> set[str]:
    """Full names of the classes that a header defines, those inside classes aside."""
    text = header.read_text()
    spaces = "::".join(re.findall(r"^namespace ([\w:]+) \{", text, flags=re.MULTILINE))
    names = re.findall(
        r"^(?:class|struct)(?: alignas\(\w+\))? (\w+)(?: final)?(?: : [^{;]*)? \{",
        text,
        flags=re.MULTILINE,
    )
    return {f"{spaces}::{name}" for name in names}


def test_no_two_native_headers_define_a_class_of_one_name() -> None:
    # the linker would take either one's functions for both
    found: dict[str, Path] = {}
    for header in sorted((ROOT / "native").rglob("*.h")):
        for name in defined_classes(header):
            assert name not in found, (name, header, found[name])
            found[name] = header
    assert len(found) > 150


def test_only_the_bindings_know_pybind11() -> None:
    for source in [*(ROOT / "native").rglob("*.h"), *(ROOT / "native").rglob("*.cpp")]:
        if "bindings" not in source.parts:
            assert not any("pybind11" in name for name in includes(source)), source


def test_the_gil_is_given_away_by_our_guards_alone() -> None:
    # pybind11's abort the process where its interpreter ends meanwhile
    for source in [*(ROOT / "native").rglob("*.h"), *(ROOT / "native").rglob("*.cpp")]:
        assert not re.search(r"gil_scoped_|call_guard|Py_BEGIN_ALLOW", source.read_text()), source


def test_only_the_engines_load_foreign_libraries() -> None:
    # portable/ looks for functions of the C library, which is loaded
    for source in (ROOT / "native").rglob("*.cpp"):
        if not {"engines", "portable"} & {*source.relative_to(ROOT).parts}:
            assert "dlfcn.h" not in includes(source), source


def test_only_two_folders_and_their_benchmarks_import_ray() -> None:
    names = ("driver_cost.py", "direct_weights.py", "weights.py")
    benchmarks = {ROOT / "rollouts" / "bench" / name for name in names}
    for path in python_files("rollouts"):
        if path.parent.name not in ("cluster", "on_ray") and path not in benchmarks:
            assert not {n for n in imported_modules(path) if n.split(".")[0] == "ray"}, path


def test_names_that_ray_keeps_private_have_one_home() -> None:
    private = re.compile(
        r"\b_use_object_store\b|\brdt\b|rdt_manager|\._actor_id\b|__ray_call__|_ray_system"
        r"|_ray_enable|ray\._private|_global_node|global_worker"
    )
    home = ROOT / "rollouts" / "support" / "ray_private.py"
    paths = [path for path in python_files("rollouts", "integrations") if path != home]
    assert private.search(home.read_text())
    assert not [path for path in paths if private.search(path.read_text())]


def test_rollouts_imports_neither_integrations_nor_comparisons() -> None:
    others = ("rollouts.integrations", "integrations", "comparisons")
    for path in python_files("rollouts"):
        assert not {n for n in imported_modules(path) if n.startswith(others)}, path


def test_adapters_do_not_import_comparisons() -> None:
    for path in python_files("integrations"):
        assert not {n for n in imported_modules(path) if n.startswith("comparisons")}, path


def test_importing_rollouts_loads_no_heavy_library() -> None:
    heavy = ["torch", "ray", "ale_py", "mujoco", "matplotlib", "envpool", "rich", "tensorboard"]
    code = f"import sys, rollouts; print([m for m in {heavy!r} if m in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/"
    )
    assert result.stdout.strip() == "[]"


def test_tests_register_environments_of_their_own_under_ids_of_their_own() -> None:
    # any two tests may run in one process, and an id is one environment's; wheels have their own
    found: dict[str, Path] = {}
    for path in (one for one in python_files("tests") if one.parent.name != "packaging"):
        for env_id in set(re.findall(r'rollouts\.register_env\(\s*"([^"]+)"', path.read_text())):
            assert env_id not in found, (env_id, path, found[env_id])
            found[env_id] = path
    assert len(found) > 10


def test_only_test_files_mark_tests_for_the_system() -> None:
    # make test-system is given the files in which it finds the marker
    marker = "mark." + "system"
    marking = [path for path in python_files("tests") if marker in path.read_text()]
    assert len(marking) > 50
    assert [path for path in marking if not path.name.startswith("test_")] == []
