# SPDX-License-Identifier: Apache-2.0
"""Time to solve: the same learner over our environments and over others."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Protocol

from comparisons.report.report_rows import Row, row_of
from rollouts.errors import EngineError


class Learner(Protocol):
    """Learns with a seed until the mean return of the last hundred episodes reaches a target."""

    def __call__(self, id: str, target: float, seed: int) -> tuple[float, int]:
        """Returns seconds and env-steps; raises EngineError where the target was missed."""
        ...


def measure_solving(
    id: str,
    target: float,
    *,
    repeats: int,
    seed: int,
    on_progress: Callable[[str], None] | None = None,
) -> list[Row]:
    """Trains with Stable-Baselines3's PPO, over each kind of environments with the same seeds.

    Args:
      id: An id with vectors as observations, known to Gymnasium too.
      target: Mean return of the last hundred episodes that counts as solved.
      repeats: Number of seeds.
      seed: The first seed.
      on_progress: Called with a short line before each training.

    Returns:
      Rows of seconds and of env-steps.

    Raises:
      EngineError: Stable-Baselines3 is missing, or a training missed the target.
    """
    report = on_progress or (lambda line: None)
    learners = _learners()
    seconds: dict[str, list[float]] = {name: [] for name in learners}
    steps: dict[str, list[float]] = {name: [] for name in learners}
    for each in range(seed, seed + repeats):
        for name, learn in learners.items():
            report(f"{name}: seed {each}")
            took, env_steps = learn(id, target, each)
            seconds[name].append(took)
            steps[name].append(env_steps)
    case = f"{id} to {target:g}"
    figures = (("time", seconds, "s"), ("env-steps", steps, "env-steps"))
    return [
        row_of(f"{case}, {what}", name, values, unit, higher_is_better=False)
        for what, of, unit in figures
        for name, values in of.items()
    ]


def _learners() -> dict[str, Learner]:
    """Imports by name, so that nothing in this package depends on an adapter."""
    try:
        module: Any = importlib.import_module("comparisons.adapters.sb3_solve")
    except ImportError as error:
        raise EngineError(
            f"time to solve needs Stable-Baselines3: pip install 'rollouts[sb3]' ({error})"
        ) from error
    learners: dict[str, Learner] = module.LEARNERS
    return learners
