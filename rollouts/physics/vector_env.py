# SPDX-License-Identifier: Apache-2.0
"""`PhysicsVectorEnv`: N MuJoCo tasks that mujoco_warp steps, with torch tensors in and out."""

from __future__ import annotations

import functools
import importlib
import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import torch
from gymnasium.vector import AutoresetMode
from gymnasium.vector import VectorEnv as GymnasiumVectorEnv
from gymnasium.vector.utils import batch_space
from torch import Tensor

from rollouts import _native
from rollouts.checks import options_dict, seed_list, seed_value, to_autoreset_mode, whole_number
from rollouts.device.arguments import ActionReader, read_device, read_mask
from rollouts.device.stats import DeviceStats
from rollouts.errors import ClosedError, EngineError, EnvError, ProtocolError, SpecError
from rollouts.families.table import family_of
from rollouts.physics.library import load_library
from rollouts.physics.supported import PHYSICS_IDS
from rollouts.pool.options import read_options
from rollouts.pool.pool_recipe import read_ids, resolve_pool

if TYPE_CHECKING:
    from rollouts.physics.pool import PhysicsPool

Info = dict[str, Any]
Five = tuple[Tensor, Tensor, Tensor, Tensor, Info]

# in the order of kernels/episodes.py
_AUTORESET = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED]
_RESET, _OBSERVE = 1, 2
_FAULTS = {
    1: "its action or its state was not finite, or beyond 1e10, after a step: its episode was cut "
    "off there",
    2: "had more contacts or constraints than mujoco_warp has memory for (overflow bits {bits}): "
    "its episode was cut off there",
    3: "was stepped after its episode had ended, with autoreset disabled: what it shows stayed. "
    "Reset it by reset(options={{'reset_mask': ...}})",
}


