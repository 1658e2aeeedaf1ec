# SPDX-License-Identifier: Apache-2.0
"""Translates our options of MiniGrid and BabyAI into minigrid's wrappers, or arguments."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium

from rollouts.errors import SpecError
from rollouts.specs import OptionValue

PREFIXES = ("MiniGrid-", "BabyAI-")

_WRAPPERS = {
    "full": "FullyObsWrapper",
    "one_hot": "OneHotPartialObsWrapper",
    "symbolic": "SymbolicObsWrapper",
    "flat": "FlatObsWrapper",
    "rgb": "RGBImgObsWrapper",
    "rgb_partial": "RGBImgPartialObsWrapper",
}
# options of minigrid's environments, under the same names
_ENVIRONMENT = ("agent_view_size", "highlight", "max_steps")


def gymnasium_grid_options(given: Mapping[str, OptionValue]) -> dict[str, Any]:
    """Translates options into arguments of `gymnasium.make` and, where needed, of a wrapper.

    Raises:
      SpecError: An option that minigrid does not have under the same name for every id.
    """
    known = {*_ENVIRONMENT, "observation", "tile_size"}
    if unknown := sorted(given.keys() - known):
        raise SpecError(
            f"peer 'gymnasium' gets no options {unknown} of MiniGrid and BabyAI, only "
            f"{sorted(known)}: leave out the options, or this peer"
        )
    options: dict[str, Any] = {
        "make": {name: given[name] for name in _ENVIRONMENT if name in given}
    }
    mode = str(given.get("observation", "partial"))
    if mode in _WRAPPERS:
        in_pixels = mode.startswith("rgb") and "tile_size" in given
        options[_WRAPPERS[mode]] = {"tile_size": given["tile_size"]} if in_pixels else {}
    return options


def wrapped(env: gymnasium.Env[Any, Any], options: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
    """The environment with the wrapper of these options."""
    wrappers = importlib.import_module("minigrid.wrappers")
    for name in options.keys() - {"make"}:
        make: Callable[..., gymnasium.Env[Any, Any]] = getattr(wrappers, name)
        env = make(env, **options[name])
    return env
