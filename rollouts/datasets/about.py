# SPDX-License-Identifier: Apache-2.0
"""`About`: the description in a data set: spaces, environment, options."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec as GymnasiumSpec

from rollouts.envs.gymnasium_ids import gymnasium_id
from rollouts.errors import SpecError

METADATA = "metadata.json"


@dataclass(frozen=True, slots=True)
class About:
    """The description of a data set.

    Attributes:
      observation_space, action_space: Spaces of one agent.
      id: Id of the environment; "" if it is not from `make_vec`.
      env_options: Options of `make_vec` that are plain values.
      max_episode_steps: Time limit that the user gave; None: the id's own.
      group: Group of agents; "" if there is one agent.
      stack_num: Frames of a stacked observation, which are stored once each.
      infos: Names of the values that are stored with each step.
      why_not_again: The reason why streams and actions do not determine the episodes; "" if they
        do.
    """

    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    id: str = ""
    env_options: Mapping[str, Any] = field(default_factory=dict)
    max_episode_steps: int | None = None
    group: str = ""
    stack_num: int = 1
    infos: tuple[str, ...] = ()
    why_not_again: str = ""

    def of_group(self, name: str, observation: Any, action: Any) -> About:
        """Returns the description of a group's data."""
        return replace(self, group=name, observation_space=observation, action_space=action)

    def to_metadata(self) -> dict[str, Any]:
        """Returns the contents of Minari's metadata.json, with additions under "rollouts"."""
        found: dict[str, Any] = {
            "observation_space": json.dumps(space_to_plain(self.observation_space)),
            "action_space": json.dumps(space_to_plain(self.action_space)),
            "jpeg_encoding": False,
            "rollouts": {
                "format": 1,
                "id": self.id,
                "env_options": dict(self.env_options),
                "max_episode_steps": self.max_episode_steps,
                "group": self.group,
                "stack_num": self.stack_num,
                "infos": list(self.infos),
                "why_not_again": self.why_not_again,
            },
        }
        if (spec := self._gymnasium_spec()) is not None:
            found["env_spec"] = spec.to_json()
        return found

    def _gymnasium_spec(self) -> GymnasiumSpec | None:
        """Makes the spec from which `gymnasium.make` makes one such environment."""
        if not self.id or self.group or gymnasium_id(self.id) not in gymnasium.registry:
            return None
        spec = gymnasium.spec(gymnasium_id(self.id))
        limit = self.max_episode_steps
        return GymnasiumSpec.from_json(
            json.dumps(
                json.loads(spec.to_json())
                | {"kwargs": {**spec.kwargs, **self.env_options}}
                | ({} if limit is None else {"max_episode_steps": limit or None})
            )
        )


def about_of(env: Any, infos: tuple[str, ...]) -> dict[str, About]:
    """Returns the description of an environment's data by group; "" for one agent."""
    whole = _environment(env, infos)
    groups = getattr(env, "groups", None)
    if not groups:
        return {"": whole}
    return {
        name: whole.of_group(name, one.single_observation_space, one.single_action_space)
        for name, one in groups.items()
    }


def _environment(env: Any, infos: tuple[str, ...]) -> About:
    engine: Any = getattr(env, "engine", None)
    # groups of several agents have spaces of their own
    observation: Any = getattr(env, "single_observation_space", None)
    action: Any = getattr(env, "single_action_space", None)
    if getattr(engine, "kind", "") != "native":
        return About(observation, action, infos=infos, why_not_again=(
            "the environments are not those of a pool of threads, whose random streams are known"
        ))  # fmt: skip
    ids, _, arguments = engine.recipe
    id = ids if isinstance(ids, str) else ""
    given = {name: _plain(value) for name, value in arguments["env_options"].items()}
    known = {name: value for name, value in given.items() if _is_one(value)}
    why_not = ""
    if not id:
        why_not = "the pool mixes several ids"
    elif len(known) < len(given):
        names = ", ".join(sorted(given.keys() - known.keys()))
        why_not = f"the options {names} differ by environment or are no plain values"
    elif any(known.get(name) for name in ("normalize_observation", "normalize_reward")):
        why_not = "running statistics scaled the data as they were at that moment"
    stack_num = int(env.env_spec.options.get("stack_num", 1))
    if (getattr(observation, "shape", None) or ())[:1] != (stack_num,):
        stack_num = 1
    return About(
        observation, action, id=id, env_options=known,
        max_episode_steps=arguments["max_episode_steps"], infos=infos, why_not_again=why_not,
        stack_num=stack_num,
    )  # fmt: skip


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    return list(value) if isinstance(value, tuple | np.ndarray) else value


