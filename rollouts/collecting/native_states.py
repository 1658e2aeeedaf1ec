# SPDX-License-Identifier: Apache-2.0
"""The recurrent states of each environment while native code computes the policy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Shape = tuple[int, ...]


class NativeStates:
    """One state per environment, carried over to the next rollout; empty without memory."""

    def __init__(
        self, shapes: tuple[Shape, ...], num_envs: int, steps: int, *, keep_all: bool
    ) -> None:
        """Starts with the first observation of an episode in every environment.

        Args:
          shapes: Shapes of one environment's state, which is a tuple of arrays.
          num_envs: Environments N.
          steps: Rows T of a rollout.
          keep_all: Whether the states before each row are kept, instead of those before the first.
        """
        self.shapes = shapes
        self._keeps_all = keep_all
        self._sizes = [int(np.prod(shape)) for shape in shapes]
        kept = (steps if keep_all else 1, num_envs, sum(self._sizes))
        self._kept: Array = np.empty(kept, np.float32)
        self._now: Array = np.zeros(self._kept.shape[1:], np.float32)
        self.begins = np.ones(num_envs, np.bool_)

    def reset(self) -> None:
        """Starts again with the first observation of an episode in every environment."""
        self.begins[:] = True

    def arrays(self) -> dict[str, Array]:
        """Returns arrays for `VectorEnv.collect`; new ones if they were handed out."""
        if not self.shapes:
            return {}
        self._kept = np.empty_like(self._kept)
        return {"state": self._now, "begins": self.begins, "policy_state": self._kept}

    def before(self) -> tuple[Array, ...]:
        """Returns the states (N, ...) before row 0 of the last rollout."""
        return self._parts(self._kept[0])

    def extras(self) -> dict[str, Array]:
        """Returns the states (T, N, ...) before each row by name, where they are kept."""
        if not self._keeps_all:
            return {}
        return {f"policy_state.{i}": part for i, part in enumerate(self._parts(self._kept))}

    def now(self) -> tuple[Array, ...]:
        """Returns the states (N, ...) after the last rollout, regardless of ends of episodes."""
        return self._parts(self._now)

    def _parts(self, states: Array) -> tuple[Array, ...]:
        """Copies of the arrays that lie one after the other in `states` (..., sum of sizes)."""
        if not self.shapes:
            return ()
        ends = np.cumsum(self._sizes)[:-1]
        return tuple(
            part.reshape(*part.shape[:-1], *shape).copy()
            for part, shape in zip(np.split(states, ends, -1), self.shapes, strict=True)
        )
