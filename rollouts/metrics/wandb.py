# SPDX-License-Identifier: Apache-2.0
"""Metrics in Weights & Biases."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from rollouts.metrics.sample import Sample
from rollouts.metrics.scalars import scalars, step_of
from rollouts.support.extras import needs

_STEP = "rollouts/step"


class WandbSink:
    """Logs each sample to a run of Weights & Biases, by the names of `TensorBoardSink`.

    The horizontal axis of these names is "rollouts/step", env-steps, and not the run's own step:
    a training that logs to the same run keeps its own count. WANDB_MODE=offline writes files alone.
    """

    def __init__(
        self,
        target: str | Any,
        *,
        directory: str | os.PathLike[str] | None = None,
        config: Mapping[str, Any] | None = None,
        first_step: int = 0,
    ) -> None:
        """Begins a run.

        Args:
          target: Name of the project, or a run of `wandb.init`, which then is not finished with
            the sink.
          directory: Where the run's files go; None: what wandb takes.
          config: Hyper-parameters that the run is shown with.
          first_step: Env-steps of the runs that this one resumes.
        Raises:
          EngineError: target is a name and wandb is not installed.
        """
        self._owns_run = isinstance(target, str)
        self._run: Any = target
        self._first_step = first_step
        if isinstance(target, str):
            with needs("wandb", "WandbSink"):
                import wandb
            place = None if directory is None else os.fspath(directory)
            self._run = wandb.init(project=target, dir=place, config=dict(config or {}))
        for names in ("rollouts/*", "stats/*"):
            self._run.define_metric(names, step_metric=_STEP)

    def write(self, sample: Sample) -> None:
        """Logs one sample."""
        self._run.log({_STEP: step_of(sample, self._first_step), **scalars(sample)})

    def close(self) -> None:
        """Finishes the run, if the sink began it."""
        if self._owns_run:
            self._run.finish()
