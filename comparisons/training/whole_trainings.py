# SPDX-License-Identifier: Apache-2.0
"""Whole trainings: a library's algorithm over our pool, and with the library's own parts.

The time measured is that of environments, collecting and gradient steps together, from the first
step to the last. The mean returns at the end show whether all learned alike. Trainers of a library
are in the module of its name in this folder.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from comparisons.report.report_rows import Row, row_of
from comparisons.training import curves
from comparisons.training.result import TrainingResult
from rollouts.bench import plot as plots
from rollouts.errors import EngineError, SpecError

# the libraries, and the extras that install them
LIBRARIES = {"sb3": "sb3", "rllib": "rllib", "tianshou": "tianshou", "cleanrl": "torch"}

# one gradient step for one to four env-steps; it takes a hundred times as long as an env-step
_OFF_POLICY = {"dqn", "sac", "td3", "ddpg"}


def default_steps(algorithm: str) -> int:
    """Returns env-steps that a training with torch makes in less than a minute or two."""
    return 10_000 if algorithm in _OFF_POLICY else 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingTask:
    """TrainingTask: the task of every trainer of a comparison.

    Attributes:
      algorithm: A name of the library's module, such as "ppo".
      id: An id of both `rollouts.make_vec` and `gymnasium.make`.
      num_envs: Environments that one process or pool steps.
      total_steps: Env-steps of a training; the last rollout is completed.
      seed: Seed of environments, networks and actions.
    """

    algorithm: str
    id: str
    num_envs: int
    total_steps: int
    seed: int = 0


class Trainer(Protocol):
    """Trains once, in this process."""

    def __call__(self, task: TrainingTask) -> TrainingResult:
        """Makes environments and an agent, trains it, and closes both."""
        ...


def measure_training(
    library: str,
    task: TrainingTask,
    *,
    peers: Sequence[str] = (),
    repeats: int,
    plot: Path | None = None,
    on_progress: Callable[[str], None] | None = None,
) -> list[Row]:
    """Trains with each trainer of a library, with the same seeds, in turns.

    Args:
      library: One of `LIBRARIES`.
      task: The training; repeats have its seed and those after it.
      peers: Names of trainers next to "rollouts"; empty: all.
      repeats: Trainings of each trainer.
      plot: Path of a plot of returns by env-steps; None: none is drawn.
      on_progress: Called with a short line before each training.

    Returns:
      Rows of env-steps per second of the whole training, and of mean returns.

    Raises:
      EngineError: The library is missing, or matplotlib for a plot.
      SpecError: No such library, algorithm or peer; the plot cannot be written.
    """
    if plot:
        plots.check(plot)
    trainers = _chosen(_trainers(library, task.algorithm), peers)
    found: dict[str, list[TrainingResult]] = {name: [] for name in trainers}
    for repeat in range(repeats):
        one = replace(task, seed=task.seed + repeat)
        names = list(trainers)
        # trainers take turns at being first, since the first in a process also pays for its start
        for name in names[repeat % len(names) :] + names[: repeat % len(names)]:
            if on_progress:
                on_progress(f"{name}: seed {one.seed}")
            found[name].append(trainers[name](one))
    case = f"{task.algorithm} on {task.id}, {task.num_envs} envs, {task.total_steps} steps"
    if plot:
        title = f"{library}: {task.algorithm} on {task.id}, {task.num_envs} environments"
        plots.save(curves.draw(found, title=title), plot)
    rates = [
        row_of(case, name, [each.env_steps / each.seconds for each in of], "env-steps/s")
        for name, of in found.items()
    ]
    returns = [
        row_of(f"{case}, at the end", name, [each.mean_return for each in of], "mean return")
        for name, of in found.items()
    ]
    return rates + returns


def _trainers(library: str, algorithm: str) -> dict[str, Trainer]:
    """The trainers of an algorithm by name, ours first."""
    if library not in LIBRARIES:
        raise SpecError(f"library is {library!r}, expected one of {', '.join(LIBRARIES)}")
    try:
        module: Any = importlib.import_module(f"comparisons.training.{library}_training")
    except ImportError as error:
        raise EngineError(
            f"{library} is missing: pip install 'rollouts[{LIBRARIES[library]}]' ({error})"
        ) from error
    algorithms: Mapping[str, dict[str, Trainer]] = module.TRAINERS
    if algorithm not in algorithms:
        raise SpecError(
            f"algorithm is {algorithm!r}, expected one of {library}'s: {', '.join(algorithms)}"
        )
    return algorithms[algorithm]


def _chosen(trainers: dict[str, Trainer], peers: Sequence[str]) -> dict[str, Trainer]:
    unknown = [name for name in peers if name not in trainers]
    if unknown:
        raise SpecError(f"no peer {unknown[0]!r}: there are {', '.join(list(trainers)[1:])}")
    kept = {"rollouts", *peers} if peers else {*trainers}
    return {name: trainer for name, trainer in trainers.items() if name in kept}
