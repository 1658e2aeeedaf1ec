# SPDX-License-Identifier: Apache-2.0
"""One environment of a native pool as an object, for get_attr, set_attr and env_method."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from rollouts.envs.vector_env import VectorEnv
from rollouts.errors import SpecError
from rollouts.specs import EnvSpec


class NativeEnvRow:
    """Row `index` of a pool: its spec, spaces, options and state, and attributes that users set.

    It cannot be stepped or reset by itself, as environments of a pool step together. Its options
    are attributes that can be read.
    """

    def __init__(self, pool: VectorEnv, index: int, option_names: frozenset[str]) -> None:
        self._pool = pool
        self._index = index
        self._option_names = option_names
        self.metadata = pool.metadata
        self.render_mode = pool.render_mode

    @property
    def unwrapped(self) -> NativeEnvRow:
        """The environment itself, since no wrapper is around it."""
        return self

    @property
    def spec(self) -> EnvSpec:
        """The spec of its id."""
        return self._pool.env_specs[self._index]

    @property
    def observation_space(self) -> gymnasium.Space[Any]:
        """The space of this environment."""
        return self._pool.single_observation_space

    @property
    def action_space(self) -> gymnasium.Space[Any]:
        """The space of this environment."""
        return self._pool.single_action_space

    @property
    def env_id(self) -> int:
        """Its number in the pool, or in a job its number among the environments of all pools."""
        return self._pool.env_id_offset + self._index

    def render(self) -> NDArray[np.uint8]:
        """Draws its present state, (height, width, 3); see `rollouts.VectorEnv.render`."""
        return self._pool.render(self.env_id)[0]

    def get_state(self) -> bytes:
        """Saves the whole state, see `rollouts.VectorEnv.get_state`."""
        return self._pool.get_state([self.env_id])[0]

    def set_state(self, state: bytes) -> None:
        """Puts a saved state into it; the next step goes on from there."""
        self._pool.set_state([self.env_id], [state])

    @property
    def action_masks(self) -> Callable[[], NDArray[np.bool_]]:
        """A function that returns the actions (A,) allowed now, named as MaskablePPO expects it."""
        if "action_mask" not in self._pool.info_names:
            raise AttributeError("these environments report no action_mask")
        return lambda: self._pool.action_masks()[self._index]

    def get_wrapper_attr(self, name: str) -> Any:
        """The attribute `name`; `gymnasium.Env` has a method of this name."""
        return getattr(self, name)

    def has_wrapper_attr(self, name: str) -> bool:
        """Tells if there is an attribute `name`."""
        return hasattr(self, name)

    def __getattr__(self, name: str) -> Any:
        # reached only for names that are found nowhere else
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in self._option_names:
            raise AttributeError(
                f"{self._pool!r} has no attribute {name!r} in its environments; their options are "
                f"{', '.join(sorted(self._option_names)) or 'none'}"
            )
        return option_rows(self._pool.env_options[name], self._pool.num_envs)[self._index]

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_") and name in self._option_names:
            raise SpecError(
                f"{name!r} is an option of the environment, which changes when an episode begins: "
                f"call set_options({{{name!r}: {value!r}}}) and then reset(), not set_attr"
            )
        super().__setattr__(name, value)


def option_rows(value: Any, num_envs: int) -> list[Any]:
    """One value per environment, from a value of `VectorEnv.env_options` for all of them."""
    return list(np.broadcast_to(np.asarray(value, dtype=object), num_envs))
