# SPDX-License-Identifier: Apache-2.0
"""`NativeVectorEnv`: a pool made from ids and arguments, before it has the face of an API."""

from __future__ import annotations

import functools
import secrets
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import numpy.typing as npt
from gymnasium.vector import AutoresetMode

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
from rollouts.families.model_fields import model_columns
from rollouts.machine.cpu_count import usable_cpus
from rollouts.machine.placement import worker_cpus
from rollouts.own_env.registrations import travelling_all
from rollouts.own_model import FunctionPool, common_layout, is_own_model
from rollouts.pool.observation_parts import ObservationParts
from rollouts.pool.options import Options, read_options
from rollouts.pool.pool_recipe import read_ids, resolve_pool
from rollouts.pool.reset_options import read_reset_options
from rollouts.pool.send_recv import SendRecv
from rollouts.pool.wrappers import Wrappers, read_wrappers
from rollouts.rendering import FrameSource
from rollouts.rendering.options import read_mode
from rollouts.rendering.pixels import load_opengl, pixel_frames
from rollouts.specs import EnvSpec, OptionValue
from rollouts.support.option_help import explained
from rollouts.support.user_warnings import warn_user

Array = npt.NDArray[Any]

# in the order of the native enum
_AUTORESET = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED]


class NativeVectorEnv(SendRecv):
    """What VectorEnv and MultiAgentVectorEnv share: construction, seeds, options, close."""

    metadata: dict[str, Any]
    _wrappers: Wrappers

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

        is_flat = flag("flatten_observation", flatten_observation)
        bare = resolve_pool(
            ids,
            num_envs,
            max_episode_steps,
            options.native,
            parts=not is_flat,
            frames=options.frames,
        )
        if options.from_pixels:
            load_opengl()
        self._wrappers = read_wrappers(options.wrappers)
        recipe = bare.wrapped(self._wrappers)
        self.env_spec = recipe.specs[ids[0]]
        self._recipe = recipe
        if not is_flat:
            self._wrappers.check_parts(bare.specs)
        self._parts = None if is_flat else ObservationParts.of_pool(recipe.specs)
        self._set_spaces()

        # what makes this environment again in another process
        self._env_id = travelling_all(ids[0] if len(ids) == 1 else ids)
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
        self._pool = self._start_pool(options, cpus, self._wrappers.native(bare.env_specs()))
        if options.model is not None:
            fields = model_columns(options.model, self._pool, self.num_envs, mask=None)
            self._pool.change(None, {}, fields)
        self._info_names: tuple[str, ...] = self._pool.info_names
        self._last_masks: Array | None = None  # of the batch that was received last
        self._reports_errors = on_env_error == "reset"
        self._last_env_id: Array | None = None
        frames = pixel_frames(options.frames) if options.from_pixels else options.frames
        self._frames = FrameSource(self._pool, recipe.runs, recipe.specs, env_id_offset, frames)
        self.metadata = {
            **getattr(self, "metadata", {}),
            "autoreset_mode": self.autoreset_mode,
            **self._frames.metadata(self.render_mode),
        }
        self.closed = False
        for message in _native.take_lanes_warnings():
            warn_user(message, UserWarning)

    def _set_spaces(self) -> None:
        """Sets what callers see of the spaces of `env_spec`."""
        raise NotImplementedError

    def _start_pool(
        self, options: Options, cpus: tuple[int, ...], wrappers: dict[str, Any]
    ) -> _native.CpuPool:
        seed, on_env_error = self._arguments["seed"], self._arguments["on_env_error"]
        make_pool = _native.CpuPool
        if self._recipe.is_own_model:
            make_pool = functools.partial(  # type: ignore[assignment]
                FunctionPool,
                layout=common_layout(self.env_spec.options, options.native),
                functions=options.functions,
                same_step=self._final_rows is not None,
                single_observation_space=self.env_spec.single_observation_space,
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
                wrappers=wrappers,
            )

    def _send_reset(
        self, seed: int | Sequence[int | None] | None, options: dict[str, Any] | None
    ) -> None:
        """Seeds, changes options and starts episodes, as `VectorEnv.reset` says."""
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
            self._frames.find_models()
        self._apply_seeds(seeds, mask)
        self._pool.send_reset(mask)
        self.num_calls += 1

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
        return self._recipe.env_specs()

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
    def engine(self) -> str | tuple[str, ...] | None:
        """What steps environments on MuJoCo: "lanes" or "mujoco", or one of them for each of N.

        None where no environment is on MuJoCo. Option `engine` chooses, and `why_not_lanes` says
        why it is MuJoCo.

        Raises:
          ClosedError: The environment was closed.
        """
        names = tuple(name for name, _ in self._pool.engines())
        return (names[0] or None) if len(set(names)) == 1 else names

    @property
    def why_not_lanes(self) -> str:
        """Why lanes do not step all of the environments: reasons, or "" where they do.

        Raises:
          ClosedError: The environment was closed.
        """
        reasons = dict.fromkeys(reason for _, reason in self._pool.engines() if reason)
        return "; ".join(reasons)

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
        remake = functools.partial(_remake, type(self))
        return remake, (self._env_id, self.num_envs, self._arguments)

    def __repr__(self) -> str:
        ids = " + ".join(self._recipe.specs)
        return (
            f"rollouts.{type(self).__name__}({ids!r}, num_envs={self.num_envs}, "
            f"batch_size={self.batch_size}, num_threads={self.num_threads}, "
            f"autoreset_mode={self.autoreset_mode.name})"
        )


def _remake(
    kind: type[NativeVectorEnv], env_id: str | list[str], num_envs: int, arguments: dict[str, Any]
) -> NativeVectorEnv:
    return kind(env_id, num_envs, **arguments)
