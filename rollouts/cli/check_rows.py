# SPDX-License-Identifier: Apache-2.0
"""`rollouts check-env`: whether Observe writes the whole observation, and nothing else."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from rollouts.cli.env_trials import Trials, located

Array = npt.NDArray[Any]

_MOST_STEPS = 50
# guards before and after an observation, which must stay unchanged
_GUARD_BYTES = 4096
_PATTERNS = (0xA5, 0x5A)
_ALIGNMENT = 64


class GuardedRows:
    """Memory for observations, filled with a pattern, between guards with the same pattern."""

    def __init__(self, what: str, count: int, space: spaces.Space[Any], pattern: int) -> None:
        """Makes room for `count` observations of a space, which messages call `what`."""
        shape, dtype = space.shape or (), np.dtype(space.dtype)
        self._what, self._size, self._pattern = what, math.prod(shape), pattern
        self._width = dtype.itemsize
        num_bytes = count * self._size * self._width
        memory = np.full(2 * _GUARD_BYTES + num_bytes + _ALIGNMENT, pattern, np.uint8)
        first = _GUARD_BYTES + -(memory.ctypes.data + _GUARD_BYTES) % _ALIGNMENT
        self._before, self._after = memory[:first], memory[first + num_bytes :]
        self._bytes = memory[first : first + num_bytes]
        self.array: Array = self._bytes.view(dtype).reshape(count, *shape)

    def check_guards(self, step: int) -> None:
        """Raises SpecError where bytes around the observations were written."""
        before = np.flatnonzero(self._before[::-1] != self._pattern)
        after = np.flatnonzero(self._after != self._pattern)
        wrong = [-1 - int(one) // self._width for one in before[:1]]
        wrong += [self._size + int(one) // self._width for one in after[:1]]
        if wrong:
            raise located(
                "Observe",
                f"element {wrong[0]} of {self._what} was written in step {step}, and it has "
                f"{self._size}: this damages memory of others",
            )

    def untouched(self) -> npt.NDArray[np.bool_]:
        """Marks the elements that still hold the pattern, observation after observation."""
        elements = self._bytes.reshape(-1, self._width)
        found: npt.NDArray[np.bool_] = (elements == self._pattern).all(axis=1)
        return found

    def check_whole(self, untouched: npt.NDArray[np.bool_], step: int) -> None:
        """Raises SpecError for a marked element."""
        for place in np.flatnonzero(untouched)[:1]:
            raise located(
                "Observe",
                f"element {int(place) % self._size} of {self._what} is not written in step {step}: "
                "it shows what was there before",
            )


def check_rows(trials: Trials) -> str:
    """Makes the environment write observations into memory filled with a pattern, for two patterns.

    Returns:
      The finding.

    Raises:
      SpecError: Bytes outside the observation were written, or a part of it was not.
    """
    steps = min(trials.steps, _MOST_STEPS)
    first, second = (_play(trials, steps, pattern) for pattern in _PATTERNS)
    for step, (before, now) in enumerate(zip(first, second, strict=True)):
        for one, other in zip(before, now, strict=True):
            one.check_whole(one.untouched() & other.untouched(), step)
    return f"observations are written whole, and nothing around them, in {steps} steps of one"


def _play(trials: Trials, steps: int, pattern: int) -> list[list[GuardedRows]]:
    """Observations of one environment's steps, group after group."""
    found = []
    with trials.pool(1) as env:
        env.reset()
        for step in range(steps):
            groups = env.env_spec.groups
            rows = [
                GuardedRows(
                    f"the observation of an agent of group {group.name!r}",
                    group.num_agents,
                    group.single_observation_space,
                    pattern,
                )
                for group in groups
            ] or [GuardedRows("the observation", 1, env.single_observation_space, pattern)]
            out = {group.name: one.array[None] for group, one in zip(groups, rows, strict=False)}
            env.send(_first(trials.actions[step]), out={"obs": out or rows[0].array})
            env.recv()
            for one in rows:
                one.check_guards(step)
            found.append(rows)
    return found


def _first(action: Any) -> Any:
    if isinstance(action, dict):
        return {name: array[:1] for name, array in action.items()}
    return action[:1]
