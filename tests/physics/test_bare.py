# SPDX-License-Identifier: Apache-2.0
"""`BarePhysics`: what benchmarks compare a pool with moves as the pool does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import rollouts
from rollouts import ProtocolError

pytestmark = pytest.mark.system

pytest.importorskip("mujoco_warp")


def make(**options: Any) -> Any:
    # no episode ends, so a pool shows where its worlds are
    return rollouts.make_vec(
        "MuJoCo-v0",
        4,
        device="cpu-emulation",
        seed=1,
        xml_file="inverted_pendulum.xml",
        reset_noise_scale=0.5,
        observation=["qpos", "qvel"],
        frame_skip=3,
        **options,
    )


def test_it_moves_the_pools_worlds_without_moving_the_pool() -> None:
    masses = np.array([[0, 1, 2], [0, 3, 4], [0, 5, 6], [0, 7, 8]])
    env, alone = make(model={"body_mass": masses}), make(model={"body_mass": masses})
    env.reset(), alone.reset()
    bare = env.engine.bare_physics()
    pushes = torch.tensor([[-1.0], [0.0], [1.0], [2.0]])
    for _ in range(5):
        bare.take_over()
        bare.step(pushes)
        obs = env.step(pushes)[0]
        assert torch.equal(torch.cat([bare._state["qpos"], bare._state["qvel"]], 1), obs)
        assert torch.equal(alone.step(pushes)[0], obs)


def test_it_has_the_pools_memory() -> None:
    env = make(nconmax=3, njmax=9)
    with pytest.raises(ProtocolError, match="never reset"):
        env.engine.bare_physics()
    env.reset()
    bare = env.engine.bare_physics()
    assert (bare.frame_skip, bare.nconmax, bare.njmax) == (3, 3, 9)
