# SPDX-License-Identifier: Apache-2.0
"""`PhysicsVectorEnv`: N MuJoCo tasks that mujoco_warp steps, with torch tensors in and out."""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium.vector import AutoresetMode
from gymnasium.vector import VectorEnv as GymnasiumVectorEnv
from torch import Tensor

from rollouts import _native
from rollouts.checks import whole_number
from rollouts.device.arguments import ActionReader
from rollouts.device.device_pool import FAULTS
from rollouts.device.launch_args import Command, EnvLaunch, Fault
from rollouts.device.rows import RowSet, RowSpec
from rollouts.device.tensor_pool import Five, Info, TensorPool
from rollouts.errors import EngineError, SpecError
from rollouts.families.model_fields import model_columns, read_field
from rollouts.families.table import family_of
from rollouts.own_model.options import ENV_ID
from rollouts.own_model.parts import Layout
from rollouts.physics.library import load_library
from rollouts.physics.supported import MEMORY_OPTIONS, PHYSICS_IDS
from rollouts.pool.engine import AUTORESET
from rollouts.pool.options import Options, read_options
from rollouts.pool.pool_recipe import PoolRecipe

if TYPE_CHECKING:
    from rollouts.physics.arrays import PhysicsArrays
    from rollouts.physics.bare import BarePhysics
    from rollouts.physics.pool import PhysicsPool

_FAULTS = {
    1: "its action or its state was not finite, or beyond 1e10, after a step: its episode was cut "
    "off there",
    2: "{overflow}. Its episode was cut off there",
    3: "was stepped after its episode had ended, with autoreset disabled: what it shows stayed. "
    "Reset it by reset(options={{'reset_mask': ...}})",
    4: "got a reward from its function that is not finite: its episode was cut off there",
    5: "found no start in which nothing touches, in 1000 draws: it begins with the last. Sizes or "
    "ranges of its model may leave none",
}


