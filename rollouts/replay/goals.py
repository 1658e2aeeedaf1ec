# SPDX-License-Identifier: Apache-2.0
"""Goals in flat observations, as views by name, and rewards from the distance to a goal."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import gymnasium
import numpy as np
from gymnasium.spaces import utils
from numpy.typing import NDArray

from rollouts.checks import whole_number
from rollouts.errors import DTypeError, SpecError
from rollouts.support.keywords import explains_fields

Array = NDArray[Any]
Range = tuple[int, int]

_GOALS = ("achieved_goal", "desired_goal")
_NAMES = ("observation", *_GOALS)
_MOST = 2**31 - 1


class GoalReward(Protocol):
    """A reward for many steps at once, like `compute_reward` of Gymnasium's GoalEnv."""

    def __call__(self, achieved_goal: Array, desired_goal: Array, info: Mapping[str, Any]) -> Any:
        """Maps achieved_goal and desired_goal (M, G) and {} to rewards (M,)."""


@explains_fields
@dataclass(frozen=True, slots=True)
class SparseReward:
    """A reward of 0 within `threshold` of the goal, else -1; native code can compute it, too."""

    threshold: float

    def __post_init__(self) -> None:
        """Checks the threshold."""
        is_number = isinstance(self.threshold, int | float | np.integer | np.floating)
        if not is_number or not 0 <= self.threshold < math.inf:
            raise SpecError(
                f"threshold is {self.threshold!r}, expected a finite distance of at least 0"
            )

    def __call__(self, achieved_goal: Array, desired_goal: Array, info: Any = None) -> Array:
        """Maps goals (..., G) to rewards (...,) float32."""
        reward: Array = -(_distance(achieved_goal, desired_goal) > self.threshold).astype(
            np.float32
        )
        return reward


@explains_fields
@dataclass(frozen=True, slots=True)
class DenseReward:
    """A reward of minus the distance to the goal; native code can compute it, too."""

    def __call__(self, achieved_goal: Array, desired_goal: Array, info: Any = None) -> Array:
        """Maps goals (..., G) to rewards (...,) float32."""
        reward: Array = -_distance(achieved_goal, desired_goal).astype(np.float32)
        return reward


@explains_fields
@dataclass(frozen=True, slots=True)
class GoalColumns:
    """Columns of a flat observation (D,) that hold the parts of a goal environment's dict.

    Attributes:
      achieved_goal: (begin, end) of the goal that the state achieves.
      desired_goal: (begin, end) of the goal that is desired, of the same size.
      observation: (begin, end) of the rest; None: all other columns, which lie side by side.
    """

    achieved_goal: Range
    desired_goal: Range
    observation: Range | None = None

    def __post_init__(self) -> None:
        """Checks the ranges as far as possible without an observation."""
        for name in _GOALS:
            _check_range(name, getattr(self, name))
        if self.observation is not None:
            _check_range("observation", self.observation)
        sizes = [end - begin for begin, end in (self.achieved_goal, self.desired_goal)]
        if sizes[0] != sizes[1]:
            raise SpecError(
                f"achieved_goal has {sizes[0]} columns and desired_goal {sizes[1]}, expected as "
                "many of both"
            )
        if _overlap(self.achieved_goal, self.desired_goal):
            raise SpecError(
                f"achieved_goal {self.achieved_goal} and desired_goal {self.desired_goal} share "
                "columns, expected two places: relabelling writes the desired goal alone"
            )

    @classmethod
    def of(cls, space: gymnasium.Space[Any]) -> GoalColumns:
        """Returns the columns that Gymnasium's FlattenObservation makes of a goal env's dict.

        Args:
          space: The Dict of observation, achieved_goal and desired_goal, each a Box.

        Raises:
          SpecError: It is another space.
        """
        parts = space.spaces if isinstance(space, gymnasium.spaces.Dict) else {}
        boxes = all(isinstance(part, gymnasium.spaces.Box) for part in parts.values())
        if sorted(parts) != sorted(_NAMES) or not boxes:
            raise SpecError(
                f"the space is {space}, expected a Dict of {', '.join(_NAMES)}, each a Box, as a "
                "goal environment has it"
            )
        begin, ranges = 0, {}
        for name, part in parts.items():
            end = begin + utils.flatdim(part)
            ranges[name] = (begin, end)
            begin = end
        return cls(**ranges)

    @property
    def size(self) -> int:
        """Number of columns of a goal."""
        return self.achieved_goal[1] - self.achieved_goal[0]

    def views(self, obs: Any) -> dict[str, Any]:
        """Splits observations (..., D), an array or a tensor, into views by name.

        Raises:
          SpecError: The observations lack some of the columns.
        """
        if not hasattr(obs, "shape") or len(obs.shape) < 1:
            raise DTypeError(f"obs is {obs!r}, expected an array or a tensor (..., D)")
        columns = self.check(int(obs.shape[-1]))
        return {name: obs[..., begin:end] for name, (begin, end) in columns.items()}

    def space(self, flat: gymnasium.Space[Any]) -> gymnasium.spaces.Dict:
        """Returns the space of `views` of one observation of a Box (D,)."""
        if not isinstance(flat, gymnasium.spaces.Box) or len(flat.shape) != 1:
            raise SpecError(f"the space is {flat}, expected a Box of observations (D,)")
        columns = self.check(flat.shape[0])
        dtype: Any = flat.dtype
        return gymnasium.spaces.Dict(
            {
                name: gymnasium.spaces.Box(flat.low[begin:end], flat.high[begin:end], dtype=dtype)
                for name, (begin, end) in columns.items()
            }
        )

    def check(self, width: int) -> dict[str, Range]:
        """Returns the ranges by name, for observations of `width` columns.

        Raises:
          SpecError: The ranges exceed the columns, or the remaining columns are not side by side.
        """
        ranges = {name: getattr(self, name) for name in _NAMES}
        if ranges["observation"] is None:
            ranges["observation"] = self._rest(width)
        for name, (_, end) in ranges.items():
            if end > width:
                raise SpecError(
                    f"{name} is columns {ranges[name]}, and observations have {width} columns"
                )
        return ranges

    def _rest(self, width: int) -> Range:
        goals = (self.achieved_goal, self.desired_goal)
        rest = [c for c in range(width) if not any(b <= c < e for b, e in goals)]
        if not rest or rest[-1] - rest[0] + 1 != len(rest):
            raise SpecError(
                f"the columns beside the goals are {rest}, expected some side by side: pass "
                "observation=(begin, end), which may include the goals"
            )
        return rest[0], rest[-1] + 1


def _distance(achieved_goal: Array, desired_goal: Array) -> Array:
    # in the order of native code: in double precision, one column after the other
    total = np.zeros(np.shape(achieved_goal)[:-1], np.float64)
    for column in range(np.shape(achieved_goal)[-1]):
        ours = achieved_goal[..., column].astype(np.float64)
        total += np.square(ours - desired_goal[..., column].astype(np.float64))
    return np.sqrt(total)


def _check_range(name: str, given: Any) -> None:
    if not isinstance(given, tuple) or len(given) != 2:
        raise SpecError(f"{name} is {given!r}, expected (begin, end) of columns")
    begin = whole_number(f"{name}[0]", given[0], 0, _MOST)
    whole_number(f"{name}[1]", given[1], begin + 1, _MOST)


def _overlap(one: Range, other: Range) -> bool:
    return one[0] < other[1] and other[0] < one[1]
