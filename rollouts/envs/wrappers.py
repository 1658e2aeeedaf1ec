# SPDX-License-Identifier: Apache-2.0
"""The wrappers of `make_vec`: Gymnasium's, computed in the native pool.

Source: gymnasium 1.2, `gymnasium.wrappers` and `gymnasium.wrappers.vector`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

from rollouts.checks import flag, whole_number
from rollouts.errors import DTypeError, SpecError
from rollouts.features import WRAPPERS, Cell, check
from rollouts.specs import EnvSpec

Array = npt.NDArray[Any]

NAMES = WRAPPERS
# these scale or clip rewards for training only; the policy does not see the result
OF_TRAINING = ("normalize_reward", "clip_reward")
NORMALIZERS = ("normalize_observation", "normalize_reward")  # these keep running statistics
_MAX_STACK = 1024  # frames
_MAX_DIMS = 4  # dimensions of an observation in the native core
_MAX_BOUNDS = 64  # elements for which the native core keeps separate bounds


@dataclass(frozen=True, slots=True)
class Wrappers:
    """Wrappers of all environments of a pool. None, "" or 0 means that a wrapper is left out.

    Attributes:
      clip_action: Whether actions are clipped to their bounds, while the action space shows none.
      rescale_action: (low, high) of the actions that callers give, each a number or an array.
      time_aware: "steps": adds the number of steps to observations; "fraction": their share of the
        time limit.
      frame_stack: Observations in a row, the oldest first.
      normalize_observation: epsilon, and the limit of the results.
      normalize_reward: gamma and epsilon.
      clip_reward: (low, high).
    """

    clip_action: bool = False
    rescale_action: tuple[Any, Any] | None = None
    time_aware: str = ""
    frame_stack: int = 0
    normalize_observation: tuple[float, float] | None = None
    normalize_reward: tuple[float, float] | None = None
    clip_reward: tuple[float, float] | None = None

    def __bool__(self) -> bool:
        return self != Wrappers()

    @property
    def normalizes(self) -> bool:
        """Tells if a wrapper keeps running statistics."""
        return self.normalize_observation is not None or self.normalize_reward is not None

    def wrap(self, spec: EnvSpec) -> EnvSpec:
        """The spec of an id with these wrappers around it.

        Raises:
          SpecError: They do not fit its spaces or its time limit.
        """
        if not self:
            return spec
        if spec.groups:
            check("make_vec", [n for n in NAMES if getattr(self, n)], Cell("native", True))
        observation, action = spec.single_observation_space, spec.single_action_space
        if self.rescale_action is not None:
            action = self._action_space(spec)
        if self.clip_action:
            self._check_clipped(spec.id, action)
            action = spaces.Box(-np.inf, np.inf, action.shape, action.dtype)  # type: ignore[arg-type]
        if self.time_aware:
            observation = self._with_time(spec)
        if self.frame_stack:
            _check_box("frame_stack", spec.id, observation)
            if len(observation.shape or ()) >= _MAX_DIMS:
                raise SpecError(
                    f"frame_stack: observations of {spec.id} have the shape {observation.shape}, "
                    f"expected {_MAX_DIMS - 1} dimensions at most; a game's own frames are stacked "
                    "by its option stack_num"
                )
            observation = batch_space(observation, self.frame_stack)
        if self.normalize_observation is not None:
            check_floats("normalize_observation", spec.id, observation)
            observation = spaces.Box(-np.inf, np.inf, observation.shape, observation.dtype)  # type: ignore[arg-type]
        changed = self.time_aware or self.frame_stack
        return replace(
            spec,
            single_observation_space=observation,
            single_action_space=action,
            observation_parts=() if changed else spec.observation_parts,
        )

    def check_parts(self, specs: Mapping[str, EnvSpec]) -> None:
        """Raises SpecError if a wrapper would join named parts of observations into one array."""
        joining = [name for name in ("time_aware", "frame_stack") if getattr(self, name)]
        for env_id, spec in specs.items():
            if joining and spec.observation_parts:
                raise SpecError(
                    f"with {' and '.join(joining)} an observation is one array, and "
                    f"flatten_observation=False asks for the parts of {env_id}: leave one of them "
                    "out, or stack the parts by Gymnasium's FrameStackObservation"
                )

    def native(self, specs: Sequence[EnvSpec]) -> dict[str, Any]:
        """These wrappers in the form that the native pool takes.

        Args:
          specs: The N environments' specs, without wrappers.
        """
        given: dict[str, Any] = {}
        if self.clip_action:
            given["clip_action"] = self._action_bounds(specs[0].single_action_space)
        if self.rescale_action is not None:
            given["rescale_action"] = self._affine(specs[0].single_action_space)
        if self.time_aware:
            limits = [spec.max_episode_steps for spec in specs]
            given["time_aware"] = (self.time_aware == "fraction", limits)
        for name in ("frame_stack", "normalize_observation", "normalize_reward", "clip_reward"):
            if getattr(self, name):
                given[name] = getattr(self, name)
        return given

    def _bounds(self, shape: tuple[int, ...]) -> tuple[Array, Array]:
        assert self.rescale_action is not None
        low, high = self.rescale_action
        try:
            return np.broadcast_to(low, shape), np.broadcast_to(high, shape)
        except ValueError:
            raise SpecError(
                f"rescale_action has bounds of the shapes {np.shape(low)} and {np.shape(high)}, "
                f"expected numbers or arrays of the actions' shape {shape}"
            ) from None

    def _check_clipped(self, id: str, space: spaces.Space[Any]) -> None:
        if not isinstance(space, spaces.Box) or space.dtype != np.float32:
            raise SpecError(
                f"clip_action is for Box actions of float32, those of {id} are {space}: leave "
                "it out"
            )
        if math.prod(space.shape) > _MAX_BOUNDS:
            raise SpecError(
                f"clip_action is for {_MAX_BOUNDS} elements at most, actions of {id} have "
                f"{math.prod(space.shape)}"
            )

    def _action_bounds(self, space: spaces.Space[Any]) -> tuple[Array, Array]:
        """low and high (size,) of the actions that rescale_action or the environment takes."""
        assert isinstance(space, spaces.Box)
        low, high = space.low, space.high
        if self.rescale_action is not None:
            low, high = (bound.astype(space.dtype) for bound in self._bounds(space.shape))
        return low.ravel(), high.ravel()

    def _action_space(self, spec: EnvSpec) -> spaces.Box:
        space = spec.single_action_space
        if not isinstance(space, spaces.Box):
            raise SpecError(
                f"rescale_action is for Box actions, those of {spec.id} are {space}: leave it out"
            )
        bounded = np.isfinite(space.low) & np.isfinite(space.high) & (space.low < space.high)
        if not bounded.all() or math.prod(space.shape) > _MAX_BOUNDS:
            raise SpecError(
                f"rescale_action needs actions with finite bounds, {_MAX_BOUNDS} of them at most; "
                f"those of {spec.id} are {space}"
            )
        low, high = self._bounds(space.shape)
        dtype: Any = space.dtype
        return spaces.Box(low.astype(dtype), high.astype(dtype), space.shape, dtype)

    def _affine(self, space: spaces.Space[Any]) -> tuple[Array, Array, Array, Array]:
        """gradient, intercept, low, high, each (size,): bitwise as in Gymnasium's rescale_box."""
        assert isinstance(space, spaces.Box)
        low, high = self._bounds(space.shape)
        # as in Gymnasium: the difference in long double, the rest in the actions' dtype
        span = space.high.astype(np.longdouble) - space.low.astype(np.longdouble)
        gradient = ((high - low) / span).astype(space.dtype)
        intercept = (gradient * -space.low + low).astype(space.dtype)
        return gradient.ravel(), intercept.ravel(), low.ravel(), high.ravel()

    def _with_time(self, spec: EnvSpec) -> spaces.Box:
        space = spec.single_observation_space
        check_floats("time_aware", spec.id, space)
        limit = spec.max_episode_steps
        if limit is None:
            raise SpecError(
                f"time_aware: {spec.id} has no time limit; give max_episode_steps to make_vec"
            )
        assert isinstance(space, spaces.Box)
        # the dtype that NumPy gives to the observation joined with a float32 or an int32
        dtype: Any = space.dtype if self.time_aware == "fraction" else np.dtype(np.float64)
        most = 1 if self.time_aware == "fraction" else limit
        low = np.append(space.low.ravel().astype(dtype), dtype.type(0))
        return spaces.Box(low, np.append(space.high.ravel().astype(dtype), dtype.type(most)),
                          dtype=dtype)  # fmt: skip


