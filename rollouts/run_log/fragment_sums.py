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
      is_obs_finite   (B,) bool      whether all observations are, the last one among them
    """

    digest: npt.NDArray[np.uint64]
    largest_reward: npt.NDArray[np.float32]
    is_obs_finite: npt.NDArray[np.bool_]

    @classmethod
    def empty(cls, num_rows: int) -> SeenColumns:
        """Returns arrays for the pool's threads to write."""
        return cls(
            np.empty(num_rows, np.uint64),
            np.empty(num_rows, np.float32),
            np.empty(num_rows, np.bool_),
        )

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

    def native_arrays(self) -> dict[str, Array]:
        """Returns the arrays by the names under which a pool's `collect` takes them."""
        return {
            "digest": self.digest,
            "largest_reward": self.largest_reward,
            "is_obs_finite": self.is_obs_finite,
        }


class Summary(NamedTuple):
    """Findings about one group in a fragment.

    Attributes:
      largest_reward: By magnitude; infinite or nan where a reward is.
      is_obs_finite: Whether all observations are, the last ones among them.
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
    arrays: list[Array] = []
    known = {}
    for name, batch in batches.items():
        found = seen[name]
        # running sums are compared after the last step only
        arrays += [found.digest, batch.episode_return[-1], batch.episode_length[-1]]
        arrays += [] if batch.final_obs is None else [batch.final_obs]
        is_finite = bool(found.is_obs_finite.all())
        known[name] = Summary(float(found.largest_reward.max()), is_finite)
    return _native.checksum(arrays), known


def sum_of(batches: Mapping[str, RolloutBatch]) -> int:
    """Returns the checksum of a fragment; its columns are digested here."""
    return sum_up(batches, {name: SeenColumns.of(batch) for name, batch in batches.items()})[0]
