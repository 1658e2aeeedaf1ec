# SPDX-License-Identifier: Apache-2.0
"""EnvPool's structure of observations and actions, where it differs from our rows."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from rollouts.integrations.envpool.arrays import library
from rollouts.integrations.envpool.envpool_options import AskedTask, is_mujoco

import rollouts
from rollouts.envs.observation_parts import ObservationParts
from rollouts.errors import SpecError
from rollouts.families.minigrid import mission_words

Array = npt.NDArray[Any]
Shape = tuple[int, ...]

_SUITE = "envs/dm_control/"
_NO_LIMIT = 1e10  # mjMAXVAL, the bound in dm_control and EnvPool of an action without a limit
# EnvPool has one structure for all tasks of a domain: these parts come last, and are zeros for a
# task that lacks them
_DOMAINS: Mapping[str, Mapping[str, Shape]] = {
    "dog": {"ball_state": (6,), "target_position": (3,)},
    "finger": {"target_position": (2,), "dist_to_target": ()},
    "fish": {"velocity": (13,), "target": (3,)},
    "humanoid": {
        "joint_angles": (21,),
        "head_height": (),
        "extremities": (12,),
        "torso_vertical": (3,),
        "com_velocity": (3,),
        "position": (28,),
        "velocity": (27,),
    },
    "quadruped": {
        "origin": (3,),
        "rangefinder": (20,),
        "ball_state": (9,),
        "target_position": (3,),
    },
}
_GRID = ("direction", "image", "mission")  # in EnvPool's order


class Missions:
    """The sentences of missions, from our observations, which have the words as numbers."""

    def __init__(self, num_bytes: int) -> None:
        """Takes the bytes of each sentence; longer sentences are cut, shorter ones end in zeros."""
        words = [word.encode() for word in mission_words()]
        pieces = [word if word in (b"", b",") else b" " + word for word in words]
        longest = max(map(len, pieces))
        self._letters = np.array(pieces, f"S{longest}").view(np.uint8).reshape(-1, longest)
        self._lengths = np.array([len(piece) for piece in pieces], np.int32)
        self._num_bytes = num_bytes
        self._words = np.zeros((0, 0), np.uint8)
        self._sentences = np.zeros((0, num_bytes), np.uint8)

    def of(self, words: Any) -> Any:
        """Turns numbers of words (B, W) into sentences (B, num_bytes) uint8; JAX's arrays, too."""
        lib = library(words)
        lengths = lib.asarray(self._lengths)[words]
        ends = lengths.cumsum(1)
        # place 0 is the space before the first word, which is left out
        place = lib.arange(1, self._num_bytes + 1)
        index = (ends[:, :, None] <= place).sum(1)
        is_letter = index < words.shape[1]
        index = lib.minimum(index, words.shape[1] - 1)
        begins = lib.take_along_axis(ends - lengths, index, 1)
        within = lib.minimum(place - begins, self._letters.shape[1] - 1)
        letters = lib.asarray(self._letters)[lib.take_along_axis(words, index, 1), within]
        return lib.where(is_letter, letters, 0).astype(np.uint8)

    def of_envs(self, words: Array, env_id: Array) -> Array:
        """Does the same as `of`; remembers each environment's sentence, which few steps change."""
        if self._words.shape[1] != words.shape[1] or env_id.max(initial=0) >= len(self._words):
            rows = max(int(env_id.max(initial=0)) + 1, len(self._words))
            self._words = np.zeros((rows, words.shape[1]), words.dtype)
            self._sentences = np.zeros((rows, self._num_bytes), np.uint8)
        changed = (self._words[env_id] != words).any(1)
        if changed.any():
            self._words[env_id[changed]] = words[changed]
            self._sentences[env_id[changed]] = self.of(words[changed])
        return self._sentences[env_id]