class PhysicsVectorEnv(TensorPool, GymnasiumVectorEnv[Tensor, Tensor, Tensor]):
    """N tasks of MuJoCo's, or a user's own model, whose physics is mujoco_warp.

    What VectorEnv is on the CPU, with the same random streams, autoreset modes and options, but
    other physics: numbers are 32-bit and the solver is Newton's, so trajectories part from
    MuJoCo's. On a GPU contacts are added up in any order: runs of one seed differ in last bits.
    `model=` and `reset(options={"model": ...})` as VectorEnv's, where mujoco_warp has it.

    A step is one CUDA graph on torch's current stream and nothing waits for it: what goes wrong on
    the device is raised by the next `synchronize`, `reset`, `get_state` or `set_state`. It cannot
    be part of another graph. Returned tensors are the caller's own.

    `device="cpu-emulation"` runs the same kernels on the host, by Warp's CPU device, for tests: it
    is not fast.

    Attributes:
      num_envs: Environments N.
      device: `torch.device` of all tensors.
      env_id_offset, env_spec, autoreset_mode: As VectorEnv.
    """

    _envs: PhysicsArrays

    def _read_options(
        self, env_id: str, given: Mapping[str, Any], num_envs: int, obs_dtype: str
    ) -> Options:
        if env_id not in PHYSICS_IDS:
            raise SpecError(
                f"mujoco_warp steps no {env_id} here, expected one of "
                f"{', '.join(sorted(PHYSICS_IDS))}"
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
        self._is_own = env_id == ENV_ID
        options = read_options({**given, "obs_dtype": obs_dtype}, num_envs, own_model=self._is_own)
        return options

    def _build(self, recipe: PoolRecipe, options: Options, obs_dtype: str) -> None:
        if not self.is_emulated and not torch.cuda.is_available():
            raise EngineError(
                f"device is {self._arguments['device']!r}, and torch finds no GPU "
                "(torch.cuda.is_available() is False): leave device out for the C++ pool, or take "
                "'cpu-emulation' to test"
            )
        self._arguments["env_options"] |= self._memory
        self.obs_dtypes = [obs_dtype]
        spec = self.env_spec
        (native_id, _, limit, internal) = recipe.segments[0]
        self._infos = self._info_shapes(native_id, {**spec.options, **internal})
        self._actions = ActionReader(self.single_action_space, (self.num_envs,), self.device)
        model_file = family_of(spec.header).model_file
        assert model_file is not None
        # brings Warp
        make_pool = importlib.import_module("rollouts.physics.pool").make_pool
        self._pool: PhysicsPool = make_pool(
            spec.id,
            model_file({**spec.options, **internal}),
            {**spec.options, **options.native, **internal},
            self.num_envs,
            (spec.single_observation_space.shape or (0,))[0],
            sum(math.prod(shape) for shape in self._infos.values()),
            device=self.device,
            env_id_offset=self.env_id_offset,
            autoreset=AUTORESET.index(self.autoreset_mode),
            max_episode_steps=limit,
            functions=options.functions,
            memory=self._memory,
        )
        self._envs = self._pool.arrays
        if options.model is not None:
            self._change_model(options.model, None)

    def _info_shapes(self, native_id: str, options: dict[str, Any]) -> dict[str, tuple[int, ...]]:
        """Of the task's own infos by name, in order."""
        if self._is_own:
            return {name: part.shape for name, part in Layout.of(options).info.items()}
        infos = _native.make_spec(native_id, options)["infos"]
        return {name: () if length is None else (length,) for name, _, length in infos}

    def _change_options(self, given: dict[str, Any], begins: list[bool] | None) -> None:
        read = read_options(given, self.num_envs, own_model=self._is_own)
        mask = None if begins is None else torch.tensor(begins, device=self.device)
        columns = self._pool.read_options(read.native)
        if read.model is not None:
            self._change_model(read.model, begins)
        # last, as nothing can be wrong with them any more
        self._pool.put_options(columns, mask)

    def _change_model(self, model: Any, begins: list[bool] | None) -> None:
        mask = np.ones(self.num_envs, np.bool_) if begins is None else np.array(begins, np.bool_)
        if mask.any():
            columns = model_columns(model, self._pool.fields, self.num_envs, mask)
            self._pool.change_model(columns, np.flatnonzero(mask).tolist())

    @property
    def model_fields(self) -> list[str]:
        """Fields that `reset(options={"model": ...})` may change; of mujoco_warp's model.

        Raises:
          ClosedError: The environment was closed.
        """
        self._check_open()
        return self._pool.fields.model_fields()

    def model_field(self, field: str, *, of_file: bool = False) -> npt.NDArray[Any]:
        """The values of a field of the model, one for each environment; waits for the device.

        Args, returns: As `VectorEnv.model_field`; 32 bits are in force.

        Raises:
          SpecError: No such field. ClosedError: The environment was closed.
        """
        self._check_open()
        fields = self._pool.fields
        return np.stack([read_field(fields, env, field, of_file) for env in range(self.num_envs)])

    def _begin(self, mask: Tensor | None) -> Five:
        commands = torch.full(
            (self.num_envs,), int(Command.RESET), dtype=torch.uint8, device=self.device
        )
        if mask is not None:
            commands = torch.where(mask, commands, int(Command.OBSERVE)).to(torch.uint8)
        elif self._pool.functions is not None:
            self._pool.functions.broken = ""
        self._pool.reset(commands)
        return self._five(is_step=False)

    def _check_others(self) -> None:
        self._check_whole()

    def _check_whole(self) -> None:
        if self._pool.functions is not None:
            self._pool.functions.check()

    def _check_steps(self) -> None:
        super()._check_steps()
        self._check_whole()

    def step(self, actions: Any) -> Five:
        """Steps all environments by one graph and returns at once.

        Args:
          actions: (N, size) float32: a tensor on `device`, or what `torch.as_tensor` makes one of.

        Returns:
          obs (N, size) float32, reward (N,) float32, terminated (N,) bool, truncated (N,) bool,
          info. `info` has env_id (N,) int32, episode_return (N,) float64, episode_length (N,) int32
          and the task's own keys, (N,) or (N, length) float32. Same-step mode adds final_obs
          (N, size), valid where an episode ended, and final_info; `info` has the new episode's.

        Raises:
          SpecError: Wrong shape, dtype or device. ProtocolError: Never reset.
          ClosedError: The environment was closed.
        """
        self._check_steps()
        read, count = self._actions.read(actions)
        if count is not None:
            raise SpecError(f"actions have a row for {count} steps: step takes those of one")
        self._pool.step(read)
        self.count_steps(1)
        return self._five(is_step=True)

    @property
    def _num_launches(self) -> int:
        return self._pool.num_launches

    def bare_physics(self) -> BarePhysics:
        """mujoco_warp's worlds of the same model and memory without the task, for benchmarks.

        Raises:
          ProtocolError: Never reset. ClosedError: The environment was closed.
        """
        self._check_steps()
        return self._pool.bare_physics()

    def open_rows(self) -> RowSet:
        """A row set of one step, its holder's alone, whose launch `step_rows` takes."""
        space, launch = self.single_observation_space, EnvLaunch()
        self.refill(launch)
        same_step = self.autoreset_mode is AutoresetMode.SAME_STEP
        spec = RowSpec(space.shape or (), self.obs_dtypes[0], (), same_step)
        return RowSet(spec, (self.num_envs,), self.device, launch)

    def refill(self, launch: EnvLaunch) -> None:
        """Has a launch that was made before know what the environments are now."""
        launch.clock, launch.fault = self._envs.columns(), self._envs.fault.data_ptr()

    def step_rows(self, launch: EnvLaunch, actions: list[Tensor]) -> None:
        """As TensorPool's, by one graph; rows are copied."""
        self._pool.step(actions[0])
        self._pool.copy_rows(launch.rows)

    def _save(self, rows: Sequence[int]) -> list[bytes]:
        return self._pool.states.save(rows)

    def _load(self, rows: Sequence[int], states: list[bytes]) -> None:
        self._pool.states.load(rows, states)

    def render(self) -> Any:
        """Raises SpecError: a GPU's pool does not draw."""
        raise SpecError("a pool of a GPU does not draw: leave device out for one that does")

    def close_extras(self, **kwargs: Any) -> None:
        """Frees the worlds and the graphs, once they are done."""
        # Warp gives memory back without regard to torch's streams
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        del self._pool, self._envs

    def _five(self, *, is_step: bool) -> Five:
        # copies, which the caller may keep: the next step writes where this one did
        arrays = self._envs
        rows = {name: tensor.clone() for name, tensor in arrays.rows.items()}
        info: Info = {name: rows[name] for name in ("episode_return", "episode_length")}
        info |= self._named(arrays.infos.clone())
        if self.autoreset_mode is AutoresetMode.SAME_STEP and is_step:
            info["final_obs"] = arrays.final_obs.clone()
            info["final_info"] = self._named(arrays.final_infos.clone())
        info["env_id"] = self._env_ids.clone()
        return arrays.obs.clone(), rows["reward"], rows["terminated"], rows["truncated"], info

    def _named(self, infos: Tensor) -> dict[str, Tensor]:
        """Columns of the task's own infos by name."""
        sizes = [math.prod(shape) for shape in self._infos.values()]
        parts = torch.split(infos, sizes, dim=1)
        return {
            name: part.reshape(self.num_envs, *shape)
            for (name, shape), part in zip(self._infos.items(), parts, strict=True)
        }

    def _take_fault(self) -> tuple[int, str] | None:
        faults = self._envs.faults
        # a collector's policy tells by the same cell as in other pools
        of_policy = self._envs.take_fault()
        if of_policy is not None:
            return of_policy[0], FAULTS[Fault(of_policy[1])]
        rows = faults.nonzero().flatten().tolist()
        if not rows:
            return None
        row, fault = rows[0], int(faults[rows[0]])
        faults.zero_()
        overflow = self._pool.told_overflow(fault >> 8)
        return self.env_id_offset + row, _FAULTS[fault & 0xFF].format(overflow=overflow)
