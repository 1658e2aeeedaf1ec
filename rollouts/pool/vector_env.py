# SPDX-License-Identifier: Apache-2.0
"""`VectorEnv`: the Gymnasium face of a native pool."""

from __future__ import annotations

import functools
import secrets
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode
from gymnasium.vector import VectorEnv as GymnasiumVectorEnv
from gymnasium.vector.utils import batch_space

from rollouts import _native
from rollouts.checks import (
    flag,
    one_of,
    option_array,
    seed_list,
    seed_value,
    to_autoreset_mode,
    whole_number,
)
from rollouts.errors import SpecError
from rollouts.families.model_fields import model_columns, read_field
from rollouts.machine.cpu_count import usable_cpus
from rollouts.machine.placement import worker_cpus
from rollouts.own_model import FunctionPool, common_layout, is_own_model
from rollouts.pool.observation_parts import ObservationParts
from rollouts.pool.options import Options, read_options
from rollouts.pool.pool_recipe import read_ids, resolve_pool
from rollouts.pool.reset_options import read_reset_options
from rollouts.pool.send_recv import SendRecv
from rollouts.rendering import FrameSource
from rollouts.rendering.options import read_mode
from rollouts.specs import EnvSpec, OptionValue
from rollouts.support.option_help import explained

Array = npt.NDArray[Any]
Info = dict[str, Any]

# in the order of the native enum
_AUTORESET = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED]


