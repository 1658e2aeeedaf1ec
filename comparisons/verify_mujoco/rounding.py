# SPDX-License-Identifier: Apache-2.0
"""MuJoCo compared with itself, from states that differ in their last digits.

A difference is due to rounding where MuJoCo then differs from itself as much.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from comparisons.verify_mujoco.array_errors import BOUND, Difference
from comparisons.verify_mujoco.driver import ModelStates
from rollouts import _native

_COPIES = 64
_DIGITS = 1e-15  # about the relative rounding error of a step's own operations
_TIMES = 3.0  # largest error, as a multiple of MuJoCo's own change
_NEXT = ("qpos", "qvel", "act")


def moved_states(states: ModelStates, rng: np.random.Generator) -> ModelStates:
    """Copies of states, each number of which differs in its last digits; controls are the same."""
    moved = states.rows(slice(None))
    for array in (moved.qpos, moved.qvel, moved.act, moved.qacc_warmstart):
        array *= 1 + _DIGITS * rng.uniform(-1, 1, array.shape)
    return moved


def beside_itself(of_moved: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """Pairs like LanesComparer's, with MuJoCo's results from changed states in place of lanes'."""
    pairs: dict[str, Any] = {}
    for name, other in of_moved.items():
        each = found[name]
        pairs[name] = (other[1], each[1]) if isinstance(each, tuple) else other | each
    return pairs


def is_of_rounding(comparer: _native.LanesComparer, difference: Difference) -> bool:
    """Changes the last digits of the state, and compares the results of MuJoCo.

    Returns:
      Whether MuJoCo has the lanes' numbers of iterations and constraint rows from at least one of
      the changed states, and its next states differ from each other about as much as the lanes'
      next state differs from MuJoCo's.
    """
    rng = np.random.default_rng(0)
    moved = moved_states(difference.state.rows(np.zeros(_COPIES, np.intp)), rng)
    evaluation, after = comparer.forward(*moved.arrays()), comparer.step(*moved.arrays())
    alike = np.ones(_COPIES, bool)
    for name in ("solver_niter", "nefc"):
        alike &= evaluation[name][1][:, 0] == difference.evaluation[name][0][0]
    if not alike.any():
        return False
    for name in _NEXT:
        ours, theirs = difference.found[name]
        error = np.abs(ours - theirs).max(initial=0)
        moves = np.ptp(after[name][1], axis=0).max(initial=0)
        small = BOUND * np.abs(theirs).max(initial=0)
        # NaN is never small
        if not error <= max(small, _TIMES * moves):
            return False
    return True
