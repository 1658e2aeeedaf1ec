# SPDX-License-Identifier: Apache-2.0
"""Arithmetic that tasks share."""

from __future__ import annotations

import warp as wp

from rollouts.envs.physics.kernels.structs import Outcome, Simulation


@wp.func
def speed(outcome: Outcome, sim: Simulation, w: int, axis: int, now: wp.float64) -> float:
    """Since the step before, along an axis."""
    return float((now - outcome.before[w, axis]) / (sim.timestep[w] * sim.frame_skip))


@wp.func
def resting(sim: Simulation, w: int, i: int) -> float:
    """A position where the model begins."""
    return sim.qpos0[w % sim.qpos0.shape[0], i]


@wp.func
def sum_of_squares(values: wp.array2d[float], w: int) -> float:
    total = float(0.0)
    for i in range(values.shape[1]):
        total += values[w, i] * values[w, i]
    return total


@wp.func
def is_inside(value: float, low: float, high: float) -> bool:
    return low < value and value < high


@wp.func
def put_start(outcome: Outcome, w: int, first: int):
    """What a reset reports beside its first infos: zeros."""
    for i in range(first, outcome.infos.shape[1]):
        outcome.infos[w, i] = 0.0


@wp.func
def put_outcome(outcome: Outcome, w: int, reward: float, terminated: bool):
    outcome.reward[w] = reward
    outcome.terminated[w] = terminated
