# SPDX-License-Identifier: Apache-2.0
"""Resets and waits that are refused: by errors of the library, and without a trace."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from host_envs import Counter

import rollouts


@pytest.mark.parametrize(
    ("wrong", "error", "match"),
    [
        ({"seed": 1.5}, rollouts.SpecError, r"seed is 1\.5, expected an int or one entry"),
        ({"seed": -1}, rollouts.SpecError, "seed is -1, expected a whole number from 0"),
        ({"seed": [1, "b"]}, rollouts.SpecError, "seed is 'b', expected a whole number"),
        ({"seed": [1, 2, 3]}, rollouts.SpecError, "seed has 3 entries"),
        ({"options": 5}, rollouts.DTypeError, "options must be a dict .*got 5"),
        ({"options": {"reset_mask": [True]}}, rollouts.DTypeError, "reset_mask"),
    ],
)
def test_refused_reset_leaves_the_first_seed_to_the_next(
    wrong: dict[str, Any], error: type[Exception], match: str
) -> None:
    with rollouts.from_env_fns([Counter] * 2, num_processes=1, seed=7) as envs:
        with pytest.raises(error, match=match):
            envs.reset(**wrong)
        assert envs.reset()[1]["seed"].tolist() == [7, 8]
        assert envs.reset()[1]["seed"].tolist() == [-1, -1]


def test_options_that_do_not_pickle_leave_the_first_seed_to_the_next() -> None:
    with rollouts.from_env_fns([Counter] * 2, num_processes=1, seed=7) as envs:
        with pytest.raises(TypeError, match="pickle"):
            envs.reset(options={"generator": (i for i in ())})
        assert envs.reset()[1]["seed"].tolist() == [7, 8]


def test_async_reset_uses_the_first_seed_once() -> None:
    with rollouts.from_env_fns([Counter] * 2, num_processes=1, seed=7) as envs:
        envs.async_reset()
        assert envs.recv()[4]["seed"].tolist() == [7, 8]
        assert envs.reset()[1]["seed"].tolist() == [-1, -1]


@pytest.mark.parametrize("seed", [5, np.int64(5), np.array(5)], ids=repr)
def test_whole_seed_differs_by_environment(seed: Any) -> None:
    with rollouts.from_env_fns([Counter] * 2, num_processes=1, env_id_offset=3) as envs:
        assert envs.reset(seed=seed)[1]["seed"].tolist() == [8, 9]


def test_array_of_seeds_is_one_for_each_environment() -> None:
    with rollouts.from_env_fns([Counter] * 2, num_processes=1, env_id_offset=3) as envs:
        assert envs.reset(seed=np.array([4, 2]))[1]["seed"].tolist() == [4, 2]


def test_timeouts_that_are_no_numbers_are_refused_and_the_result_still_comes() -> None:
    with rollouts.from_env_fns([Counter] * 2, num_processes=1) as envs:
        envs.reset_async(seed=1)
        with pytest.raises(rollouts.DTypeError, match=r"timeout must be a number .*got 'a'"):
            envs.reset_wait("a")
        assert envs.reset_wait()[1]["seed"].tolist() == [1, 2]
        envs.step_async([1, 2])
        with pytest.raises(rollouts.DTypeError, match=r"timeout must be a number .*got 'a'"):
            envs.step_wait("a")
        assert envs.step_wait()[1].tolist() == [1, 2]
        envs.send([3, 4])
        with pytest.raises(rollouts.DTypeError, match=r"timeout_s must be a number .*got 'a'"):
            envs.recv("a")
        assert envs.recv()[1].tolist() == [3, 4]
