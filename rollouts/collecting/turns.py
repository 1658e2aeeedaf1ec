# SPDX-License-Identifier: Apache-2.0
"""`Turns`: whether environments are where their collector left them."""

from __future__ import annotations

from typing import Any

from rollouts.errors import ProtocolError


class Turns:
    """Remembers how often an environment had been called when its holder was done with it."""

    def __init__(self, env: Any) -> None:
        """Nothing is expected yet."""
        self._env = env
        self._seen: int | None = None

    def forget(self) -> None:
        """Expects nothing: new episodes begin."""
        self._seen = None

    def keep(self) -> None:
        """Expects the environment as it is now."""
        self._seen = self._num_calls()

    def go_on(self) -> None:
        """Expects one call more, which its holder makes next, perhaps in another thread."""
        if self._seen is None:
            self.keep()
        if self._seen is not None:
            self._seen += 1

    def check(self) -> None:
        """Looks whether somebody has called it since.

        Raises:
          ProtocolError: Somebody has.
        """
        if self._seen is not None and self._num_calls() != self._seen:
            raise ProtocolError(
                f"the {type(self._env).__name__} was stepped, reset or received from since this "
                "collector's last rollout, expected a pool that nobody else uses: its next rollout "
                "would begin with an observation that is no longer shown. Give each collector (and "
                "evaluation) a pool of its own, or call this collector's reset(), which begins new "
                "episodes"
            )

    def _num_calls(self) -> int | None:
        """Returns the number of calls; None for environments of users, which do not count."""
        found: int | None = getattr(self._env, "num_calls", None)
        return found
