# SPDX-License-Identifier: Apache-2.0
"""The meaning of an environment id: spaces, time limit, options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from rollouts.support.option_help import option_help

OptionValue = bool | int | float | str
# an option of several environments: one value for all, or one for each
OptionColumn = OptionValue | Sequence[OptionValue] | npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class AgentGroup:
    """Agents of a multi-agent environment that have the same spaces.

    Attributes:
      name: Such as "tagger".
      agents: Names of the A agents as in PettingZoo: tagger_0, tagger_1, ...
      single_observation_space: Space of one agent's observation.
      single_action_space: Space of one agent's action.
    """

    name: str
    agents: tuple[str, ...]
    single_observation_space: spaces.Space[Any]
    single_action_space: spaces.Space[Any]

    @property
    def num_agents(self) -> int:
        """A."""
        return len(self.agents)


@dataclass(frozen=True, slots=True)
class EnvSpec:
    """One environment id.

    Attributes:
      id: The id for `rollouts.make_vec`.
      single_observation_space: Space of one environment's observation.
      single_action_space: Space of one environment's action.
      max_episode_steps: Steps after which an episode is truncated; None: never.
      reward_threshold: Mean return at which the task counts as solved; None: not defined.
      options: Keyword options of `make_vec` for this id, with the values in force; for an option
        that differs by environment the first value (`VectorEnv.env_options` has all).
      cpu_only: True when the environment hosts an engine that cannot run on a GPU.
      header: Native header with the rules, relative to `rollouts/include/rollouts`; "own/..." of
        an environment that `register_env` added.
      observation_parts: (name, shape) of the parts of a flat observation, in order;
        `make_vec(flatten_observation=False)` returns them as a dict. Empty: none.
      observation_part_dtypes: Dtypes of the parts. In a flat observation of bytes, parts of other
        dtypes are aligned to their elements' size. Empty: all have the observation's dtype.
      groups: Groups of agents of a multi-agent environment, whose spaces above are a `spaces.Dict`
        of each agent's. Empty: there is one agent.
    """

    id: str
    single_observation_space: spaces.Space[Any]
    single_action_space: spaces.Space[Any]
    max_episode_steps: int | None
    reward_threshold: float | None
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    cpu_only: bool = False
    header: str = ""
    observation_parts: tuple[tuple[str, tuple[int, ...]], ...] = ()
    observation_part_dtypes: tuple[np.dtype[Any], ...] = ()
    groups: tuple[AgentGroup, ...] = ()

    @property
    def runs_on_gpu(self) -> bool:
        """Tells if `make_vec(id, device="cuda")` steps it."""
        return not self.cpu_only

    @property
    def option_help(self) -> dict[str, str]:
        """Option -> its meaning, in one line."""
        known = option_help(self.header)
        # only users' own headers may lack help for an option
        return {name: known.get(name, "") for name in self.options}


def space_from_native(native: Mapping[str, Any]) -> spaces.Space[Any]:
    """Makes the Gymnasium space that a native SpaceSpec describes."""
    if native["n"] > 0:
        return spaces.Discrete(native["n"])
    dtype = native["dtype"].type
    shape = native["shape"]
    low, high = np.asarray(native["low"]), np.asarray(native["high"])
    if native["multi_discrete"]:
        return spaces.MultiDiscrete(_of_each(high, native).astype(dtype) + 1, dtype=dtype)
    low, high = _of_each(low, native), _of_each(high, native)
    return spaces.Box(low.astype(dtype), high.astype(dtype), shape, dtype)


def _of_each(bounds: npt.NDArray[Any], native: Mapping[str, Any]) -> npt.NDArray[Any]:
    """Bounds of each element, also if a native spec has one bound for all."""
    if native["elementwise"]:
        return bounds.reshape(native["shape"])
    return np.broadcast_to(bounds, native["shape"])


def groups_from_native(native: Sequence[tuple[Any, ...]]) -> tuple[AgentGroup, ...]:
    """The groups of agents that a native spec lists."""
    return tuple(
        AgentGroup(
            name,
            tuple(f"{name}_{index}" for index in range(num_agents)),
            space_from_native(observation),
            space_from_native(action),
        )
        for name, num_agents, observation, action in native
    )
