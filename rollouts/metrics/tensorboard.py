# SPDX-License-Identifier: Apache-2.0
"""Metrics as TensorBoard scalars."""

from __future__ import annotations

import os
from typing import Any

from rollouts.errors import EngineError
from rollouts.metrics.sample import Sample
from rollouts.metrics.scalars import scalars, step_of


class TensorBoardSink:
    """Writes each sample, with the tags of `rollouts.metrics.scalars`.

    The horizontal axis is rollouts_env_steps_total. A training that writes its own scalars should
    pass its SummaryWriter, or use one directory for each: if two writers have files in one
    directory, TensorBoard reads only the newer file, unless it is started with
    --reload_multifile=true.
    """

    def __init__(self, target: str | os.PathLike[str] | Any, *, first_step: int = 0) -> None:
        """Opens the log.

        Args:
          target: A directory, or a SummaryWriter, which is then not closed with the sink.
          first_step: Env-steps of the runs that this one resumes.
        Raises:
          EngineError: target is a directory and tensorboard is not installed.
        """
        self._owns_writer = isinstance(target, str | os.PathLike)
        self._writer: Any = _open(os.fspath(target)) if self._owns_writer else target
        self._first_step = first_step

    def write(self, sample: Sample) -> None:
        """Writes one sample."""
        step = step_of(sample, self._first_step)
        for name, value in scalars(sample).items():
            self._writer.add_scalar(name, value, step)

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
