# SPDX-License-Identifier: Apache-2.0
"""`read_rows`: checks rows of a rollout, and converts them for native learners."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from rollouts.checks import whole_number
from rollouts.errors import SpecError
from rollouts.policies.native_heads import nvec_of
from rollouts.policies.program import Program

Array = NDArray[Any]

# parts of rows that only some losses need
_OPTIONAL = frozenset({"value", "inputs", "counts", "action_mask"})


def read_rows(
    rows: Mapping[str, Array],
    program: Program,
    action_space: gymnasium.Space[Any],
    *,
    needed: Collection[str],
) -> dict[str, Array]:
    """Returns arrays (N, ...) under their names in native code.

    Args:
      rows: As for `NativeLearner.update`.
      program: The program of the module.
      action_space: The space of one environment's actions.
      needed: Parts of rows besides observations and actions.

    Raises:
      SpecError: Rows have other parts, or other sizes.
    """
    wanted = {"obs", "action", *needed} | ({"ended"} if program.state_sizes else set())
    if rows.keys() - _OPTIONAL != wanted:
        perhaps = ", ".join(sorted(_OPTIONAL))
        raise SpecError(
            f"rows are {sorted(rows)}, expected {sorted(wanted)}, and perhaps {perhaps}"
        )
    lead = _lead(rows, program)
    count = math.prod(lead)
    arrays: dict[str, Array] = {
        name: np.ascontiguousarray(array, np.float32).reshape(count, _width(array, lead))
        for name, array in rows.items()
        if name != "action" and np.shape(array)[: len(lead)] == lead
    }
    sizes = {name: array.shape[1] for name, array in arrays.items()}
    num_box = program.sizes[program.outputs[0]]
    expected = dict.fromkeys(rows.keys() - {"action"}, 1) | {"obs": program.obs_size}
    num_inputs = len(program.outputs) - len(program.state_sizes) - 1
    expected |= {
        name: size
        for name, size in (("inputs", num_box * num_inputs), ("action_mask", num_box))
        if name in rows
    }
    if sizes != expected:
        whole = " x ".join(map(str, lead))
        raise SpecError(f"rows have {sizes} numbers each, expected {expected}, all of {whole}")
    for name in arrays.keys() & {"counts", "ended", "action_mask"}:
        if not np.isin(arrays[name], (0, 1)).all():
            raise SpecError(f"{name} has numbers beside 0 and 1, expected an array of bool")
        arrays[name] = (arrays[name] != 0).view(np.uint8)
    arrays |= _actions(rows, action_space, lead, num_box)
    if "action_mask" in arrays:
        arrays["mask"] = arrays.pop("action_mask")
        _check_masks(arrays, action_space)
    return arrays


def unsquashed(action: Array, bounds: NDArray[np.float32]) -> dict[str, Array]:
    """Returns the Gaussian's samples that tanh turned into actions, and the log of the slope.

    Args:
      action: Actions (N, d).
      bounds: Low and high (2, d), or (0,) for -1 to 1.
    """
    low, high = bounds.astype(np.float64) if bounds.size else (-1.0, 1.0)
    half = (high - low) / 2
    # the same as in `SquashedGaussianHead.evaluate`
    edge = 1 - np.finfo(np.float32).eps
    inside = np.clip((action.astype(np.float64) - low) / half - 1, -edge, edge)
    # the logarithm of tanh's slope, and of the scale
    log_slope = np.log1p(-np.square(inside)) + np.log(half)
    return {
        "box": np.arctanh(inside).astype(np.float32),
        "log_slope": log_slope.sum(1).astype(np.float32),
    }


def read_states(
    state: Sequence[Array], initial: Sequence[Array], num_sequences: int
) -> dict[str, Array]:
    """Returns states before the first step, and initial states of episodes, for native code.

    Raises:
      SpecError: They do not fit the module.
    """
    expected = [(num_sequences, *each.shape) for each in initial]
    shapes = [np.shape(each) for each in state]
    if shapes != expected:
        raise SpecError(
            f"state has arrays of shapes {shapes}, expected {expected}: is it policy_state of the "
            "same batch?"
        )
    flat = [np.reshape(each, (num_sequences, -1)) for each in state]
    first = [each.reshape(1, -1) for each in initial]
    return {
        name: np.ascontiguousarray(np.concatenate(parts, 1), np.float32)
        for name, parts in (("states", flat), ("initial", first))
    }


def check_order(order: NDArray[np.int64], minibatch: int, count: int) -> None:
    """Raises SpecError where minibatches name rows, or sequences, that do not exist."""
    whole_number("minibatch", minibatch, 1)
    # an empty list becomes an array of floats
    if order.ndim != 1 or (len(order) and order.dtype.kind not in "iu"):
        raise SpecError(
            f"order is {order.dtype} of shape {order.shape}, expected the numbers of rows, or "
            "sequences, in one axis: np.flatnonzero makes them of an array of bool"
        )
    if len(order) and not (order.min() >= 0 and order.max() < count):
        raise SpecError(
            f"order names rows {order.min()} to {order.max()}, expected 0 to {count - 1}"
        )


def _lead(rows: Mapping[str, Array], program: Program) -> tuple[int, ...]:
    """Returns the leading shape: (N,), or with memory (T, B)."""
    shape: tuple[int, ...] = np.shape(rows["obs"])
    if not program.state_sizes:
        return shape[:1]
    if len(shape) < 3 or 0 in shape:
        raise SpecError(
            f"obs has shape {shape}, expected (T, B, *obs_shape) of a module with memory, whose "
            "rows are sequences"
        )
    return shape[:2]


def _width(array: Array, lead: tuple[int, ...]) -> int:
    """Returns the size of a row, even if there are no rows."""
    return math.prod(np.shape(array)[len(lead) :])


def _actions(
    rows: Mapping[str, Array], space: gymnasium.Space[Any], lead: tuple[int, ...], num_box: int
) -> dict[str, Array]:
    is_box, action = isinstance(space, gymnasium.spaces.Box), np.asarray(rows["action"])
    if not is_box and action.shape[: len(lead)] == lead and "counts" in rows:
        # rows that do not count may have any action, so theirs is replaced by a valid one
        counts = np.reshape(rows["counts"], lead + (1,) * (action.ndim - len(lead))) != 0
        action = np.where(counts, action, getattr(space, "start", 0))
    if not is_box:
        action = action - getattr(space, "start", 0)
    count, dtype = math.prod(lead), np.float32 if is_box else np.int64
    if action.shape[: len(lead)] != lead:
        raise SpecError(f"action has shape {action.shape}, expected {lead} and those of an action")
    is_whole = is_box or action.dtype.kind in "bui" or (np.mod(action, 1) == 0).all()
    if not is_whole:
        raise SpecError(f"rows have actions that are not of {space}: expected whole numbers")
    found: Array = np.ascontiguousarray(action, dtype).reshape(count, _width(action, lead))
    if is_box:
        if found.shape[1] != num_box:
            raise SpecError(f"rows have actions of {found.shape[1]} numbers, expected {num_box}")
        return {"box": found}
    # native code uses these numbers as indices of probabilities
    nvec = _nvec(space)
    if found.shape[1] != len(nvec) or (found < 0).any() or (found >= nvec).any():
        raise SpecError(f"rows have actions that are not of {space}")
    return {"index": found}


def _nvec(space: Any) -> NDArray[np.int64]:
    return np.array(nvec_of(space) or [int(space.n)], np.int64)


def _check_masks(arrays: Mapping[str, Array], space: gymnasium.Space[Any]) -> None:
    """Raises SpecError where a row that counts has an action that its mask forbids."""
    if "index" not in arrays:
        raise SpecError(f"actions of {space} cannot be masked: leave action_mask out")
    firsts = np.cumsum(_nvec(space)) - _nvec(space)
    allowed = np.take_along_axis(arrays["mask"], arrays["index"] + firsts, 1).all(1)
    if "counts" in arrays:
        allowed |= arrays["counts"][:, 0] == 0
    if not allowed.all():
        raise SpecError(
            f"action_mask does not allow the action of row {int(np.argmin(allowed))}: expected the "
            "mask by which it was chosen"
        )
