# SPDX-License-Identifier: Apache-2.0
"""Metrics in Weights & Biases."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping
from typing import Any

from rollouts.metrics.sample import Sample
from rollouts.metrics.scalars import scalars, step_of
from rollouts.support.extras import needs

_STEP = "rollouts/step"


class WandbSink:
    """Logs each sample to a run of Weights & Biases, under the names of `TensorBoardSink`.

    The horizontal axis of these names is "rollouts/step", in env-steps, not the run's own step. A
    training that logs to the same run keeps its own step count, which wandb does not let go back.
    So a sample is joined to the next row that the training logs, one sample per row, and the
    remaining ones become rows of their own when the sink is closed. WANDB_MODE=offline only writes
    files.
    """

    def __init__(
        self,
        target: str | Any,
        *,
        directory: str | os.PathLike[str] | None = None,
        config: Mapping[str, Any] | None = None,
        first_step: int = 0,
        shares_run: bool | None = None,
    ) -> None:
        """Begins a run.

        Args:
          target: Name of the project, or a run of `wandb.init`, which is then not finished with the
            sink.
          directory: Directory of the run's files; None: wandb's default.
          config: Hyper-parameters that wandb shows for the run.
          first_step: Env-steps of the runs that this one resumes.
          shares_run: Whether other code logs to the run. False: samples are rows of their own at
            once. None: True if `target` is a run.
        Raises:
          EngineError: target is a name and wandb is not installed.
        """
        self._owns_run = isinstance(target, str)
        self._shares_run = not self._owns_run if shares_run is None else shares_run
        self._waiting: deque[dict[str, float]] = deque()
        self._joined_step: int | None = None  # the run's step that the last sample was joined to
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
        row = {_STEP: step_of(sample, self._first_step), **scalars(sample)}
        if not self._shares_run:
            self._run.log(row)
            return
        self._waiting.append(row)
        if self._run.step != self._joined_step:
            self._joined_step = self._run.step
            self._run.log(self._waiting.popleft(), commit=False)

    def close(self) -> None:
        """Logs the samples that wait, and finishes the run, if the sink began it."""
        if self._waiting and self._run.step == self._joined_step:
            self._run.log({})  # completes the row that has a sample already
        while self._waiting:
            self._run.log(self._waiting.popleft())
        if self._owns_run:
            self._run.finish()
