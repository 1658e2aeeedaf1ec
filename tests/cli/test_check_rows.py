# SPDX-License-Identifier: Apache-2.0
"""Findings of `check-env` in memory around observations, and in numbers that are none."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from rollouts.cli.check_kernel import _apart
from rollouts.cli.check_rows import GuardedRows, check_rows
from rollouts.cli.env_trials import Trials
from rollouts.errors import SpecError

SPACE = spaces.Box(-1, 1, (2, 3), np.float32)


def rows(count: int = 1) -> GuardedRows:
    return GuardedRows("the observation", count, SPACE, 0xA5)


@pytest.mark.parametrize(
    ("count", "offset", "element"), [(1, 6, 6), (1, 7, 7), (1, -1, -1), (4, 24, 6)]
)
def test_what_is_written_around_observations_is_told_by_element(
    count: int, offset: int, element: int
) -> None:
    one = rows(count)
    one.check_guards(0)
    inside = one.array.reshape(-1)
    memory = np.lib.stride_tricks.as_strided(inside[:1], (len(inside) + 16,), (4,))
    if offset < 0:
        one._before.view(np.float32)[-1] = 1
    else:
        memory[offset] = 1
    with pytest.raises(SpecError, match=f"element {element} of the observation was written in st"):
        one.check_guards(3)


def test_an_element_that_nobody_writes_is_told() -> None:
    one = rows(2)
    one.array[0] = one.array[1, 0] = one.array[1, 1, 1:] = 1
    with pytest.raises(SpecError, match="element 3 of the observation is not written in step 4"):
        one.check_whole(one.untouched(), 4)
    one.array[1, 1, 0] = 1
    one.check_whole(one.untouched(), 4)


@pytest.mark.parametrize(
    "env_id", ["CartPole-v1", "FrozenLake-v1", "TagGridWorld-v0", "TagContinuous-v0"]
)
def test_our_own_environments_write_their_observations_whole(env_id: str) -> None:
    said = check_rows(Trials(env_id, {}, num_envs=2, steps=5, seed=1))
    assert said == "observations are written whole, and nothing around them, in 5 steps of one"


def test_a_number_that_is_none_in_both_is_no_difference_of_the_kernel_s() -> None:
    mine = np.array([[np.nan, 1.0], [np.inf, 1.0], [np.nan, 1.0]])
    other = np.array([[np.nan, 1.0], [np.inf, 1.0], [0.0, 1.0]])
    apart = _apart(mine, other)
    assert apart[:2].tolist() == [0, 0] and apart[2] > 1