class VectorEnv(SendRecv, GymnasiumVectorEnv[Array, Array, Array]):
    """N environments, of one id or with equal spaces, stepped as a batch by the native pool.

    Implements `gymnasium.vector.VectorEnv`; `send`, `recv` and `async_reset` are the
    two halves of `step` for callers that want to overlap. Arrays returned are views
    of the pool's buffers: a buffer is written again only when nobody holds a view of
    it, so keeping an array is safe and costs no copy.

    Attributes:
      num_envs: Environments N.
      batch_size: Rows B of a batch; N in synchronous mode.
      num_threads: Threads that step, in synchronous mode the caller's among them.
      env_id_offset: Global id of row 0's environment.
      env_spec: What the id stands for (`rollouts.EnvSpec`); in a mixed pool the first id,
        and `env_specs` has them all.
      autoreset_mode: As in `metadata["autoreset_mode"]`.
    """

    def __init__(
        self,
        env_id: str | Sequence[str],
        num_envs: int | None = None,
        *,
        batch_size: int | None = None,
        num_threads: int | None = None,
        seed: int | None = None,
        autoreset_mode: str | AutoresetMode = "next_step",
        env_id_offset: int = 0,
        max_episode_steps: int | None = None,
        on_env_error: str = "raise",
        pin_threads: bool | Sequence[int] = False,
        render_mode: str | None = None,
        flatten_observation: bool = True,
        env_options: Mapping[str, Any] | None = None,
    ) -> None:
        """Checks the arguments and starts the threads; see `make_vec`."""
        self.closed = True  # until there is something to close
        ids, num_envs = read_ids(env_id, num_envs)
        options = read_options(env_options or {}, num_envs, own_model=is_own_model(ids))
        self.num_envs = num_envs
        rows = num_envs if batch_size is None else batch_size
        self.batch_size = whole_number("batch_size", rows, 1, num_envs)
        threads = min(usable_cpus(), num_envs) if num_threads is None else num_threads
        self.num_threads = whole_number("num_threads", threads, 1, 4096)
        self._synchronous = self.batch_size == self.num_envs
        cpus = worker_cpus(pin_threads, self.num_threads, self._synchronous)
        self.env_id_offset = whole_number("env_id_offset", env_id_offset, 0, 2**31 - 1 - num_envs)
        self.autoreset_mode = to_autoreset_mode(autoreset_mode)
        self.render_mode = read_mode(render_mode)

        recipe = resolve_pool(ids, num_envs, max_episode_steps, options.native)
        self.env_spec = recipe.specs[ids[0]]
        self._recipe = recipe
        is_flat = flag("flatten_observation", flatten_observation)
        self._parts = None if is_flat else ObservationParts.of_pool(recipe.specs)
        self._set_spaces()

        # what makes this environment again in another process
        self._env_id = ids[0] if len(ids) == 1 else ids
        self._arguments: dict[str, Any] = {
            "batch_size": self.batch_size,
            "num_threads": num_threads,
            "seed": seed,
            "autoreset_mode": self.autoreset_mode,
            "env_id_offset": env_id_offset,
            "max_episode_steps": max_episode_steps,
            "on_env_error": on_env_error,
            "flatten_observation": is_flat,
            "pin_threads": pin_threads if isinstance(pin_threads, bool) else cpus,
            "render_mode": render_mode,
            "env_options": options.as_given(),
        }
        same_step = self.autoreset_mode is AutoresetMode.SAME_STEP
        self._final_rows = _native.FinalRows() if same_step else None
        self._pool = self._start_pool(options, cpus)
        if options.model is not None:
            fields = model_columns(options.model, self._pool, self.num_envs, mask=None)
            self._pool.change(None, {}, fields)
        self._info_names: tuple[str, ...] = self._pool.info_names
        self._reports_errors = on_env_error == "reset"
        self._last_env_id: Array | None = None
        self._frames = FrameSource(
            self._pool, recipe.runs, recipe.specs, env_id_offset, options.frames
        )
        self.metadata = {
            **self.metadata,
            "autoreset_mode": self.autoreset_mode,
            **self._frames.metadata(self.render_mode),
        }
        self.closed = False

    def _set_spaces(self) -> None:
        spec, parts = self.env_spec, self._parts
        self.single_action_space = spec.single_action_space
        self.action_space = batch_space(spec.single_action_space, self.batch_size)
        if parts is None:
            self.single_observation_space = spec.single_observation_space
            self.observation_space = batch_space(spec.single_observation_space, self.batch_size)
        else:
            self.single_observation_space = parts.space()
            self.observation_space = parts.space(self.batch_size)

    def _start_pool(self, options: Options, cpus: tuple[int, ...]) -> _native.CpuPool:
        seed, on_env_error = self._arguments["seed"], self._arguments["on_env_error"]
        make_pool = _native.CpuPool
        if self._recipe.is_own_model:
            make_pool = functools.partial(  # type: ignore[assignment]
                FunctionPool,
                layout=common_layout(self.env_spec.options, options.native),
                functions=options.functions,
                same_step=self._final_rows is not None,
                single_observation_space=self.single_observation_space,
            )
        with explained(self._recipe.headers, options.native):
            return make_pool(
                segments=self._recipe.segments,
                env_options=options.native,
                num_envs=self.num_envs,
                batch_size=self.batch_size,
                num_threads=self.num_threads,
                env_id_offset=self.env_id_offset,
                seed=secrets.randbits(64) if seed is None else seed_value(seed),
                autoreset_mode=_AUTORESET.index(self.autoreset_mode),
                on_env_error=one_of("on_env_error", on_env_error, ("raise", "reset")),
                pin_cpus=cpus,
            )

    # -- Gymnasium -----------------------------------------------------------------

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Array, Info]:
        """Starts new episodes and returns their first observations.

        Batches in flight are waited for and discarded. In asynchronous mode the
        result is the first batch of B environments; recv returns the others.

        Args:
          seed: int: seeds every random stream (they differ by env_id) and begins
            episode 0. Sequence of N ints or None: one seed per environment, None
            leaves that one's stream. None: every stream goes on.
          options: {"reset_mask": (N,) bool} resets the marked environments alone and
            returns all N observations (synchronous mode only); one that marks none
            changes nothing. Every other entry is an option of the environments, as in
            `make_vec`: one value or N, of which those of marked environments count. It holds
            from this episode on, and stays. A heavy environment (Atari, MuJoCo) whose
            options change is built anew.
            {"model": {field: values}} changes MuJoCo's model of each environment: see
            `model_fields`. Values have the field's shape, or (N, *shape), of which those
            of marked environments count; `rollouts.mujoco.Uniform` and `Scaled` draw them
            for every episode, also those that autoreset begins. They stay until they are
            given anew; None gives the file's values back. Constants that MuJoCo derives
            from masses, inertias, sizes or gear follow, as after mj_setConst; nothing else
            does, so a body's inertia stays when its mass changes.

        Returns:
          obs (B, *obs_shape) and info, as `step`.

        Raises:
          SpecError: Unknown option or field, or one that would change the spaces; not N
            values; mask that is not (N,) bool; bad seed. DTypeError: options is no dict with str
            for keys. Nothing has changed then, but batches in flight may be gone.
          ClosedError: The environment was closed.

        Example:
          env.reset(options={"reset_mask": info["episode_length"] > 100, "gravity": 12.0})
          mass = env.model_field("body_mass")  # (N, nbody)
          env.reset(options={"model": {"body_mass": mass * rng.uniform(0.8, 1.2, mass.shape)}})
          env.reset(options={"model": {"body_mass": rollouts.mujoco.Scaled(0.8, 1.2)}})
        """
        given = read_reset_options(
            options, self._pool, self._recipe, self.num_envs, self.batch_size
        )
        mask = given.mask
        seeds = seed_list(seed, self.num_envs)
        if mask is None:
            self._pool.discard(None)
        else:
            # before a seed counts: an error leaves the streams alone
            self._pool.check_reset(mask)
        if given.env_options or given.model:
            with explained(self._recipe.headers, given.env_options):
                self._pool.change(mask, given.env_options, given.model)
            self._frames.forget_options()
        self._apply_seeds(seeds, mask)
        self._pool.send_reset(mask)
        obs, _, _, _, info = self.recv()
        return obs, info

    def step(
        self,
        actions: npt.ArrayLike,
        env_id: npt.ArrayLike | None = None,
        *,
        out: dict[str, Array] | None = None,
    ) -> tuple[Array, Array, Array, Array, Info]:
        """Steps the environments and waits for a batch: `send` and `recv` in one call.

        Args:
          actions: (B, *action_shape), one row per environment stepped.
          env_id, out: As for `send`.

        Returns:
          obs (B, *obs_shape), reward (B,) float64, terminated (B,) bool, truncated (B,)
          bool, info. Rows are in env order in synchronous mode, in the order of
          `info["env_id"]` otherwise. `info` has env_id (B,) int32, episode_return (B,)
          float64 (sum of unclipped rewards, complete where the episode ended),
          episode_length (B,) int32 and the environment's own keys. Same-step mode adds
          final_obs and final_info where an episode ended; Atari's and toy text's own keys are
          the new episode's there. on_env_error="reset" adds env_error (B,) object and
          _env_error (B,) bool where an environment failed.

        Raises:
          SpecError, DTypeError: Wrong shape, dtype or value; the message names the row.
          ProtocolError: Never reset, already in flight, or ended with autoreset disabled.
          EnvError: An environment failed; the others' batch comes with the next recv.
          ClosedError: The environment was closed.
        """
        return self._five(self._pool.step(actions, self._targets(env_id), out))

    def render(  # type: ignore[override]
        self, env_ids: npt.ArrayLike | None = None, camera: int | str | None = None
    ) -> tuple[Array, ...]:
        """Draws environments as they are now, which changes nothing about them.

        MuJoCo is drawn by OpenGL as Gymnasium draws it, but all positions are those of the
        state; Gymnasium's bodies lag one substep behind it after a step. Atari shows the whole
        screen of the emulator in colour, classic control what Gymnasium's own renderers draw
        (extra `render`). Works with any render_mode, which is for wrappers.

        Args:
          env_ids: (n,) int or int, global ids. None: all environments, in order.
          camera: Number or name of a camera of the MuJoCo model in place of camera_id or
            camera_name of `make_vec`; -1: the free camera.

        Returns:
          n frames (height, width, 3) uint8.

        Raises:
          ProtocolError: An environment is in flight (call `drain` first) or was never reset.
          SpecError, DTypeError: Not ids of this VectorEnv, no such camera, or environments
            that nothing draws. ClosedError: it was closed.
          EngineError: There is no OpenGL; the message says which variable and which packages
            help. Or this process was forked from one that has rendered.
        """
        return self._frames.draw(env_ids, camera)

    def close_extras(self, **kwargs: Any) -> None:
        """Stops the threads and frees environments and buffers nobody holds."""
        self._frames.close()
        self._pool.close()

    def close(self, **kwargs: Any) -> None:
        """Closes the pool; wakes whoever waits in `recv`. May be called twice."""
        if not self.closed:
            self.close_extras(**kwargs)
            self.closed = True

    @property
    def env_specs(self) -> tuple[EnvSpec, ...]:
        """What each environment's id stands for, in env order: N entries."""
        recipe = self._recipe
        return tuple(recipe.specs[one] for one, count in recipe.runs for _ in range(count))

    @property
    def env_options(self) -> dict[str, OptionValue | Array | None]:
        """Options in force, by name: one value where all environments share it, else (N,).

        In a mixed pool, None stands for environments that have no such option. An
        environment's options are `{name: np.broadcast_to(value, N)[i]}`.

        Raises:
          ClosedError: The environment was closed.
        """
        columns = self._pool.env_options()
        return {
            name: option_array(columns[name])
            for name in sorted(columns)
            if name in self._recipe.option_names
        }

    @property
    def model_fields(self) -> list[str]:
        """Fields of MuJoCo's model that `reset(options={"model": ...})` may change.

        Named as in MuJoCo's mjModel, and "opt.gravity" and so on for its options. Those that
        say what the model is made of (types, addresses, sizes, names, meshes, textures) and
        those that MuJoCo computes from others are not among them.

        Raises:
          SpecError: The environments have no model. ClosedError: The environment was closed.
        """
        return self._pool.model_fields(0)

    def model_field(self, field: str, *, of_file: bool = False) -> Array:
        """The values of a field of MuJoCo's model, one for each environment.

        Args:
          field: One of `model_fields`, such as "body_mass".
          of_file: Return those of the model's file in place of those in force.

        Returns:
          (N, *shape of the field), of its dtype: a copy.

        Raises:
          SpecError: No such field, no model, or models whose shapes differ. DTypeError:
            of_file is no bool.
          ProtocolError: An environment is in flight. ClosedError: The environment was closed.
        """
        of_file = flag("of_file", of_file)
        rows = [read_field(self._pool, env, field, of_file) for env in range(self.num_envs)]
        if any(row.shape != rows[0].shape for row in rows):
            raise SpecError(f"model field {field!r} has another shape in other environments")
        return np.stack(rows)

    def _apply_seeds(self, seeds: list[int | None], mask: Array | None) -> None:
        for env, value in enumerate(seeds):
            if value is not None and (mask is None or mask[env]):
                self._pool.seed(env, value)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the arguments, not the state: unpickling makes a fresh environment.

        Options are those of the construction, whatever a reset has changed since.
        """
        return _remake, (self._env_id, self.num_envs, self._arguments)

    def __repr__(self) -> str:
        return (
            f"rollouts.VectorEnv({' + '.join(self._recipe.specs)!r}, num_envs={self.num_envs}, "
            f"batch_size={self.batch_size}, num_threads={self.num_threads}, "
            f"autoreset_mode={self.autoreset_mode.name})"
        )


def _remake(env_id: str | list[str], num_envs: int, arguments: dict[str, Any]) -> VectorEnv:
    return VectorEnv(env_id, num_envs, **arguments)
