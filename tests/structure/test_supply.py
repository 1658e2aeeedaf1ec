# SPDX-License-Identifier: Apache-2.0
"""Files that the build and CI take from others: named by commit or by a bounded version."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
# the first Ray whose clusters can ask for a secret
FIRST_WITH_TOKENS = Version("2.52")
# files that tell users what to install: `needs("EXTRA", ...)` and pip install 'rollouts[EXTRA]'
ADVISES = [(name, ".py") for name in ("rollouts", "integrations", "comparisons", "examples")]
ADVISES += [("docs", ".md")]
ADVICE = re.compile(r"""\bneeds\(\s*"([^"]+)",|install '(?:rollouts|\.)?\[([\w,-]+)\]'""")


def steps_of(workflow: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(workflow.read_text())["jobs"].values()
    return [step for job in jobs for step in job["steps"]]


def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_named_by_commit(workflow: Path) -> None:
    used = [step["uses"] for step in steps_of(workflow) if "uses" in step]
    assert used
    assert [one for one in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", one)] == []


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_no_checkout_keeps_the_tokens_of_the_run(workflow: Path) -> None:
    checkouts = [s for s in steps_of(workflow) if s.get("uses", "").startswith("actions/checkout@")]
    assert checkouts
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)


def test_build_requirements_have_an_upper_bound_and_a_tested_version() -> None:
    tested = {
        Requirement(line).name: Requirement(line)
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if line and not line.startswith("#")
    }
    for line in pyproject()["build-system"]["requires"]:
        requirement = Requirement(line)
        assert any(one.operator in ("<", "==") for one in requirement.specifier), line
        if requirement.name != "pip":
            (pin,) = tested[requirement.name].specifier
            assert pin.operator == "==" and pin.version in requirement.specifier, line


def test_advice_to_install_an_extra_names_one_that_exists() -> None:
    extras = set(pyproject()["project"]["optional-dependencies"])
    named: dict[str, set[str]] = {}
    for folder, ending in ADVISES:
        for path in sorted((ROOT / folder).rglob(f"*{ending}")):
            for match in ADVICE.finditer(path.read_text()):
                parts = (match[1] or match[2]).split(",")
                named.setdefault(str(path.relative_to(ROOT)), set()).update(parts)
    assert "rollouts/exporting/graph_files.py" in named and "docs/how_to/datasets.md" in named
    assert {path: wrong for path, found in named.items() if (wrong := found - extras)} == {}


def test_every_ray_that_an_extra_takes_has_tokens() -> None:
    for name, lines in pyproject()["project"]["optional-dependencies"].items():
        for requirement in map(Requirement, lines):
            if requirement.name != "ray":
                continue
            least = [Version(s.version) for s in requirement.specifier if s.operator == ">="]
            assert least and min(least) >= FIRST_WITH_TOKENS, name
