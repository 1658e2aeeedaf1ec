# SPDX-License-Identifier: Apache-2.0
"""`DevicePool`: environments and their kernel, before they have the face of an API."""

from __future__ import annotations

import functools
import math
import secrets
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch
from gymnasium.vector import AutoresetMode

from rollouts import _native
from rollouts.checks import as_bytes, seed_value, to_autoreset_mode, whole_number
from rollouts.device.arguments import read_device
from rollouts.device.env_arrays import EnvArrays
from rollouts.device.kernel import BlockShape, Kernel
from rollouts.device.kernel_source import KernelSource
from rollouts.device.launch_args import Fault, Launch, StepRules
from rollouts.device.rows import RowRing
from rollouts.device.stats import DeviceStats, StepCost
from rollouts.errors import ClosedError, EnvError, ProtocolError, SpecError
from rollouts.own_env.registrations import travelling
from rollouts.pool.options import read_options
from rollouts.pool.pool_recipe import read_ids, resolve_pool

Info = dict[str, Any]
# obs, reward, terminated, truncated, info: tensors, or a dict of them by group of agents
Five = tuple[Any, Any, Any, Any, Info]

# in the order of the native enum
_AUTORESET = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED]
_CPU = "leave device out; rollouts.device_queue.DeviceQueue moves batches of the C++ pool to a GPU"
_FAULTS = {
    Fault.NOT_FINITE: "its state was not finite after a step; its options may be beyond what its "
    "integrator can stand. Its episode was cut off there",
    Fault.NO_SUCH_ACTION: "got an action that is not in its space; the first one there was taken "
    "in its place",
    Fault.ENDED: "was stepped after its episode had ended, with autoreset disabled: it stayed as "
    "it was. Reset it by reset(options={'reset_mask': ...})",
    Fault.POLICY: "got a policy whose value or log_prob was not finite: look at its weights and at "
    "the observation. Its action was the space's first, or 0",
    Fault.LAYOUT: "has arrays that lie elsewhere for the kernel than for the C++ pool, and was not "
    "stepped: name the types of its numbers by their size, such as float or std::int32_t",
}


