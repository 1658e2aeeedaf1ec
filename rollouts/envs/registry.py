# SPDX-License-Identifier: Apache-2.0
"""Environments by id: which ids there are, and the native recipe of each."""

from __future__ import annotations

import difflib
import functools
import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gymnasium import spaces

from rollouts import _native
from rollouts.envs.options import check_halves, first_options
from rollouts.envs.unknown_option import did_you_mean, unknown_option
from rollouts.envs.wrappers import read_wrappers, split_wrappers
from rollouts.errors import SpecError
from rollouts.families import atari, vizdoom
from rollouts.families.table import INTERNAL_OPTIONS, entry_id, family_of, installed_ids
from rollouts.own_model.model_options import ENV_ID as OWN_MODEL
from rollouts.rendering.pixels import asks_for_pixels, native_options
from rollouts.specs import (
    AgentGroup,
    EnvSpec,
    OptionColumn,
    OptionValue,
    groups_from_native,
    space_from_native,
)
from rollouts.support.option_help import explained


@dataclass(frozen=True, slots=True)
class Recipe:
    """All that the native core needs to make an environment.

    Attributes:
      native_id: The id of the entry in native/envs.cmake.
      options: As given.
      internal: Options that rollouts fills in.
      max_episode_steps: Time limit; 0: none.
      entry: The line of native/envs.cmake, or the arguments of `register_env`, in the form of
        `_native.registry`.
    """

    native_id: str
    options: dict[str, OptionValue]
    internal: Mapping[str, str | int | bool]
    max_episode_steps: int
    entry: Mapping[str, Any]

    def option_names(self) -> list[str]:
        """Names of the options that users may give."""
        return sorted(set(self.entry["options"]) - INTERNAL_OPTIONS)

    def native_spec(self) -> dict[str, Any]:
        """Spaces and info columns as the native core describes them."""
        with explained([self.entry["header"]], self.options):
            return _native.make_spec(self.native_id, {**self.options, **self.internal})


def env_ids() -> list[str]:
    """Every id that `make_vec` takes without options, in the registry's order.

    Other ids are "MuJoCo-v0", which needs a model (`rollouts.own_model`), "ViZDoom-v0", which needs
    a cfg_file, the ids of `multi_agent_ids`, and ViZDoom's whole games by map and skill, such as
    "VizdoomFreedoom1E1M1-S3-v0".

    Returns:
      Ids; Atari games are listed when the ale-py package is installed, tasks of the DeepMind
      Control Suite when dm-control is, scenarios of ViZDoom when vizdoom is.
    """
    entries = [entry for entry in _entries().values() if not entry["multi_agent"]]
    ids = [one for each in entries for one in installed_ids(each["id"], each["header"])]
    ids.remove(OWN_MODEL)
    return ids


def multi_agent_ids() -> list[str]:
    """Every id for which `make_vec` makes a `MultiAgentVectorEnv`, in the registry's order."""
    return [name for name, entry in _entries().items() if entry["multi_agent"]]


def is_multi_agent(env_id: object) -> bool:
    """Tells if the environments of this id have several agents."""
    return env_id in multi_agent_ids()


def is_env_id(env_id: object) -> bool:
    """Tells if `make_vec` takes this id."""
    unlisted = (OWN_MODEL, vizdoom.OWN_CONFIG, *vizdoom.scenarios())
    return env_id in unlisted or env_id in env_ids() or is_multi_agent(env_id)


def env_spec(
    id: str, *, max_episode_steps: int | None = None, **env_options: OptionColumn
) -> EnvSpec:
    """Describes an environment without making one.

    Args:
      id: One of `env_ids()`.
      max_episode_steps: Time limit in place of the id's own; 0 means none.
      env_options: As for `make_vec`; the first value of a sequence counts. Options of frames matter
        only with from_pixels, `model` never does, and wrappers such as frame_stack change the
        spaces.

    Returns:
      Its spaces, limits and options.

    Raises:
      SpecError: Unknown id or option. EngineError: the engine behind it is missing.
    """
    wrappers, others = split_wrappers(env_options)
    options, frames = first_options(others, own_model=id == OWN_MODEL)
    spec = describe(id, resolve(id, max_episode_steps, options, frames=frames))
    return read_wrappers(wrappers).wrap(spec)


