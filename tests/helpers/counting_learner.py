# SPDX-License-Identifier: Apache-2.0
"""A learner of a LearnerGroup that checks the counters it gets, and adds up what it was told."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from counter_world import check_counters, weights

from rollouts.checkpoint import Checkpoint


class CountingLearner:
    """A learner without a policy: its gradient is the mean of the rows' step numbers."""

    def __init__(self) -> None:
        """Begins with nothing."""
        self.total, self.num_updates = 0.0, 0

    def gradient(self, batch: Any) -> dict[str, Any]:
        check_counters(batch.obs)
        return {"step": mean_step(batch)}

    def apply(self, gradient: dict[str, Any]) -> None:
        self.total += float(gradient["step"])
        self.num_updates += 1

    def weights(self) -> dict[str, Any]:
        return weights(self.num_updates % 5)

    def checkpoint(self) -> Checkpoint:
        return Checkpoint(id="Counter", program="", weights={}, training=self.account())

    def restore(self, checkpoint: Checkpoint) -> None:
        self.total = checkpoint.training["total"]
        self.num_updates = checkpoint.training["num_updates"]

    def account(self) -> dict[str, Any]:
        return {"total": self.total, "num_updates": self.num_updates}

    def pid(self) -> int:
        return os.getpid()


def mean_step(batch: Any) -> np.float64:
    """Returns the mean of the step numbers of all rows."""
    return np.float64(batch.obs[..., 4].mean())
