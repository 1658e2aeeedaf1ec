# SPDX-License-Identifier: Apache-2.0
"""A start whose task reads motion alone computes neither contacts nor constraints."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import warp as wp

import rollouts

pytestmark = pytest.mark.system

# what Humanoid and HumanoidStandup read of a start
_READ = ("xipos", "cinert", "cvel", "qfrc_actuator", "ten_length", "ten_velocity", "subtree_com")


def read_of(worlds: Any, what: str) -> dict[str, torch.Tensor]:
    with wp.ScopedDevice("cpu"):
        worlds.refresh(what)
    return {name: wp.to_torch(getattr(worlds.data, name)).clone() for name in _READ}


@pytest.mark.parametrize("id", ["Humanoid-v5"])
def test_a_start_reads_the_same_as_after_a_whole_forward(id: str) -> None:
    with rollouts.make_vec(id, 3, device="cpu-emulation", seed=1) as env:
        pool = env.engine.steps.pool
        assert pool._task.after_start == "motion"
        env.reset()
        actions = torch.full((3, 17), 0.3)
        for _ in range(4):
            env.step(actions)
        before = {name: one.clone() for name, one in pool._worlds.state().items()}
        motion = read_of(pool._worlds, "motion")
        whole = read_of(pool._worlds, "forward")
        for name, expected in whole.items():
            assert torch.equal(motion[name], expected), name
        # neither changes what the next step depends on
        for name, one in pool._worlds.state().items():
            assert torch.equal(one, before[name]), name
