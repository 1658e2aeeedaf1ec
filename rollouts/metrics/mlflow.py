# SPDX-License-Identifier: Apache-2.0
"""Metrics in MLflow."""

from __future__ import annotations

import re
import time
from typing import Any

from rollouts.metrics.sample import Sample
from rollouts.metrics.scalars import scalars, step_of
from rollouts.support.extras import needs

_MOST = 1000  # most metrics that MLflow takes in one call


class MLflowSink:
    """Logs each sample to an MLflow run, under the names of `TensorBoardSink`; steps are env-steps.

    Characters that MLflow does not allow in names become "_". The sink uses MLflow's client: the
    active run of `mlflow.start_run` stays as it is.
    """

    def __init__(
        self,
        tracking_uri: str,
        *,
        experiment: str = "rollouts",
        run_name: str | None = None,
        run_id: str | None = None,
        first_step: int = 0,
    ) -> None:
        """Begins a run, or continues one.

        Args:
          tracking_uri: A server, or a file such as "sqlite:///mlflow.db".
          experiment: Name of the experiment, which is made if there is none.
          run_name: Name of a new run; None: MLflow invents one.
          run_id: A run to log to, which is then not ended with the sink.
          first_step: Env-steps of the runs that this one resumes.
        Raises:
          EngineError: mlflow is not installed.
        """
        with needs("mlflow", "MLflowSink"):
            from mlflow import MlflowClient
            from mlflow.entities import Metric
        self._metric: Any = Metric
        self._client: Any = MlflowClient(tracking_uri=tracking_uri)
        self._owns_run = run_id is None
        self._first_step = first_step
        if run_id is None:
            known = self._client.get_experiment_by_name(experiment)
            number = known.experiment_id if known else self._client.create_experiment(experiment)
            run_id = self._client.create_run(number, run_name=run_name).info.run_id
        self.run_id = run_id

    def write(self, sample: Sample) -> None:
        """Logs one sample."""
        now_ms, step = int(time.time() * 1000), step_of(sample, self._first_step)
        metrics = [
            self._metric(re.sub(r"[^\w\-. /:]", "_", name), float(value), now_ms, step)
            for name, value in scalars(sample).items()
        ]
        for first in range(0, len(metrics), _MOST):
            self._client.log_batch(self.run_id, metrics=metrics[first : first + _MOST])

    def close(self) -> None:
        """Ends the run, if the sink began it."""
        if self._owns_run:
            self._client.set_terminated(self.run_id)
