# SPDX-License-Identifier: Apache-2.0
"""Checks of the arguments of `send` and `recv`."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt

from rollouts.checks import whole_number
from rollouts.envs.hosted.leaves import Leaf
from rollouts.errors import DTypeError, SpecError

Array = npt.NDArray[Any]

# arrays that `out` may redirect, with their dtypes; None: the dtype of the observation space
_OUT_DTYPES: dict[str, npt.DTypeLike | None] = {
    "obs": None,
    "reward": np.float64,
    "terminated": np.bool_,
    "truncated": np.bool_,
    "env_id": np.int32,
    "episode_return": np.float64,
    "episode_length": np.int32,
    "final_obs": None,
}


def rows_of(env_id: npt.ArrayLike, env_id_offset: int, num_envs: int) -> Array:
    """Indices (n,) of environments by their global ids.

    Raises:
      DTypeError: Not one-dimensional integers. SpecError: not ids of this VectorEnv.
    """
    ids = np.asarray(env_id)
    if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
        raise DTypeError(
            f"env_id must be one-dimensional integers, got shape {ids.shape} and {ids.dtype}"
        )
    rows = ids.astype(np.intp) - env_id_offset
    wrong = np.flatnonzero((rows < 0) | (rows >= num_envs))
    if wrong.size:
        raise SpecError(
            f"env_id[{wrong[0]}] is {ids[wrong[0]]}, expected {env_id_offset} to "
            f"{env_id_offset + num_envs - 1}"
        )
    return rows


def rows_wanted(
    min_envs: int | None, max_envs: int | None, batch_size: int, num_envs: int
) -> tuple[int, int]:
    """Least and most rows of a `recv`.

    Raises:
      SpecError: Not 1 <= min_envs <= max_envs <= num_envs, or synchronous mode.
    """
    if min_envs is None and max_envs is None:
        return batch_size, batch_size
    if batch_size == num_envs:
        raise SpecError(
            "min_envs and max_envs need an asynchronous environment (batch_size < num_envs); "
            f"this one has batch_size {batch_size} and num_envs {num_envs}"
        )
    if min_envs is None:
        min_envs = min(batch_size, whole_number("max_envs", max_envs, 1, num_envs))
    least = whole_number("min_envs", min_envs, 1, num_envs)
    most = max(batch_size, least) if max_envs is None else max_envs
    return least, whole_number("max_envs", most, least, num_envs)


def checked_out(
    out: Any, leaves: tuple[Leaf, ...], count: int, *, is_synchronous: bool, keeps_final: bool
) -> dict[str, Array]:
    """Checks the caller's arrays that a recv is to fill.

    Args:
      out: As given, or None.
      leaves: Leaves of the observation space.
      count: Rows that are sent.
      is_synchronous: Whether a recv returns what was sent.
      keeps_final: Whether there are final observations.

    Raises:
      DTypeError: Not a dict of arrays. SpecError: an unknown name, a shape or dtype that recv
        does not return, or arrays that share memory.
    """
    if out is None:
        return {}
    if not isinstance(out, dict):
        raise DTypeError(
            f"out must be a dict of arrays such as {{'obs': array}}, got {type(out).__name__}"
        )
    if not is_synchronous:
        raise SpecError("out needs a synchronous environment (batch_size == num_envs)")
    for name, array in out.items():
        if name not in _OUT_DTYPES:
            raise SpecError(
                f"out has the unknown key {name!r}; expected some of {', '.join(_OUT_DTYPES)}"
            )
        if name == "final_obs" and not keeps_final:
            raise SpecError("out['final_obs'] needs autoreset_mode='same_step'")
        _check_out(name, array, leaves, count)
    for (name, array), (other, shared) in itertools.combinations(out.items(), 2):
        if np.may_share_memory(array, shared):
            raise SpecError(
                f"out[{name!r}] and out[{other!r}] share memory: give each an array of its own"
            )
    return dict(out)


def _check_out(name: str, array: Any, leaves: tuple[Leaf, ...], count: int) -> None:
    if not isinstance(array, np.ndarray):
        raise DTypeError(f"out[{name!r}] must be a NumPy array, got {type(array).__name__}")
    shape: tuple[int, ...] = (count,)
    dtype = _OUT_DTYPES[name]
    if dtype is None:
        if len(leaves) != 1 or leaves[0].path or leaves[0].dtype is None:
            raise SpecError(f"out[{name!r}] needs an observation space that is one array")
        shape, dtype = (count, *leaves[0].shape), leaves[0].dtype
    fits = array.shape == shape and array.dtype == dtype
    if not fits or not array.flags.carray:
        raise SpecError(
            f"out[{name!r}] has shape {array.shape} and dtype {array.dtype}, expected {shape} and "
            f"{np.dtype(dtype)}, C-contiguous, aligned and writable: one row per environment sent"
        )
