# SPDX-License-Identifier: Apache-2.0
"""Parts of a pool from ids and options, without making one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rollouts
from rollouts.envs.pool_recipe import read_ids, resolve_pool
from rollouts.errors import SpecError

BALANCE, LONGER = "CartPole-v0", "CartPole-v1"


@pytest.mark.parametrize(
    ("env_id", "num_envs", "read"),
    [
        (BALANCE, None, ([BALANCE], 1)),
        (BALANCE, 4, ([BALANCE], 4)),
        ([BALANCE, LONGER], None, ([BALANCE, LONGER], 2)),
        ((BALANCE,), 1, ([BALANCE], 1)),
        (np.array([BALANCE, LONGER]), 2, ([BALANCE, LONGER], 2)),
    ],
)
def test_ids_are_one_for_all_or_one_each(env_id: Any, num_envs: Any, read: Any) -> None:
    assert read_ids(env_id, num_envs) == read


@pytest.mark.parametrize(
    ("env_id", "num_envs", "message"),
    [
        ([], None, "id has 0 ids"),
        ([BALANCE], 2, r"id has 1 ids, expected one for each environment \(num_envs is 2\)"),
        (["CartPole-v0", 3], None, "id must be a str such as 'CartPole-v1', got 3"),
        (None, 2, "id must be a str such as 'CartPole-v1', got None"),
    ],
)
def test_other_ids_are_refused(env_id: Any, num_envs: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        read_ids(env_id, num_envs)


def test_neighbours_of_one_id_are_one_part() -> None:
    ids = [BALANCE, BALANCE, LONGER, BALANCE]
    recipe = resolve_pool(ids, 4, None, {})
    assert recipe.runs == [(BALANCE, 2), (LONGER, 1), (BALANCE, 1)]
    assert [(part[0], part[1], part[2]) for part in recipe.segments] == [
        (BALANCE, 2, 200),
        (LONGER, 1, 500),
        (BALANCE, 1, 200),
    ]
    assert {*recipe.specs} == {BALANCE, LONGER}
    assert "gravity" in recipe.option_names and not recipe.is_own_model
    assert recipe.headers == [rollouts.env_spec(one).header for one in (BALANCE, LONGER)]


def test_a_time_limit_is_that_of_all() -> None:
    recipe = resolve_pool([BALANCE, LONGER], 2, 7, {})
    assert [part[2] for part in recipe.segments] == [7, 7]
    assert {spec.max_episode_steps for spec in recipe.specs.values()} == {7}


def test_specs_show_the_first_environments_options() -> None:
    recipe = resolve_pool([LONGER], 3, None, {"gravity": [9.0, 8.0, 7.0], "force_mag": 5.0})
    options = recipe.specs[LONGER].options
    assert options["gravity"] == 9.0 and options["force_mag"] == 5.0


def test_games_of_a_family_are_one_part_whose_files_differ_by_row() -> None:
    pytest.importorskip("ale_py")
    pong, breakout = "ALE/Pong-v5", "ALE/Breakout-v5"
    ids = [LONGER, pong, pong, breakout]
    with pytest.raises(SpecError, match="must have equal spaces: the observation space of"):
        resolve_pool(ids, 4, None, {})
    recipe = resolve_pool(ids[1:], 3, None, {"full_action_space": True})
    ((native_id, count, _, internal),) = recipe.segments
    assert (native_id, count) == ("ALE/*", 3)
    first, second, third = internal["rom_path"]
    assert first == second != third and str(third).endswith("breakout.bin")


def test_games_with_other_actions_are_told_of_the_option_that_helps() -> None:
    pytest.importorskip("ale_py")
    with pytest.raises(SpecError, match="full_action_space=True gives all Atari games the same"):
        resolve_pool(["ALE/Pong-v5", "ALE/Breakout-v5"], 2, None, {})
