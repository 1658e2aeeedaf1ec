# SPDX-License-Identifier: Apache-2.0
"""Learners of a LearnerGroup that fit a row of weights, and some that fail."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np

from rollouts.checkpoint import Checkpoint

RATE = 0.1


class Learner:
    """Fits one row of weights to rewards, by momentum: state that a successor needs, too."""

    def __init__(self, ends_at: Path | None = None) -> None:
        """Takes a file; the learner that first computes a gradient after it is there is killed."""
        self.w, self.momentum = np.zeros(5), np.zeros(5)
        self.offset = self.num_gradients = self.num_updates = 0
        self._ends_at = ends_at

    def gradient(self, batch: Any) -> dict[str, Any]:
        if self._ends_at is not None and self._ends_at.exists():
            self._ends_at.unlink(missing_ok=True)
            os.kill(os.getpid(), signal.SIGKILL)
        self.num_gradients += 1
        rows = np.asarray(batch.extras["hidden"], np.float64).reshape(-1, 5)
        error = rows @ self.w - batch.reward.reshape(-1)
        return {"w": error @ rows / len(rows)}

    def apply(self, gradient: dict[str, Any]) -> None:
        self.momentum = 0.9 * self.momentum + gradient["w"]
        self.w = self.w - RATE * self.momentum
        self.num_updates += 1

    def weights(self) -> dict[str, Any]:
        return {"offset": np.array([self.num_updates])}

    def checkpoint(self) -> Checkpoint:
        import torch

        parts = {"w": torch.tensor(self.w), "momentum": torch.tensor(self.momentum)}
        return Checkpoint(
            id="Counter", program="", weights=parts, training={"num_updates": self.num_updates}
        )

    def restore(self, checkpoint: Checkpoint) -> None:
        self.w = checkpoint.weights["w"].numpy().copy()
        self.momentum = checkpoint.weights["momentum"].numpy().copy()
        self.num_updates = checkpoint.training["num_updates"]

    def now(self) -> tuple[bytes, int, int]:
        return self.w.tobytes(), self.num_updates, self.num_gradients

    def pid(self) -> int:
        return os.getpid()


class Refusing(Learner):
    """Raises in `apply`."""

    def apply(self, gradient: dict[str, Any]) -> None:
        raise ValueError("no such step")


class Unable(Learner):
    """Dies of each checkpoint."""

    def restore(self, checkpoint: Checkpoint) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class Broken(Learner):
    """Raises in its constructor."""

    def __init__(self) -> None:
        raise ValueError("no card here")
