# SPDX-License-Identifier: Apache-2.0
"""Bar charts of the tables on the Figures page, drawn from that page, so that both agree."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from comparisons.report.plots import draw_ratios
from comparisons.report.report_rows import Row

# "1.02 M (83.6x)": a peer's speed, and how many times as fast ours was
_CELL = re.compile(r"([\d.,]+) ?([kMG]?) \(([\d.,]+)x\)")
_TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)
_SCALE = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}


@dataclass(frozen=True, slots=True)
class FigurePlot:
    """A bar chart of one table.

    Attributes:
      name: Name of its file.
      table: The table's text in the page.
      png: The chart.
    """

    name: str
    table: str
    png: bytes

    @property
    def shown(self) -> str:
        """The table with its chart below it."""
        return f"{self.table}\n![The table's ratios as bars]({self.name})\n"


def figure_plots(markdown: str) -> list[FigurePlot]:
    """Draws each table of a page that compares env-steps per second with peers'."""
    found = []
    for match in _TABLE.finditer(markdown):
        rows = list(_rows(match[0]))
        if rows:
            name = f"figures_{len(found) + 1}.png"
            found.append(FigurePlot(name, match[0], _png(rows)))
    return found


def _rows(table: str) -> Iterator[Row]:
    """Rows of rollouts and its peers; in the table, column "rollouts" precedes the peers."""
    head, _, *lines = (_cells(line) for line in table.splitlines())
    if "rollouts" not in head:
        return
    place = head.index("rollouts")
    for line in lines:
        case = ", ".join(cell.replace("`", "") for cell in line[:place])
        peers = [
            (name, cell)
            for name, text in zip(head[place + 1 :], line[place + 1 :], strict=True)
            if (cell := _CELL.fullmatch(text))
        ]
        if not peers:
            continue
        _, cell = peers[0]
        ours = _number(cell[1]) * _SCALE[cell[2]] * _number(cell[3])
        yield _row(case, "rollouts", ours)
        # the page's ratios are exact, its speeds are rounded
        for name, cell in peers:
            yield _row(case, name, ours / _number(cell[3]))


def _row(case: str, library: str, median: float) -> Row:
    return Row(case, library, "", median, median, median, "env-steps/s")


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def _png(rows: list[Row]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plot.png"
        draw_ratios(rows, path, title="How many times as fast rollouts was, in the table above")
        return path.read_bytes()