def describe(id: str, recipe: Recipe) -> EnvSpec:
    """The public description of an id that was resolved to `recipe`."""
    native = recipe.native_spec()
    threshold = recipe.entry["reward_threshold"]
    options = {**recipe.entry["options"], **recipe.options}
    groups = groups_from_native(native["groups"])
    return EnvSpec(
        id=id,
        single_observation_space=_agents_space(groups, "single_observation_space")
        if groups
        else space_from_native(native["observation"]),
        single_action_space=_agents_space(groups, "single_action_space")
        if groups
        else space_from_native(native["action"]),
        max_episode_steps=recipe.max_episode_steps or None,
        reward_threshold=None if math.isnan(threshold) else threshold,
        options={name: options[name] for name in recipe.option_names()},
        cpu_only=recipe.entry["cpu_only"],
        header=recipe.entry["header"],
        observation_parts=tuple((name, shape) for name, shape, _ in native["observation_parts"]),
        observation_part_dtypes=tuple(dtype for _, _, dtype in native["observation_parts"]),
        groups=groups,
    )


def _agents_space(groups: tuple[AgentGroup, ...], attribute: str) -> spaces.Dict:
    return spaces.Dict({agent: getattr(one, attribute) for one in groups for agent in one.agents})


def resolve(
    id: str,
    max_episode_steps: int | None,
    env_options: Mapping[str, OptionValue],
    *,
    parts: bool = False,
    frames: Mapping[str, Any] | None = None,
) -> Recipe:
    """Finds the native recipe of an id and checks the options' names.

    With `parts`, observations have named parts where they can. `frames` are options of frames, for
    environments whose observations are frames.

    Raises:
      SpecError: Unknown id or option, or a negative time limit.
    """
    if not isinstance(id, str):
        raise SpecError(f"id must be a str such as 'CartPole-v1', got {id!r}")
    entry = _entries().get(entry_id(id))
    if entry is None:
        raise SpecError(f"unknown id {id!r}.{_suggestion(id)}")
    options = dict(env_options)

    # an unknown option is reported before expensive work begins
    known = set(entry["options"]) - INTERNAL_OPTIONS
    for name in options:
        if name not in known:
            raise unknown_option(id, entry["header"], name, known)
    check_halves(options, entry["options"])
    family = family_of(entry["header"])
    internal: dict[str, str | int | bool] = {**family.load(id, entry["header"])}
    if parts and family.parts_option is not None:
        internal[family.parts_option] = True
    if asks_for_pixels(options):
        internal |= native_options(id, frames or {})
    limit = entry["max_episode_steps"] if max_episode_steps is None else max_episode_steps
    return Recipe(entry["id"], options, internal, _time_limit(limit), entry)


def forget_entries() -> None:
    """Drops the copy of the native registry, which has changed."""
    _entries.cache_clear()


@functools.cache
def _entries() -> Mapping[str, Mapping[str, Any]]:
    """The registry's entries by id, kept because the native call takes 1 ms to make all of them."""
    return {entry["id"]: entry for entry in _native.registry()}


def _time_limit(limit: object) -> int:
    try:
        steps = operator.index(limit)  # type: ignore[arg-type]
    except TypeError:
        steps = -1
    if not 0 <= steps < 2**31:
        raise SpecError(f"max_episode_steps must be 0 (no limit) or a positive int, got {limit!r}")
    return steps


def _suggestion(id: str) -> str:
    hint = did_you_mean(close_ids(id))
    return f"{hint} `rollouts.env_ids()` or the command `rollouts envs` lists all of them."


def close_ids(id: str) -> list[str]:
    """Ids that may have been meant, the likeliest first, at most 3."""
    known = [*env_ids(), OWN_MODEL, *multi_agent_ids()]
    return atari.same_game(id, known) or difflib.get_close_matches(id, known, n=3, cutoff=0.6)