def split_wrappers(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Splits options into those of wrappers and all others."""
    given = {name: value for name, value in options.items() if name in NAMES}
    return given, {name: value for name, value in options.items() if name not in NAMES}


def read_wrappers(given: Mapping[str, Any]) -> Wrappers:
    """Checks wrappers as `make_vec` takes them.

    Raises:
      SpecError: A value out of range. DTypeError: One of another type.
    """
    return Wrappers(
        clip_action=_clips(given.get("clip_action")),
        rescale_action=_rescale(given.get("rescale_action")),
        time_aware=_time(given.get("time_aware")),
        frame_stack=_stack(given.get("frame_stack")),
        normalize_observation=_numbers(
            "normalize_observation", given.get("normalize_observation"),
            epsilon=1e-8, clip=math.inf,
        ),
        normalize_reward=_numbers(
            "normalize_reward", given.get("normalize_reward"), gamma=0.99, epsilon=1e-8
        ),
        clip_reward=_clip(given.get("clip_reward")),
    )  # fmt: skip


def asked_for(given: Mapping[str, Any]) -> list[str]:
    """Returns the names of the wrappers that are asked for."""
    return [name for name in NAMES if name in given and not _is_off(given[name])]


def refuse(given: Mapping[str, Any], why: str) -> None:
    """Raises SpecError where a wrapper is asked for."""
    if asked := asked_for(given):
        raise SpecError(f"{', '.join(asked)}: {why}")


def _is_off(value: object) -> bool:
    return value is None or value is False


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def _pair(name: str, value: Any, expected: str) -> tuple[Any, Any]:
    if isinstance(value, (tuple, list)) and len(value) == 2:
        return value[0], value[1]
    raise SpecError(f"{name} must be {expected}, got {value!r}")


def _clip(value: Any) -> tuple[float, float] | None:
    if _is_off(value):
        return None
    expected = "a positive number c, for -c to c, or a pair (low, high) of numbers or None"
    if _is_number(value):
        low, high = -float(value), float(value)
        if not high > 0:
            raise SpecError(f"clip_reward must be {expected}, got {value!r}")
        return low, high
    pair = _pair("clip_reward", value, expected)
    if pair == (None, None) or any(one is not None and not _is_number(one) for one in pair):
        raise SpecError(f"clip_reward must be {expected}, got {value!r}")
    low = -math.inf if pair[0] is None else float(pair[0])
    high = math.inf if pair[1] is None else float(pair[1])
    if not low <= high:
        raise SpecError(f"clip_reward must be {expected} with low <= high, got {value!r}")
    return low, high


def _clips(value: Any) -> bool:
    return not _is_off(value) and flag("clip_action", value)


def _rescale(value: Any) -> tuple[Any, Any] | None:
    if _is_off(value):
        return None
    if value is True:
        return -1.0, 1.0
    expected = "True, for -1 to 1, or a pair (low, high) of finite numbers or arrays"
    pair = _pair("rescale_action", value, expected)
    try:
        low, high = (np.asarray(one, np.float64) for one in pair)
        fits = bool(np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all())
    except (TypeError, ValueError):
        fits = False
    if not fits:
        raise SpecError(f"rescale_action must be {expected} with low < high, got {value!r}")
    return low, high


def _time(value: Any) -> str:
    if _is_off(value):
        return ""
    if value is True:
        return "steps"
    if value in ("steps", "fraction"):
        return str(value)
    raise SpecError(
        f"time_aware must be True or 'steps' for elapsed steps, or 'fraction' for those of the "
        f"time limit, got {value!r}"
    )


def _stack(value: Any) -> int:
    return 0 if _is_off(value) else whole_number("frame_stack", value, 1, _MAX_STACK)


def _numbers(name: str, value: Any, **defaults: float) -> tuple[float, float] | None:
    """Two positive numbers by name, gamma at most 1."""
    if _is_off(value):
        return None
    fields = ", ".join(f"{field!r}: {usual}" for field, usual in defaults.items())
    if value is True:
        value = {}
    if not isinstance(value, Mapping):
        raise DTypeError(f"{name} must be a bool or a dict such as {{{fields}}}, got {value!r}")
    unknown = sorted(set(value) - set(defaults))
    if unknown:
        raise SpecError(f"{name} has the unknown fields {unknown}, expected some of {{{fields}}}")
    numbers = {**defaults, **value}
    for field, number in numbers.items():
        if not _is_number(number) or not number > 0 or (field == "gamma" and number > 1):
            most = " up to 1" if field == "gamma" else ""
            raise SpecError(f"{name}[{field!r}] must be a positive number{most}, got {number!r}")
    first, second = (float(number) for number in numbers.values())
    return first, second


def _check_box(name: str, id: str, space: spaces.Space[Any]) -> None:
    if not isinstance(space, spaces.Box):
        raise SpecError(f"{name} is for Box observations, those of {id} are {space}: leave it out")


def check_floats(name: str, id: str, space: spaces.Space[Any]) -> None:
    """Raises SpecError where observations are no Box of floats; only those can be scaled."""
    _check_box(name, id, space)
    if space.dtype not in (np.float32, np.float64):
        raise SpecError(
            f"{name} is for observations of float32 or float64, those of {id} are "
            f"{space.dtype}: leave it out, and divide pixels by 255 in the network"
        )
