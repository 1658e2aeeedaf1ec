# SPDX-License-Identifier: Apache-2.0
"""Which ids mujoco_warp can step; asking brings neither Warp nor torch."""

from __future__ import annotations

PHYSICS_IDS = frozenset(
    {
        "Ant-v5",
        "HalfCheetah-v5",
        "Hopper-v5",
        "Humanoid-v5",
        "HumanoidStandup-v5",
        "InvertedDoublePendulum-v5",
        "InvertedPendulum-v5",
        "MuJoCo-v0",
        "Pusher-v5",
        "Reacher-v5",
        "Swimmer-v5",
        "Walker2d-v5",
    }
)
