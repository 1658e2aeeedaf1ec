# SPDX-License-Identifier: Apache-2.0
"""Benchmark results as a picture, drawn without a display; matplotlib is imported on use."""

from __future__ import annotations

import math
import os
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rollouts.bench.measurement import Comparison, Measurement, Settings
from rollouts.bench.report import si
from rollouts.errors import EngineError, SpecError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg", ".pdf")

# 1000 pixels wide, so that a README shows texts at their original size
_DPI = 100
_WIDTH_INCHES = 10.0
_TITLE_COLUMNS = 120

_X_LABELS = {
    "num_envs": "num_envs [environments]",
    "num_threads": "num_threads [threads]",
    "batch_size": "batch_size [rows per call]",
}
_Y_LABEL = "throughput [env-steps/s]"

# colours of Okabe and Ito, which colour-blind people can distinguish
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#000000")
_MARKERS = "osD^vPX*"
_DASHES = ("-", "--", ":", "-.", (0, (6, 2, 1, 2, 1, 2)), (0, (1, 4)))


def check(path: Path) -> None:
    """Checks that a plot can be written to a path, and leaves the path as it was.

    Raises:
      SpecError: The suffix is not one of `SUFFIXES`, or the path cannot be written to.
      EngineError: matplotlib is missing.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise SpecError(
            f"a plot cannot be written as {str(path)!r}: give a path that ends in "
            f"{', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"
        )
    try:
        import matplotlib.backends.backend_agg
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise EngineError(
            f"a plot needs matplotlib, which cannot be imported ({error}): run "
            "`pip install 'matplotlib>=3.8'`, or leave out the plot"
        ) from error

    # opening the file is the only test for permissions, folders and read-only disks
    existed = os.path.lexists(path)
    try:
        path.open("ab").close()
        if not existed:
            path.unlink()
    except OSError as error:
        raise _cannot_write(path, error) from error


def save(figure: Figure, path: Path) -> None:
    """Writes a figure, in the format that the suffix names.

    Raises:
      SpecError: The path cannot be written to.
    """
    try:
        figure.savefig(path, dpi=_DPI)
    except OSError as error:
        raise _cannot_write(path, error) from error


def draw(comparisons: Sequence[Comparison], *, title: str) -> Figure:
    """Draws throughput over the setting that varies, with one panel per environment id and mode.

    The x axis is num_envs if it has several values, else num_threads, else batch_size; if none has,
    there are bars. Points are medians, with error bars from the slowest to the fastest repeat.

    Args:
      comparisons: The measurements.
      title: Versions and machine, from `report.header`.

    Returns:
      A matplotlib figure without a window.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    x = _swept([each.settings for each in comparisons])
    panels = _panels(comparisons)
    rows = math.ceil(len(panels) / 2)
    layout = ConstrainedLayoutEngine(wspace=0.05)
    figure = Figure(figsize=(_WIDTH_INCHES, 3.8 * rows + 1.8), layout=layout)
    FigureCanvasAgg(figure)
    # a row with both modes of an id has one scale
    has_modes = len(panels) > len({each.settings.id for each in comparisons})
    sharey: Literal["row", "none"] = "row" if has_modes else "none"
    grid = figure.subplots(rows, min(2, len(panels)), squeeze=False, sharey=sharey)
    lines = _lines(comparisons, x)
    for axes, (name, panel) in zip(grid.flat, panels.items(), strict=False):
        axes.set_title("\n".join([name, _conditions(panel, x, lines)]), fontsize=10)
        _draw_lines(axes, panel, lines, x) if x else _draw_bars(axes, panel, lines)
    for axes in grid.flat[len(panels) :]:
        axes.remove()
    _add_legend(figure, lines if x else [])
    headline = _headline(comparisons[0].settings.repeats)
    figure.suptitle("\n".join([headline, *textwrap.wrap(title, _TITLE_COLUMNS)]), fontsize=10)
    return figure


# -- what belongs together -------------------------------------------------------------


@dataclass(slots=True)
class _Line:
    """One library in one variant, such as with 2 threads; the same in every panel."""

    label: str
    threads: str
    batch: str
    color: str
    marker: str
    dashes: str | tuple[int, tuple[int, ...]]
    members: list[tuple[Comparison, Measurement]] = field(default_factory=list)

    def of(self, panel: Sequence[Comparison]) -> list[tuple[Settings, Measurement]]:
        return [(each.settings, found) for each, found in self.members if each in panel]


def _swept(points: Sequence[Settings]) -> str | None:
    """The setting on the x axis; None if no setting has several values."""
    if len({point.num_envs for point in points}) > 1:
        return "num_envs"
    if len({point.num_threads for point in points}) > 1:
        return "num_threads"
    # one batch size below num_envs and one equal to it are two modes, not a sweep
    return "batch_size" if len({p.batch_size for p in points if p.is_async}) > 1 else None


