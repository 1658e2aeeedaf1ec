# SPDX-License-Identifier: Apache-2.0
"""Options of `VectorEnv.reset`, read and checked."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rollouts import _native
from rollouts.checks import options_dict
from rollouts.envs.options import Columns, check_halves, read_options
from rollouts.envs.pool_recipe import PoolRecipe
from rollouts.envs.unknown_option import did_you_mean, start_hint
from rollouts.errors import DTypeError, SpecError
from rollouts.families.model_fields import Column, Scaled, model_columns


@dataclass(frozen=True, slots=True)
class ResetOptions:
    """Changes of environments from their next episode on.

    Attributes:
      mask: (N,) bool: the environments that begin an episode; None: all.
      env_options: New values of their options.
      model: New values of their models' fields.
    """

    mask: npt.NDArray[np.bool_] | None
    env_options: Columns
    model: list[Column]


def read_reset_options(
    options: dict[str, Any] | None,
    pool: _native.CpuPool,
    recipe: PoolRecipe,
    num_envs: int,
    batch_size: int,
) -> ResetOptions:
    """Reads and checks options of a reset; where models change, batches in flight are discarded.

    Args:
      options: As `VectorEnv.reset` takes them.
      pool: The environments to reset.
      recipe: The recipe from which they were made.
      num_envs: Their number N.
      batch_size: Rows B of a batch.

    Raises:
      SpecError: Unknown option or field, a wrong number of values, or a wrong mask.
      DTypeError: Not a dict with str for keys.
    """
    named = options_dict(options)
    _check_names(named)
    mask = None
    if "reset_mask" in named:
        mask = _read_mask(named["reset_mask"], num_envs, batch_size)
    given = {name: value for name, value in named.items() if name != "reset_mask"}
    read = read_options(given, num_envs, own_model=recipe.is_own_model)
    if read.wrappers:
        raise SpecError(
            f"{', '.join(read.wrappers)}: wrappers stay as make_vec was told; make a new "
            "environment to change them"
        )
    unknown = sorted({*read.native, *read.functions, *read.frames} - recipe.option_names)
    if unknown:
        expected = ["reset_mask", "model", *sorted(recipe.option_names)]
        close = difflib.get_close_matches(unknown[0], expected, n=1)
        raise SpecError(
            f"unknown reset options {unknown}; expected 'reset_mask', 'model' or options of "
            f"{' and '.join(recipe.specs)}: {', '.join(expected[2:]) or 'none'}."
            + (start_hint(unknown, next(iter(recipe.specs))) or did_you_mean(close))
        )
    check_halves(read.native, {})
    model: list[Column] = []
    if read.model is not None:
        _check_files(read.native, read.model)
        # models cannot be read while environments are in flight
        if mask is None:
            pool.discard(None)
        else:
            pool.check_reset(mask)
        model = model_columns(read.model, pool, num_envs, mask)
    return ResetOptions(mask, read.native, model)


def _check_names(options: Mapping[Any, Any]) -> None:
    for name in options:
        if not isinstance(name, str):
            raise DTypeError(f"reset's options must have str for keys, got {name!r}")


def _check_files(given: Mapping[str, Any], fields: Any) -> None:
    if "xml_file" not in given or not isinstance(fields, Mapping):
        return
    scaled = [name for name, value in fields.items() if isinstance(value, Scaled)]
    if scaled:
        raise SpecError(
            f"model fields {scaled} are multiples of a file's values, and this reset changes "
            "xml_file too: change the file in one reset, and its fields in the next"
        )


def _read_mask(mask: Any, num_envs: int, batch_size: int) -> npt.NDArray[np.bool_]:
    if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_:
        raise SpecError(f"reset_mask must be a NumPy array of bool, got {mask!r}")
    if mask.shape != (num_envs,):
        raise SpecError(f"reset_mask has shape {mask.shape}, expected ({num_envs},)")
    if batch_size != num_envs:
        raise SpecError(
            "reset_mask needs a synchronous environment (batch_size == num_envs), "
            f"this one has batch_size {batch_size} and num_envs {num_envs}"
        )
    return mask
