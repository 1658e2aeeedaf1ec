# SPDX-License-Identifier: Apache-2.0
"""`make_report`: runs the plan and writes report.md, report.html, report.json and plots."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from comparisons.report.page import MeasuredSection, blocks, to_html, to_markdown
from comparisons.report.plan import SECTIONS, Section
from comparisons.report.plots import draw_ratios, draw_soak
from comparisons.report.report_rows import Row
from comparisons.report.running import run_measure
from comparisons.report.soak import SECTION as SOAK
from comparisons.report.soak import read_soak
from rollouts.bench.report import Machine, describe_machine
from rollouts.errors import SpecError
from rollouts.machine.memory import usable_memory
from rollouts.support.extras import needs

_BUSY = 0.5  # load of each CPU; a quiet machine has about 0


def make_report(
    folder: Path,
    *,
    quick: bool = False,
    only: Sequence[str] = (),
    soak: Path | None = None,
    on_progress: Callable[[str], None] | None = None,
) -> list[Row]:
    """Measures everything in the plan, one command after the other.

    Args:
      folder: Gets report.md, report.html, report.json and the plots; made where it is missing.
      quick: Only the short measures, with fewer and shorter turns.
      only: Names of sections; empty: all.
      soak: File of `rollouts soak --out`, whose curves are shown.
      on_progress: Called with a line before each command.

    Returns:
      All rows.

    Raises:
      SpecError: A section of `only` or a soak's file does not exist, or the folder cannot be made.
      EngineError: matplotlib is missing.
    """
    names = [section.name for section in SECTIONS]
    unknown = [name for name in only if name not in names]
    if unknown:
        raise SpecError(f"there is no section {unknown[0]!r}, expected some of {names}")
    with needs("examples", "plots of the report"):
        import matplotlib  # noqa: F401
    samples = None if soak is None else read_soak(soak)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SpecError(f"{folder} cannot be made ({error}): give another --out") from error

    begun, report = time.perf_counter(), on_progress or (lambda line: None)
    machine = describe_machine([])
    facts = _facts(machine)
    if warning := load_warning(machine):
        report(f"warning: {warning}")
        facts["Warning"] = warning
    parts = [
        _measure(section, folder, quick=quick, report=report)
        for section in SECTIONS
        if not only or section.name in only
    ]
    parts = [part for part in parts if part.outcomes]
    if samples is not None:
        draw_soak(samples.values, folder / "soak.png")
        parts.append(MeasuredSection(SOAK, [samples.outcome], ["soak.png"]))
    facts["Took"] = f"{(time.perf_counter() - begun) / 60:.1f} min"

    title = "rollouts next to other libraries" + (", quick" if quick else "")
    page = list(blocks(title, facts, parts))
    (folder / "report.md").write_text(to_markdown(page), encoding="utf-8")
    (folder / "report.html").write_text(to_html(page), encoding="utf-8")
    rows = [row for part in parts for row in part.rows]
    found = {
        part.section.name: {
            "rows": [asdict(row) for row in part.rows],
            "problems": part.problems,
            "commands": [one.command for one in part.outcomes],
        }
        for part in parts
    }
    told = {"facts": facts, "sections": found}
    (folder / "report.json").write_text(json.dumps(told, indent=1), encoding="utf-8")
    return rows


def _measure(
    section: Section, folder: Path, *, quick: bool, report: Callable[[str], None]
) -> MeasuredSection:
    outcomes, plots = [], []
    wanted = [one for one in section.measures if (one.quick if quick else one.full)]
    for number, measure in enumerate(wanted):
        report(f"{section.name}: rollouts {' '.join(measure.arguments)}")
        plot = f"{section.name}_{number}.png" if section.plot == "lines" else None
        found = run_measure(measure, None if plot is None else str(folder / plot))
        if plot is not None and (folder / plot).exists():
            plots.append(plot)
        outcomes.append(found)
    part = MeasuredSection(section, outcomes, plots)
    name = f"{section.name}.png"
    if part.rows and draw_ratios(part.rows, folder / name, title=section.title):
        plots.append(name)
    return part


def load_warning(machine: Machine) -> str:
    """A warning where other programs keep half of the CPUs busy; else nothing."""
    load = machine.load_1min
    if load is None or load <= _BUSY * machine.usable_cpus:
        return ""
    return (
        f"the load was {load} on {machine.usable_cpus} usable CPUs before the first command: other "
        "programs take their time, so that figures are lower, and ratios not those of a quiet "
        "machine; end them and measure again"
    )


def _facts(machine: Machine) -> dict[str, str]:
    return {
        "Date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "Machine": f"{machine.cpu_model}, {machine.usable_cpus} usable CPUs, "
        f"{usable_memory() / 1e9:.0f} GB of memory free",
        "System": f"{platform.platform()}, Python {platform.python_version()}",
        "Load before": "unknown" if machine.load_1min is None else f"{machine.load_1min}",
        "rollouts": machine.versions["rollouts"],
        "Command": "rollouts report; those of each section stand below it",
    }