def _panels(comparisons: Sequence[Comparison]) -> dict[str, list[Comparison]]:
    """Comparisons by title, which has id and mode; the modes of one id are next to each other."""
    panels: dict[str, list[Comparison]] = {}
    ids = list(dict.fromkeys(each.settings.id for each in comparisons))
    by_mode = sorted(comparisons, key=lambda each: each.settings.is_async)
    for each in sorted(by_mode, key=lambda each: ids.index(each.settings.id)):
        mode = "async (recv/send)" if each.settings.is_async else "sync (step)"
        panels.setdefault(f"{each.settings.id}, {mode}", []).append(each)
    return panels


def _lines(comparisons: Sequence[Comparison], x: str | None) -> list[_Line]:
    """The lines to draw, each in one style over all panels; in the order of the legend."""
    points = [each.settings for each in comparisons]
    names_threads = x != "num_threads" and _differs(points, "num_threads", x)
    names_batch = x != "batch_size" and _differs(points, "batch_size", x)
    shares = names_batch and _are_shares(points)
    # ours comes first in every comparison, the peers in the same order
    libraries = dict.fromkeys(one.library for each in comparisons for one in each.measurements)
    lines: dict[tuple[str, str, str], _Line] = {}
    variants: dict[tuple[str, str], int] = {}
    for index, library in enumerate(libraries):
        takes_threads, takes_batch = _takes(comparisons, library)
        name = _library_text(comparisons, library)
        for each, found in _of(comparisons, library):
            point = each.settings
            threads = _threads_text(point.num_threads) if names_threads else ""
            batch = _batch_text(point, shares=shares) if names_batch and point.is_async else ""
            # a library that ignores a setting has one line for all its values
            told = (threads if takes_threads else "", batch if takes_batch else "")
            if index == 0:
                variants.setdefault(told, len(variants))
            variant = variants.get(told, 0)
            line = lines.setdefault(
                (library, threads, batch),
                _Line(
                    ", ".join(text for text in (name, *told) if text),
                    threads,
                    batch,
                    _COLORS[index % len(_COLORS)],
                    _MARKERS[(index + variant) % len(_MARKERS)],
                    _DASHES[variant % len(_DASHES)],
                ),
            )
            line.members.append((each, found))
    return list(lines.values())


def _of(comparisons: Sequence[Comparison], library: str) -> list[tuple[Comparison, Measurement]]:
    """The results of a library, from all comparisons."""
    return [(c, found) for c in comparisons for found in c.measurements if found.library == library]


def _takes(comparisons: Sequence[Comparison], library: str) -> tuple[bool, bool]:
    """Tells if a library used the requested num_threads and batch_size in all comparisons."""
    found = [(each.settings, one) for each, one in _of(comparisons, library)]
    return (
        all(point.num_threads == each.num_threads for point, each in found),
        all(point.batch_size == each.batch_size for point, each in found),
    )


def _differs(points: Sequence[Settings], name: str, x: str | None) -> bool:
    """Tells if a setting has several values at one point of the x axis of a panel."""
    found: dict[tuple[object, ...], set[int]] = {}
    for point in points:
        place = (point.id, point.is_async, point.num_envs, x and getattr(point, x))
        found.setdefault(place, set()).add(getattr(point, name))
    return any(len(values) > 1 for values in found.values())


def _are_shares(points: Sequence[Settings]) -> bool:
    """Tells if there are fewer batch sizes when they are written as N/2, N/4."""
    found = [(p.num_envs, p.batch_size, round(p.num_envs / p.batch_size)) for p in points]
    if any(size != math.ceil(num_envs / share) for num_envs, size, share in found):
        return False
    return len({share for *_, share in found}) < len({size for _, size, _ in found})


# -- texts -----------------------------------------------------------------------------


def _library_text(comparisons: Sequence[Comparison], library: str) -> str:
    """A library's name, with its deviations from the settings."""
    found = [one for _, one in _of(comparisons, library)]
    takes_threads, takes_batch = _takes(comparisons, library)
    notes = [] if takes_threads else [_threads_text(max(each.num_threads for each in found))]
    notes += [] if takes_batch else [f"always {found[0].api}"]
    return found[0].library + (f" ({', '.join(notes)})" if notes else "")


def _headline(repeats: int) -> str:
    plural = "s" if repeats > 1 else ""
    return (
        f"Throughput with random actions: median, minimum and maximum of {repeats} repeat{plural}"
    )


def _threads_text(num_threads: int) -> str:
    return f"{num_threads} thread{'s' if num_threads > 1 else ''}"


def _batch_text(point: Settings, *, shares: bool) -> str:
    return f"batch {_share_text(point)}" if shares else f"batch {point.batch_size}"


