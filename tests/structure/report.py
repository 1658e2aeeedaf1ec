# SPDX-License-Identifier: Apache-2.0
"""Prints how the code is laid out: `python tests/structure/report.py`.

Every number is computed from the sources. Lines are counted as they stand, blank ones and comments
too, where nothing else is said.
"""

from __future__ import annotations

import ast
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from code_map import ROOT, Class, CodeMap, Function, Module, circles, code_lines, module_at
from test_layers import folder_of, place

SOURCE = ("rollouts", "integrations", "comparisons", "examples", "native")
MOST_METHODS = 40
MOST_CONSTRUCTOR_LINES = 60
SHOWN = 8


@cache
def library() -> CodeMap:
    return CodeMap("rollouts")


@cache
def everything() -> CodeMap:
    return CodeMap("rollouts", "integrations", "comparisons")


def files(*folders: str, suffixes: tuple[str, ...] = (".py", ".h", ".cpp")) -> list[Path]:
    found = (path for folder in folders for path in (ROOT / folder).rglob("*"))
    return sorted(path for path in found if path.suffix in suffixes)


def lines(path: Path) -> int:
    return len(path.read_text().splitlines())


# --- classes ------------------------------------------------------------------------------------


def product_classes() -> list[Class]:
    """Classes that users make or are handed: protocols and the benchmarks' own aside."""
    benchmarks = ("rollouts/bench", "rollouts/tuning")
    return [
        one
        for one in library().classes
        if not one.is_protocol and not one.module.folder.startswith(benchmarks)
    ]


def vector_environments() -> list[str]:
    """Classes with a batch's `reset`, `step` and spaces; engines and bases do not count."""
    heirs = library().heirs()

    def is_batch(one: Class) -> bool:
        if not {"reset", "step"} <= one.methods() or one.name.endswith("Engine"):
            return False
        text = "".join(ast.unparse(part.node) for part in one.family())
        return all(word in text for word in ("single_observation_space", "num_envs"))

    return [one.name for one in product_classes() if one.place not in heirs and is_batch(one)]


def engines() -> list[str]:
    return [one.name for one in product_classes() if one.name.endswith("Engine")]


def collectors() -> list[str]:
    """Classes with `collect` that a caller gives an environment; their strategies do not count."""
    return [
        one.name
        for one in product_classes()
        if "collect" in one.methods() | one.fields and one.name.endswith(("Collector", "Fragments"))
    ]


def rollout_records() -> list[str]:
    """Classes that hold T steps of B environments."""
    return [
        one.name
        for one in product_classes()
        if {"obs", "last_obs", "reward"} <= one.fields or one.name.endswith("Rollout")
    ]


def coordinators() -> list[str]:
    return [one.name for one in product_classes() if one.name.endswith("Coordinator")]


def size_with_bases(one: Class) -> int:
    """Methods of a class and of its bases of ours, each definition counted."""
    return sum(len(part.own_methods()) for part in one.family())


def sizes_with_bases() -> dict[str, int]:
    return {one.place: size_with_bases(one) for one in everything().classes}


def bases_with_one_heir() -> set[str]:
    """Classes from which one class of ours inherits; protocols, types of keywords, errors aside."""
    known = {one.place: one for one in everything().classes}
    return {
        base
        for base, heirs in everything().heirs().items()
        if len(heirs) == 1
        and not known[base].is_protocol
        and "TypedDict" not in ast.unparse(known[base].node).split("\n", 1)[0]
        and known[base].module.file != "rollouts/errors.py"
    }


def constructor_lines() -> dict[str, int]:
    """Code lines of each `__init__`: without blank lines, comments and the docstring."""
    found = {}
    for one in everything().classes:
        if (made := one.own_methods().get("__init__")) is not None:
            found[one.place] = code_lines(made, one.module.text.splitlines())
    return found


# --- imports ------------------------------------------------------------------------------------


@cache
def imports() -> dict[str, set[str]]:
    """The imports of each module; type-only imports and imports by name count.

    The package `rollouts` itself gives everything that users import, and does not count.
    """
    ours = library()
    return {
        name: ours.imports(module) - {"rollouts"}
        for name, module in ours.modules.items()
        if name != "rollouts"
    }


def room_of(name: str) -> str:
    """The folder of a module; a module at the root of rollouts/ is a room of its own."""
    module = library().modules[name]
    return module.file if module.folder == "rollouts" else module.folder


def arrows() -> set[tuple[str, str]]:
    """Rooms of which the first imports the second."""
    return {
        (room_of(name), room_of(other))
        for name, others in imports().items()
        for other in others
        if room_of(name) != room_of(other)
    }


def arrows_up() -> set[tuple[str, str]]:
    """Folders, or modules of the root, of which the first imports the second against the order."""
    return {
        (folder_of(name), folder_of(other))
        for name, others in imports().items()
        for other in others
        if place(other) > place(name)
    }


def import_circles() -> list[list[str]]:
    """Modules that reach each other by imports, largest circle first."""
    return circles(imports())


def folders_in_circles() -> dict[str, int]:
    """Counts, by folder, the modules that lie on a circle of imports."""
    ours = library().modules
    return dict(Counter(ours[name].folder for ring in import_circles() for name in ring))


# --- names and phrases --------------------------------------------------------------------------


def twice(names: Iterable[str]) -> list[str]:
    return sorted(name for name, count in Counter(names).items() if count > 1)


def file_names_twice() -> list[str]:
    paths = files("rollouts", "integrations", "comparisons", suffixes=(".py",))
    return twice(path.name for path in paths if path.name not in ("__init__.py", "__main__.py"))


