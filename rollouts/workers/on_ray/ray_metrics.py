# SPDX-License-Identifier: Apache-2.0
"""Metrics through Ray, which offers them to Prometheus on every node."""

from __future__ import annotations

from typing import Any

from rollouts.metrics.metrics_table import Metric
from rollouts.metrics.sample import Sample
from rollouts.support.extras import needs


class RayMetricsSink:
    """Hands samples to `ray.util.metrics`; Prometheus sees them as `ray_<name>{run=...}`.

    Ray must be initialised in this process. Its endpoint exists only with `ray[default]`
    (`pip install 'rollouts[cluster]'`); without it the numbers go nowhere, silently.
    """

    def __init__(self, run: str) -> None:
        """Makes no metric yet.

        Args:
          run: Value of the tag `run`, which tells the runs on a cluster apart.
        """
        self._run = run
        self._metrics: dict[str, Any] = {}
        self._gauges: set[tuple[Metric, str | None]] = set()

    def write(self, sample: Sample) -> None:
        """Sets the gauges and adds to the counters."""
        gauges = set()
        for reading in sample.readings:
            metric, tags = reading.metric, self._tags(reading.metric, reading.label)
            if metric.kind == "gauge":
                gauges.add((metric, reading.label))
                self._get(metric).set(reading.value, tags=tags)
            elif reading.increase > 0:
                self._get(metric).inc(reading.increase, tags=tags)
        # Ray would go on showing the last value, such as that of a removed worker
        for metric, label in self._gauges - gauges:
            self._get(metric).set(0, tags=self._tags(metric, label))
        self._gauges = gauges

    def close(self) -> None:
        """Does nothing: Ray sends what it has, and forgets it with this process."""

    def _tags(self, metric: Metric, label: str | None) -> dict[str, str]:
        tags = {"run": self._run}
        return tags if metric.label is None or label is None else tags | {metric.label: label}

    def _get(self, metric: Metric) -> Any:
        if metric.name not in self._metrics:
            with needs("ray", "RayMetricsSink"):
                from ray.util import metrics

            make: Any = metrics.Counter if metric.kind == "counter" else metrics.Gauge
            tags = ("run",) if metric.label is None else ("run", metric.label)
            text = f"{metric.help} ({metric.unit})"
            self._metrics[metric.name] = make(metric.name, description=text, tag_keys=tags)
        return self._metrics[metric.name]
