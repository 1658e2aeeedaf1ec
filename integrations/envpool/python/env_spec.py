# SPDX-License-Identifier: Apache-2.0
"""`EnvSpec`: the description of an environment in EnvPool's `env.spec` and `make_spec`."""

from __future__ import annotations

import sys
from collections import OrderedDict, namedtuple
from typing import Any, NamedTuple, cast

import gymnasium
import numpy as np
from gymnasium import spaces
from rollouts.integrations.envpool.envpool_options import PREFIX, AskedTask, read_task
from rollouts.integrations.envpool.infos import own_info_specs
from rollouts.integrations.envpool.observations import (
    dict_observations,
    envpool_action_space,
    envpool_space,
)

import rollouts


class ArraySpec(NamedTuple):
    """One array of a state or an action, without the batch's axis; -1 is the axis of players."""

    shape: list[int]
    dtype: np.dtype[Any]
    minimum: Any
    maximum: Any


class EnvSpec:
    """An environment and the options it is made with.

    Attributes:
      task, id: As given to `make`.
      config: Named tuple of all options, under EnvPool's names.
      gen_config: Its class.
      gymnasium_observation_space, gymnasium_action_space: Spaces of one environment.
      own_infos: dtype and shape of what the environment itself reports in info, by name.
      reward_threshold: Mean return at which the task counts as solved, or None.
    """

    def __init__(self, task: AskedTask) -> None:
        # a namedtuple, because scripts read its fields by these names
        self.gen_config: Any = cast(Any, namedtuple)("Config", list(task.config))
        self.config: Any = self.gen_config(**task.config)
        self.task = task
        self.id = task.task_id
        self.reward_threshold = task.config["reward_threshold"]
        native = rollouts.env_spec(task.id, **task.env_options)
        self.native_observation_space = native.single_observation_space
        dicts = dict_observations(task)
        self.gymnasium_observation_space: spaces.Space[Any] = (
            envpool_space(native.single_observation_space) if dicts is None else dicts.space
        )
        self.gymnasium_action_space = envpool_action_space(native.single_action_space, task.header)
        self.own_infos = own_info_specs(task, native.single_observation_space)
        self.for_gym = False  # true for env_type="gym"

    @property
    def observation_space(self) -> Any:
        """One environment's space; with env_type="gym" a space of the package gym, if that is
        imported."""
        return self._face_space(self.gymnasium_observation_space)

    @property
    def action_space(self) -> Any:
        """The action space, in the form of observation_space."""
        return self._face_space(self.gymnasium_action_space)

    def _face_space(self, space: spaces.Space[Any]) -> Any:
        old = sys.modules.get("gym")
        if not self.for_gym or old is None or old is gymnasium or not hasattr(old, "spaces"):
            return space
        return in_package(space, old.spaces)

    @property
    def state_array_spec(self) -> dict[str, ArraySpec]:
        """Arrays of a step by EnvPool's names."""
        number = _numbers(np.int32)
        states = {
            "info:env_id": number,
            "info:players.env_id": number._replace(shape=[-1]),
            "elapsed_step": number,
            "done": _numbers(np.bool_),
            "reward": _numbers(np.float32)._replace(shape=[-1]),
            "discount": ArraySpec([-1], np.dtype(np.float32), 0.0, 1.0),
            "step_type": number,
            "trunc": _numbers(np.bool_),
            **_of_observation(self.gymnasium_observation_space),
            "info:lives": number._replace(shape=[-1]),
            "info:reward": _numbers(np.float32)._replace(shape=[-1]),
            "info:terminated": ArraySpec([-1], np.dtype(np.int32), 0, 1),
        }
        for name, (dtype, shape) in self.own_infos.items():
            states[f"info:{name}"] = _numbers(dtype)._replace(shape=list(shape) or [-1])
        return states

    @property
    def action_array_spec(self) -> dict[str, ArraySpec]:
        """Arrays of an action by EnvPool's names."""
        number = _numbers(np.int32)
        action = _of_space(self.gymnasium_action_space)
        return {
            "env_id": number,
            "players.env_id": number._replace(shape=[-1]),
            "action": action._replace(shape=[-1, *action.shape]),
        }

    def observation_spec(self) -> Any:
        """As `DMEnvPool.observation_spec`."""
        from rollouts.integrations.envpool.python.dm_envpool import observation_spec

        return observation_spec(self)

    def action_spec(self) -> Any:
        """As `DMEnvPool.action_spec`."""
        from rollouts.integrations.dm_env import spec_of_space

        return spec_of_space(self.gymnasium_action_space, "action")

    def __repr__(self) -> str:
        return f"EnvSpec({self.id!r}, {self.config!r})"


def make_spec(task_id: str, **kwargs: Any) -> EnvSpec:
    """Describes an environment without making one; arguments as of `make`."""
    return EnvSpec(read_task(task_id, kwargs))


def in_package(space: spaces.Space[Any], package: Any) -> Any:
    """Converts a space of Gymnasium to one of the package gym."""
    if isinstance(space, spaces.Discrete):
        return package.Discrete(int(space.n))
    if isinstance(space, spaces.MultiDiscrete):
        return package.MultiDiscrete(space.nvec)
    if isinstance(space, spaces.Dict):
        # a plain dict would be sorted
        parts = ((name, in_package(part, package)) for name, part in space.items())
        return package.Dict(OrderedDict(parts))
    assert isinstance(space, spaces.Box)
    return package.Box(space.low, space.high, space.shape, space.dtype)


def is_atari(spec: EnvSpec) -> bool:
    """Tells if the environment is one of ALE's games."""
    return bool(spec.task.id.startswith(PREFIX))


def _numbers(dtype: Any) -> ArraySpec:
    if np.dtype(dtype) == np.bool_:
        return ArraySpec([], np.dtype(dtype), False, True)
    limits: Any = np.finfo(dtype) if np.dtype(dtype).kind == "f" else np.iinfo(dtype)
    return ArraySpec([], np.dtype(dtype), limits.min, limits.max)


def _of_observation(space: spaces.Space[Any]) -> dict[str, ArraySpec]:
    if isinstance(space, spaces.Dict):
        return {f"obs:{name}": _of_part(part) for name, part in space.items()}
    return {"obs": _of_part(space)}


def _of_part(space: spaces.Space[Any]) -> ArraySpec:
    spec = _of_space(space)
    # one number for each player
    return spec._replace(shape=[-1]) if isinstance(space, spaces.Discrete) else spec


def _of_space(space: spaces.Space[Any]) -> ArraySpec:
    if isinstance(space, spaces.Discrete):
        return ArraySpec([], np.dtype(np.int32), 0, int(space.n) - 1)
    if isinstance(space, spaces.MultiDiscrete):
        return ArraySpec(list(space.shape), np.dtype(np.int32), 0, space.nvec - 1)
    assert isinstance(space, spaces.Box)
    low, high = space.low, space.high
    if np.all(low == low.flat[0]) and np.all(high == high.flat[0]):
        low, high = low.flat[0], high.flat[0]
    return ArraySpec(list(space.shape), np.dtype(space.dtype), low, high)
