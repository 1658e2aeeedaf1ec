# SPDX-License-Identifier: Apache-2.0
"""Returns by env-steps of trainings with several seeds, drawn without a display."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from comparisons.training.result import TrainingResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which colour-blind people tell apart
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
_NUM_POINTS = 200


def draw(found: Mapping[str, Sequence[TrainingResult]], *, title: str) -> Figure:
    """Draws a line through the seeds' mean for each trainer, in a band of their standard deviation.

    Args:
      found: Trainings with each trainer, one for each seed. A trainer in whose trainings no episode
        ended has no line.
      title: Text above the plot.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

    figure = Figure(figsize=(7.0, 3.5), layout="constrained")
    axes = figure.subplots()
    for (name, trainings), color in zip(found.items(), _COLORS, strict=False):
        steps, returns = over_seeds(trainings)
        if not len(returns):
            continue
        mean, spread = returns.mean(0), returns.std(0)
        axes.plot(steps, mean, color=color, label=f"{name}, seeds: {len(returns)}")
        axes.fill_between(steps, mean - spread, mean + spread, color=color, alpha=0.2, linewidth=0)
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("training [env-steps]")
    axes.xaxis.set_major_formatter(EngFormatter())
    axes.set_ylabel("return, mean of the last 100 episodes", fontsize=9)
    axes.grid(alpha=0.3)
    axes.legend()
    return figure


def over_seeds(
    trainings: Sequence[TrainingResult],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Reads all curves at the same env-steps, with linear interpolation between points.

    Returns:
      Env-steps (P,), those that all curves have, and returns (seeds, P); a training in which no
      episode ended is left out.
    """
    curves: list[NDArray[Any]] = []
    for training in trainings:
        points = np.array(training.curve, np.float64).reshape(-1, 2)
        points = points[~np.isnan(points[:, 1])]
        if len(points):
            curves.append(points)
    if not curves:
        return np.empty(0), np.empty((0, 0))
    first, last = max(one[0, 0] for one in curves), min(one[-1, 0] for one in curves)
    steps = np.linspace(first, max(first, last), _NUM_POINTS)
    return steps, np.stack([np.interp(steps, one[:, 0], one[:, 1]) for one in curves])
