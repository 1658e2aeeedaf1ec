# SPDX-License-Identifier: Apache-2.0
"""PoolRecipe: turns ids and options, which may differ by environment, into a native pool."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rollouts.checks import whole_number
from rollouts.envs.options import Columns, check_halves
from rollouts.envs.registry import Recipe, describe, resolve
from rollouts.envs.wrappers import Wrappers
from rollouts.errors import SpecError
from rollouts.families.table import family_of
from rollouts.own_model.model_options import ENV_ID as OWN_MODEL
from rollouts.specs import EnvSpec, OptionValue

Segment = tuple[str, int, int, dict[str, OptionValue | list[OptionValue]]]


@dataclass(frozen=True, slots=True)
class PoolRecipe:
    """The environments of a pool.

    Attributes:
      runs: (id, number of environments that follow each other) in the pool's order.
      specs: The EnvSpec of each id.
      segments: (native id, number of environments, time limit, internal options) for
        `_native.CpuPool`.
      option_names: Options that at least one environment takes.
    """

    runs: list[tuple[str, int]]
    specs: dict[str, EnvSpec]
    segments: list[Segment]
    option_names: frozenset[str]

    @property
    def headers(self) -> list[str]:
        """The headers of the ids, see `EnvSpec.header`."""
        return [spec.header for spec in self.specs.values()]

    @property
    def is_own_model(self) -> bool:
        """Tells if the environments are MuJoCo-v0's."""
        return OWN_MODEL in self.specs

    def env_specs(self) -> tuple[EnvSpec, ...]:
        """The spec of each environment's id, in the pool's order."""
        return tuple(self.specs[one] for one, count in self.runs for _ in range(count))

    def wrapped(self, wrappers: Wrappers) -> PoolRecipe:
        """Returns the recipe with wrappers around the environments.

        Raises:
          SpecError: They do not fit an id.
        """
        specs = {one: wrappers.wrap(spec) for one, spec in self.specs.items()}
        return replace(self, specs=specs)


def read_ids(id: str | Sequence[str], num_envs: int | None) -> tuple[list[str], int]:
    """A list of one id for all or one for each environment, and the number of environments.

    Raises:
      SpecError: No ids, not as many as num_envs, or one that is no str.
    """
    if isinstance(id, np.ndarray):
        id = id.tolist()
    if isinstance(id, str) or not isinstance(id, Sequence):
        ids = [_checked_id(id)]
        return ids, whole_number("num_envs", 1 if num_envs is None else num_envs, 1, 2**24)
    ids = [_checked_id(each) for each in id]
    if not ids or (num_envs is not None and num_envs != len(ids)):
        raise SpecError(
            f"id has {len(ids)} ids, expected one for each environment"
            + (f" (num_envs is {num_envs})" if num_envs is not None else "")
        )
    return ids, len(ids)


def _checked_id(id: object) -> str:
    if isinstance(id, str):
        return id
    raise SpecError(f"id must be a str such as 'CartPole-v1', got {id!r}")


def resolve_pool(
    ids: Sequence[str],
    num_envs: int,
    max_episode_steps: int | None,
    columns: Columns,
    *,
    parts: bool = False,
    frames: Mapping[str, Any] | None = None,
) -> PoolRecipe:
    """Finds the native recipes of a pool's ids and checks that they can share a pool.

    Args:
      ids: One id for all environments, or one for each.
      num_envs: Number of environments N.
      max_episode_steps: Time limit of all in place of each id's own; 0 means none.
      columns: Options of all environments.
      parts: Whether observations are asked for as dicts of parts.
      frames: Options of frames, for environments whose observations are frames.

    Raises:
      SpecError: Unknown id or option, or ids whose spaces differ.
    """
    if len(ids) == 1:
        runs = [(ids[0], num_envs)]
    else:
        runs = [(one, len(list(same))) for one, same in itertools.groupby(ids)]
    recipes: dict[str, Recipe] = {}
    first = 0
    for one, count in runs:
        if not isinstance(one, str) or one not in recipes:
            options = {
                name: column[first] if isinstance(column, list) else column
                for name, column in columns.items()
            }
            recipes[one] = resolve(one, max_episode_steps, options, parts=parts, frames=frames)
            # `resolve` has checked the ranges of the first environment, this checks those of all
            check_halves(columns, recipes[one].entry["options"])
            family_of(recipes[one].entry["header"]).warn(one, columns)
        first += count
    specs = {one: describe(one, recipe) for one, recipe in recipes.items()}
    _check_equal_spaces(recipes, specs)
    return PoolRecipe(
        runs,
        specs,
        _segments(runs, recipes, num_envs),
        frozenset(name for recipe in recipes.values() for name in recipe.option_names()),
    )


def _check_equal_spaces(recipes: Mapping[str, Recipe], specs: Mapping[str, EnvSpec]) -> None:
    def parts(one: str) -> dict[str, Any]:
        infos = recipes[one].native_spec()["infos"]
        return {
            "observation space": specs[one].single_observation_space,
            "action space": specs[one].single_action_space,
            "info columns": [
                f"{name} ({dtype})" + ("" if length is None else f" of {length}")
                for name, dtype, length in infos
            ],
        }

    if len(specs) == 1:
        return
    first, *others = specs
    for other in others:
        theirs = parts(other)
        for name, ours in parts(first).items():
            if theirs[name] != ours:
                games = "full_action_space" in recipes[other].option_names()
                hint = "; full_action_space=True gives all Atari games the same one"
                raise SpecError(
                    f"environments of one pool must have equal spaces: the {name} of {first} is "
                    f"{ours}, that of {other} is {theirs[name]}"
                    + (hint if games and name == "action space" else "")
                )


def _segments(
    runs: Sequence[tuple[str, int]], recipes: Mapping[str, Recipe], num_envs: int
) -> list[Segment]:
    """Joins neighbours that differ at most in internal options, such as two Atari games."""

    def shared(run: tuple[str, int]) -> tuple[str, int]:
        recipe = recipes[run[0]]
        return recipe.native_id, recipe.max_episode_steps

    segments: list[Segment] = []
    first = 0
    for (native_id, limit), group in itertools.groupby(runs, shared):
        members = list(group)
        internal: dict[str, OptionValue | list[OptionValue]] = {**recipes[members[0][0]].internal}
        if len(members) > 1:
            # columns are indexed by rows of the pool, in each segment
            for name, value in recipes[members[0][0]].internal.items():
                rows: list[OptionValue] = [value] * first
                for one, count in members:
                    rows += [recipes[one].internal[name]] * count
                internal[name] = rows + [value] * (num_envs - len(rows))
        count = sum(count for _, count in members)
        segments.append((native_id, count, limit, internal))
        first += count
    return segments
