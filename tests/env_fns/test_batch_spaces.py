# SPDX-License-Identifier: Apache-2.0
"""Spaces of a batch out of what processes tell of their environments."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import Space, spaces
from gymnasium.vector.utils import batch_space

from rollouts.envs.hosted.batch_spaces import (
    check_observation_mode,
    checked_functions,
    common_action_space,
    observation_spaces,
)
from rollouts.envs.hosted.processes.failures import SpacesDifferError
from rollouts.envs.hosted.processes.records import Hello
from rollouts.errors import DTypeError, SpecError

LOW = spaces.Box(0, 1, (2,), np.float32)
HIGH = spaces.Box(0, 5, (2,), np.float32)
LONG = spaces.Box(0, 1, (3,), np.float32)
GO = spaces.Discrete(2)


def hello(
    observation: list[Space[Any]],
    of: list[int] | None = None,
    action: list[Space[Any]] | None = None,
) -> Hello:
    return Hello(
        observation_spaces=observation,
        observation_space_of=[0] if of is None else of,
        action_spaces=[GO] if action is None else action,
        metadata={},
        render_mode=None,
    )


def make() -> gymnasium.Env[Any, Any]:
    raise AssertionError("called while it was only looked at")


def test_functions_are_read_once_and_not_called() -> None:
    assert checked_functions(iter([make, make])) == [make, make]  # type: ignore[arg-type]
    given = [make]
    assert checked_functions(given) is not given


@pytest.mark.parametrize("nothing", [[], (), iter(())])
def test_no_functions_are_refused(nothing: Any) -> None:
    with pytest.raises(SpecError, match="env_fns is empty, expected at least one function"):
        checked_functions(nothing)


@pytest.mark.parametrize("given", [make, 3, None])
def test_what_is_no_sequence_is_refused(given: Any) -> None:
    with pytest.raises(DTypeError, match="env_fns must be a sequence of functions, got"):
        checked_functions(given)


def test_the_first_that_is_no_function_is_named() -> None:
    with pytest.raises(DTypeError, match=r"env_fns\[1\] is 'CartPole-v1', expected a function"):
        checked_functions([make, "CartPole-v1", None])  # type: ignore[list-item]


@pytest.mark.parametrize("mode", ["same", "different", (LOW, LOW)])
def test_modes_are_two_words_or_a_pair(mode: Any) -> None:
    check_observation_mode(mode)


@pytest.mark.parametrize("mode", ["other", "", None, (LOW,), (LOW, LOW, LOW), [LOW, LOW]])
def test_any_other_mode_is_refused(mode: Any) -> None:
    with pytest.raises(SpecError, match="Invalid `observation_mode`, expected: 'same'"):
        check_observation_mode(mode)


def test_equal_spaces_are_batched_for_the_rows_asked_for() -> None:
    batched, single = observation_spaces([hello([LOW], [0, 0]), hello([LOW])], "same", 2)
    assert single == LOW and batched == batch_space(LOW, 2)


@pytest.mark.parametrize("hellos", [[hello([LOW, HIGH], [0, 1])], [hello([LOW]), hello([HIGH])]])
def test_bounds_that_differ_are_refused_by_default(hellos: list[Hello]) -> None:
    with pytest.raises(SpacesDifferError, match="observation_mode='different'"):
        observation_spaces(hellos, "same", 2)


def test_bounds_that_differ_are_batched_by_environment_on_demand() -> None:
    hellos = [hello([LOW, HIGH], [1, 0, 1]), hello([HIGH], [0])]
    batched, single = observation_spaces(hellos, "different", 4)
    assert single == LOW
    assert isinstance(batched, spaces.Box)
    # by environment, not by space
    assert batched.high[:, 0].tolist() == [5, 1, 5, 5]


@pytest.mark.parametrize("mode", ["different", (batch_space(LOW, 2), LOW)])
@pytest.mark.parametrize("other", [LONG, spaces.Box(0, 1, (2,), np.float64), GO])
def test_shapes_and_dtypes_that_differ_are_refused_in_any_mode(mode: Any, other: Any) -> None:
    with pytest.raises(SpacesDifferError, match="do not share a common shape and dtype"):
        observation_spaces([hello([LOW]), hello([other])], mode, 2)


def test_a_pair_is_taken_as_it_is() -> None:
    pair = (batch_space(HIGH, 2), HIGH)
    batched, single = observation_spaces([hello([LOW], [0, 0])], pair, 2)
    assert batched is pair[0] and single is pair[1]


def test_actions_need_one_space_that_all_have() -> None:
    assert common_action_space([hello([LOW]), hello([LOW])]) == GO
    other = [GO, spaces.Discrete(3), spaces.Discrete(3)]
    with pytest.raises(SpacesDifferError) as caught:
        common_action_space([hello([LOW]), hello([LOW], action=other)])
    # each that there is once
    assert str(caught.value) == (
        "the action spaces of the environments differ: Discrete(2) and Discrete(3); batches of "
        "actions need one space"
    )
    assert isinstance(caught.value, RuntimeError) and isinstance(caught.value, SpecError)
