# SPDX-License-Identifier: Apache-2.0
"""Tasks of MuJoCo that the report and the Makefile measure.

They are all of Gymnasium's tasks, and one task of each domain of the DeepMind suite whose bodies
are planes, spheres and capsules.
"""

from __future__ import annotations

MUJOCO_TASKS = (
    "Ant-v5 HalfCheetah-v5 Hopper-v5 Humanoid-v5 HumanoidStandup-v5 InvertedDoublePendulum-v5 "
    "InvertedPendulum-v5 Pusher-v5 Reacher-v5 Swimmer-v5 Walker2d-v5"
)
SUITE_TASKS = (
    "AcrobotSwingup-v1 CartpoleSwingup-v1 CheetahRun-v1 HopperHop-v1 HumanoidCMURun-v1 "
    "HumanoidRun-v1 LqrLqr62-v1 PendulumSwingup-v1 PointMassEasy-v1 ReacherEasy-v1 "
    "SwimmerSwimmer6-v1 WalkerRun-v1"
)