class DevicePool(ABC):
    """Construction, faults, states and counts; `stepping.py` has what launches."""

    metadata: dict[str, Any]
    # what _build makes
    obs_dtypes: list[str]  # of each group of agents, or of the one agent
    _kernel: Kernel
    _source: KernelSource
    _block: BlockShape
    _envs: EnvArrays
    _ring: RowRing[Any]

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
        """Compiles the kernel, or takes it from the cache; see `make_vec`."""
        self.closed = True  # until there is something to close
        ids, num_envs = read_ids(env_id, num_envs)
        if len({*ids}) > 1:
            raise SpecError("a pool of a GPU has environments of one id: leave device out to mix")
        options = dict(env_options or {})
        obs_dtype = options.pop("obs_dtype", "float32")
        columns = read_options(options, num_envs, own_model=False).native
        recipe = resolve_pool(ids[:1], num_envs, max_episode_steps, columns)
        self.env_spec = recipe.specs[ids[0]]
        if self.env_spec.cpu_only:
            raise SpecError(f"{ids[0]} hosts an engine of the CPU: {_CPU}")
        self.num_envs = num_envs
        self.env_id_offset = whole_number("env_id_offset", env_id_offset, 0, 2**31 - 1 - num_envs)
        self.autoreset_mode = to_autoreset_mode(autoreset_mode)
        self.metadata = {"autoreset_mode": self.autoreset_mode}
        self._set_spaces()
        self._arguments: dict[str, Any] = {
            "device": str(device),
            "seed": seed,
            "autoreset_mode": self.autoreset_mode,
            "env_id_offset": env_id_offset,
            "max_episode_steps": max_episode_steps,
            "env_options": {**columns, "obs_dtype": str(obs_dtype).removeprefix("torch.")},
        }

        (native_id, _, limit, internal) = recipe.segments[0]
        self.device, self.is_emulated = read_device(device)
        self._rules = StepRules(_AUTORESET.index(self.autoreset_mode), limit)
        facts = _native.device_facts(native_id, {**columns, **internal}, num_envs)
        self._build(native_id, facts, obs_dtype, self.is_emulated)
        self._envs.set_options({**columns, **internal})
        self._option_names = recipe.option_names
        # a copy, which callers may write into
        self._env_ids = self._envs.clock["env_id"].clone()
        self._envs.seed([secrets.randbits(64) if seed is None else seed_value(seed)] * num_envs)
        self._env_steps = 0
        self._was_reset = False
        self._pending: Five | None = None
        self.closed = False

    @abstractmethod
    def _set_spaces(self) -> None:
        """Sets what is public of the spaces."""

    @abstractmethod
    def _build(
        self, native_id: str, facts: dict[str, Any], obs_dtype: Any, is_emulated: bool
    ) -> None:
        """Makes the kernel, the arrays and the ring of rows."""

    def _choose_block(self, most_shared_bytes: int) -> BlockShape:
        """The block where one may have so much shared memory."""
        return self._block

    def _fill(self, launch: Launch) -> None:
        """Writes into a launch what all launches of this pool have in common."""
        launch.rules, launch.num_steps = self._rules, 1
        self._envs.fill(launch)

    def _check_open(self) -> None:
        if self.closed:
            raise ClosedError("the environment was closed: make a new one")

    def _check_steps(self) -> None:
        self._check_open()
        if not self._was_reset:
            raise ProtocolError("the environments were never reset: call reset first")

    def _raise_fault(self) -> None:
        fault = self._envs.take_fault()
        if fault is not None:
            env_id, kind = fault
            raise EnvError(f"environment {env_id} {_FAULTS[Fault(kind)]}")

    def synchronize(self) -> None:
        """Waits for everything that was launched.

        Raises:
          EnvError: Something went wrong on the device since the last time; it names the env_id.
        """
        self._check_open()
        self._raise_fault()

    def step_cost(self, most_shared_bytes: int | None = None) -> StepCost:
        """What a step of all environments asks of a GPU.

        Args:
          most_shared_bytes: That a block of that GPU may have; None: of this one.

        Raises:
          ClosedError: The environment was closed.
        """
        self._check_open()
        rows = self._ring.take().step_bytes / self.num_envs
        spaces = [(one.num_agents, one.single_action_space) for one in self.env_spec.groups]
        # words of 32 bits, though whole numbers may come with 64
        actions = 4 * sum(
            count * math.prod(space.shape or ())
            for count, space in spaces or [(1, self.env_spec.single_action_space)]
        )
        block = self._block if most_shared_bytes is None else self._choose_block(most_shared_bytes)
        return StepCost(self._source, block, rows + actions + self._envs.moved_bytes)

    def stats(self) -> DeviceStats:
        """Counts since the environments were made; does not wait for the device.

        Raises:
          ClosedError: The environment was closed.
        """
        self._check_open()
        episodes = self._envs.totals["episodes"].sum()
        return DeviceStats(
            env_steps=self._env_steps,
            num_launches=self._kernel.num_launches,
            num_episodes=episodes,
            episode_length=self._envs.totals["lengths"].sum() / episodes.double(),
            episode_return=self._envs.totals["returns"].sum() / episodes,
        )

    def get_state(self, env_id: Sequence[int] | None = None) -> list[bytes]:
        """Saves environments whole, as `VectorEnv.get_state`, which understands these states.

        Raises:
          EnvError: Something went wrong before. SpecError: Not ids of this environment.
          ProtocolError: Never reset. ClosedError: It was closed.
        """
        self._check_steps()
        rows = self._rows_of(env_id)
        self._raise_fault()
        return self._envs.save(rows)

    def set_state(
        self, env_id: Sequence[int] | None, state: Sequence[bytes | bytearray | memoryview]
    ) -> None:
        """Puts states of `get_state`, or of VectorEnv's, into environments.

        Reals of a light environment are rounded to 32 bits. Otherwise as `VectorEnv.set_state`.

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
        self._envs.load(rows, states)
        self._was_reset = True

    def _rows_of(self, env_id: Sequence[int] | None) -> list[int]:
        if env_id is None:
            return [*range(self.num_envs)]
        rows = [int(one) - self.env_id_offset for one in env_id]
        if len({*rows}) != len(rows) or not all(0 <= row < self.num_envs for row in rows):
            first, last = self.env_id_offset, self.env_id_offset + self.num_envs - 1
            raise SpecError(f"env_id {[*env_id]} must be ids from {first} to {last}, none twice")
        return rows

    def close_extras(self, **kwargs: Any) -> None:
        """Frees all that nobody holds."""
        self._ring.forget()
        del self._envs, self._kernel

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
