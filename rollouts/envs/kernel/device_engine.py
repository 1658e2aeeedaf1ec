# SPDX-License-Identifier: Apache-2.0
"""`DeviceEngine`: the common part of engines that step environments on a device."""

from __future__ import annotations

import functools
import operator
import secrets
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy.typing as npt
import torch
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from torch import Tensor

from rollouts.batch import ENV_ID, EPISODE_LENGTH, EPISODE_RETURN, NUM_STEP_ARRAYS, STEP_ARRAYS
from rollouts.checks import (
    as_bytes,
    option_array,
    options_dict,
    seconds,
    seed_list,
    seed_value,
    to_autoreset_mode,
    whole_number,
)
from rollouts.envs.engine import Arrays, Info, NoStatistics, lacking, refuse
from rollouts.envs.kernel.clocks import Clocks
from rollouts.envs.kernel.device_arguments import read_device, read_mask
from rollouts.envs.observation_parts import ObservationParts
from rollouts.envs.options import Columns, Options
from rollouts.envs.pool_recipe import PoolRecipe, read_ids, resolve_pool
from rollouts.envs.stats import DeviceStats
from rollouts.errors import ClosedError, DTypeError, EnvError, ProtocolError, SpecError
from rollouts.own_env.registrations import travelling
from rollouts.specs import EnvSpec, OptionValue

_FINAL_OBS = STEP_ARRAYS.index("final_obs")


@dataclass(frozen=True, slots=True)
class DeviceSetting:
    """The environments' device, and the settings for their launches.

    Attributes:
      num_envs: Environments N.
      device: `torch.device` of all tensors.
      is_emulated: Whether the host runs the kernels.
      env_id_offset: Global id of the first environment.
      autoreset_mode: Gymnasium's.
      max_episode_steps: Time limit; 0: none.
    """

    num_envs: int
    device: torch.device
    is_emulated: bool
    env_id_offset: int
    autoreset_mode: AutoresetMode
    max_episode_steps: int


class Steps(Protocol):
    """Launches over the arrays of N environments; the engine checks the calls.

    Attributes:
      arrays: Clocks, totals and seeds.
      obs_dtypes: Names of dtypes, one for each group of agents or of the one agent.
      info_names: Names of the environments' own infos.
      columns: Options in force that were given or changed.
      num_launches: The number of launches so far.
    """

    obs_dtypes: list[str]
    info_names: tuple[str, ...]

    @property
    def arrays(self) -> Clocks:
        """Clocks, totals and seeds as tensors."""

    @property
    def columns(self) -> Columns:
        """Options that were given or changed; the others are at their defaults."""

    @property
    def num_launches(self) -> int:
        """The number of launches so far, graphs counted once."""

    @property
    def buffer_bytes(self) -> int:
        """Bytes of rows that are kept to be reused."""

    def begin(self, mask: Tensor | None) -> Arrays:
        """Begins episodes of the marked environments, or of all, and returns rows of all."""

    def step(self, actions: Any) -> Arrays:
        """Checks actions and steps all environments, unless `check` raises."""

    def no_rows(self) -> Arrays:
        """A batch of no environment."""

    def check(self) -> None:
        """Raises where environments cannot continue without a reset of all."""

    def change(self, given: dict[str, Any], begins: list[bool] | None) -> None:
        """Sets other options in environments that begin, or in all. Raises SpecError."""

    def take_fault(self) -> tuple[int, str] | None:
        """Returns and clears (env_id, description) of a fault. Waits for the device."""

    def save(self, rows: Sequence[int]) -> list[bytes]:
        """States of environments."""

    def load(self, rows: Sequence[int], states: list[bytes]) -> None:
        """Takes over states. Raises SpecError; nothing has changed then."""

    def open_rows(self) -> Any:
        """Returns a row set of one step for a single holder; its launch is for `step_rows`."""

    def refill(self, launch: Any) -> None:
        """Updates an existing launch to the environments' present arrays and options."""

    def step_rows(self, launch: Any, actions: list[Tensor]) -> None:
        """Steps all environments into the rows that a launch names.

        Args:
          launch: What `open_rows` returned.
          actions: (N, *action_shape) for each group, in the kernel's form, without checks. Count
            such steps by `DeviceEngine.count_steps`.
        """

    def close(self) -> None:
        """Frees all memory that is not referenced elsewhere."""


