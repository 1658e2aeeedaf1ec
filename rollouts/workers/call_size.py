# SPDX-License-Identifier: Apache-2.0
"""CallSize: how many fragments a worker is asked for in one call."""

from __future__ import annotations

import math

# s of collecting that are worth a call, which costs the driver some 0.2 ms
WORTH_S = 0.02

# calls of a coordinator among which its share of the fragments in flight is divided: while one is
# answered the others keep its workers busy, and a fragment waits for at most a fourth of the share
CALLS_PER_SHARE = 4

# the mean time of a fragment is that of about so many
_MEMORY = 64


class CallSize:
    """The number of fragments in a call, by the rule of `QueueLimits.max_fragments_per_call`.

    Times of fragments are measured as they come, in the mean of all workers. A worker ends a call
    that has lasted `WORTH_S`: what it had not begun was never asked for, so that neither a slow
    worker nor slower fragments than before make long calls. Its first call is for one, and each may
    be for twice as many as it completed in one before: a worker that dies again and again delivers
    what it completes in between.

    With at most what a version takes in flight, about one version comes while a fragment is on its
    way, not many.

    A call waits until there is room for all of it, unless a learner waits for what is asked for by
    nobody; what room is left then is filled at the next tick of the clock.
    """

    def __init__(self, most: int) -> None:
        """Begins with calls for one fragment; `most` is the largest size."""
        self._most = most
        self._mean_s = 0.0
        self._weight = 0  # fragments in the mean

    def measure(self, seconds: float) -> None:
        """Notes the time that a fragment took."""
        self._weight = min(self._weight + 1, _MEMORY)
        self._mean_s += (seconds - self._mean_s) / self._weight

    @property
    def wanted(self) -> int:
        """Fragments that are worth a call, whatever the learner takes."""
        if self._most == 1 or not self._weight:
            return 1
        if self._mean_s * self._most <= WORTH_S:
            return self._most
        return math.ceil(WORTH_S / self._mean_s)

    def allowed(self, num_calls: int, *, limit: int, per_version: int) -> int:
        """Returns the size of a call.

        Args:
          num_calls: Calls that may be in flight.
          limit: Fragments that may be in flight and queued.
          per_version: Fragments that the learner takes between two versions.
        """
        return max(1, min(self.wanted, min(limit, per_version) // max(1, num_calls)))


def share_of(limit: int, num_coordinators: int) -> int:
    """Returns how many fragments a call of a coordinator brings.

    Args:
      limit: Fragments that may be in flight and queued, of all coordinators.
      num_coordinators: Coordinators that have equal shares of them.
    """
    return max(1, math.ceil(limit / (num_coordinators * CALLS_PER_SHARE)))
