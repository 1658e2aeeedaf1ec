# SPDX-License-Identifier: Apache-2.0
"""`KernelEngine`: light environments and worlds of agents, stepped by our own kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rollouts.envs.engine import Arrays
from rollouts.envs.kernel.device_engine import DeviceEngine, DeviceSetting
from rollouts.envs.kernel.kernel_steps import KernelSteps
from rollouts.envs.kernel.step_cost import StepCost
from rollouts.envs.options import Options, read_options
from rollouts.envs.pool_recipe import PoolRecipe
from rollouts.errors import SpecError

_CPU = "leave device out; rollouts.device_queue.DeviceQueue moves batches of the C++ pool to a GPU"


class KernelEngine(DeviceEngine):
    """N environments, stepped on a GPU by one launch of a kernel.

    Random streams, autoreset modes and options are those of the C++ pool, and each can load the
    other's states. The arithmetic of light environments is 32-bit; that of environments with agents
    has the widths that their header names: Tag's is 32-bit, MPE's 64-bit. A single thread steps a
    small world of at most 8 agents. A team of threads steps a larger one: a block if it has more
    than 32 agents, else a part of a warp.

    Launches go on torch's current stream and no call waits for them: errors on the device (a state
    that is not finite, an action that does not exist) are raised by the next `synchronize`,
    `get_state`, `set_state` or `reset`. Returned tensors are written again only when none of them
    is referenced, so keeping them is safe. Code that uses them on another stream must wait for that
    stream before dropping them, as with any tensor of torch.

    Steps may be captured in a CUDA graph, after one step outside of it. The tensors of a captured
    step are written by every replay, and by nothing else. Its random actions are the same in each
    replay. `stats` counts launches and the episodes of replays, but not replays. Capture again
    after a `reset` with options, and do not replay after the pool is closed.

    `device="cpu-emulation"` runs the same kernels as loops on the host, one thread after the other.
    It is slow, and for tests.
    """

    name = "a pool that a kernel steps"
    kind = "kernel"
    steps: KernelSteps

    def _read_options(
        self, id: str, given: Mapping[str, Any], num_envs: int, obs_dtype: str
    ) -> Options:
        options = read_options(given, num_envs, own_model=False)
        if options.model is not None:
            raise SpecError(f"model: {id} has no model of MuJoCo's")
        return options

    def _make_steps(
        self, recipe: PoolRecipe, options: Options, obs_dtype: str, setting: DeviceSetting
    ) -> tuple[frozenset[str], KernelSteps]:
        if self.env_spec.cpu_only:
            raise SpecError(f"{self.env_spec.id} hosts an engine of the CPU: {_CPU}")
        can = frozenset({"recipe", "states", "options", "rollout", "graph"})
        return can, KernelSteps(recipe, options.native, obs_dtype, setting)

    def rollout(
        self, num_steps: int, actions: Any, action_seed: int, record: bool
    ) -> tuple[Arrays, list[Any]]:
        """As `PoolFace.rollout`; rows, and actions that were recorded."""
        self._check_rests()
        first_step = self._env_steps // self.num_envs
        made = self.steps.rollout(num_steps, actions, action_seed, record, first_step)
        self.count_steps(num_steps)
        return made

    def step_cost(self, most_shared_bytes: int | None = None) -> StepCost:
        """Kernel, launch and memory traffic of a step of all environments.

        Args:
          most_shared_bytes: Shared memory that a block of that GPU may have; None: this GPU's.

        Raises:
          ClosedError: The environment was closed.
        """
        self.check_open()
        return self.steps.cost(most_shared_bytes)
