# SPDX-License-Identifier: Apache-2.0
"""`Deployment`: the description in a policy's file, and the wrappers' work that the file does."""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from rollouts.envs.wrappers import NAMES, OF_TRAINING, Wrappers, read_wrappers
from rollouts.errors import SpecError

FORMAT = "rollouts policy"
VERSION = 1
KEY = "rollouts.json"  # name of the description within a file
ENDINGS = (".onnx", ".pt2", ".pt")  # files with these endings can be read again
# wrappers whose work is done in the file
_WITHIN = ("normalize_observation", "rescale_action", "clip_action")

Floats = NDArray[np.float32]


def is_exported(path: Path) -> bool:
    """Distinguishes an exported policy from a checkpoint, which may end in .pt, too."""
    if path.suffix not in ENDINGS or path.is_dir():
        return False
    if path.suffix != ".pt":
        return True
    if not path.is_file():
        # a pipe is not read, because reading it would wait for a writer
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith(f"/extra/{KEY}") for name in archive.namelist())
    except (OSError, zipfile.BadZipFile):
        # the reader of checkpoints reports what is wrong with it
        return False


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of the file.

    Attributes:
      shape: Without the leading dimension of rows, which is B.
      meaning: One line for human readers.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Deployment:
    """The description that is stored in the file, as JSON.

    Attributes:
      id: The id of the environment in which the policy was trained.
      env_options: Options of `make_vec` for an environment that gives the file's inputs and takes
        its outputs, without the wrappers whose work the file does.
      group: The policy's group of agents; "": there is one agent.
      parts: (name, shape) of the parts of a flat observation, in order; empty: not known.
      inputs, outputs: Arguments and results, in their order.
      first: First number of a Discrete space, with which the file's actions begin.
      nvec: Numbers of actions of each element of a MultiDiscrete space.
      initial_states: The numbers in each initial state, flattened.
      rollouts_version: Version of the library that wrote the file.
    """

    id: str
    env_options: Mapping[str, Any]
    group: str
    parts: tuple[tuple[str, tuple[int, ...]], ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    first: int = 0
    nvec: tuple[int, ...] = ()
    initial_states: tuple[tuple[float, ...], ...] = ()
    rollouts_version: str = ""

    def to_json(self) -> str:
        """The description as text that `from_json` reads."""
        return json.dumps({"format": FORMAT, "version": VERSION, **asdict(self)}, indent=1)

    @classmethod
    def from_json(cls, text: str | bytes, path: object) -> Deployment:
        """Reads the description of a file.

        Raises:
          SpecError: It was not written by `rollouts.export`, or by a newer version.
        """
        try:
            given = json.loads(text)
            if given.pop("format") != FORMAT:
                raise KeyError("format")
            version = given.pop("version")
            if version != VERSION:
                raise SpecError(
                    f"{path} is of version {version}, expected {VERSION}: use the rollouts "
                    f"{given.get('rollouts_version')} that wrote it, or export the policy again"
                )
            ports: dict[str, Any] = {
                kind: tuple(
                    Port(**{**one, "shape": tuple(one["shape"])}) for one in given.pop(kind)
                )
                for kind in ("inputs", "outputs")
            }
            parts = tuple((name, tuple(shape)) for name, shape in given.pop("parts"))
            nvec = tuple(given.pop("nvec"))
            initial = tuple(tuple(one) for one in given.pop("initial_states"))
            made = cls(**given, **ports, parts=parts, nvec=nvec, initial_states=initial)
            made._check()
        except SpecError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise SpecError(
                f"{path} does not say what it is ({error}), expected a file that rollouts.export "
                "wrote"
            ) from error
        return made

    def _check(self) -> None:
        for port in (*self.inputs, *self.outputs):
            np.dtype(port.dtype)
            if not all(type(size) is int and size >= 0 for size in port.shape):
                raise ValueError(f"the shape of {port.name}")
        if not self.inputs or self.inputs[0].name != "obs":
            raise KeyError("obs")
        states = [one.shape for one in self.inputs if one.name.startswith("state_")]
        if [math.prod(shape) for shape in states] != [len(one) for one in self.initial_states]:
            raise ValueError("initial_states")
        if type(self.id) is not str or not isinstance(self.env_options, dict):
            raise TypeError("id or env_options")


@dataclass(frozen=True, slots=True, eq=False)
class Surroundings:
    """The work of a pool's wrappers between the environment and the network.

    Attributes:
      mean, deviation: Statistics of each number of an observation; None: no normalisation.
      limit: The largest magnitude of a normalised number.
      scale, offset: An action of the network becomes scale * action + offset; None: it is kept.
      low, high: Bounds of the network's actions before the scaling; None: there are none.
      action_space: Space of the resulting actions.
      env_options: As in `Deployment`.
    """

    mean: Floats | None = None
    deviation: Floats | None = None
    limit: float = math.inf
    scale: Floats | None = None
    offset: Floats | None = None
    low: Floats | None = None
    high: Floats | None = None
    action_space: gymnasium.Space[Any] | None = None
    env_options: Mapping[str, Any] = field(default_factory=dict)


def surroundings_of(
    env: Any, raw_action_space: gymnasium.Space[Any], given: Mapping[str, Any]
) -> Surroundings:
    """Reads from a pool what its wrappers do.

    Args:
      env: The pool, with its present running statistics.
      raw_action_space: Action space of the same environment without wrappers.
      given: Options of the pool.
    """
    wrappers = read_wrappers({name: given[name] for name in NAMES if name in given})
    left = {k: v for k, v in given.items() if k not in (*_WITHIN, *OF_TRAINING)}
    found: dict[str, Any] = {"action_space": raw_action_space, "env_options": left}
    if wrappers.normalize_observation is not None:
        epsilon, limit = wrappers.normalize_observation
        found["mean"], found["deviation"] = env.observation_statistics.scale(epsilon)
        found["limit"] = float(limit)
    found.update(_of_actions(wrappers, raw_action_space))
    return Surroundings(**found)


def outer_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a pool without the wrappers whose work the file does."""
    return {name: value for name, value in given.items() if name not in _WITHIN}


def _of_actions(wrappers: Wrappers, space: gymnasium.Space[Any]) -> dict[str, Floats]:
    if not isinstance(space, gymnasium.spaces.Box):
        return {}
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    found: dict[str, Any] = {}
    if wrappers.rescale_action is not None:
        least, most = (np.broadcast_to(one, space.shape) for one in wrappers.rescale_action)
        found["scale"] = (high - low) / (most - least)
        found["offset"] = low - least * found["scale"]
        low, high = least, most
    if wrappers.clip_action:
        found |= {"low": low, "high": high}
    return {name: np.asarray(value, np.float32) for name, value in found.items()}
