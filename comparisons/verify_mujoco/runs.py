# SPDX-License-Identifier: Apache-2.0
"""Runs of both engines without correction: how fast they diverge, and their episodes' returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import rollouts
from comparisons.verify_mujoco.array_errors import relative
from comparisons.verify_mujoco.driver import STATE, Driver, ModelStates
from comparisons.verify_mujoco.models import Subject

LOOKS = (1, 10, 50, 100, 200)  # env-steps at which distances are taken
# most standard errors between two means; one in 22 pairs of equal means exceeds it, and then more
# episodes decide
MOST_ERRORS = 2.0
_NUM_RUNS = 64
_NUM_ENVS = 64


@dataclass(frozen=True, slots=True)
class Means:
    """Returns and lengths of the episodes of one engine, (E,) each."""

    returns: npt.NDArray[np.float64]
    lengths: npt.NDArray[np.float64]


def divergence(subject: Subject, starts: ModelStates, *, width: int, seed: int) -> dict[int, float]:
    """Median distance of positions, relative to their largest, after some env-steps.

    Both begin with the same states and random controls; neither is given the other's states later.
    MuJoCo makes the substeps that lanes hand back, from the lanes' own state.
    """
    kinds = ["random"]
    ours = Driver(subject.model, starts, kinds, _NUM_RUNS, subject.frame_skip, seed).states
    theirs = ours.rows(slice(None))
    rng = np.random.default_rng([seed, 1])
    limited = subject.model.actuator_ctrllimited.astype(bool)
    low = np.where(limited, subject.model.actuator_ctrlrange[:, 0], -1.0)
    high = np.where(limited, subject.model.actuator_ctrlrange[:, 1], 1.0)
    found = {}
    for env_step in range(1, LOOKS[-1] + 1):
        ours.ctrl[:] = theirs.ctrl[:] = rng.uniform(low, high, ours.ctrl.shape)
        lanes = subject.comparer.step(*ours.arrays(), width=width, substeps=subject.frame_skip)
        mujoco = subject.comparer.step(*theirs.arrays(), width=width, substeps=subject.frame_skip)
        back = lanes["handed_back"][:, None]
        for name in STATE:
            one, other = lanes[name]
            getattr(ours, name)[:] = np.where(back, other, one)
            getattr(theirs, name)[:] = mujoco[name][1]
        if env_step in LOOKS:
            found[env_step] = float(np.median(relative(ours.qpos, theirs.qpos)))
    return found


def random_episodes(id: str, engine: str, episodes: int, seed: int) -> Means:
    """Plays equally many random episodes in each environment, so that short ones count no more."""
    num_envs = min(_NUM_ENVS, episodes)
    each = -(-episodes // num_envs)
    make: Any = rollouts.make_vec
    returns: list[list[float]] = [[] for _ in range(num_envs)]
    lengths: list[list[float]] = [[] for _ in range(num_envs)]
    with make(id, num_envs, seed=seed, num_threads=1, engine=engine) as env:
        env.reset()
        env.action_space.seed(seed % 2**32)
        while min(len(one) for one in returns) < each:
            *_, terminated, truncated, info = env.step(env.action_space.sample())
            for row in np.flatnonzero(terminated | truncated):
                returns[row].append(float(info["episode_return"][row]))
                lengths[row].append(float(info["episode_length"][row]))
    return Means(
        np.array([one[:each] for one in returns]).ravel(),
        np.array([one[:each] for one in lengths]).ravel(),
    )


def errors_apart(one: npt.NDArray[np.float64], other: npt.NDArray[np.float64]) -> float:
    """The distance between two means in standard errors of their difference."""
    gap = abs(one.mean() - other.mean())
    error = float(np.sqrt(one.var() / len(one) + other.var() / len(other)))
    return gap / error if error > 0 else 0.0 if gap == 0 else float("inf")
