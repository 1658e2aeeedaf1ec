# SPDX-License-Identifier: Apache-2.0
"""Spaces of a batch, made of the spaces of its environments, and the errors where they differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
from gymnasium.spaces.utils import is_space_dtype_shape_equiv
from gymnasium.vector.utils import batch_differing_spaces, batch_space

from rollouts.envs.hosted.processes.failures import SpacesDifferError
from rollouts.envs.hosted.processes.records import EnvFn, Hello
from rollouts.errors import DTypeError, SpecError

# the batched and the single space
SpacePair = tuple[gymnasium.Space[Any], gymnasium.Space[Any]]


def checked_functions(
    env_fns: Sequence[Any], example: str = "lambda: gymnasium.make('CartPole-v1')"
) -> list[EnvFn]:
    """Checks the functions that make environments; `example` is shown in errors.

    Raises:
      SpecError: There are none. DTypeError: not a sequence of functions.
    """
    try:
        functions = list(env_fns)
    except TypeError:
        raise DTypeError(
            f"env_fns must be a sequence of functions, got {type(env_fns).__name__}"
        ) from None
    if not functions:
        raise SpecError(
            "env_fns is empty, expected at least one function that makes an environment"
        )
    for index, function in enumerate(functions):
        if not callable(function):
            raise DTypeError(
                f"env_fns[{index}] is {function!r}, expected a function without arguments that "
                f"makes an environment, such as {example}"
            )
    return functions


def check_observation_mode(mode: str | SpacePair) -> None:
    """Raises SpecError unless `mode` is one of those of `from_env_fns`."""
    is_pair = isinstance(mode, tuple) and len(mode) == 2
    if mode not in ("same", "different") and not is_pair:
        raise SpecError(
            "Invalid `observation_mode`, expected: 'same' or 'different' or tuple of single and "
            f"batch observation space, actual got {mode}"
        )


def observation_spaces(hellos: Sequence[Hello], mode: str | SpacePair, rows: int) -> SpacePair:
    """The batched space for `rows` rows and the single observation space.

    Raises:
      SpacesDifferError: Environments' spaces differ more than `mode` allows.
    """
    given = [space for hello in hellos for space in hello.observation_spaces]
    single = given[0] if isinstance(mode, str) else mode[1]
    for space in given:
        _check_observation_space(space, single, mode)
    if not isinstance(mode, str):
        return mode[0], single
    if mode == "same":
        return batch_space(single, rows), single
    each = [hello.observation_spaces[i] for hello in hellos for i in hello.observation_space_of]
    return batch_differing_spaces(each), single


def common_action_space(hellos: Sequence[Hello]) -> gymnasium.Space[Any]:
    """The action space that all environments have.

    Raises:
      SpacesDifferError: Their action spaces differ.
    """
    given = [space for hello in hellos for space in hello.action_spaces]
    if any(space != given[0] for space in given):
        raise SpacesDifferError(
            f"the action spaces of the environments differ: {_different(given)}; batches of "
            "actions need one space"
        )
    return given[0]


def _check_observation_space(
    space: gymnasium.Space[Any], single: gymnasium.Space[Any], mode: str | SpacePair
) -> None:
    if mode == "same" and space != single:
        raise SpacesDifferError(
            f"with observation_mode='same' the sub-environments observation spaces are not "
            f"equivalent. {single} and {space} differ. If this is intentional, use "
            "`observation_mode='different'` instead."
        )
    if mode != "same" and not is_space_dtype_shape_equiv(space, single):
        raise SpacesDifferError(
            f"the observation spaces {single} and {space} do not share a common shape and dtype"
        )


def _different(spaces: Sequence[gymnasium.Space[Any]]) -> str:
    return " and ".join(dict.fromkeys(str(space) for space in spaces))
