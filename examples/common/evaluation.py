# SPDX-License-Identifier: Apache-2.0
"""Evaluations of a policy without exploration, at intervals during its training."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import rollouts

FILE_NAME = "evaluations.csv"


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Returns of some episodes of one policy, and the progress of its training."""

    library: str  # the library that trained it
    env_steps: int
    updates: int  # gradient steps
    seconds: float  # time in training, evaluations included
    mean_return: float
    std_return: float


def evaluate(
    act: Callable[[NDArray[Any]], NDArray[Any]],
    env_id: str,
    *,
    num_episodes: int,
    seed: int,
    env_options: Mapping[str, Any] | None = None,
    statistics: Mapping[str, rollouts.RunningStatistics] | None = None,
) -> NDArray[np.float64]:
    """Plays one episode in each of `num_episodes` environments.

    Args:
      act: maps obs (B, *obs_shape) to actions (B, *action_shape), without exploration.
      env_id: id of the environments.
      num_episodes: B.
      seed: seed of the first states; the same seed always gives the same ones.
      env_options: options of the environments.
      statistics: statistics with which wrappers scale, see `RolloutCoordinator.statistics`.
    Returns:
      (B,) the returns.
    """
    total = np.zeros(num_episodes)
    playing = np.ones(num_episodes, np.bool_)
    options = dict(env_options or {})
    with rollouts.make_vec(env_id, num_episodes, num_threads=1, seed=seed, **options) as env:
        for kind, counted in (statistics or {}).items():
            setattr(env, f"{kind}_statistics", counted)
            env.update_statistics = False
        obs, _ = env.reset()
        while playing.any():
            obs, _, terminated, truncated, info = env.step(act(obs))
            # episode_return is used instead of `reward`, which a wrapper may have scaled
            ended = terminated | truncated
            total += info["episode_return"] * (playing & ended)
            playing &= ~ended
    return total


class EvaluationLog:
    """The evaluations of a run, in a CSV file to which each is written at once."""

    def __init__(self, directory: Path, *, until: int = 0) -> None:
        """Continues the directory's file after its evaluations up to env-step `until`."""
        self.path = directory / FILE_NAME
        # a process that was killed may have logged more than its last checkpoint contains
        known = read_evaluations(directory) if until and self.path.is_file() else []
        self.rows: list[Evaluation] = []
        with self.path.open("w", newline="") as file:
            csv.writer(file).writerow(field.name for field in fields(Evaluation))
        for row in known:
            if row.env_steps <= until:
                self.add(row)

    def add(self, row: Evaluation) -> None:
        """Appends one evaluation."""
        self.rows.append(row)
        with self.path.open("a", newline="") as file:
            csv.writer(file).writerow(asdict(row).values())

    def is_due(self, env_steps: int, interval: int) -> bool:
        """Tells whether a multiple of `interval` was passed since the last evaluation; 0: never."""
        if not interval:
            return False
        return not self.rows or env_steps // interval > self.rows[-1].env_steps // interval


def read_evaluations(directory: Path) -> list[Evaluation]:
    """Reads the evaluations that an EvaluationLog wrote into `directory`."""
    with (directory / FILE_NAME).open(newline="") as file:
        return [
            Evaluation(
                library=row["library"],
                env_steps=int(row["env_steps"]),
                updates=int(row["updates"]),
                seconds=float(row["seconds"]),
                mean_return=float(row["mean_return"]),
                std_return=float(row["std_return"]),
            )
            for row in csv.DictReader(file)
        ]