def class_names_twice() -> list[str]:
    classes = everything().classes
    return twice(one.name for one in classes if not one.name.startswith("_"))


def calls(module: Module) -> Iterator[tuple[str, ast.Call]]:
    """Calls and the last part of the called name."""
    for node in module.nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            yield node.func.id if isinstance(node.func, ast.Name) else node.func.attr, node


@cache
def workarounds() -> dict[str, dict[str, int]]:
    """Counts, by file, the workarounds for a type that does not say enough."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    pools = {*vector_environments(), *engines(), "DeviceEngine"}
    homes = pool_folders()
    for module in everything().modules.values():
        for name, call in calls(module):
            text = ast.unparse(call) if name in ("import_module", "cast", "isinstance") else ""
            if name == "import_module" and "'rollouts." in text:
                found["import_module"][module.file] += 1
            elif name == "cast" and "VectorEnv" in text:
                found["cast"][module.file] += 1
            elif name == "isinstance" and module.folder not in homes:
                asked = set(re.findall(r"\w+", ast.unparse(call.args[1])))
                found["isinstance"][module.file] += bool(asked & pools)
    return {kind: dict(+counts) for kind, counts in found.items()}


def pool_folders() -> set[str]:
    """Folders in which classes behind make_vec are defined: these may ask for their own kind."""
    names = set(vector_environments())
    return {one.module.folder for one in library().classes if one.name in names}


def docstrings_that_ask() -> tuple[int, int]:
    """Counts docstrings that begin with What, How, Which or Who, and all docstrings."""
    modules = everything().modules.values()
    found = [text for module in modules for _, text in module.docstrings()]
    return sum(bool(re.match(r"(What|How|Which|Who)\b", text)) for text in found), len(found)


# --- the report ---------------------------------------------------------------------------------


def function_lines(paths: Iterable[Path]) -> Iterator[int]:
    for path in paths:
        for node in module_at(path).nodes:
            if isinstance(node, Function) and node.end_lineno:
                yield node.end_lineno - node.lineno + 1


def comment_share(folder: str) -> float:
    """The share of comments among the lines that are not blank; the licence's line aside."""
    text = [line for path in files(folder) for line in path.read_text().splitlines()[1:]]
    filled = [line for line in text if line.strip()]
    return sum(bool(re.match(r"\s*//", line)) for line in filled) / len(filled)


def percentile(values: Iterable[int], share: float) -> int:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def largest(sizes: dict[str, int], above: int) -> str:
    """Counts the names above a limit and lists the first of these: "3: 73 a.py:A, ..."."""
    over = sorted(((size, name) for name, size in sizes.items() if size > above), reverse=True)
    names = ", ".join(f"{size} {name}" for size, name in over[:SHOWN])
    return f"{len(over)}: {names}" if over else "0"


def listed(names: Iterable[str]) -> str:
    names = sorted(names)
    more = f", and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{len(names)}: {', '.join(names[:SHOWN])}{more}" if names else "0"


def class_lines() -> dict[str, object]:
    return {
        "classes behind make_vec": listed(vector_environments()),
        "engines": listed(engines()),
        "collectors": listed(collectors()),
        "rollout records": listed(rollout_records()),
        "coordinators": listed(coordinators()),
        f"classes of more than {MOST_METHODS} methods, those of their bases counted": largest(
            sizes_with_bases(), MOST_METHODS
        ),
        "bases with one heir": listed(bases_with_one_heir()),
        f"constructors of more than {MOST_CONSTRUCTOR_LINES} code lines": largest(
            constructor_lines(), MOST_CONSTRUCTOR_LINES
        ),
    }


def import_lines() -> dict[str, object]:
    rings = import_circles()
    largest_ring = f", the largest of {len(rings[0])} files" if rings else ""
    return {
        "arrows between folders": len(arrows()),
        "arrows back up": listed(f"{one} -> {other}" for one, other in arrows_up()),
        "circles of imports": f"{len(rings)}{largest_ring}",
    }


def name_lines() -> dict[str, object]:
    asking, of = docstrings_that_ask()
    found = workarounds()
    return {
        "file names that occur twice": listed(file_names_twice()),
        "public class names that occur twice": listed(class_names_twice()),
        "docstrings that begin with What, How, Which or Who": f"{asking} of {of}",
        'import_module("rollouts...")': sum(found.get("import_module", {}).values()),
        "cast(... VectorEnv ...)": sum(found.get("cast", {}).values()),
        "isinstance on a class of pools, outside its folder": sum(
            found.get("isinstance", {}).values()
        ),
    }


def size_lines() -> dict[str, object]:
    sizes = {path: lines(path) for path in files(*SOURCE)}
    python = files("rollouts", "integrations", "comparisons", "examples", suffixes=(".py",))
    return {
        "file lines, median": statistics.median(sizes.values()),
        "file lines, 95th percentile": percentile(sizes.values(), 0.95),
        "lines of Python functions, 95th percentile": percentile(function_lines(python), 0.95),
        "tests / source, in lines": round(sum(map(lines, files("tests"))) / sum(sizes.values()), 2),
        "comment lines, native/src": f"{comment_share('native/src'):.1%}",
        "comment lines, native/bindings": f"{comment_share('native/bindings'):.1%}",
    }


def main() -> None:
    for part in (class_lines, import_lines, name_lines, size_lines):
        for name, value in part().items():
            print(f"{name}: {value}")


if __name__ == "__main__":
    main()
