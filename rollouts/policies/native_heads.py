# SPDX-License-Identifier: Apache-2.0
"""`Head`: how native code draws actions from a network's outputs, and for which spaces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeGuard, get_args

import gymnasium
import numpy as np
from numpy.typing import NDArray

from rollouts.checks import share
from rollouts.errors import SpecError
from rollouts.support.keywords import explains_fields

HeadName = Literal[
    "categorical", "multi_categorical", "gaussian", "tanh_gaussian", "epsilon_greedy"
]


@explains_fields
@dataclass(frozen=True, slots=True)
class Head:
    """The rule by which a network's outputs become actions.

    Attributes:
      kind: "categorical" draws one of the logits (B, n); "multi_categorical" draws one from each
        slice of them, for MultiDiscrete actions; "gaussian" draws mean + std * noise from (mean,
        log_std), each (B, d); "tanh_gaussian" is the tanh of "gaussian", scaled to the bounds of
        the space if they are finite; "epsilon_greedy" takes the greatest of the values (B, n), or
        any action with probability `epsilon`.
      deterministic: Takes the likeliest action instead of drawing.
      epsilon: From 0 to 1, for "epsilon_greedy".
      damping: Used by "gaussian", from 0.01 to 1: the share of a step's noise that the next step
        forgets, see `rollouts.policy.OrnsteinUhlenbeckHead`.
    """

    kind: HeadName = "categorical"
    deterministic: bool = False
    epsilon: float = 0.0
    damping: float = 1.0

    def __post_init__(self) -> None:
        if self.kind not in get_args(HeadName):
            known = ", ".join(get_args(HeadName))
            raise SpecError(f"head.kind is {self.kind!r}, expected one of {known}")
        share("head.epsilon", self.epsilon)
        share("head.damping", self.damping, 0.01)
        if self.damping < 1 and self.kind != "gaussian":
            raise SpecError(f"head.damping is for a gaussian head, this one is {self.kind}")


def check_action_space(space: gymnasium.Space[Any], head: Head) -> None:
    """Raises SpecError where a head does not choose actions of this space."""
    is_box = isinstance(space, gymnasium.spaces.Box) and np.dtype(space.dtype).kind == "f"
    fits, wanted = is_discrete(space), "Discrete"
    if head.kind.endswith("gaussian"):
        fits, wanted = is_box, "a Box of floats"
    elif head.kind == "multi_categorical":
        # no native environment has a space that does not begin at 0
        fits = isinstance(space, gymnasium.spaces.MultiDiscrete) and not np.any(space.start)
        wanted = "MultiDiscrete from 0 on"
    if not fits:
        raise SpecError(f"the action space is {space}, expected {wanted} for a {head.kind} head")


def is_discrete(space: gymnasium.Space[Any]) -> TypeGuard[gymnasium.spaces.Discrete[Any]]:
    """Tells if actions are numbers of a Discrete space."""
    return isinstance(space, gymnasium.spaces.Discrete)


def head_of(space: gymnasium.Space[Any]) -> Head:
    """The head for actions of a space, if the caller names none."""
    if isinstance(space, gymnasium.spaces.MultiDiscrete):
        return Head("multi_categorical")
    return Head("categorical" if is_discrete(space) else "gaussian")


def bounds_of(space: gymnasium.Space[Any], head: Head) -> NDArray[np.float32]:
    """Bounds to which a squashed action is scaled: low and high (2, d); (0,) for -1 to 1.

    Raises:
      SpecError: The bounds of an action are equal.
    """
    if head.kind != "tanh_gaussian" or not isinstance(space, gymnasium.spaces.Box):
        return np.zeros(0, np.float32)
    with np.errstate(over="ignore"):
        bounds = np.stack([np.ravel(space.low), np.ravel(space.high)]).astype(np.float32)
    if not np.isfinite(bounds).all():
        return np.zeros(0, np.float32)
    if not (bounds[0] < bounds[1]).all():
        raise SpecError(f"the action space is {space}, expected low below high for each number")
    return bounds


def nvec_of(space: gymnasium.Space[Any]) -> list[int]:
    """Numbers of actions of a MultiDiscrete space's elements; empty for other spaces."""
    if not isinstance(space, gymnasium.spaces.MultiDiscrete):
        return []
    return [int(n) for n in np.ravel(space.nvec)]
