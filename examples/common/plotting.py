# SPDX-License-Identifier: Apache-2.0
"""Plots of a training run, drawn without a display."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter
from numpy.typing import NDArray


def save_training_curves(
    path: Path,
    history: Sequence[dict[str, float]],
    *,
    title: str,
    target: float | None,
    evaluations: Sequence[tuple[int, float]] = (),
) -> None:
    """Writes a PNG with the learning curve above and the throughput below.

    Args:
      path: file of the plot.
      history: one dict per update with env_steps, seconds, mean_return and env_steps_per_s.
      title: the program and environment, and the result.
      target: the return to reach, drawn as a line; None for none.
      evaluations: env-steps and mean return without exploration.
    """
    figure = Figure(figsize=(8, 7), layout="constrained")
    FigureCanvasAgg(figure)
    learning, throughput = figure.subplots(2, 1)
    figure.suptitle(title)

    column = {key: np.array([row[key] for row in history]) for key in (history or [{}])[0]}
    if column:
        learning.plot(column["env_steps"], column["mean_return"], label="last 100 episodes")
        label = "mean over 10 updates"
        throughput.plot(column["seconds"], column["env_steps_per_s"], "C2", label=label)
    if evaluations:
        learning.plot(*zip(*evaluations, strict=True), "C1.-", label="without exploration")
    if not history:
        _say(throughput, "no update was made")
    if not evaluations and not np.isfinite(column.get("mean_return", np.array([]))).any():
        _say(learning, "no episode has ended")
    if target is not None:
        learning.axhline(target, color="C3", linestyle="--", label=f"target {target:g}")

    _label(learning, "training [env-steps]", "mean return [reward per episode]")
    _label(throughput, "training time [s]", "throughput [env-steps/s]")
    learning.xaxis.set_major_formatter(EngFormatter(sep=""))
    throughput.yaxis.set_major_formatter(EngFormatter(sep=""))
    throughput.set_ylim(bottom=0)
    figure.savefig(path, dpi=120)


def save_group_curves(
    path: Path, history: Mapping[str, Sequence[tuple[int, float]]], *, title: str
) -> None:
    """Writes a PNG of the mean returns of several groups of agents.

    Args:
      path: file of the plot.
      history: group -> (env-steps, mean return of an agent), one after the other.
      title: title of the plot.
    """
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.set_title(title)
    for name, points in history.items():
        if points:
            axes.plot(*zip(*points, strict=True), label=name or "agent")
    if not any(history.values()):
        _say(axes, "too few episodes have ended")
    _label(axes, "env-steps", "mean return of an agent")
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def _say(axes: Axes, text: str) -> None:
    """Writes the reason for a missing curve in its place."""
    axes.text(0.5, 0.5, text, ha="center", va="center", transform=axes.transAxes)


def _label(axes: Axes, x: str, y: str) -> None:
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(alpha=0.3)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="lower right")


def save_frames(path: Path, stacks: NDArray[Any], labels: Sequence[str]) -> None:
    """Writes a PNG with one row per observation, its stacked frames from old to new.

    Args:
      path: file of the image.
      stacks: (N, S, height, width) uint8.
      labels: N texts, one for each row.
    Raises:
      ValueError: the observations are not stacks of gray images.
    """
    if stacks.ndim != 4 or stacks.dtype != np.uint8:
        raise ValueError(
            f"observations are {stacks.dtype} {stacks.shape[1:]}, expected uint8 (S, height, "
            "width): frames can only be saved of environments that show pixels"
        )
    rows, columns = stacks.shape[:2]
    figure = Figure(figsize=(1.8 * columns, 1.9 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    for row, axes_row in enumerate(figure.subplots(rows, columns, squeeze=False)):
        for column, axes in enumerate(axes_row):
            axes.imshow(stacks[row, column], cmap="gray", vmin=0, vmax=255, interpolation="nearest")
            axes.set_xticks([])
            axes.set_yticks([])
            if row == 0:
                axes.set_title(
                    f"frame {column - columns + 1:+d}" if column < columns - 1 else "now"
                )
        axes_row[0].set_ylabel(labels[row])
    figure.savefig(path, dpi=100)
