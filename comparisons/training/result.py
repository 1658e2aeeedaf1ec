# SPDX-License-Identifier: Apache-2.0
"""TrainingResult: the times, steps and returns that a trainer reports for a whole training."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """TrainingResult: the result of one training.

    Attributes:
      seconds: From the first env-step to the end of the last gradient step.
      env_steps: Env-steps made.
      mean_return: Mean return of the last training episodes; NaN where none ended.
      curve: Env-steps and the mean return at that time, for all the means that the library reports.
    """

    seconds: float
    env_steps: int
    mean_return: float
    curve: tuple[tuple[int, float], ...] = ()
