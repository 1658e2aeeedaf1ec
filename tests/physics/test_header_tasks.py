# SPDX-License-Identifier: Apache-2.0
"""Gymnasium's tasks on a device, whose kernels are made of the C++ pool's headers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import rollouts
from rollouts import SpecError

pytestmark = pytest.mark.system

pytest.importorskip("mujoco_warp")


def make(env_id: str, **kwargs: Any) -> Any:
    return rollouts.make_vec(env_id, 3, device="cpu-emulation", seed=1, **kwargs)


def test_a_weight_that_was_zero_counts_contact_forces_from_its_reset_on() -> None:
    options = {"include_cfrc_ext_in_observation": False, "contact_cost_weight": 0.0}
    with make("Ant-v5", healthy_z_min=-10.0, **options) as env:
        still = torch.zeros(3, 8)
        env.reset()
        for _ in range(20):
            *_, info = env.step(still)
        assert not info["reward_contact"].any()
        env.reset(options={"contact_cost_weight": 1.0})
        costs = torch.stack([-env.step(still)[-1]["reward_contact"] for _ in range(20)])
        # it falls on its feet
        assert (costs.max(dim=0).values > 0.1).all()


def test_worlds_may_end_their_episodes_by_rules_of_their_own() -> None:
    by_world = {"terminate_when_unhealthy": [True, False, True], "healthy_z_min": [5.0, 5.0, -5.0]}
    with make("Hopper-v5", **by_world) as env:
        env.reset()
        _, reward, terminated, *_ = env.step(torch.zeros(3, 3))
        assert terminated.tolist() == [True, False, False]
        # one that is not healthy is not paid for it
        assert (reward > 0.5).tolist() == [False, False, True]


def test_an_option_that_shapes_observations_is_one_for_all_worlds() -> None:
    name = "exclude_current_positions_from_observation"
    with pytest.raises(SpecError, match=f"'{name}' differs between environments"):
        make("Hopper-v5", **{name: [True, False, True]})
    with make("Hopper-v5", **{name: False}) as env:
        assert env.reset()[0].shape == (3, 12)
        with pytest.raises(SpecError, match=rf"reset options \['{name}'\] cannot change"):
            env.reset(options={name: True})


def test_a_reset_refuses_a_value_as_the_pool_of_threads_does_and_changes_nothing() -> None:
    with make("Hopper-v5") as env, rollouts.make_vec("Hopper-v5", 3) as pool:
        for one in (env, pool):
            one.reset(seed=1)
            with pytest.raises(SpecError, match="'healthy_reward' must be a float, got a str"):
                one.reset(options={"healthy_reward": "much"})
        reward, expected = (
            env.step(torch.zeros(3, 3))[1],
            pool.step(np.zeros((3, 3), np.float32))[1],
        )
        np.testing.assert_allclose(reward.numpy(), expected, atol=1e-5)


def test_the_body_that_counts_may_be_named() -> None:
    def reward(**options: Any) -> list[float]:
        with make("Ant-v5", **options) as env:
            env.reset()
            found: list[float] = env.step(torch.full((3, 8), 0.5))[1].tolist()
            return found

    assert reward(main_body="torso") == reward() != reward(main_body="4")
