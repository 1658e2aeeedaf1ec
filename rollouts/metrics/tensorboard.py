# SPDX-License-Identifier: Apache-2.0
"""Metrics as TensorBoard scalars."""

from __future__ import annotations

import os
from typing import Any

from rollouts.errors import EngineError
from rollouts.metrics.sample import Sample


class TensorBoardSink:
    """Writes a scalar per metric: gauges as they are, counters as they are and per second.

    The tag is the metric's name without its prefix, as in `rollouts/env_steps_per_s` or
    `rollouts/worker_env_steps_per_s/3`; numbers that the table does not know go to `stats/<path>`.
    The horizontal axis is rollouts_env_steps_total.
    """

    def __init__(self, target: str | os.PathLike[str] | Any, *, first_step: int = 0) -> None:
        """Opens the log.

        Args:
          target: A directory, or a SummaryWriter, which then is not closed with the sink.
          first_step: Env-steps of the runs that this one resumes.
        Raises:
          EngineError: target is a directory and tensorboard is not installed.
        """
        self._owns_writer = isinstance(target, str | os.PathLike)
        self._writer: Any = _open(os.fspath(target)) if self._owns_writer else target
        self._first_step = first_step

    def write(self, sample: Sample) -> None:
        """Writes one sample."""
        step = self._first_step + int(sample.value("rollouts_env_steps_total") or 0)
        for reading in sample.readings:
            name = reading.metric.name.removeprefix("rollouts_")
            end = "" if reading.label is None else f"/{reading.label}"
            self._writer.add_scalar(f"rollouts/{name}{end}", reading.value, step)
            if reading.per_s is not None:
                rate = f"rollouts/{name.removesuffix('_total')}_per_s{end}"
                self._writer.add_scalar(rate, reading.per_s, step)
        for path, value in sample.other.items():
            self._writer.add_scalar("/".join(("stats", *path)), value, step)

    def close(self) -> None:
        """Writes what is buffered."""
        if self._owns_writer:
            self._writer.close()
        else:
            self._writer.flush()


def _open(directory: str) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise EngineError(
            f"TensorBoardSink needs tensorboard ({error}): pip install 'rollouts[tensorboard]'"
        ) from error
    return SummaryWriter(directory)
