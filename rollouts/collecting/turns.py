# SPDX-License-Identifier: Apache-2.0
"""`Turns`: checks that no other code has called an environment of a collector."""

from __future__ import annotations

from typing import Any

from rollouts.errors import ProtocolError


class Turns:
    """Remembers how many calls an environment had got when its collector last used it."""

    def __init__(self, env: Any) -> None:
        """Expects no number yet."""
        self._env = env
        self._seen: int | None = None

    def forget(self) -> None:
        """Expects no number: new episodes begin."""
        self._seen = None

    def keep(self) -> None:
        """Expects the present number."""
        self._seen = self._num_calls()

    def go_on(self) -> None:
        """Expects one call more, which the collector makes next, perhaps in another thread."""
        if self._seen is None:
            self.keep()
        if self._seen is not None:
            self._seen += 1

    def check(self) -> None:
        """Checks whether other code has called the environment since.

        Raises:
          ProtocolError: Other code has.
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
        """Returns the number of calls; None for foreign environments, which do not count them."""
        found: int | None = getattr(self._env, "num_calls", None)
        return found
