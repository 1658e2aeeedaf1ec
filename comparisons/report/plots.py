# SPDX-License-Identifier: Apache-2.0
"""Plots of the report: ratios of our results to the peers', and the curves of a soak."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from comparisons.report.report_rows import Row, times
from rollouts.bench.report import digits

# Okabe and Ito's colours, which colour-blind people tell apart
_COLORS = ("#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
_WIDTH_INCHES = 10.0
_BAR_INCHES = 0.24


def draw_ratios(rows: Sequence[Row], path: Path, *, title: str) -> bool:
    """Draws a bar for our ratio to each peer in each case, on a logarithmic axis.

    Args:
      rows: Rows of one section.
      path: Path of the plot's file.
      title: Text above the plot.

    Returns:
      Whether there was anything to draw.
    """
    bars = [(row, ratio) for row in rows if (ratio := times(row, rows)) is not None]
    if not bars:
        return False
    from matplotlib.figure import Figure

    libraries = list(dict.fromkeys(row.library for row, _ in bars))
    colors = {name: _COLORS[i % len(_COLORS)] for i, name in enumerate(libraries)}
    height = 1.2 + _BAR_INCHES * len(bars)
    figure = Figure(figsize=(_WIDTH_INCHES, height), layout="constrained")
    axes = figure.subplots()
    places = range(len(bars))
    drawn = axes.barh(
        places, [ratio for _, ratio in bars], color=[colors[r.library] for r, _ in bars]
    )
    axes.bar_label(drawn, [f" {digits(ratio)}x" for _, ratio in bars], fontsize=8)
    axes.set_yticks(
        places, [f"{row.library}: {row.case}, {row.unit}" for row, _ in bars], fontsize=8
    )
    axes.invert_yaxis()
    axes.set_xscale("log")
    low = min(1.0, *(ratio for _, ratio in bars))
    axes.set_xlim(low * 0.8, max(1.0, *(ratio for _, ratio in bars)) * 1.6)
    axes.axvline(1.0, color="#444444", linewidth=1)
    axes.set_xlabel("how many times as good rollouts is; left of the line the other is better")
    axes.set_title(title, fontsize=10)
    figure.savefig(path, dpi=100)
    return True


def draw_soak(samples: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draws the samples of a soak: a panel for each quantity, over minutes.

    Args:
      samples: Samples of `soak`: "seconds" and the quantities.
      path: Path of the plot's file.
    """
    from matplotlib.figure import Figure

    names = [name for name in samples[0] if name != "seconds"]
    figure = Figure(figsize=(_WIDTH_INCHES, 1.7 * len(names) + 0.5), layout="constrained")
    panels = figure.subplots(len(names), 1, sharex=True, squeeze=False)[:, 0]
    minutes = [one["seconds"] / 60 for one in samples]
    for axes, name in zip(panels, names, strict=True):
        axes.plot(minutes, [one[name] for one in samples], color="#0072B2", linewidth=1)
        axes.set_ylabel(name.replace("_", " "), fontsize=8)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    panels[-1].set_xlabel("minutes")
    figure.savefig(path, dpi=100)
