# SPDX-License-Identifier: Apache-2.0
"""Loops at an episode's start: draws until no bodies touch, and steps until they are at rest."""

from __future__ import annotations

import warp as wp

from rollouts.envs.physics.kernels.structs import Clock
from rollouts.envs.physics.kernels.world_episodes import NO_START

# gradients are not needed, and would double the code to compile
wp.set_module_options({"enable_backward": False})

# draws of a start before it fails; models of the suite accept at least one draw in ten
MOST_TRIES = wp.constant(1000)


@wp.kernel
def begin_tries(
    beginning: wp.array[wp.bool],
    pending: wp.array[wp.bool],
    tries: wp.array[int],
    goes_on: wp.array[int],
):
    """Marks worlds that begin, so that they draw; sets `goes_on` (1,), which was 0, if one does."""
    w = wp.tid()
    pending[w] = beginning[w]
    tries[w] = 0
    if beginning[w]:
        goes_on[0] = 1


@wp.kernel
def find_touching(
    num_contacts: wp.array[int],
    worlds: wp.array[int],
    touching: wp.array[wp.bool],
):
    """Marks worlds that have a contact."""
    i = wp.tid()
    if i < num_contacts[0]:
        touching[worlds[i]] = True


@wp.kernel
def end_try(
    clock: Clock,
    num_contacts: wp.array[int],
    num_pairs: wp.array[int],
    memory: int,
    overflow_fault: int,
    touching: wp.array[wp.bool],
    pending: wp.array[wp.bool],
    tries: wp.array[int],
    goes_on: wp.array[int],
):
    """Marks worlds whose bodies touch, so that they draw again; all, if contacts exceeded `memory`.

    Sets `goes_on` (1,), which was 0, if a world draws again.
    """
    w = wp.tid()
    if not pending[w]:
        return
    is_full = num_contacts[0] > memory or num_pairs[0] > memory
    if not (touching[w] or is_full):
        pending[w] = False
        return
    tries[w] = tries[w] + 1
    if tries[w] < MOST_TRIES:
        goes_on[0] = 1
        return
    pending[w] = False
    if clock.fault[w] == 0:
        clock.fault[w] = NO_START
        if is_full:
            clock.fault[w] = overflow_fault


@wp.kernel
def begin_steps(beginning: wp.array[wp.bool], count: int, left: wp.array[int]):
    """Sets `left` (1,), which was 0, to `count` steps of all worlds if a world begins."""
    w = wp.tid()
    if beginning[w]:
        left[0] = count


@wp.kernel
def end_one_step(left: wp.array[int]):
    left[0] = wp.max(left[0] - 1, 0)


@wp.kernel
def put_back(
    marked: wp.array[wp.bool],
    before: wp.array2d[float],
    now: wp.array2d[float],
):
    """Gives unmarked worlds the values that they had before."""
    w, i = wp.tid()
    if not marked[w]:
        now[w, i] = before[w, i]


@wp.kernel
def end_steps(
    marked: wp.array[wp.bool],
    overflow_before: wp.array[int],
    overflow: wp.array[int],
    time: wp.array[float],
):
    """Clears overflow bits of this loop in unmarked worlds, and the time of marked worlds."""
    w = wp.tid()
    if marked[w]:
        time[w] = 0.0
    else:
        overflow[w] = overflow_before[w]
