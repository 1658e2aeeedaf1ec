# SPDX-License-Identifier: Apache-2.0
"""One step from the same state, by Gymnasium with MuJoCo in 64 bits and by mujoco_warp in 32."""

from __future__ import annotations

import pytest
from physics_peer import errors

from rollouts.envs.physics.supported import GYMNASIUM_IDS

pytestmark = pytest.mark.system


@pytest.mark.parametrize("env_id", sorted(GYMNASIUM_IDS))
def test_a_step_is_mujocos(env_id: str) -> None:
    of_obs, of_reward, ends = errors(env_id)
    # 32 bits have 1e-7; accelerations of hundreds in contacts and up to twenty solves in a step
    # make of it at most a thousand times as much (1.1e-4, HumanoidStandup's contact forces)
    assert of_obs.max() < 5e-4
    assert of_reward.max() < 1e-5
    assert ends == 0