class PhysicsVectorEnv(GymnasiumVectorEnv[Tensor, Tensor, Tensor]):
    """N of Gymnasium's MuJoCo tasks, whose physics is mujoco_warp.

    What VectorEnv is on the CPU, with the same random streams, autoreset modes and options, but
    other physics: numbers are 32-bit and the solver is Newton's, so trajectories part from
    MuJoCo's. On a GPU contacts are added up in any order: runs of one seed differ in last bits.

    A step is one CUDA graph on torch's current stream and nothing waits for it: what goes wrong on
    the device is raised by the next `synchronize` or `reset`. It cannot be part of another graph.
    Returned tensors are the caller's own.

    `device="cpu-emulation"` runs the same kernels on the host, by Warp's CPU device, for tests: it
    is not fast.

    Attributes:
      num_envs: Environments N.
      device: `torch.device` of all tensors.
      env_id_offset, env_spec, autoreset_mode: As VectorEnv.
    """

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
        """Compiles the kernels, or takes them from Warp's cache; see `make_vec`.

        Raises:
          SpecError: An id that is not supported, or options that are wrong.
          EngineError: mujoco_warp or mujoco is missing, or there is no GPU.
        """
        self.closed = True  # until there is something to close
        ids, num_envs = read_ids(env_id, num_envs)
        if len({*ids}) > 1:
            raise SpecError("a pool of a GPU has environments of one id: leave device out to mix")
        if ids[0] not in PHYSICS_IDS:
            raise SpecError(
                f"mujoco_warp steps no {ids[0]} here, expected one of "
                f"{', '.join(sorted(PHYSICS_IDS))}"
            )
        load_library()
        options = read_options(
            {"obs_dtype": "float32", **(env_options or {})}, num_envs, own_model=False
        )
        if options.model is not None:
            raise SpecError("model: not with a device, whose worlds share one; leave device out")
        columns = options.native
        if columns["obs_dtype"] != "float32":
            raise SpecError(f"obs_dtype is {columns['obs_dtype']!r}, expected 'float32' of physics")
        recipe = resolve_pool(ids[:1], num_envs, max_episode_steps, columns)
        self.env_spec = recipe.specs[ids[0]]
        (native_id, _, limit, internal) = recipe.segments[0]
        self.num_envs = num_envs
        self.env_id_offset = whole_number("env_id_offset", env_id_offset, 0, 2**31 - 1 - num_envs)
        self.autoreset_mode = to_autoreset_mode(autoreset_mode)
        self.metadata = {"autoreset_mode": self.autoreset_mode}
        self.single_action_space = self.env_spec.single_action_space
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.single_observation_space = self.env_spec.single_observation_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.device, self.is_emulated = read_device(device)
        if not self.is_emulated and not torch.cuda.is_available():
            raise EngineError(
                f"device is {str(device)!r}, and torch finds no GPU (torch.cuda.is_available() is "
                "False): leave device out for the C++ pool, or take 'cpu-emulation' to test"
            )
        self._arguments: dict[str, Any] = {
            "device": str(device),
            "seed": seed,
            "autoreset_mode": self.autoreset_mode,
            "env_id_offset": env_id_offset,
            "max_episode_steps": max_episode_steps,
            "env_options": dict(columns),
        }

        spec = self.env_spec
        given = {**spec.options, **columns, **internal}
        infos = _native.make_spec(native_id, {**spec.options, **internal})["infos"]
        self._infos = [(name, 1 if length is None else length) for name, _, length in infos]
        self._scalars = {name for name, _, length in infos if length is None}
        self._actions = ActionReader(self.single_action_space, (num_envs,), self.device)
        model_file = family_of(spec.header).model_file
        assert model_file is not None
        # brings Warp
        make_pool = importlib.import_module("rollouts.physics.pool").make_pool
        self._pool: PhysicsPool = make_pool(
            ids[0],
            model_file({**spec.options, **internal}),
            given,
            num_envs,
            (spec.single_observation_space.shape or (0,))[0],
            sum(length for _, length in self._infos),
            device=self.device,
            autoreset=_AUTORESET.index(self.autoreset_mode),
            max_episode_steps=limit,
        )
        ids_here = torch.arange(num_envs, dtype=torch.int32) + self.env_id_offset
        self._pool.arrays.clock_columns["env_id"].copy_(ids_here)
        self._env_ids = ids_here.to(self.device)
        self._seed([secrets.randbits(64) if seed is None else seed_value(seed)] * num_envs)
        self._env_steps = 0
        self._was_reset = False
        self.closed = False

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Tensor, Info]:
        """Starts new episodes and returns their first observations; waits for the device.

        Args:
          seed: As `VectorEnv.reset`.
          options: {"reset_mask": (N,) bool, array or tensor} resets the marked environments alone
            and returns all N observations. Other entries are weights and ranges of the task: one
            value or N, which hold from this episode on where one begins.

        Returns:
          obs (N, size) float32 and info, as `step`.

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
        if given:
            columns = read_options(given, self.num_envs, own_model=False).native
            self._pool.set_options(columns, mask)
        if mask is not None and seeds:
            begins = mask.cpu().tolist()
            seeds = [one if begun else None for one, begun in zip(seeds, begins, strict=True)]
        self._seed(seeds)
        commands = torch.full((self.num_envs,), _RESET, dtype=torch.uint8, device=self.device)
        if mask is not None:
            commands = torch.where(mask, commands, _OBSERVE).to(torch.uint8)
        self._pool.reset(commands)
        self._was_reset = True
        obs, _, _, _, info = self._five(is_step=False)
        return obs, info

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
        self._check_open()
        if not self._was_reset:
            raise ProtocolError("the environments were never reset: call reset first")
        read, count = self._actions.read(actions)
        if count is not None:
            raise SpecError(f"actions have a row for {count} steps: step takes those of one")
        self._pool.step(read)
        self._env_steps += self.num_envs
        return self._five(is_step=True)

    def synchronize(self) -> None:
        """Waits for everything that was launched.

        Raises:
          EnvError: Something went wrong on the device since the last time; it names the env_id.
        """
        self._check_open()
        self._raise_fault()

    def stats(self) -> DeviceStats:
        """Counts since the environments were made; does not wait for the device.

        Raises:
          ClosedError: The environment was closed.
        """
        self._check_open()
        totals = self._pool.arrays.total_columns
        episodes = totals["episodes"].sum()
        return DeviceStats(
            env_steps=self._env_steps,
            num_launches=self._pool.num_launches,
            num_episodes=episodes,
            episode_length=totals["lengths"].sum() / episodes.double(),
            episode_return=totals["returns"].sum() / episodes,
        )

    def render(self) -> Any:
        """Raises SpecError: a GPU's pool does not draw."""
        raise SpecError("a pool of a GPU does not draw: leave device out for one that does")

    def close_extras(self, **kwargs: Any) -> None:
        """Frees the worlds and the graphs."""
        del self._pool

    def close(self, **kwargs: Any) -> None:
        """Frees the environments. May be called twice."""
        if not self.closed:
            self.close_extras(**kwargs)
            self.closed = True

    def _five(self, *, is_step: bool) -> Five:
        # copies, which the caller may keep: the next step writes where this one did
        arrays = self._pool.arrays
        rows = {name: tensor.clone() for name, tensor in arrays.row_columns.items()}
        info: Info = {name: rows[name] for name in ("episode_return", "episode_length")}
        info |= self._named(arrays.infos.clone())
        if self.autoreset_mode is AutoresetMode.SAME_STEP and is_step:
            info["final_obs"] = arrays.final_obs.clone()
            info["final_info"] = self._named(arrays.final_infos.clone())
        info["env_id"] = self._env_ids.clone()
        return arrays.obs.clone(), rows["reward"], rows["terminated"], rows["truncated"], info

    def _named(self, infos: Tensor) -> dict[str, Tensor]:
        """Columns of the task's own infos by name."""
        parts = torch.split(infos, [length for _, length in self._infos], dim=1)
        return {
            name: part[:, 0] if name in self._scalars else part
            for (name, _), part in zip(self._infos, parts, strict=True)
        }

    def _seed(self, seeds: Sequence[int | None]) -> None:
        rows = [row for row, seed in enumerate(seeds) if seed is not None]
        if not rows:
            return
        index = torch.tensor(rows, device=self.device)
        # the same 64 bits, with a sign
        values = [one - 2**64 if one >= 2**63 else one for one in seeds if one is not None]
        clock = self._pool.arrays.clock_columns
        clock["seed"][index] = torch.tensor(values, device=self.device)
        clock["next_episode"][index] = 0

    def _raise_fault(self) -> None:
        faults = self._pool.arrays.clock_columns["fault"]
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        rows = faults.nonzero().flatten().tolist()
        if not rows:
            return
        row, fault = rows[0], int(faults[rows[0]])
        faults.zero_()
        said = _FAULTS[fault & 0xFF].format(bits=bin(fault >> 8))
        raise EnvError(f"environment {self.env_id_offset + row} {said}")

    def _check_open(self) -> None:
        if self.closed:
            raise ClosedError("the environment was closed: make a new one")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the arguments, not the state."""
        make = functools.partial(type(self), **self._arguments)
        return make, (self.env_spec.id, self.num_envs)

    def __repr__(self) -> str:
        return (
            f"rollouts.{type(self).__name__}({self.env_spec.id!r}, num_envs={self.num_envs}, "
            f"device={self._arguments['device']!r}, autoreset_mode={self.autoreset_mode.name})"
        )
