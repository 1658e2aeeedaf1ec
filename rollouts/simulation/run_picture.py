# SPDX-License-Identifier: Apache-2.0
"""A simulated run as plots over time, drawn without a display; needs matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from rollouts.simulation.run_report import RunReport

# blue and vermilion of Okabe and Ito
_BLUE, _RED = "#0072B2", "#D55E00"
# number of samples over which a rate is computed
_OVER = 12


def draw_run(report: RunReport) -> Figure:
    """Draws throughput, lag, loads, fragments, bytes and workers over time.

    Returns:
      A matplotlib figure without a window.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 7), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(3, 2, sharex=True)
    moments = report.moments
    times = [one.time_s for one in moments]
    between = times[_OVER:]

    def rates(values: Sequence[float]) -> list[float]:
        # over several samples, because the fragments of a batch come at once
        pairs = zip(values[_OVER:], values, times[_OVER:], times, strict=False)
        return [(after - before) / (end - begin) for after, before, end, begin in pairs]

    throughput = panels[0, 0]
    throughput.plot(between, rates([one.env_steps for one in moments]), color=_BLUE)
    throughput.axhline(report.workers_steps_per_s, color=_RED, linestyle="--", label="all workers")
    throughput.set_ylabel("env-steps/s")
    throughput.legend(loc="lower right")
    lag = panels[0, 1]
    lag.plot(times, [one.lag for one in moments], color=_BLUE)
    if report.lag_limit is not None:
        lag.axhline(report.lag_limit, color=_RED, linestyle="--", label="limit")
        lag.legend(loc="lower right")
    lag.set_ylabel("mean policy lag [versions]")
    load = panels[1, 0]
    load.plot(between, rates([one.driver_busy_s for one in moments]), color=_BLUE, label="driver")
    load.plot(between, rates([one.learner_busy_s for one in moments]), color=_RED, label="learners")
    load.set_ylabel("share of the time busy")
    load.legend(loc="lower right")
    fragments = panels[1, 1]
    fragments.plot(times, [one.in_flight for one in moments], color=_BLUE, label="in flight")
    fragments.plot(times, [one.queue_depth for one in moments], color=_RED, label="queued")
    fragments.set_ylabel("fragments")
    fragments.legend(loc="lower right")
    links = panels[2, 0]
    links.plot(
        between, rates([one.fragment_bytes for one in moments]), color=_BLUE, label="fragments"
    )
    links.plot(between, rates([one.weight_bytes for one in moments]), color=_RED, label="weights")
    links.set_ylabel("bytes/s, all nodes")
    links.legend(loc="lower right")
    workers = panels[2, 1]
    workers.plot(times, [one.workers for one in moments], color=_BLUE)
    workers.set_ylabel("workers that run")
    for axes in panels.flat:
        axes.set_ylim(bottom=0)
    for axes in panels[-1]:
        axes.set_xlabel("simulated time [s]")
    return figure
