# SPDX-License-Identifier: Apache-2.0
"""The list of exceptions, by rule and name, in allowed.json: it may only shrink.

`python tests/structure/ratchet.py` writes down what is found now: entries that are no longer needed
go, and files that were moved keep theirs. It refuses where a rule is broken more often than before.
"""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path

import prose
import report

ALLOWED = Path(__file__).with_name("allowed.json")
REWRITE = "python tests/structure/ratchet.py"
Offenders = dict[str, int]


def _above(sizes: Offenders, limit: int) -> Offenders:
    return {name: size for name, size in sizes.items() if size > limit}


@cache
def found() -> dict[str, Offenders]:
    """The measure of each offender, by rule."""
    worked_around = report.workarounds()
    return {
        "methods of a class and its bases": _above(report.sizes_with_bases(), report.MOST_METHODS),
        "code lines of a constructor": _above(
            report.constructor_lines(), report.MOST_CONSTRUCTOR_LINES
        ),
        "bases with one heir": dict.fromkeys(report.bases_with_one_heir(), 1),
        "imports against the order": {f"{one} -> {to}": 1 for one, to in report.arrows_up()},
        "circles of imports": report.folders_in_circles(),
        "file names that occur twice": dict.fromkeys(report.file_names_twice(), 1),
        "public class names that occur twice": dict.fromkeys(report.class_names_twice(), 1),
        'import_module("rollouts...")': worked_around.get("import_module", {}),
        "cast to a vector environment": worked_around.get("cast", {}),
        "isinstance on a class of pools": worked_around.get("isinstance", {}),
        **prose.counts(),
    }


def allowed() -> dict[str, Offenders]:
    return json.loads(ALLOWED.read_text()) if ALLOWED.exists() else {}


def new(rule: str) -> dict[str, str]:
    """Offenders that break a rule more than they may."""
    may = allowed().get(rule, {})
    return {
        name: f"{count}, allowed {may.get(name, 0)}"
        for name, count in found()[rule].items()
        if count > may.get(name, 0)
    }


def gone(rule: str) -> list[str]:
    """Entries of allowed.json that nothing breaks any more."""
    return sorted(allowed().get(rule, {}).keys() - found()[rule].keys())


def main() -> None:
    before = allowed()
    for rule, offenders in found().items():
        total, had = sum(offenders.values()), sum(before.get(rule, {}).values())
        if rule in before and total > had:
            sys.exit(f"{rule}: {total}, before {had}. Mend what is new:\n{new(rule)}")
    ordered = {rule: dict(sorted(names.items())) for rule, names in found().items()}
    ALLOWED.write_text(json.dumps(ordered, indent=1) + "\n")


if __name__ == "__main__":
    main()
