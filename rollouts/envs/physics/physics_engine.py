# SPDX-License-Identifier: Apache-2.0
"""`PhysicsEngine`: MuJoCo tasks that mujoco_warp steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from rollouts.checks import whole_number
from rollouts.envs.kernel.device_engine import DeviceEngine, DeviceSetting
from rollouts.envs.options import Options, read_options
from rollouts.envs.physics.library import load_library
from rollouts.envs.physics.supported import MEMORY_OPTIONS, ON_CPU_ALONE, PHYSICS_IDS
from rollouts.envs.pool_recipe import PoolRecipe
from rollouts.errors import EngineError, SpecError
from rollouts.families.model_fields import read_field
from rollouts.own_model.model_options import ENV_ID

if TYPE_CHECKING:
    from rollouts.envs.physics.bare import BarePhysics
    from rollouts.envs.physics.physics_steps import PhysicsSteps


class PhysicsEngine(DeviceEngine):
    """N environments of a MuJoCo task, or of a user's own model, which mujoco_warp simulates.

    Random streams, autoreset modes and options are those of the C++ pool. The physics differs:
    numbers are 32-bit and the solver is Newton's, so that trajectories diverge from MuJoCo's. A GPU
    adds contacts in any order, so that runs with one seed differ in the last bits. `model=` and
    `reset(options={"model": ...})` work as in `make_vec`, for fields that mujoco_warp supports.

    A step is one CUDA graph on torch's current stream, and the call does not wait for it: an error
    on the device is raised by the next `synchronize`, `reset`, `get_state` or `set_state`. A step
    cannot be part of another graph. Returned tensors are the caller's own.

    `device="cpu-emulation"` runs the same kernels on the host, by Warp's CPU device. It is slow,
    and meant for tests.
    """

    name = "a pool that mujoco_warp steps"
    kind = "physics"
    steps: PhysicsSteps

    def _read_options(
        self, id: str, given: Mapping[str, Any], num_envs: int, obs_dtype: str
    ) -> Options:
        if id in ON_CPU_ALONE:
            raise SpecError(
                f"{id} is for the CPU: {ON_CPU_ALONE[id]}. Leave device out: C++ threads step it"
            )
        if id not in PHYSICS_IDS:
            raise SpecError(
                f"mujoco_warp steps no {id} here, expected one of {', '.join(sorted(PHYSICS_IDS))}"
            )
        load_library()
        if obs_dtype != "float32":
            raise SpecError(f"obs_dtype is {obs_dtype!r}, expected 'float32' of physics")
        given = dict(given)
        self._memory = {
            name: None if given.get(name) is None else whole_number(name, given[name], 1, 2**24)
            for name in MEMORY_OPTIONS
        }
        for name in MEMORY_OPTIONS:
            given.pop(name, None)
        is_own = id == ENV_ID
        return read_options({**given, "obs_dtype": obs_dtype}, num_envs, own_model=is_own)

    def _make_steps(
        self, recipe: PoolRecipe, options: Options, obs_dtype: str, setting: DeviceSetting
    ) -> tuple[frozenset[str], PhysicsSteps]:
        if not setting.is_emulated and not torch.cuda.is_available():
            raise EngineError(
                f"device is {self.recipe[2]['device']!r}, and torch finds no GPU "
                "(torch.cuda.is_available() is False): leave device out for the C++ pool, or take "
                "'cpu-emulation' to test"
            )
        self.recipe[2]["env_options"] |= self._memory
        # imports Warp
        from rollouts.envs.physics.physics_steps import PhysicsSteps

        steps = PhysicsSteps(recipe, options, self._memory, setting)
        return frozenset({"recipe", "states", "options", "model"}), steps

    def model_fields(self) -> list[str]:
        """As `VectorEnv.model_fields`, for mujoco_warp's model."""
        self.check_open()
        return self.steps.pool.fields.model_fields()

    def model_field(self, field: str, *, of_file: bool) -> npt.NDArray[Any]:
        """As `VectorEnv.model_field`, but present values have 32 bits. Waits for the device."""
        self.check_open()
        fields = self.steps.pool.fields
        return np.stack([read_field(fields, env, field, of_file) for env in range(self.num_envs)])

    def bare_physics(self) -> BarePhysics:
        """mujoco_warp's worlds with the same model and memory but no task, for benchmarks.

        Raises:
          ProtocolError: Never reset. ClosedError: The environment was closed.
        """
        self._check_rests()
        return self.steps.pool.bare_physics()