class DeviceEngine(ABC):
    """N environments whose arrays are tensors on a device.

    No call waits for a launch. Errors on the device are raised by the next `synchronize`, `reset`,
    `save` or `load`.

    Attributes:
      device, is_emulated: The tensors' device, and whether the host runs the kernels.
      steps: Launches over the environments' arrays; collectors also use it.
      recipe: Ids, N and the other arguments, from which any process can make this engine again.
    """

    name: str
    kind: str
    parts: ObservationParts | None = None
    num_threads = 0
    render_mode: str | None = None
    why_not_collects = "its environments are on a device, and no threads step them"

    def __init__(
        self,
        id: str | Sequence[str],
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
        ids, num_envs = read_ids(id, num_envs)
        if len({*ids}) > 1:
            raise SpecError("a pool of a GPU has environments of one id: leave device out to mix")
        given = dict(env_options or {})
        obs_dtype = str(given.pop("obs_dtype", "float32")).removeprefix("torch.")
        options = self._read_options(ids[0], given, num_envs, obs_dtype)
        recipe = resolve_pool(ids[:1], num_envs, max_episode_steps, options.native)
        self._take_spec(recipe.specs[ids[0]], num_envs)
        self.env_id_offset = whole_number("env_id_offset", env_id_offset, 0, 2**31 - 1 - num_envs)
        self.autoreset_mode = to_autoreset_mode(autoreset_mode)
        self.metadata: dict[str, Any] = {}
        self.device, self.is_emulated = read_device(device)
        arguments: dict[str, Any] = {
            "device": str(device),
            "seed": seed,
            "autoreset_mode": self.autoreset_mode,
            "env_id_offset": env_id_offset,
            "max_episode_steps": max_episode_steps,
            "env_options": {**options.as_given(), "obs_dtype": obs_dtype},
        }
        self.recipe: tuple[str | list[str], int, dict[str, Any]] = (
            travelling(self.env_spec.id),
            num_envs,
            arguments,
        )
        (_, _, limit, _) = recipe.segments[0]
        setting = DeviceSetting(
            num_envs,
            self.device,
            self.is_emulated,
            self.env_id_offset,
            self.autoreset_mode,
            limit,
        )
        self.can, self.steps = self._make_steps(recipe, options, obs_dtype, setting)
        self.info_names = self.steps.info_names
        self.has_columns = bool(self.info_names)
        self.statistics = NoStatistics(self.name)
        self._option_names = recipe.option_names
        seed = secrets.randbits(64) if seed is None else seed_value(seed)
        self.steps.arrays.seed([seed] * num_envs)
        self.num_calls = 0
        self._env_steps = self._env_steps_before = self._launches_before = 0
        # counts are readable after close, which frees the other arrays
        self._totals, self._launches = self.steps.arrays.totals, 0
        self._pending: Arrays | None = None
        self._was_reset = self.closed = False

    @abstractmethod
    def _read_options(
        self, id: str, given: Mapping[str, Any], num_envs: int, obs_dtype: str
    ) -> Options:
        """Returns the environments' options; raises SpecError for one that only others have."""

    @abstractmethod
    def _make_steps(
        self, recipe: PoolRecipe, options: Options, obs_dtype: str, setting: DeviceSetting
    ) -> tuple[frozenset[str], Steps]:
        """Returns the engine's features, and the object that launches."""

    def _take_spec(self, spec: EnvSpec, num_envs: int) -> None:
        self.env_spec, self.num_envs, self.batch_size = spec, num_envs, num_envs
        self.groups = tuple(spec.groups)
        if not self.groups:
            self.single_action_space = spec.single_action_space
            self.action_space = batch_space(self.single_action_space, num_envs)
            self.single_observation_space = spec.single_observation_space
            self.observation_space = batch_space(self.single_observation_space, num_envs)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the arguments, not the state."""
        env_id, num_envs, arguments = self.recipe
        return functools.partial(type(self), **arguments), (env_id, num_envs)

    def close(self, **kwargs: Any) -> None:
        """Frees the environments. May be called twice."""
        if not self.closed:
            self._pending = None
            self._launches = self.steps.num_launches
            self.steps.close()
            self.closed = True

    def describe(self) -> str:
        """Id, size and device."""
        return (
            f"{self.env_spec.id!r}, num_envs={self.num_envs}, "
            f"device={self.recipe[2]['device']!r}, autoreset_mode={self.autoreset_mode.name}"
        )

    # -- stepping ------------------------------------------------------------------

    def reset(
        self, seed: int | Sequence[int | None] | None, options: dict[str, Any] | None
    ) -> Arrays:
        """Starts episodes as `VectorEnv.reset`; a mask may be a tensor."""
        self.check_open()
        given = dict(options_dict(options))
        mask = read_mask(given.pop("reset_mask", None), self.num_envs, self.device)
        seeds = seed_list(seed, self.num_envs)
        if mask is not None and not self._was_reset:
            raise ProtocolError("reset all environments before some of them")
        # checks come first, so that an error changes nothing
        self._raise_fault()
        if mask is not None:
            self.steps.check()
        begins = None if mask is None else mask.cpu().tolist()
        if given:
            self.steps.change(given, begins)
        if begins is not None and seeds:
            seeds = [one if begun else None for one, begun in zip(seeds, begins, strict=True)]
        if seeds:
            self.steps.arrays.seed(seeds)
        return self._begin(mask)

    def _begin(self, mask: Tensor | None) -> Arrays:
        self._pending = None
        arrays = self.steps.begin(mask)
        self.num_calls += 1
        self._was_reset = True
        return arrays

    def async_reset(self) -> None:
        """Starts a new episode everywhere without waiting."""
        self.check_open()
        self._pending = self._begin(None)

    def step(
        self, actions: Any, env_id: npt.ArrayLike | None, out: dict[str, Any] | None
    ) -> Arrays:
        """Launches a step of all environments and returns its arrays, which are filled later."""
        if env_id is not None:
            refuse(self, "async")
        if out is not None:
            refuse(self, "out")
        if self.closed or not self._was_reset or self._pending is not None:
            self._check_rests()
        arrays = self.steps.step(actions)
        # the same as count_steps, without the time of a call
        self._env_steps += self.num_envs
        self.num_calls += 1
        return arrays

    def send(self, actions: Any, env_id: npt.ArrayLike | None, out: dict[str, Any] | None) -> None:
        """Launches a step; `recv` returns its batch."""
        self._pending = self.step(actions, env_id, out)

    def recv(self, timeout_s: float | None, min_envs: int | None, max_envs: int | None) -> Arrays:
        """Returns the batch of the last `send` or `async_reset` without waiting."""
        self.check_open()
        seconds("timeout_s", timeout_s)
        if min_envs is not None or max_envs is not None:
            refuse(self, "async")
        if self._pending is None:
            raise ProtocolError("nothing was sent: call send before recv")
        arrays, self._pending = self._pending, None
        self.num_calls += 1
        return arrays

    def drain(self, timeout_s: float | None) -> Arrays:
        """Does the same as `recv`, but returns no rows if nothing was sent."""
        if self._pending is not None:
            return self.recv(timeout_s, None, None)
        self.check_open()
        seconds("timeout_s", timeout_s)
        self.num_calls += 1
        return self.steps.no_rows()

    def rollout(
        self, num_steps: int, actions: Any, action_seed: int, record: bool
    ) -> tuple[Arrays, list[Any]]:
        """Does the steps of `PoolFace.rollout`; returns rows, and actions that were recorded."""
        refuse(self, "rollout")

    def synchronize(self) -> None:
        """Waits for everything that was launched.

        Raises:
          EnvError: Something went wrong on the device since the last time; it names the env_id.
        """
        self.check_open()
        self._raise_fault()

    def count_steps(self, num_steps: int) -> None:
        """Counts steps of all environments, including those of `Steps.step_rows`."""
        self._env_steps += num_steps * self.num_envs
        self.num_calls += 1

    @property
    def num_in_flight(self) -> int:
        """Environments sent and not yet received."""
        return 0 if self._pending is None else self.num_envs

    # -- what a batch says ---------------------------------------------------------

    def info(self, arrays: Arrays) -> Info:
        """Columns of the batch by name; final_obs and final_info are valid where ended."""
        names = self.info_names
        info: Info = {
            "env_id": arrays[ENV_ID],
            "episode_return": arrays[EPISODE_RETURN],
            "episode_length": arrays[EPISODE_LENGTH],
        }
        for index, name in enumerate(names, NUM_STEP_ARRAYS):
            info[name] = arrays[index]
        if arrays[_FINAL_OBS] is not None:
            info["final_obs"] = arrays[_FINAL_OBS]
            if names:
                final = arrays[NUM_STEP_ARRAYS + len(names) :]
                info["final_info"] = dict(zip(names, final, strict=True))
        return info

    def columns(self, arrays: Arrays) -> Info:
        """The environment's own columns; where an episode ended, those of its last step."""
        names = self.info_names
        begun = dict(zip(names, arrays[NUM_STEP_ARRAYS:], strict=False))
        if arrays[_FINAL_OBS] is None or not names:
            return begun
        final = arrays[NUM_STEP_ARRAYS + len(names) :]
        ended = arrays[2] | arrays[3]
        return {
            name: torch.where(ended.reshape(-1, *[1] * (one.ndim - 1)), last, one)
            for (name, one), last in zip(begun.items(), final, strict=True)
        }

    # -- states, options, counts ---------------------------------------------------

    def save(self, env_id: npt.ArrayLike | None) -> list[bytes]:
        """As `VectorEnv.get_state`. EnvError: There was an error on the device before."""
        self._check_rests()
        self.steps.check()
        rows = self._rows_of(env_id)
        self._raise_fault()
        return self.steps.save(rows)

    def load(self, env_id: npt.ArrayLike | None, states: Sequence[Any]) -> None:
        """As `VectorEnv.set_state`. EnvError: There was an error on the device before."""
        self.check_open()
        rows = self._rows_of(env_id)
        given = as_bytes(states)
        if len(given) != len(rows):
            raise SpecError(f"got {len(given)} states for {len(rows)} environments")
        if not self._was_reset and len(rows) < self.num_envs:
            raise ProtocolError("the other environments were never reset: call reset first")
        self._check_landed()
        self._raise_fault()
        self.steps.load(rows, given)
        self.num_calls += 1
        self._was_reset = True

    def env_specs(self) -> tuple[EnvSpec, ...]:
        """The spec of the id, N times."""
        return (self.env_spec,) * self.num_envs

    def mujoco_engines(self) -> list[tuple[str, str]]:
        """("", ""): neither lanes nor MuJoCo step environments on a device."""
        return [("", "")]

    def env_options(self) -> dict[str, Any]:
        """As `VectorEnv.env_options`."""
        self.check_open()
        columns = {**self.env_spec.options, **self.steps.columns}
        return {
            name: option_array(value if isinstance(value, list) else [value])
            for name, value in sorted(columns.items())
            if name in self._option_names
        }

    @property
    def buffer_bytes(self) -> int:
        """Bytes of rows that are kept to be reused."""
        return 0 if self.closed else self.steps.buffer_bytes

    def stats(self) -> DeviceStats:
        """Counts since construction or `reset_stats`; does not wait for the device."""
        totals = self._totals
        episodes = totals["episodes"].sum()
        return DeviceStats(
            env_steps=self._env_steps - self._env_steps_before,
            num_launches=self._num_launches() - self._launches_before,
            num_episodes=episodes,
            episode_length=totals["lengths"].sum() / episodes.double(),
            episode_return=totals["returns"].sum() / episodes,
        )

    def reset_stats(self) -> None:
        """Begins the counts of `stats` anew."""
        self._env_steps_before = self._env_steps
        self._launches_before = self._num_launches()
        for total in self._totals.values():
            total.zero_()

    def _num_launches(self) -> int:
        return self._launches if self.closed else self.steps.num_launches

    # -- what no engine on a device does -------------------------------------------

    collect = lacking("collect")
    render = lacking("render")
    action_masks = lacking("masks")
    xla_handle = lacking("xla")
    model_fields = lacking("model")
    model_field = lacking("model")

    # -- checks --------------------------------------------------------------------

    def _rows_of(self, env_id: Any) -> list[int]:
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

    def _raise_fault(self) -> None:
        fault = self.steps.take_fault()
        if fault is not None:
            env_id, what = fault
            raise EnvError(f"environment {env_id} {what}")

    def check_open(self) -> None:
        """Raises ClosedError where the environments were closed."""
        if self.closed:
            raise ClosedError("the environment was closed: make a new one")

    def _check_landed(self) -> None:
        if self._pending is not None:
            raise ProtocolError("the last batch was not received: call recv or drain first")

    def _check_rests(self) -> None:
        """Raises unless all environments were reset and nothing is in flight."""
        self.check_open()
        if not self._was_reset:
            raise ProtocolError("the environments were never reset: call reset first")
        self._check_landed()


def changed_columns(
    spec: EnvSpec,
    before: Columns,
    given: Columns,
    begins: Sequence[bool] | None,
    num_envs: int,
) -> Columns:
    """Options in force after environments that begin, or all, have got the given ones."""
    if begins is None:
        return {**before, **given}

    def column(values: OptionValue | list[OptionValue]) -> list[OptionValue]:
        return values if isinstance(values, list) else [values] * num_envs

    kept = {name: before.get(name, spec.options[name]) for name in given}
    chosen: Columns = {
        name: [
            now if begun else then
            for now, then, begun in zip(column(values), column(kept[name]), begins, strict=True)
        ]
        for name, values in given.items()
    }
    return {**before, **chosen}
