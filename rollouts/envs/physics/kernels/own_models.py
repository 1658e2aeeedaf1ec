# SPDX-License-Identifier: Apache-2.0
"""MuJoCo-v0: kernels around the user's functions, which compute rewards and ends."""

from __future__ import annotations

import warp as wp

from rollouts.envs.physics.kernels.structs import StepOutcome

# gradients are not needed, and would double the code to compile
wp.set_module_options({"enable_backward": False})


@wp.kernel
def score_nothing(outcome: StepOutcome, marked: wp.array[wp.bool]):
    """Writes a reward of 0 and no end, which the user's functions replace."""
    w = wp.tid()
    if marked[w]:
        outcome.reward[w] = 0.0
        outcome.terminated[w] = False


@wp.kernel
def put_keyframe(
    key: int,
    marked: wp.array[wp.bool],
    key_time: wp.array[float],
    key_act: wp.array2d[float],
    key_ctrl: wp.array2d[float],
    key_mpos: wp.array2d[wp.vec3],
    key_mquat: wp.array2d[wp.quat],
    time: wp.array[float],
    act: wp.array2d[float],
    ctrl: wp.array2d[float],
    mocap_pos: wp.array2d[wp.vec3],
    mocap_quat: wp.array2d[wp.quat],
):
    """Writes what a keyframe has besides positions and velocities."""
    w = wp.tid()
    if not marked[w]:
        return
    time[w] = key_time[key]
    for i in range(act.shape[1]):
        act[w, i] = key_act[key, i]
    for i in range(ctrl.shape[1]):
        ctrl[w, i] = key_ctrl[key, i]
    for i in range(mocap_pos.shape[1]):
        mocap_pos[w, i] = key_mpos[key, i]
        mocap_quat[w, i] = key_mquat[key, i]


@wp.kernel
def clear_rows(marked: wp.array[wp.bool], values: wp.array2d[float]):
    """Puts zeros into rows of the marked worlds."""
    w, i = wp.tid()
    if marked[w]:
        values[w, i] = 0.0
