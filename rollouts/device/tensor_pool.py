# SPDX-License-Identifier: Apache-2.0
"""`TensorPool`: what all pools on a device have in common, whoever steps their environments."""

from __future__ import annotations

import functools
import operator
import secrets
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from torch import Tensor

from rollouts.checks import (
    as_bytes,
    options_dict,
    seed_list,
    seed_value,
    to_autoreset_mode,
    whole_number,
)
from rollouts.device.arguments import read_device, read_mask
from rollouts.device.clocks import Clocks
from rollouts.device.stats import DeviceStats
from rollouts.errors import ClosedError, DTypeError, EnvError, ProtocolError, SpecError
from rollouts.own_env.registrations import travelling
from rollouts.pool.options import Options, read_options
from rollouts.pool.pool_recipe import PoolRecipe, read_ids, resolve_pool

Info = dict[str, Any]
# obs, reward, terminated, truncated, info: tensors, or a dict of them by group of agents
Five = tuple[Any, Any, Any, Any, Info]


class TensorPool(ABC):
    """Construction, resets, faults, states and counts of N environments on a device."""

    metadata: dict[str, Any]
    # what _build makes
    obs_dtypes: list[str]  # of each group of agents, or of the one agent
    _envs: Clocks
    # how often somebody stepped, reset or set states, for collectors
    num_calls: int = 0

    def __init__(
        self,
        env_id: str | Sequence[str],
        num_envs: int | None = None,
        *,
        device: str | torch.device = "cuda",
        seed: int | None = None,
        autoreset_mode: str | AutoresetMode = "next_step",
        env_id_offset: int = 0,
        max_episode_steps: int | None = None,
        env_options: Mapping[str, Any] | None = None,
    ) -> None:
        """Compiles the kernels, or takes them from a cache; see `make_vec`."""
        self.closed = True  # until there is something to close
        ids, num_envs = read_ids(env_id, num_envs)
        if len({*ids}) > 1:
            raise SpecError("a pool of a GPU has environments of one id: leave device out to mix")
        given = dict(env_options or {})
        obs_dtype = str(given.pop("obs_dtype", "float32")).removeprefix("torch.")
        options = self._read_options(ids[0], given, num_envs, obs_dtype)
        recipe = resolve_pool(ids[:1], num_envs, max_episode_steps, options.native)
        self.env_spec = recipe.specs[ids[0]]
        self.num_envs = num_envs
        self.env_id_offset = whole_number("env_id_offset", env_id_offset, 0, 2**31 - 1 - num_envs)
        self.autoreset_mode = to_autoreset_mode(autoreset_mode)
        self.metadata = {"autoreset_mode": self.autoreset_mode}
        self._set_spaces()
        self.device, self.is_emulated = read_device(device)
        self._arguments: dict[str, Any] = {
            "device": str(device),
            "seed": seed,
            "autoreset_mode": self.autoreset_mode,
            "env_id_offset": env_id_offset,
            "max_episode_steps": max_episode_steps,
            "env_options": {**options.as_given(), "obs_dtype": obs_dtype},
        }
        self._build(recipe, options, obs_dtype)
        # a copy, which callers may write into
        self._env_ids = self._envs.clock["env_id"].clone()
        self._envs.seed([secrets.randbits(64) if seed is None else seed_value(seed)] * num_envs)
        self._env_steps = 0
        self._was_reset = False
        self.closed = False

    def _read_options(
        self, env_id: str, given: Mapping[str, Any], num_envs: int, obs_dtype: str
    ) -> Options:
        """Options of the environments; what no pool of this kind takes is refused."""
        options = read_options(given, num_envs, own_model=False)
        if options.model is not None:
            raise SpecError(f"model: {env_id} has no model of MuJoCo's")
        return options

    def _set_spaces(self) -> None:
        """Sets what is public of the spaces, and refuses environments of another kind."""
        self.single_action_space = self.env_spec.single_action_space
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.single_observation_space = self.env_spec.single_observation_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)

    @abstractmethod
    def _build(self, recipe: PoolRecipe, options: Options, obs_dtype: str) -> None:
        """Makes `_envs` and what steps them."""

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, Info]:
        """Starts new episodes and returns their first observations.

        Args:
          seed: As `VectorEnv.reset`.
          options: {"reset_mask": (N,) bool, array or tensor} resets the marked environments alone
            and returns all N observations. Every other entry is an option of the environments:
            one value or N, which hold from this episode on where one begins. Of physics those
            that kernels read: weights and ranges of the task.

        Returns:
          obs (N, *obs_shape) and info, as `step`.

        Raises:
          SpecError, DTypeError: As `VectorEnv.reset`.
          EnvError: Something went wrong before. ClosedError: The environment was closed.
        """
        self._check_open()
        given = dict(options_dict(options))
        mask = read_mask(given.pop("reset_mask", None), self.num_envs, self.device)
        seeds = seed_list(seed, self.num_envs)
        if mask is not None and not self._was_reset:
            raise ProtocolError("reset all environments before some of them")
        # errors first: nothing has changed when one is raised
        self._raise_fault()
        if mask is not None:
            self._check_others()
        begins = None if mask is None else mask.cpu().tolist()
        if given:
            self._change_options(given, begins)
        if begins is not None and seeds:
            seeds = [one if begun else None for one, begun in zip(seeds, begins, strict=True)]
        if seeds:
            self._envs.seed(seeds)
        obs, _, _, _, info = self._begin(mask)
        self.num_calls += 1
        self._was_reset = True
        return obs, info

    @abstractmethod
    def _change_options(self, given: dict[str, Any], begins: list[bool] | None) -> None:
        """Has those who begin, or all, take other options. Raises SpecError."""

    def _check_others(self) -> None:
        """Raises where environments that do not begin cannot go on. Does nothing here."""
        return None

    @abstractmethod
    def _begin(self, mask: Tensor | None) -> Five:
        """Begins episodes of the marked, or of all, and shows all."""

    def synchronize(self) -> None:
        """Waits for everything that was launched.

        Raises:
          EnvError: Something went wrong on the device since the last time; it names the env_id.
        """
        self._check_open()
        self._raise_fault()

    def _raise_fault(self) -> None:
        fault = self._take_fault()
        if fault is not None:
            env_id, what = fault
            raise EnvError(f"environment {env_id} {what}")

    @abstractmethod
    def _take_fault(self) -> tuple[int, str] | None:
        """(env_id, what went wrong) of one environment, and forgets it. Waits for the device."""

    def stats(self) -> DeviceStats:
        """Counts since the environments were made; does not wait for the device.

        Raises:
          ClosedError: The environment was closed.
        """
        self._check_open()
        episodes = self._envs.totals["episodes"].sum()
        return DeviceStats(
            env_steps=self._env_steps,
            num_launches=self._num_launches,
            num_episodes=episodes,
            episode_length=self._envs.totals["lengths"].sum() / episodes.double(),
            episode_return=self._envs.totals["returns"].sum() / episodes,
        )

    @property
    @abstractmethod
    def _num_launches(self) -> int:
        """Launches, or graphs of them, so far."""

    def get_state(self, env_id: Sequence[int] | None = None) -> list[bytes]:
        """Saves environments whole, as `VectorEnv.get_state`.

        Raises:
          EnvError: Something went wrong before. SpecError: Not ids of this environment.
          ProtocolError: Never reset. ClosedError: It was closed.
        """
        self._check_steps()
        rows = self._rows_of(env_id)
        self._raise_fault()
        return self._save(rows)

    def set_state(
        self, env_id: Sequence[int] | None, state: Sequence[bytes | bytearray | memoryview]
    ) -> None:
        """Puts states of `get_state` into environments, as `VectorEnv.set_state`.

        Raises:
          As `VectorEnv.set_state`; EnvError: Something went wrong before.
        """
        self._check_open()
        rows = self._rows_of(env_id)
        states = as_bytes(state)
        if len(states) != len(rows):
            raise SpecError(f"got {len(states)} states for {len(rows)} environments")
        if not self._was_reset and len(rows) < self.num_envs:
            raise ProtocolError("the other environments were never reset: call reset first")
        self._raise_fault()
        self._load(rows, states)
        self.num_calls += 1
        self._was_reset = True

    @abstractmethod
    def open_rows(self) -> Any:
        """A row set of one step, its holder's alone, whose launch `step_rows` takes."""

    @abstractmethod
    def refill(self, launch: Any) -> None:
        """Has a launch that was made before know what the environments are now."""

    @abstractmethod
    def step_rows(self, launch: Any, actions: list[Tensor]) -> None:
        """Steps all environments into the rows that a launch names.

        Args:
          launch: Of `open_rows`.
          actions: (N, *action_shape) for each group, as the kernel takes them: nothing is checked.
            `count_steps` is told of such steps.
        """

    def count_steps(self, num_steps: int) -> None:
        """Counts steps of all environments that `step_rows` took."""
        self._env_steps += num_steps * self.num_envs
        self.num_calls += 1

    @abstractmethod
    def _save(self, rows: Sequence[int]) -> list[bytes]:
        """States of environments."""

    @abstractmethod
    def _load(self, rows: Sequence[int], states: list[bytes]) -> None:
        """Takes over states. Raises SpecError; nothing has changed then."""

    def _rows_of(self, env_id: Sequence[int] | None) -> list[int]:
        if env_id is None:
            return [*range(self.num_envs)]
        try:
            rows = [operator.index(one) - self.env_id_offset for one in env_id]
        except TypeError:
            raise DTypeError(
                "env_id must be a one-dimensional integer array, such as info['env_id'], got "
                f"{env_id!r}"
            ) from None
        if len({*rows}) != len(rows) or not all(0 <= row < self.num_envs for row in rows):
            first, last = self.env_id_offset, self.env_id_offset + self.num_envs - 1
            raise SpecError(f"env_id {[*env_id]} must be ids from {first} to {last}, none twice")
        return rows

    def _check_open(self) -> None:
        if self.closed:
            raise ClosedError("the environment was closed: make a new one")

    def _check_steps(self) -> None:
        self._check_open()
        if not self._was_reset:
            raise ProtocolError("the environments were never reset: call reset first")

    @abstractmethod
    def close_extras(self, **kwargs: Any) -> None:
        """Frees all that nobody holds."""

    def close(self, **kwargs: Any) -> None:
        """Frees the environments. May be called twice."""
        if not self.closed:
            self.close_extras(**kwargs)
            self.closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the arguments, not the state."""
        make = functools.partial(type(self), **self._arguments)
        return make, (travelling(self.env_spec.id), self.num_envs)

    def __repr__(self) -> str:
        return (
            f"rollouts.{type(self).__name__}({self.env_spec.id!r}, num_envs={self.num_envs}, "
            f"device={self._arguments['device']!r}, autoreset_mode={self.autoreset_mode.name})"
        )
