# SPDX-License-Identifier: Apache-2.0
"""The checksum of a fragment, which a replay is compared with, and signs of trouble in it.

Each column, an environment or an agent, has a digest of its own, so that each of the pool's threads
can digest the columns that it steps; native/include/rollouts/data/column_digests.h has the details.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rollouts import _native
from rollouts.batch import RolloutBatch

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class SeenColumns:
    """Findings of one pass over the B columns of a rollout.

    Attributes:
      digest          (B,) uint64    of observations, rewards, ends, and whether an agent took part
      largest_reward  (B,) float32   by magnitude; infinite or nan where a reward is
      is_obs_finite   (B,) bool      whether all observations are finite, also the last
    """

    digest: npt.NDArray[np.uint64]
    largest_reward: npt.NDArray[np.float32]
    is_obs_finite: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, batch: RolloutBatch) -> SeenColumns:
        """Returns the findings about a complete rollout."""
        return cls(
            *_native.digest_columns(
                batch.obs,
                batch.last_obs,
                batch.reward,
                batch.terminated,
                batch.truncated,
                batch.extras.get("active"),
            )
        )


class PoolColumns:
    """Arrays that the pool's threads write beside a rollout of T steps of B rows.

    Attributes:
      seen: Findings about the columns.
      num_chosen: (B,) int32, steps with an action; fewer than T after an error.
      action_bytes: (T, B) uint8, the actions; None where they do not fit bytes.
    """

    def __init__(self, num_steps: int, num_rows: int, *, fits_bytes: bool) -> None:
        """Makes arrays for many rollouts, one after the other."""
        self.seen = SeenColumns(
            np.empty(num_rows, np.uint64),
            np.empty(num_rows, np.float32),
            np.empty(num_rows, np.bool_),
        )
        self.num_chosen = np.zeros(num_rows, np.int32)
        self._arrays: dict[str, Array] = {
            "digest": self.seen.digest,
            "largest_reward": self.seen.largest_reward,
            "is_obs_finite": self.seen.is_obs_finite,
            "num_chosen": self.num_chosen,
        }
        self.action_bytes: npt.NDArray[np.uint8] | None = None
        if fits_bytes:
            self.action_bytes = np.empty((num_steps, num_rows), np.uint8)
            self._arrays["action_bytes"] = self.action_bytes

    def begin(self) -> dict[str, Array]:
        """Returns the arrays by the names under which a pool's `collect` takes them."""
        self.num_chosen.fill(0)
        return self._arrays


class Summary(NamedTuple):
    """Findings about one group in a fragment.

    Attributes:
      largest_reward: By magnitude; infinite or nan where a reward is.
      is_obs_finite: Whether all observations are finite, including the last ones.
    """

    largest_reward: float
    is_obs_finite: bool


def sum_up(
    batches: Mapping[str, RolloutBatch], seen: Mapping[str, SeenColumns]
) -> tuple[int, dict[str, Summary]]:
    """Returns the checksum of what the environments did in a fragment, and the groups' summaries.

    Args:
      batches: group -> its batch.
      seen: group -> what was found in its columns.
    """
    total, found = _native.sum_fragment(
        [
            (
                seen[name].digest,
                seen[name].largest_reward,
                seen[name].is_obs_finite,
                batch.episode_return,
                batch.episode_length,
                batch.final_obs,
            )
            for name, batch in batches.items()
        ]
    )
    return total, {name: Summary(*one) for name, one in zip(batches, found, strict=True)}


def sum_of(batches: Mapping[str, RolloutBatch]) -> int:
    """Returns the checksum of a fragment; its columns are digested here."""
    return sum_up(batches, {name: SeenColumns.of(batch) for name, batch in batches.items()})[0]
