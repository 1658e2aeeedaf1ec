# SPDX-License-Identifier: Apache-2.0
"""`DevicePool`: environments and their kernel, before they have the face of an API."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from rollouts import _native
from rollouts.device.env_arrays import EnvArrays
from rollouts.device.kernel import BlockShape, Kernel
from rollouts.device.kernel_source import KernelSource
from rollouts.device.launch_args import Fault, Launch, StepRules
from rollouts.device.rows import RowRing
from rollouts.device.stats import StepCost
from rollouts.device.tensor_pool import Five, TensorPool
from rollouts.errors import SpecError
from rollouts.pool.engine import AUTORESET
from rollouts.pool.options import Options
from rollouts.pool.pool_recipe import PoolRecipe

_CPU = "leave device out; rollouts.device_queue.DeviceQueue moves batches of the C++ pool to a GPU"
FAULTS = {
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


class DevicePool(TensorPool):
    """A kernel of ours, and its arrays; `stepping.py` has what launches."""

    # what _make makes
    _kernel: Kernel
    _source: KernelSource
    _block: BlockShape
    _envs: EnvArrays
    _ring: RowRing[Any]

    def _build(self, recipe: PoolRecipe, options: Options, obs_dtype: str) -> None:
        if self.env_spec.cpu_only:
            raise SpecError(f"{self.env_spec.id} hosts an engine of the CPU: {_CPU}")
        (native_id, _, limit, internal) = recipe.segments[0]
        columns = {**options.native, **internal}
        self._rules = StepRules(AUTORESET.index(self.autoreset_mode), limit)
        facts = _native.device_facts(native_id, columns, self.num_envs)
        self._make(native_id, facts, obs_dtype)
        self._envs.set_options(columns)
        self._option_names = recipe.option_names
        self._pending: Five | None = None

    @abstractmethod
    def _make(self, native_id: str, facts: dict[str, Any], obs_dtype: str) -> None:
        """Makes the kernel, the arrays and the ring of rows."""

    def _choose_block(self, most_shared_bytes: int) -> BlockShape:
        """The block where one may have so much shared memory."""
        return self._block

    def _fill(self, launch: Launch) -> None:
        """Writes into a launch what all launches of this pool have in common."""
        launch.rules, launch.num_steps = self._rules, 1
        self._envs.fill(launch)

    def _take_fault(self) -> tuple[int, str] | None:
        fault = self._envs.take_fault()
        return None if fault is None else (fault[0], FAULTS[Fault(fault[1])])

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

    @property
    def _num_launches(self) -> int:
        return self._kernel.num_launches

    def set_state(
        self, env_id: Sequence[int] | None, state: Sequence[bytes | bytearray | memoryview]
    ) -> None:
        """Puts states of `get_state`, or of VectorEnv's, into environments.

        Reals of a light environment are rounded to 32 bits. Otherwise as `VectorEnv.set_state`.

        Raises:
          As `VectorEnv.set_state`; EnvError: Something went wrong before.
        """
        super().set_state(env_id, state)

    def _save(self, rows: Sequence[int]) -> list[bytes]:
        return self._envs.save(rows)

    def _load(self, rows: Sequence[int], states: list[bytes]) -> None:
        self._envs.load(rows, states)

    def close_extras(self, **kwargs: Any) -> None:
        """Frees all that nobody holds."""
        self._ring.forget()
        del self._envs, self._kernel
