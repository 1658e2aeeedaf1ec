# SPDX-License-Identifier: Apache-2.0
"""The check that fragments come, and the reason if none do."""

from __future__ import annotations


class Supply:
    """Results of the last attempts to get a fragment."""

    def __init__(self) -> None:
        """Begins without attempts."""
        self.end: Exception | None = None  # the reason why nothing is inserted at present
        # number of consecutive attempts that found no weights, and their error
        self._unfed: tuple[int, Exception | None] = 0, None

    @property
    def first_fresh(self) -> int:
        """The first attempt that begins after this call; see `why_none`."""
        return self._unfed[0] + 2

    def came(self) -> None:
        """Records that a fragment came."""
        self.end, self._unfed = None, (0, None)

    def came_late(self) -> None:
        """Records that no fragment came in time, though there are weights."""
        self._unfed = (0, None)

    def found_no_weights(self, error: Exception) -> None:
        """Records that no fragment can come before there are weights."""
        self._unfed = (self._unfed[0] + 1, error)

    def why_none(self, fresh: int | None) -> Exception | None:
        """The reason why no fragment comes any more; None: one may come.

        `fresh`: missing weights are a reason only if this attempt or a later one found none.
        """
        count, error = self._unfed
        return self.end or (error if fresh is not None and count >= fresh else None)
