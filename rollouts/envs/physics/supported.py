# SPDX-License-Identifier: Apache-2.0
"""Ids that mujoco_warp can step, and whether it is installed, without importing Warp or torch."""

from __future__ import annotations

import importlib.util

GYMNASIUM_IDS = frozenset(
    {
        "Ant-v5",
        "HalfCheetah-v5",
        "Hopper-v5",
        "Humanoid-v5",
        "HumanoidStandup-v5",
        "InvertedDoublePendulum-v5",
        "InvertedPendulum-v5",
        "Pusher-v5",
        "Reacher-v5",
        "Swimmer-v5",
        "Walker2d-v5",
    }
)
# tasks of the DeepMind Control Suite
SUITE_IDS = frozenset(
    {
        "AcrobotSwingup-v1",
        "AcrobotSwingupSparse-v1",
        "BallInCupCatch-v1",
        "CartpoleBalance-v1",
        "CartpoleBalanceSparse-v1",
        "CartpoleSwingup-v1",
        "CartpoleSwingupSparse-v1",
        "CartpoleTwoPoles-v1",
        "CartpoleThreePoles-v1",
        "CheetahRun-v1",
        "DogFetch-v1",
        "DogRun-v1",
        "DogStand-v1",
        "DogTrot-v1",
        "DogWalk-v1",
        "FingerSpin-v1",
        "FingerTurnEasy-v1",
        "FingerTurnHard-v1",
        "FishSwim-v1",
        "FishUpright-v1",
        "HopperHop-v1",
        "HopperStand-v1",
        "HumanoidCMURun-v1",
        "HumanoidCMUStand-v1",
        "HumanoidCMUWalk-v1",
        "HumanoidRun-v1",
        "HumanoidRunPureState-v1",
        "HumanoidStand-v1",
        "HumanoidWalk-v1",
        "LqrLqr21-v1",
        "LqrLqr62-v1",
        "ManipulatorBringBall-v1",
        "ManipulatorBringPeg-v1",
        "ManipulatorInsertBall-v1",
        "ManipulatorInsertPeg-v1",
        "PendulumSwingup-v1",
        "PointMassEasy-v1",
        "QuadrupedFetch-v1",
        "QuadrupedRun-v1",
        "QuadrupedWalk-v1",
        "ReacherEasy-v1",
        "ReacherHard-v1",
        "SwimmerSwimmer6-v1",
        "SwimmerSwimmer15-v1",
        "WalkerRun-v1",
        "WalkerStand-v1",
        "WalkerWalk-v1",
    }
)
# tasks of the suite that only the CPU steps, and why
ON_CPU_ALONE = {
    "PointMassHard-v1": "each episode draws wrap_prm, which all worlds of mujoco_warp share",
    "QuadrupedEscape-v1": "each episode draws hfield_data, which all worlds of mujoco_warp share",
    "StackerStack2-v1": "mujoco_warp finds fewer contacts between boxes than MuJoCo",
    "StackerStack4-v1": "mujoco_warp finds fewer contacts between boxes than MuJoCo",
}
PHYSICS_IDS = GYMNASIUM_IDS | SUITE_IDS | {"MuJoCo-v0"}
# options that set mujoco_warp's memory; they belong to no environment
MEMORY_OPTIONS = ("nconmax", "njmax")


def installed() -> bool:
    """Tells if mujoco_warp can be imported; it is not imported."""
    return all(importlib.util.find_spec(name) is not None for name in ("warp", "mujoco_warp"))
