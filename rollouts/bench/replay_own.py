# SPDX-License-Identifier: Apache-2.0
"""Candidate and StepBuffer: interfaces of the buffers in `rollouts bench replay`, and our buffer.

Every library is used as in its own documentation: rollouts are inserted as they come, batches are
sampled by priority, and new priorities are set for the sampled items.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rollouts.batch import RolloutBatch
from rollouts.bench.replay_workloads import Workload
from rollouts.replay import NStep, ReplayBuffer, TableConfig
from rollouts.replay.acted import GymnasiumStep

Array = NDArray[Any]

Given = tuple[Array, Array]  # obs and action

EXPONENT, BETA = 0.6, 0.4


class Candidate(Protocol):
    """One library's buffer. Each thread has its own `samples`; any thread calls the other methods.

    Attributes:
      note: Differences from the others, in a sentence; "" without any.
    """

    note: str

    def add(self, rollout: dict[str, Array], env_id: Array) -> None:
        """Inserts a rollout (T, B) of the environments `env_id` (B,)."""

    def flush(self) -> None:
        """Returns when all that was inserted can be sampled."""

    def samples(self, batch_size: int) -> Iterator[tuple[dict[str, Any], Any]]:
        """Yields a learner's data (six arrays or tensors), and the names of the items."""

    def update(self, names: Any, priorities: Array) -> None:
        """Sets the priorities (B,) of sampled items."""

    def nbytes(self) -> int:
        """Bytes of the stored data."""


class OwnReplay:
    """rollouts.replay.ReplayBuffer."""

    note = ""

    def __init__(self, load: Workload) -> None:
        """Makes an empty buffer."""
        self._buffer = ReplayBuffer(
            spaces.Box(0, 255, load.obs_shape, dtype=np.dtype(load.obs_dtype).type),
            spaces.Discrete(6),
            TableConfig(
                items=NStep(1), sampler="prioritized", exponent=EXPONENT, max_size=load.size
            ),
            stack_num=load.stack_num,
        )

    def add(self, rollout: dict[str, Array], env_id: Array) -> None:
        """See Candidate."""
        steps, rows = rollout["reward"].shape
        zeros = np.zeros((steps, rows), np.float32)
        self._buffer.add_batch(
            RolloutBatch(
                obs=rollout["obs"][:steps],
                action=rollout["action"],
                reward=rollout["reward"],
                terminated=rollout["terminated"],
                truncated=np.zeros((steps, rows), np.bool_),
                bootstrap_value=zeros,
                log_prob=zeros,
                value=zeros,
                last_obs=rollout["obs"][-1],
                last_value=zeros[0],
                policy_version=np.zeros((steps, rows), np.int64),
                env_id=env_id.astype(np.int32),
                episode_return=zeros.astype(np.float64),
                episode_length=zeros.astype(np.int32),
            )
        )

    def flush(self) -> None:
        """See Candidate."""
        self._buffer.flush()

    def samples(self, batch_size: int) -> Iterator[tuple[dict[str, Any], Any]]:
        """See Candidate."""
        while True:
            batch: Any = self._buffer.sample(batch_size, beta=BETA)
            yield (
                {
                    "obs": batch.obs,
                    "action": batch.action,
                    "reward": batch.reward,
                    "next_obs": batch.next_obs,
                    "terminated": batch.terminated,
                    "weight": batch.weight,
                },
                batch.key,
            )

    def update(self, names: Any, priorities: Array) -> None:
        """See Candidate."""
        self._buffer.update_priorities(names, priorities)

    def nbytes(self) -> int:
        """See Candidate."""
        return int(self._buffer.stats()["memory"]["used_bytes"])


class StepBuffer(Protocol):
    """One library's buffer of B environments."""

    def add(self, given: Given, step: GymnasiumStep) -> None:
        """Adds one step: observations and actions, and the results."""

    def sample(self, batch_size: int) -> Any:
        """Draws a batch uniformly."""
