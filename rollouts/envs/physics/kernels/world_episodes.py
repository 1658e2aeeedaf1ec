# SPDX-License-Identifier: Apache-2.0
"""Before and after the dynamics: choice of worlds that step or begin, time limits, faults, rows.

The rules are those of native/include/rollouts/core/step.h.
"""

from __future__ import annotations

import warp as wp

from rollouts.envs.physics.kernels.structs import BatchRows, Clock, StepOutcome, Totals

# gradients are not needed, and would double the code to compile
wp.set_module_options({"enable_backward": False})

STEP = wp.constant(0)
RESET = wp.constant(1)
OBSERVE = wp.constant(2)

NEXT_STEP = wp.constant(0)
SAME_STEP = wp.constant(1)
DISABLED = wp.constant(2)

# kinds of a fault, in its lowest byte; the bits above are mujoco_warp's overflow bits
NOT_FINITE = wp.constant(1)
OVERFLOW = wp.constant(2)
ENDED = wp.constant(3)
REWARD = wp.constant(4)
NO_START = wp.constant(5)

# MuJoCo, too, treats a larger number as a fault (mjMAXVAL)
_LARGEST = wp.constant(1.0e10)


@wp.kernel
def begin_step(
    clock: Clock,
    commands: wp.array[wp.uint8],
    autoreset: int,
    stepping: wp.array[wp.bool],
    beginning: wp.array[wp.bool],
):
    """Decides which worlds step, and which begin an episode instead."""
    w = wp.tid()
    command = int(commands[w])
    is_step = command == STEP
    is_due = is_step and clock.ended[w] and autoreset == NEXT_STEP
    if is_step and clock.ended[w] and autoreset == DISABLED and clock.fault[w] == 0:
        clock.fault[w] = ENDED
    stepping[w] = is_step and not clock.ended[w]
    beginning[w] = is_due or command == RESET


@wp.func
def is_good(values: wp.array2d[float], w: int) -> bool:
    for i in range(values.shape[1]):
        # NaN fails this comparison, too
        if not (wp.abs(values[w, i]) < _LARGEST):
            return False
    return True


@wp.kernel
def end_step(
    clock: Clock,
    ctrl: wp.array2d[float],
    qpos: wp.array2d[float],
    qvel: wp.array2d[float],
    outcome: StepOutcome,
    rows: BatchRows,
    totals: Totals,
    overflow: wp.array[int],
    overflow_bits: int,
    autoreset: int,
    max_episode_steps: int,
    stepping: wp.array[wp.bool],
    beginning: wp.array[wp.bool],
):
    """Counts a step into its episode and writes its row."""
    w = wp.tid()
    reward = float(0.0)
    terminated = bool(False)
    truncated = bool(False)
    if stepping[w]:
        reward = outcome.reward[w]
        terminated = outcome.terminated[w]
        bits = overflow[w] & overflow_bits
        fault = int(0)
        if bits != 0:
            fault = OVERFLOW + (bits << 8)
        # a user's function may return anything
        if not (wp.abs(reward) < wp.inf):
            fault = REWARD
        # controls first, because mujoco_warp clamps NaN to a bound
        if not (is_good(ctrl, w) and is_good(qpos, w) and is_good(qvel, w)):
            fault = NOT_FINITE
        if fault != 0:
            reward = 0.0
            terminated = False
            clock.broken[w] = True
            if clock.fault[w] == 0:
                clock.fault[w] = fault
        clock.elapsed_steps[w] = clock.elapsed_steps[w] + 1
        clock.episode_return[w] = clock.episode_return[w] + wp.float64(reward)
        is_late = max_episode_steps > 0 and clock.elapsed_steps[w] >= max_episode_steps
        truncated = fault != 0 or is_late
        if terminated or truncated:
            clock.ended[w] = True
            totals.episodes[w] = totals.episodes[w] + wp.int64(1)
            totals.lengths[w] = totals.lengths[w] + wp.int64(clock.elapsed_steps[w])
            totals.returns[w] = totals.returns[w] + clock.episode_return[w]
            beginning[w] = autoreset == SAME_STEP
    rows.reward[w] = reward
    rows.terminated[w] = terminated
    rows.truncated[w] = truncated
    if beginning[w] and not stepping[w]:
        rows.episode_return[w] = wp.float64(0.0)
        rows.episode_length[w] = 0
    else:
        rows.episode_return[w] = clock.episode_return[w]
        rows.episode_length[w] = clock.elapsed_steps[w]