def _share_text(point: Settings) -> str:
    share = round(point.num_envs / point.batch_size)
    return "N" if share == 1 else f"N/{share}"


def _conditions(panel: Sequence[Comparison], x: str | None, lines: Sequence[_Line]) -> str:
    """The settings that are shown neither on the x axis nor in the legend."""
    points = [each.settings for each in panel]
    parts = []
    if x != "num_envs":
        parts.append(f"num_envs {points[0].num_envs}")
    if x != "batch_size" and points[0].is_async and not any(line.batch for line in lines):
        sizes = {point.batch_size for point in points}
        shares = {_share_text(point) for point in points}
        is_share = _are_shares(points)
        parts.append(f"batch_size {shares.pop() if is_share else _range_text(sizes)}")
    if x != "num_threads" and not any(line.threads for line in lines):
        parts.append(f"num_threads {_range_text({point.num_threads for point in points})}")
    return ", ".join(parts)


def _range_text(values: set[int]) -> str:
    return str(min(values)) if len(values) == 1 else f"{min(values)} to {max(values)}"


def _cannot_write(path: Path, error: OSError) -> SpecError:
    return SpecError(
        f"the plot cannot be written to {str(path)!r} ({error.strerror or error}): give a path in "
        "a folder that exists and that you may write to"
    )


# -- drawing ---------------------------------------------------------------------------


def _draw_lines(axes: Axes, panel: Sequence[Comparison], lines: Sequence[_Line], x: str) -> None:
    values: set[int] = set()
    for line in lines:
        found = sorted(line.of(panel), key=lambda each: int(getattr(each[0], x)))
        if not found:
            continue
        at = [int(getattr(point, x)) for point, _ in found]
        values.update(at)
        axes.errorbar(
            at,
            [measurement.median for _, measurement in found],
            yerr=list(zip(*(_error(measurement) for _, measurement in found), strict=True)),
            label=line.label,
            color=line.color,
            marker=line.marker,
            linestyle=line.dashes,
            markersize=5,
            capsize=3,
        )
    _scale_x(axes, sorted(values))
    axes.set_xlabel(_X_LABELS[x])
    _scale_y(axes)


def _draw_bars(axes: Axes, panel: Sequence[Comparison], lines: Sequence[_Line]) -> None:
    # nothing varies in this panel: it has one comparison, with one measurement of each library
    bars = [(line, found) for line in lines for _, found in line.of(panel)]
    medians = [found.median for _, found in bars]
    drawn = axes.bar(
        [line.label.replace(" (", "\n(") for line, _ in bars],
        medians,
        yerr=list(zip(*(_error(found) for _, found in bars), strict=True)),
        color=[line.color for line, _ in bars],
        width=0.6,
        capsize=4,
    )
    axes.bar_label(drawn, [si(median) for median in medians], padding=3)
    _scale_y(axes)
    # the axis begins in the decade below and leaves room for the figures above
    axes.set_ylim(10 ** math.floor(math.log10(min(medians) / 1.5)), max(medians) * 3)
    axes.set_xlabel("library")


def _error(measurement: Measurement) -> tuple[float, float]:
    rates = measurement.env_steps_per_s
    return measurement.median - min(rates), max(rates) - measurement.median


def _scale_x(axes: Axes, values: Sequence[int]) -> None:
    """Sets ticks at measured values, as many as are readable; a wide span gets a log scale."""
    is_log = values[-1] >= 4 * values[0]
    if is_log:
        axes.set_xscale("log", base=2)
    places = [math.log2(value) if is_log else float(value) for value in values]
    shown: list[int] = []
    last = -math.inf
    for value, place in zip(values, places, strict=True):
        if place - last >= (places[-1] - places[0]) / 10:
            shown.append(value)
            last = place
    axes.set_xticks(shown, [str(value) for value in shown])
    axes.set_xticks([], minor=True)


def _scale_y(axes: Axes) -> None:
    from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

    axes.set_yscale("log")
    low, high = axes.get_ylim()
    # for a span of hardly a decade, more ticks are needed to read the values
    subs = (1.0, 2.0, 5.0) if high < 100 * low else (1.0,)
    axes.yaxis.set_major_locator(LogLocator(base=10, subs=subs))
    axes.yaxis.set_major_formatter(EngFormatter())
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel(_Y_LABEL)
    axes.set_axisbelow(True)
    axes.grid(alpha=0.3)


def _add_legend(figure: Figure, lines: Sequence[_Line]) -> None:
    """Adds one legend below all panels, since a line looks the same in each of them."""
    handles = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles[label] = handle
    labels = list(dict.fromkeys(line.label for line in lines if line.label in handles))
    if labels:
        columns = min(len(labels), 3 if max(map(len, labels)) > 30 else 4)
        figure.legend(
            [handles[label] for label in labels], labels, loc="outside lower center", ncols=columns
        )
