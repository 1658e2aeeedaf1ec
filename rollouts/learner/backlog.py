# SPDX-License-Identifier: Apache-2.0
"""`Backlog`: the fragments that wait in a LearnerQueue, and which of them are stale."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from rollouts.learner.fragment import FragmentHandle


class Backlog:
    """Fragments in the order of arrival. Not thread-safe.

    Only the oldest weights are checked for staleness, not each fragment.
    """

    def __init__(self, is_stale: Callable[[FragmentHandle], bool]) -> None:
        """Makes an empty backlog; for `is_stale`, older weights must become stale first."""
        self._is_stale = is_stale
        self._handles: deque[FragmentHandle] = deque()
        # no waiting fragment has older weights than this one, which may have been taken
        self._oldest: FragmentHandle | None = None

    def __len__(self) -> int:
        return len(self._handles)

    def __iter__(self) -> Iterator[FragmentHandle]:
        return iter(self._handles)

    def __getitem__(self, index: int) -> FragmentHandle:
        return self._handles[index]

    def append(self, handle: FragmentHandle) -> None:
        """Adds the newest fragment."""
        self._note(handle)
        self._handles.append(handle)

    def put_back(self, handles: Sequence[FragmentHandle]) -> None:
        """Makes fragments that were taken the oldest again, in their order."""
        for handle in handles:
            self._note(handle)
        self._handles.extendleft(reversed(handles))

    def popleft(self) -> FragmentHandle:
        """Takes the oldest fragment; there has to be one."""
        return self._handles.popleft()

    @property
    def may_have_stale(self) -> bool:
        """Returns False if `drop_stale` would find none; otherwise it usually finds some."""
        return bool(self._handles) and self._oldest is not None and self._is_stale(self._oldest)

    def drop_stale(self) -> list[FragmentHandle]:
        """Removes the stale fragments and returns them."""
        if not self.may_have_stale:
            return []
        before, self._oldest = [*self._handles], None
        self._handles.clear()
        stale = []
        for handle in before:
            if self._is_stale(handle):
                stale.append(handle)
            else:
                self.append(handle)
        return stale

    def _note(self, handle: FragmentHandle) -> None:
        version = handle.info.min_policy_version
        if self._oldest is None or version < self._oldest.info.min_policy_version:
            self._oldest = handle
