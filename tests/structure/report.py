# SPDX-License-Identifier: Apache-2.0
"""Prints how the code is laid out: `python tests/structure/report.py`.

Lines are counted as they stand, blank ones and comments too, where nothing else is said.
"""

from __future__ import annotations

import ast
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ("rollouts", "integrations", "comparisons", "examples", "native")
MOST_FILES = 25
# classes and functions of many arguments
SIGNATURES = {
    "RolloutCoordinator": ("rollouts/cluster/coordinator.py", "__init__"),
    "ReplayService": ("rollouts/replay/service.py", "__init__"),
    "ReplayBuffer.add_step": ("rollouts/replay/buffer.py", "add_step"),
}


def files(*folders: str, suffixes: tuple[str, ...] = (".py", ".h", ".cpp")) -> list[Path]:
    found = (path for folder in folders for path in (ROOT / folder).rglob("*"))
    return sorted(path for path in found if path.suffix in suffixes)


def lines(path: Path) -> int:
    return len(path.read_text().splitlines())


def function_lines(paths: Iterable[Path]) -> Iterator[int]:
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno:
                yield node.end_lineno - node.lineno + 1


def num_arguments(file: str, function: str) -> int:
    for node in ast.walk(ast.parse((ROOT / file).read_text())):
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return len([*node.args.args, *node.args.kwonlyargs]) - 1
    raise LookupError(f"{file} has no {function}")


def comment_share(folder: str) -> float:
    """Of the lines that are not blank; the licence's line aside."""
    text = [line for path in files(folder) for line in path.read_text().splitlines()[1:]]
    filled = [line for line in text if line.strip()]
    return sum(bool(re.match(r"\s*//", line)) for line in filled) / len(filled)


def percentile(values: Iterable[int], share: float) -> int:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def report() -> dict[str, object]:
    sizes = {path: lines(path) for path in files(*SOURCE)}
    folders = Counter(path.parent for path in files(*SOURCE, "tests"))
    python = files("rollouts", "integrations", "comparisons", "examples", suffixes=(".py",))
    root = [path.stem for path in (ROOT / "rollouts").glob("*.py")]
    crowded = {
        str(folder.relative_to(ROOT)): count
        for folder, count in folders.items()
        if count > MOST_FILES
    }
    return {
        "file lines, median": statistics.median(sizes.values()),
        "file lines, 95th percentile": percentile(sizes.values(), 0.95),
        "files of more than 400 lines": {
            str(path.relative_to(ROOT)): size for path, size in sizes.items() if size > 400
        },
        "lines of Python functions, 95th percentile": percentile(function_lines(python), 0.95),
        "tests / source, in lines": round(sum(map(lines, files("tests"))) / sum(sizes.values()), 2),
        "comment lines, native/src": f"{comment_share('native/src'):.1%}",
        "comment lines, native/bindings": f"{comment_share('native/bindings'):.1%}",
        "modules at the root of rollouts/": len({*root} - {"__init__", "__main__"}),
        f"folders of more than {MOST_FILES} files": crowded,
        **{f"arguments of {name}": num_arguments(*place) for name, place in SIGNATURES.items()},
    }


def main() -> None:
    for name, value in report().items():
        print(f"{name}: {value}")
    print("arrows against the order of folders: held by tests/structure/test_layers.py")


if __name__ == "__main__":
    main()
