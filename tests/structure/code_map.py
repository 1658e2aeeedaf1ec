# SPDX-License-Identifier: Apache-2.0
"""Our Python sources as trees: modules, classes with their bases, functions, imports."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "rollouts"
Function = ast.FunctionDef | ast.AsyncFunctionDef


def name_of(path: Path) -> str:
    """The name under which a module of ours is imported: `rollouts.envs.make`."""
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    if parts[0] == "integrations":
        parts.insert(0, "rollouts")
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def python_files(*folders: str) -> list[Path]:
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


def code_lines(function: Function, text: list[str]) -> int:
    """Lines from `def` to the end; blank ones, comments and the docstring do not count."""
    assert function.end_lineno is not None
    skipped: set[int] = set()
    first = function.body[0]
    if ast.get_docstring(function) is not None and first.end_lineno:
        skipped = set(range(first.lineno, first.end_lineno + 1))
    numbers = set(range(function.lineno, function.end_lineno + 1)) - skipped
    kept = (text[number - 1].strip() for number in numbers)
    return sum(bool(line) and not line.startswith("#") for line in kept)


@dataclass(frozen=True)
class Module:
    """A Python file of ours, parsed once."""

    path: Path

    @cached_property
    def name(self) -> str:
        return name_of(self.path)

    @property
    def file(self) -> str:
        return str(self.path.relative_to(ROOT))

    @property
    def folder(self) -> str:
        return str(self.path.parent.relative_to(ROOT))

    @cached_property
    def text(self) -> str:
        return self.path.read_text()

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @cached_property
    def classes(self) -> dict[str, ast.ClassDef]:
        """Classes at the top of the module by name, also where an `if` or `try` surrounds them."""
        outer = [node for node in self.nodes if isinstance(node, ast.If | ast.Try | ast.Module)]
        inside = [child for node in outer for child in node.body]
        return {child.name: child for child in inside if isinstance(child, ast.ClassDef)}

    @cached_property
    def imported_names(self) -> dict[str, tuple[str, str]]:
        """Names that `from A import B as C` brings: {C: (A, B)}."""
        return {
            alias.asname or alias.name: (node.module or "", alias.name)
            for node in self.nodes
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }

    def docstrings(self) -> Iterator[tuple[int, str]]:
        """Each docstring and the line in which it begins."""
        for node in self.nodes:
            if not isinstance(node, ast.Module | ast.ClassDef | Function):
                continue
            if (found := ast.get_docstring(node)) is not None:
                yield node.body[0].lineno, found


module_at = cache(Module)


@dataclass(frozen=True)
class Class:
    """A class of ours and those of its bases that are ours."""

    module: Module
    node: ast.ClassDef
    bases: tuple[Class, ...]

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def place(self) -> str:
        return f"{self.module.file}:{self.name}"

    @property
    def is_protocol(self) -> bool:
        return any("Protocol" in ast.unparse(base) for base in self.node.bases)

    @property
    def fields(self) -> set[str]:
        """Names that the class body annotates: those of a dataclass or a NamedTuple."""
        return {
            child.target.id
            for child in self.node.body
            if isinstance(child, ast.AnnAssign) and isinstance(child.target, ast.Name)
        }

    def own_methods(self) -> dict[str, Function]:
        return {child.name: child for child in self.node.body if isinstance(child, Function)}

    def family(self) -> list[Class]:
        """The class itself and all bases of ours, each once."""
        found = {self.place: self}
        for base in self.bases:
            found.update({one.place: one for one in base.family()})
        return list(found.values())

    def methods(self) -> set[str]:
        """Names of methods and properties; one that several of the family define counts once."""
        return {name for one in self.family() for name in one.own_methods()}


class CodeMap:
    """All modules below some folders and how they refer to each other."""

    def __init__(self, *folders: str) -> None:
        self.modules = {one.name: one for one in map(module_at, python_files(*folders))}

    @cached_property
    def classes(self) -> list[Class]:
        known: dict[tuple[str, str], Class] = {}

        def made(module: Module, node: ast.ClassDef) -> Class:
            if (found := known.get((module.name, node.name))) is None:
                names = [_base_name(base) for base in node.bases]
                places = [self._place_of_class(module, name) for name in names if name]
                bases = tuple(made(*place) for place in places if place is not None)
                found = known[module.name, node.name] = Class(module, node, bases)
            return found

        modules = self.modules.values()
        return [made(module, node) for module in modules for node in module.classes.values()]

    def heirs(self) -> dict[str, list[Class]]:
        """The classes that name a class of ours as their base, by that base's place."""
        found: dict[str, list[Class]] = defaultdict(list)
        for one in self.classes:
            for base in one.bases:
                found[base.place].append(one)
        return found

    def _place_of_class(self, module: Module, name: str) -> tuple[Module, ast.ClassDef] | None:
        """The class that a name stands for in a module: its own, or one that it imports."""
        if name in module.classes:
            return module, module.classes[name]
        source, original = module.imported_names.get(name, ("", ""))
        other = self.modules.get(source)
        return self._place_of_class(other, original) if other not in (None, module) else None

    def imports(self, module: Module, *, type_only: bool = True, by_name: bool = True) -> set[str]:
        """Modules of ours that one imports anywhere in its text.

        Args:
          type_only: Whether imports below `if TYPE_CHECKING` count.
          by_name: Whether `import_module("rollouts...")` and the values of a table `_LAZY` count.
        """
        found: set[str] = set()
        for node in _below(module.tree, type_only):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                full = {f"{node.module}.{alias.name}" for alias in node.names}
                inside = {one for one in full if one in self.modules}
                found |= inside if inside == full else inside | {node.module}
            elif by_name:
                found |= set(_names_given(node))
        return {one for one in found if one in self.modules and one != module.name}


def _below(tree: ast.AST, type_only: bool) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            if type_only:
                yield from _below(child, type_only)
            continue
        yield child
        yield from _below(child, type_only)


def _names_given(node: ast.AST) -> Iterator[str]:
    """Modules that a call of `import_module` or a table `_LAZY` names."""
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
        values: Iterable[ast.expr] = node.args
    elif (
        isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Dict)
        and any(ast.unparse(target) == "_LAZY" for target in node.targets)
    ):
        values = node.value.values
    else:
        return
    for value in values:
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield value.value


def _base_name(base: ast.expr) -> str | None:
    if isinstance(base, ast.Subscript):
        base = base.value
    return base.id if isinstance(base, ast.Name) else None


def circles(arrows: dict[str, set[str]]) -> list[list[str]]:
    """Groups of names that reach each other (Tarjan's strongly connected components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(arrows.get(name, ())):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            cut = stack.index(name)
            group = stack[cut:]
            del stack[cut:]
            if len(group) > 1:
                found.append(sorted(group))

    for name in sorted(arrows):
        if name not in index:
            visit(name)
    return sorted(found, key=len, reverse=True)