def _is_one(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


def from_metadata(found: Any, path: Path) -> About:
    """Reads metadata that `to_metadata` or Minari made.

    Raises:
      SpecError: It is something else.
    """
    try:
        own = found.get("rollouts", {})
        return About(
            observation_space=space_from_plain(json.loads(found["observation_space"])),
            action_space=space_from_plain(json.loads(found["action_space"])),
            id=str(own.get("id", "")),
            env_options=dict(own.get("env_options", {})),
            max_episode_steps=own.get("max_episode_steps"),
            group=str(own.get("group", "")),
            stack_num=int(own.get("stack_num", 1)),
            infos=tuple(own.get("infos", ())),
            why_not_again=str(own.get("why_not_again", "the set does not say how it was recorded")),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SpecError(
            f"{path} does not describe a data set ({type(error).__name__}: {error}): expected one "
            "of rollouts.Recorder or of Minari, with observation_space and action_space"
        ) from error


def read_metadata(folder: str | os.PathLike[str]) -> tuple[dict[str, Any], About]:
    """Reads the metadata.json of a folder.

    Raises:
      SpecError: There is no such file, or it does not describe a data set.
    """
    path = Path(folder) / METADATA
    try:
        found = json.loads(path.read_text())
    except OSError as error:
        raise SpecError(
            f"{folder} has no {METADATA} that can be read ({error.strerror}): expected a data set"
        ) from error
    except ValueError as error:
        raise SpecError(f"{path} is no JSON ({error}): the file is damaged or foreign") from error
    return found, from_metadata(found, path)


def space_to_plain(space: spaces.Space[Any]) -> dict[str, Any]:
    """Returns a space of arrays in Minari's form.

    Raises:
      SpecError: It is of another kind.
    """
    match space:
        case spaces.Box():
            return {
                "type": "Box", "dtype": str(space.dtype), "shape": list(space.shape),
                "low": space.low.tolist(), "high": space.high.tolist(),
            }  # fmt: skip
        case spaces.Discrete():
            return {
                "type": "Discrete",
                "dtype": "int64",
                "start": int(space.start),
                "n": int(space.n),
            }
        case spaces.MultiDiscrete():
            return {
                "type": "MultiDiscrete", "dtype": str(space.dtype), "nvec": space.nvec.tolist(),
                "start": space.start.tolist(),
            }  # fmt: skip
        case spaces.MultiBinary():
            return {"type": "MultiBinary", "n": space.n}
    raise SpecError(
        f"the space is {space}, expected one of arrays of one shape and dtype (Box, Discrete, "
        "MultiDiscrete, MultiBinary): flatten others (gymnasium.spaces.flatten_space)"
    )


def space_from_plain(found: Mapping[str, Any]) -> spaces.Space[Any]:
    """Makes a space from what `space_to_plain` or Minari wrote.

    Raises:
      ValueError: It is of another kind.
    """
    match found["type"]:
        case "Box":
            low, high = (np.array(found[name], found["dtype"]) for name in ("low", "high"))
            return spaces.Box(low, high, tuple(found["shape"]), np.dtype(found["dtype"]).type)
        case "Discrete":
            return spaces.Discrete(found["n"], start=found["start"])
        case "MultiDiscrete":
            dtype = np.dtype(found["dtype"]).type
            return spaces.MultiDiscrete(np.array(found["nvec"]), dtype=dtype, start=found["start"])
        case "MultiBinary":
            return spaces.MultiBinary(found["n"])
    raise ValueError(f"a space of type {found['type']}, expected one of arrays of one shape")
