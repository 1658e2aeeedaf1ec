# SPDX-License-Identifier: Apache-2.0
"""TrainingResult: what a trainer says of a whole training."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """TrainingResult: what one training took.

    Attributes:
      seconds: From the first env-step to the end of the last gradient step.
      env_steps: Env-steps made.
      mean_return: Mean return of the last training episodes; NaN where none ended.
      curve: Env-steps, and that mean then, from the first to the last that the library reports.
    """

    seconds: float
    env_steps: int
    mean_return: float
    curve: tuple[tuple[int, float], ...] = ()
