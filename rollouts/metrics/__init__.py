# SPDX-License-Identifier: Apache-2.0
"""Metrics of a running job: `RolloutCoordinator.stats`, read at an interval and sent to sinks.

    sinks = [StatusFileSink(run_dir), TensorBoardSink(run_dir)]
    with MetricsReporter(coordinator.stats, sinks):
        ...  # train

`metrics_table.py` lists the metrics with their places in the stats. `rollouts top` shows the file
of StatusFileSink. WandbSink and MLflowSink send them to Weights & Biases and to MLflow.
`rollouts.workers.on_ray.ray_metrics.RayMetricsSink` feeds Ray's Prometheus endpoint.
"""

from rollouts.metrics.metrics_table import METRICS, Metric
from rollouts.metrics.mlflow import MLflowSink
from rollouts.metrics.reporter import MetricsReporter, Sink
from rollouts.metrics.sample import Reading, Sample
from rollouts.metrics.status import StatusFileSink
from rollouts.metrics.tensorboard import TensorBoardSink
from rollouts.metrics.wandb import WandbSink

__all__ = [
    "METRICS",
    "MLflowSink",
    "Metric",
    "MetricsReporter",
    "Reading",
    "Sample",
    "Sink",
    "StatusFileSink",
    "TensorBoardSink",
    "WandbSink",
]
