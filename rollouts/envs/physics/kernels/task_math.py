# SPDX-License-Identifier: Apache-2.0
"""Arithmetic that tasks share."""

from __future__ import annotations

import warp as wp

from rollouts.envs.physics.kernels.structs import Outcome


@wp.func
def sum_of_squares(values: wp.array2d[float], w: int) -> float:
    total = float(0.0)
    for i in range(values.shape[1]):
        total += values[w, i] * values[w, i]
    return total


@wp.func
def put_outcome(outcome: Outcome, w: int, reward: float, terminated: bool):
    outcome.reward[w] = reward
    outcome.terminated[w] = terminated
