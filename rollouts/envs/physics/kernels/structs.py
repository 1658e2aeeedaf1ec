# SPDX-License-Identifier: Apache-2.0
"""Arrays that kernels share. N worlds; a world's index is `w` in every kernel."""

from __future__ import annotations

import warp as wp


@wp.struct
class StepOutcome:
    """Results of a step that a task's kernel makes."""

    reward: wp.array[float]
    terminated: wp.array[wp.bool]
    infos: wp.array2d[float]


@wp.struct
class Clock:
    """The state of an episode that is no part of its dynamics."""

    seed: wp.array[wp.uint64]
    env_id: wp.array[int]
    stream_id: wp.array[int]  # env_id's random stream, or that of a loaded state
    next_episode: wp.array[int]  # number of the next episode since seeding
    elapsed_steps: wp.array[int]
    episode_return: wp.array[wp.float64]
    ended: wp.array[wp.bool]  # the episode is over and the next one has not begun
    broken: wp.array[wp.bool]  # a fault cut the episode off
    fault: wp.array[int]  # the first since faults were last read; 0: none


@wp.struct
class BatchRows:
    """A batch's rows without observations and infos."""

    reward: wp.array[float]
    terminated: wp.array[wp.bool]
    truncated: wp.array[wp.bool]
    episode_return: wp.array[wp.float64]
    episode_length: wp.array[int]


@wp.struct
class Totals:
    """Sums over all episodes that ended in a world."""

    episodes: wp.array[wp.int64]
    lengths: wp.array[wp.int64]
    returns: wp.array[wp.float64]
