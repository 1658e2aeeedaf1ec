# SPDX-License-Identifier: Apache-2.0
"""CallSize: how many fragments a worker is asked for in one call."""

from __future__ import annotations

import math

# s; what a call costs the driver on a fast and quiet machine, about
CALL_S = 0.0002

# what a call costs the driver, in times of the making of it, about: Ray's threads and the merge
# thread take its answer. `rollouts bench coordinator` prints the stages: 2 on a quiet machine, 3 to
# 5 beside many workers
_MAKES_PER_CALL = 3

# s; a call whose making took longer counts as this: a first call imports, and a version is stored
_MOST_MAKE_S = 10 * CALL_S

# s; a call that collects for so long is worth its cost
WORTH_S = 100 * CALL_S

# the fewest calls among which the fragments in flight are divided: while one call is answered the
# others keep the workers busy, and a fragment waits for a fourth of the fragments at most
CALLS_PER_SHARE = 4

# approximate number of times in a mean
_MEMORY = 64


class CallSize:
    """The number of fragments in a call, by the rule of `QueueLimits.max_fragments_per_call`.

    The mean time of a fragment is taken over all workers. A time above twice `WORTH_S` counts as
    twice `WORTH_S`: so one fragment that took minutes, in which a library was loaded or the machine
    stood still, does not keep the calls small for hundreds of quick ones.

    A worker ends a call once it has lasted `WORTH_S`, and fragments that it did not begin count as
    never requested: so neither a slow worker nor fragments that become slower make long calls. A
    worker's first call is for one fragment, and no call is for more than twice as many as it
    completed in an earlier one: so a worker that dies again and again still delivers fragments in
    between.

    At most as many fragments are in flight as the learner takes between two versions, so that only
    about one version is published while a fragment is on its way. Where these are too few for two
    calls of each worker, fewer workers are asked at a time, in turn, and each for more: with k
    calls of n fragments workers make k fragments in the time of one, and the driver takes n in
    the time that a call costs it. So n may grow until the workers are no faster than the driver.
    A call's cost follows from the CPU time of making it, a mean over the last calls.

    A call waits until there is room for all its fragments, unless a learner waits for fragments
    that were not asked for yet. Room for less than a call is filled at the next tick of the clock.
    """

    def __init__(self, most: int) -> None:
        """Begins with calls for one fragment; `most` is the largest size."""
        self._most = most
        self._fragment_s = _Mean(2 * WORTH_S)
        self._make_s = _Mean(_MOST_MAKE_S)

    def measure(self, seconds: float) -> None:
        """Notes the time that a fragment took."""
        self._fragment_s.add(seconds)

    def measure_call(self, seconds: float) -> None:
        """Notes the CPU time that it took to make a call."""
        self._make_s.add(seconds)

    @property
    def wanted(self) -> int:
        """Fragments that make a call worth its cost, however many the learner takes."""
        mean_s = self._fragment_s.value
        if self._most == 1 or mean_s is None:
            return 1
        if mean_s * self._most <= WORTH_S:
            return self._most
        return math.ceil(WORTH_S / mean_s)

    def allowed(self, num_calls: int, *, limit: int, per_version: int) -> int:
        """Returns the size of a call.

        Args:
          num_calls: Calls that may be in flight.
          limit: Fragments that may be in flight and queued.
          per_version: Fragments that the learner takes between two versions.
        """
        most = min(limit, per_version)
        size = max(most // max(1, num_calls), min(self._even(most), most // CALLS_PER_SHARE))
        return max(1, min(self.wanted, size))

    def _even(self, num_fragments: int) -> int:
        """Returns the size of calls that keep the driver as busy as the workers.

        Args:
          num_fragments: Fragments of all calls together.
        """
        call_s = max(CALL_S, _MAKES_PER_CALL * (self._make_s.value or 0.0))
        # n fragments in call_s, and num_fragments / n in the time of a fragment
        return math.isqrt(int(num_fragments * call_s / max(self._fragment_s.value or 0.0, 1e-9)))


class _Mean:
    """The mean of about the last `_MEMORY` times, of which none counts as more than `most`."""

    def __init__(self, most: float) -> None:
        self.value: float | None = None
        self._most = most
        self._weight = 0

    def add(self, seconds: float) -> None:
        self._weight = min(self._weight + 1, _MEMORY)
        before = self.value or 0.0
        self.value = before + (min(seconds, self._most) - before) / self._weight


def share_of(limit: int, num_coordinators: int) -> int:
    """Returns how many fragments a call of a coordinator brings.

    Args:
      limit: Fragments that may be in flight and queued, of all coordinators.
      num_coordinators: Coordinators that have equal shares of them.
    """
    return max(1, math.ceil(limit / (num_coordinators * CALLS_PER_SHARE)))
