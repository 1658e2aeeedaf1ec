# SPDX-License-Identifier: Apache-2.0
"""Sizes, imports, names and prose: what does not hold yet is named in allowed.json."""

from __future__ import annotations

import json
from pathlib import Path

import prose
import pytest
import ratchet
from code_map import Class, Module, circles, code_lines
from report import size_with_bases


def test_nothing_breaks_a_rule_more_than_it_did() -> None:
    assert {rule: new for rule in ratchet.found() if (new := ratchet.new(rule))} == {}


def test_nothing_is_allowed_that_is_no_longer_needed() -> None:
    gone = {rule: gone for rule in ratchet.found() if (gone := ratchet.gone(rule))}
    assert gone == {}, f"remove them: {ratchet.REWRITE}"


def test_the_list_of_exceptions_cannot_grow(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # as if every rule were broken once less than now
    fewer = {
        rule: {"elsewhere": sum(names.values()) - 1} for rule, names in ratchet.found().items()
    }
    kept = tmp_path / "allowed.json"
    kept.write_text(json.dumps(fewer))
    monkeypatch.setattr(ratchet, "ALLOWED", kept)
    with pytest.raises(SystemExit, match="Mend what is new"):
        ratchet.main()
    assert json.loads(kept.read_text()) == fewer


def module(tmp_path: Path, text: str) -> Module:
    path = tmp_path / "one.py"
    path.write_text(text)
    return Module(path)


def test_methods_of_bases_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("code_map.ROOT", tmp_path)
    own = module(tmp_path, "class A:\n def f(self): ...\nclass B(A):\n def g(self): ...\n")
    first = Class(own, own.classes["A"], ())
    assert size_with_bases(Class(own, own.classes["B"], (first,))) == 2


def test_only_lines_of_code_count_in_a_constructor(tmp_path: Path) -> None:
    text = 'class A:\n def __init__(self):\n  """One.\n\n  Two.\n  """\n\n  # three\n  self.x = 1\n'
    (function,) = module(tmp_path, text).classes["A"].body
    assert isinstance(function, ratchet.report.Function)
    assert code_lines(function, text.splitlines()) == 2


def test_names_that_reach_each_other_are_a_circle() -> None:
    arrows = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": set()}
    assert circles(arrows) == [["a", "b", "c"]]


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ('"""What it is."""\n', [prose.DOCSTRING_BEGINS]),
        ('"""Of a row."""\n', [prose.DOCSTRING_BEGINS]),
        ('"""Where rows lie."""\n', [prose.DOCSTRING_BEGINS]),
        ('"""Without a row."""\n', [prose.DOCSTRING_BEGINS]),
        ('"""A row of numbers."""\n', []),
        ('"""A row.\n\nArgs:\n  path: Of the file.\n"""\n', [prose.ENTRY_BEGINS]),
        ('"""A row.\n\nArgs:\n  low, high: That of the file.\n"""\n', []),
        ("x = 1  # of a row\n", [prose.COMMENT_BEGINS]),
        ("x = 10    # of a row, aligned\n", [prose.COMMENT_BEGINS]),
        ("# A row\n# of numbers\n", []),
        ("# which waits\n", [prose.COMMENT_BEGINS]),
        ("// What a row has.\nint a;\n", [prose.DECLARATION_BEGINS]),
        ("// what a row has is kept\na = b;\n", []),
        ("// The parts of a row.\nint a;\n", []),
        ("// SPDX-License-Identifier: Apache-2.0\n// What it is.\n", [prose.DECLARATION_BEGINS]),
        ("# closed by whoever came last\n", [prose.WHOEVER]),
        ("# it has the workers go on\n", [prose.HAS_DO]),
        ("# it has to go on\n", []),
    ],
)
def test_habits_are_found(
    text: str, rules: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prose, "ROOT", tmp_path)
    path = tmp_path / ("one.h" if text.startswith("//") else "one.py")
    path.write_text(text)
    # a fresh module: those of the repository are parsed once
    monkeypatch.setattr(prose, "module_at", Module)
    assert [rule for rule, *_ in prose.riddles(path)] == rules
