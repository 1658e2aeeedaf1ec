# SPDX-License-Identifier: Apache-2.0
"""Two options that are a least and a greatest: the least is never above the greatest."""

from __future__ import annotations

import re
from typing import Any

import pytest

import rollouts
from rollouts.errors import SpecError

MULTI_ROOM = "MiniGrid-MultiRoom-N6-v0"


@pytest.mark.parametrize(
    ("env_id", "options", "message"),
    [
        (
            MULTI_ROOM,
            {"max_num_rooms": 3},
            "option max_num_rooms is 3, and min_num_rooms is 6 where it is not given, so that the "
            "low is above the high: give min_num_rooms, too",
        ),
        (
            MULTI_ROOM,
            {"min_num_rooms": 7},
            "option min_num_rooms is 7, and max_num_rooms is 6 where it is not given, so that the "
            "low is above the high: give max_num_rooms, too",
        ),
        (
            MULTI_ROOM,
            {"min_num_rooms": 4, "max_num_rooms": 2},
            "option min_num_rooms and max_num_rooms is (4, 2), whose low is above its high: turn "
            "it round",
        ),
        (
            "TagContinuous-v0",
            {"min_turn": 1.0, "max_turn": -1.0},
            "option min_turn and max_turn is (1.0, -1.0), whose low is above its high: turn it "
            "round",
        ),
        (
            "TagContinuous-v0",
            {"min_acceleration": 2.0},
            "option min_acceleration is 2.0, and max_acceleration is 1.0 where it is not given, so "
            "that the low is above the high: give max_acceleration, too",
        ),
        # an option of the second environment alone
        (
            MULTI_ROOM,
            {"min_num_rooms": [2, 4], "max_num_rooms": 3},
            "option min_num_rooms and max_num_rooms is ([2, 4], 3), whose low is above its high: "
            "turn it round",
        ),
        (
            "TagContinuous-v0",
            {"min_turn": [-1.0, 2.0], "max_turn": [1.0, 1.0]},
            "option min_turn and max_turn is ([-1.0, 2.0], [1.0, 1.0]), whose low is above its "
            "high: turn it round",
        ),
    ],
)
def test_a_least_above_its_greatest_is_refused(
    env_id: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(SpecError, match=f"^{re.escape(message)}$"):
        rollouts.make_vec(env_id, 2, **options)
    if all(not isinstance(value, list) for value in options.values()):
        with pytest.raises(SpecError, match=f"^{re.escape(message)}$"):
            rollouts.env_spec(env_id, **options)


def test_halves_of_a_range_are_compared_in_every_environment() -> None:
    pytest.importorskip("mujoco", reason="needs the mujoco package")
    for high in ([1.0, 2.0], 2.0):
        with pytest.raises(SpecError, match=r"healthy_z_min and healthy_z_max is .*low is above"):
            rollouts.make_vec("Hopper-v5", 2, healthy_z_min=[0.7, 3.0], healthy_z_max=high)
    # a mixed pool says so, too
    with pytest.raises(SpecError, match=r"healthy_z_min and healthy_z_max is .*low is above"):
        rollouts.make_vec(["Hopper-v5", "Hopper-v4"], healthy_z_min=[0.7, 3.0], healthy_z_max=1.0)


def test_equal_numbers_and_numbers_in_order_are_taken() -> None:
    for options in ({"min_num_rooms": [6, 2], "max_num_rooms": [6, 8]}, {"min_num_rooms": 6}):
        with rollouts.make_vec(MULTI_ROOM, 2, seed=1, **options) as env:
            env.reset()


@pytest.mark.parametrize("device", [None, "cpu-emulation"])
def test_a_reset_compares_them(device: str | None) -> None:
    where = {} if device is None else {"device": device}
    with rollouts.make_vec("TagContinuous-v0", 2, seed=1, **where) as env:
        env.reset()
        before = env.get_state()
        with pytest.raises(SpecError, match=r"min_turn and max_turn is .*low is above its high"):
            env.reset(options={"min_turn": [-1.0, 1.0], "max_turn": 0.5})
        assert env.get_state() == before