class DictObservations:
    """Rows of named parts as EnvPool's dicts of arrays.

    Attributes:
      space: Space of one environment; its keys are in EnvPool's order.
    """

    def __init__(self, native: rollouts.EnvSpec, stack: int, mission_bytes: int) -> None:
        """Takes the spec without wrappers.

        Args:
          native: The spec, whose observations have named parts.
          stack: Number of stacked observations; 0: one observation without an axis for them.
          mission_bytes: Bytes of missions of MiniGrid and BabyAI.
        """
        self._parts = ObservationParts.of_pool({native.id: native})
        self._stack = (stack,) if stack else ()
        self._width = native.single_observation_space.shape[0]  # type: ignore[index]
        self._missions = Missions(mission_bytes) if mission_bytes else None
        own = dict(self._parts.space(stack or None).spaces)
        self._order, self._missing = _order(native, own, self._stack)
        if self._missions is not None:
            own["direction"] = spaces.Discrete(4)
            own["mission"] = spaces.Box(0, 255, (mission_bytes,), np.uint8)
        dtype: Any = native.single_observation_space.dtype
        for name, shape in self._missing.items():
            own[name] = spaces.Box(-np.inf, np.inf, shape, dtype)
        # ordered, because spaces.Dict sorts a plain dict
        self.space = spaces.Dict(OrderedDict((name, own[name]) for name in self._order))

    def split(self, obs: Any, env_id: Any) -> dict[str, Any]:
        """Splits (B, D) or (B, stack, D) into a dict of arrays, which are NumPy's or JAX's."""
        rows = len(obs)
        flat = self._parts.split(obs.reshape(-1, self._width))
        found: dict[str, Any] = {
            name: part.reshape(rows, *self._stack, *part.shape[1:]) for name, part in flat.items()
        }
        lib = library(obs)
        for name, shape in self._missing.items():
            found[name] = lib.zeros((rows, *shape), obs.dtype)
        if self._missions is not None:
            words = found["mission"]
            found["direction"] = found["direction"].astype(np.int32)
            found["mission"] = (
                self._missions.of_envs(words, env_id) if lib is np else self._missions.of(words)
            )
        return {name: found[name] for name in self._order}


def dict_observations(task: AskedTask) -> DictObservations | None:
    """Makes the converter from a task's rows to dicts; None where the task hands out arrays.

    Raises:
      SpecError: Dicts are asked for, and there are no parts.
    """
    options = {name: value for name, value in task.env_options.items() if name != "frame_stack"}
    native = rollouts.env_spec(task.id, **options)
    if task.flatten_observation is False and not native.observation_parts:
        raise SpecError(
            f"flatten_observation is False, and observations of {task.task_id} have no named parts "
            "here: leave it out (those of ViZDoom are rollouts.make_vec's alone)"
        )
    if task.flatten_observation or not native.observation_parts:
        return None
    stack = task.env_options.get("frame_stack", 0)
    return DictObservations(native, stack, task.config.get("mission_bytes", 0))


def envpool_space(space: spaces.Space[Any]) -> spaces.Space[Any]:
    """EnvPool's space for observations of ours that are one array.

    EnvPool stacks colours along the frames: (S, H, W, 3) becomes (3 S, H, W). A MultiDiscrete,
    such as Blackjack's, is a Box of int32 with the largest bound for all elements.
    """
    if isinstance(space, spaces.MultiDiscrete):
        return spaces.Box(0, int(space.nvec.max()) - 1, space.shape, np.int32)
    if not isinstance(space, spaces.Box) or len(space.shape) != 4:
        return space
    stack, height, width, colours = space.shape
    return spaces.Box(0, 255, (stack * colours, height, width), np.uint8)


def envpool_action_space(space: spaces.Space[Any], header: str) -> spaces.Space[Any]:
    """EnvPool's space for actions of ours: MuJoCo's are float64 there, and finite."""
    if not is_mujoco(header) or not isinstance(space, spaces.Box):
        return space
    # through the shortest decimal: 0.4 stays 0.4 and does not become the closest float32
    low, high = (
        bound.astype(str).astype(np.float64).clip(-_NO_LIMIT, _NO_LIMIT)
        for bound in (space.low, space.high)
    )
    return spaces.Box(low, high, space.shape, np.float64)


def _order(
    native: rollouts.EnvSpec, own: Mapping[str, Any], stack: Shape
) -> tuple[tuple[str, ...], dict[str, Shape]]:
    """EnvPool's order of parts, and the shapes of parts that ours lack."""
    if set(_GRID) <= own.keys():
        return _GRID, {}
    domain = native.header.removeprefix(_SUITE).removesuffix(".h")
    last = _DOMAINS.get(domain, {}) if native.header.startswith(_SUITE) else {}
    missing = {name: (*stack, *shape) for name, shape in last.items() if name not in own}
    return (*(name for name in own if name not in last), *last), missing
