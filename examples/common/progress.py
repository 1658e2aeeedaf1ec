# SPDX-License-Identifier: Apache-2.0
"""Progress of a training run, and its display while the run goes on."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import nan
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

EPISODES_IN_MEAN = 100


@dataclass
class Progress:
    """Counts of a training run; numbers and lists only, for the checkpoint."""

    env_steps: int = 0
    updates: int = 0
    seconds: float = 0.0
    returns: list[float] = field(default_factory=list)  # returns of the last 100 episodes
    history: list[dict[str, float]] = field(default_factory=list)  # one row per update

    @property
    def mean_return(self) -> float:
        """Mean return of the last 100 episodes, or of as many as there were."""
        return float(np.mean(self.returns)) if self.returns else nan

    @property
    def policy_version(self) -> int:
        """Version of the policy after these updates, counted over all resumed runs; 1 at first."""
        return self.updates + 1

    def has_reached(self, target: float | None) -> bool:
        """Tells whether the last 100 episodes average `target` or more."""
        full = len(self.returns) == EPISODES_IN_MEAN
        return target is not None and full and self.mean_return >= target

    def add(
        self, num_steps: int, returns: NDArray[np.float64], *, seconds: float, policy_lag: float
    ) -> None:
        """Counts the steps of one update and the returns (E,) of episodes that ended in it, at
        `seconds` of training."""
        self.env_steps += num_steps
        self.updates += 1
        self.seconds = seconds
        self.returns = [*self.returns, *returns.tolist()][-EPISODES_IN_MEAN:]
        # throughput over ten updates: that of a single one varies, since fragments arrive in bursts
        before = self.history[-10:][0] if self.history else {"env_steps": 0, "seconds": 0}
        rate = (self.env_steps - before["env_steps"]) / (seconds - before["seconds"])
        row = {"env_steps": self.env_steps, "seconds": seconds, "mean_return": self.mean_return}
        self.history.append({**row, "env_steps_per_s": rate, "policy_lag": policy_lag})


def report(
    progress: Progress, logs: dict[str, float], *, bar: tqdm[Any], writer: SummaryWriter
) -> None:
    """Shows the last update in the progress bar and in TensorBoard."""
    row = progress.history[-1]
    bar.set_postfix_str(
        f"return {progress.mean_return:.1f}, {row['env_steps_per_s']:,.0f} env-steps/s, "
        f"policy lag {row['policy_lag']:.1f}",
        refresh=False,
    )
    bar.update(progress.env_steps - bar.n)
    for name in ("mean_return", "env_steps_per_s", "policy_lag"):
        writer.add_scalar(f"charts/{name}", row[name], progress.env_steps)
    for name, value in logs.items():
        writer.add_scalar(f"losses/{name}", value, progress.env_steps)
