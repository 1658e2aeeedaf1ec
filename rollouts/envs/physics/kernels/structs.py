# SPDX-License-Identifier: Apache-2.0
"""Arrays that kernels share. N worlds; a world's index is `w` in every kernel."""

from __future__ import annotations

import warp as wp


@wp.struct
class Simulation:
    """mujoco_warp's arrays, to read, and what a task needs of the model."""

    first: int  # the bodies that a task looks at, or what its kernel says
    second: int
    third: int
    others: wp.array[int]  # more of those
    goal: float  # a task's own number
    sizes: wp.array[float]  # more of those
    qpos: wp.array2d[float]
    qvel: wp.array2d[float]
    ctrl: wp.array2d[float]
    xpos: wp.array2d[wp.vec3]
    xipos: wp.array2d[wp.vec3]
    site_xpos: wp.array2d[wp.vec3]
    geom_xpos: wp.array2d[wp.vec3]
    xmat: wp.array2d[wp.mat33]
    geom_xmat: wp.array2d[wp.mat33]
    site_xmat: wp.array2d[wp.mat33]
    cvel: wp.array2d[wp.spatial_vector]
    subtree_com: wp.array2d[wp.vec3]
    body_rootid: wp.array[int]
    sensordata: wp.array2d[float]


@wp.struct
class Outcome:
    """What a task's kernel makes of a step."""

    reward: wp.array[float]
    terminated: wp.array[wp.bool]
    infos: wp.array2d[float]
    shown: wp.array2d[float]  # what it observes beside arrays of mujoco_warp's


@wp.struct
class Clock:
    """Everything about an episode that its dynamics need not know."""

    seed: wp.array[wp.uint64]
    env_id: wp.array[int]
    stream_id: wp.array[int]  # env_id's random stream, or that of a loaded state
    next_episode: wp.array[int]  # number of the next episode since seeding
    elapsed_steps: wp.array[int]
    episode_return: wp.array[wp.float64]
    ended: wp.array[wp.bool]  # the episode is over and the next one has not begun
    broken: wp.array[wp.bool]  # a fault cut it off: it has nothing to show
    fault: wp.array[int]  # the first since the last look, 0: none


@wp.struct
class Rows:
    """A batch's rows but observations and infos."""

    reward: wp.array[float]
    terminated: wp.array[wp.bool]
    truncated: wp.array[wp.bool]
    episode_return: wp.array[wp.float64]
    episode_length: wp.array[int]


@wp.struct
class Totals:
    """Of all episodes that ended in a world."""

    episodes: wp.array[wp.int64]
    lengths: wp.array[wp.int64]
    returns: wp.array[wp.float64]
