# SPDX-License-Identifier: Apache-2.0
"""`NativeEngine`: environments in C++, stepped by the threads of a native pool."""

from __future__ import annotations

import functools
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from rollouts import _native
from rollouts.batch import ENV_ID, EPISODE_LENGTH, EPISODE_RETURN, NUM_STEP_ARRAYS
from rollouts.checks import (
    add_errors,
    as_bytes,
    flag,
    one_of,
    option_array,
    seconds,
    seed_list,
    seed_value,
    to_autoreset_mode,
    whole_number,
)
from rollouts.envs.action_masks import NAME as MASK
from rollouts.envs.action_masks import masks_of
from rollouts.envs.engine import AUTORESET, Array, Arrays, Info, lacking, refuse
from rollouts.envs.observation_parts import ObservationParts
from rollouts.envs.options import Options, read_options
from rollouts.envs.pool_recipe import PoolRecipe, read_ids, resolve_pool
from rollouts.envs.reset_options import read_reset_options
from rollouts.envs.statistics import NormalizerStatistics
from rollouts.envs.stats import PoolStats
from rollouts.envs.wrappers import Wrappers, read_wrappers
from rollouts.errors import EnvError, ProtocolError, SpecError
from rollouts.families.model_fields import model_columns, read_field
from rollouts.machine.cpu_count import usable_cpus
from rollouts.machine.placement import worker_cpus
from rollouts.own_env.registrations import travelling_all
from rollouts.own_model import FunctionPool, common_layout, is_own_model
from rollouts.rendering import FrameSource
from rollouts.rendering.frame_options import read_mode
from rollouts.rendering.pixels import load_opengl, pixel_frames
from rollouts.specs import EnvSpec, OptionValue
from rollouts.support.option_help import explained
from rollouts.support.user_warnings import warn_user


class NativeEngine:
    """A native pool made from ids and options.

    Arrays returned are views of the pool's buffers. A buffer is written again only when no view of
    it is left.

    Attributes:
      pool: The `_native.CpuPool`, or a pool whose batches pass through Python functions.
      num_threads: Threads that step, the caller's among them in synchronous mode.
      is_synchronous: Whether all environments step together.
      env_spec: The EnvSpec of the first id.
      statistics: Running statistics of observations and rewards, as far as the pool keeps them.
      recipe: Ids, N and the other arguments, from which any process can make this engine again.
    """

    name = "a native pool"
    kind = "native"
    device = None
    parts: ObservationParts | None = None

    def __init__(
        self,
        id: str | Sequence[str],
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
        ids, num_envs = read_ids(id, num_envs)
        options = read_options(env_options or {}, num_envs, own_model=is_own_model(ids))
        self.num_envs = num_envs
        rows = num_envs if batch_size is None else batch_size
        self.batch_size = whole_number("batch_size", rows, 1, num_envs)
        threads = min(usable_cpus(), num_envs) if num_threads is None else num_threads
        self.num_threads = whole_number("num_threads", threads, 1, 4096)
        self.is_synchronous = self.batch_size == self.num_envs
        cpus = worker_cpus(pin_threads, self.num_threads, self.is_synchronous)
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
        wrappers = read_wrappers(options.wrappers)
        self._take_specs(bare, ids[0], wrappers, is_flat=is_flat)
        arguments: dict[str, Any] = {
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
        self.recipe = travelling_all(ids[0] if len(ids) == 1 else ids), num_envs, arguments
        self._reports_errors = one_of("on_env_error", on_env_error, ("raise", "reset")) == 1
        self._same_step = self.autoreset_mode is AutoresetMode.SAME_STEP
        self.pool = self._start_pool(options, cpus, wrappers.native(bare.env_specs()))
        self._begin(options, wrappers)

    # -- construction --------------------------------------------------------------

    def _take_specs(
        self, bare: PoolRecipe, first: str, wrappers: Wrappers, *, is_flat: bool
    ) -> None:
        """Sets attributes that are known before there are environments."""
        self._recipe = bare.wrapped(wrappers)
        self.env_spec: EnvSpec = self._recipe.specs[first]
        self.groups = tuple(self.env_spec.groups)
        if not is_flat:
            wrappers.check_parts(bare.specs)
            self.parts = ObservationParts.of_pool(self._recipe.specs)
        if self.groups:
            return
        spec = self.env_spec
        self.single_action_space = spec.single_action_space
        self.action_space = batch_space(spec.single_action_space, self.batch_size)
        if self.parts is None:
            self.single_observation_space = spec.single_observation_space
            self.observation_space = batch_space(spec.single_observation_space, self.batch_size)
        else:
            self.single_observation_space = self.parts.space()
            self.observation_space = self.parts.space(self.batch_size)

    def _start_pool(
        self, options: Options, cpus: tuple[int, ...], wrappers: dict[str, Any]
    ) -> _native.CpuPool:
        seed = self.recipe[2]["seed"]
        make_pool = _native.CpuPool
        if self._recipe.is_own_model:
            make_pool = functools.partial(  # type: ignore[assignment]
                FunctionPool,
                layout=common_layout(self.env_spec.options, options.native),
                functions=options.functions,
                same_step=self._same_step,
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
                autoreset_mode=AUTORESET.index(self.autoreset_mode),
                on_env_error=int(self._reports_errors),
                pin_cpus=cpus,
                wrappers=wrappers,
            )

    def _begin(self, options: Options, wrappers: Wrappers) -> None:
        """Changes models, and sets the readers of the pool's batches and frames."""
        if options.model is not None:
            self.pool.change(None, {}, model_columns(options.model, self.pool, self.num_envs, None))
        self._ids = np.arange(self.env_id_offset, self.env_id_offset + self.num_envs)
        self._final_rows = _native.FinalRows() if self._same_step else None
        self.info_names: tuple[str, ...] = self.pool.info_names
        self.has_columns = bool(self.info_names) or self._reports_errors
        self._num_calls = 0
        shape = () if self.groups else self.single_observation_space.shape or ()
        self.statistics = NormalizerStatistics(self.pool, wrappers, shape)
        self._last_env_id: Array | None = None
        self._last_masks: Array | None = None
        # whether `_note` has data of each batch to keep
        self._notes = not self.is_synchronous or MASK in self.info_names
        self._has_bare_infos = not (
            self.info_names or self._reports_errors or self._final_rows is not None
        )
        frames = pixel_frames(options.frames) if options.from_pixels else options.frames
        recipe = self._recipe
        self._frames = FrameSource(self.pool, recipe.runs, recipe.specs, self.env_id_offset, frames)
        self.metadata = self._frames.metadata(self.render_mode)
        self.can = frozenset({"async", "states", "options", "recipe"} | self._extras())
        for message in _native.take_lanes_warnings():
            warn_user(message, UserWarning)

    def _extras(self) -> set[str]:
        """Features that some pools have and others lack."""
        is_plain = type(self.pool) is _native.CpuPool
        has = {
            "out": self.is_synchronous,
            "collect": not self.why_not_collects,
            "model": any(name for name, _ in self.pool.engines()),
            "masks": MASK in self.info_names,
            "statistics": bool(self.statistics.kinds),
            "agent_rows": bool(self.groups),
            "render": self._frames.draws_any,
            "xla": is_plain and not self.groups and self.parts is None,
        }
        return {name for name, is_there in has.items() if is_there}

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the arguments, not the state: unpickling makes fresh environments.

        Options are those of the construction, even if a reset has changed them since.
        """
        ids, num_envs, arguments = self.recipe
        return functools.partial(type(self), **arguments), (ids, num_envs)

    def close(self, **kwargs: Any) -> None:
        """Stops the threads; frees the environments, and the buffers without views."""
        self._frames.close()
        self.pool.close()

    def describe(self) -> str:
        """Ids, sizes and threads."""
        return (
            f"{' + '.join(self._recipe.specs)!r}, num_envs={self.num_envs}, "
            f"batch_size={self.batch_size}, num_threads={self.num_threads}, "
            f"autoreset_mode={self.autoreset_mode.name}"
        )

    # -- stepping ------------------------------------------------------------------

    def reset(
        self, seed: int | Sequence[int | None] | None, options: dict[str, Any] | None
    ) -> Arrays:
        """Sets seeds, changes options and starts episodes, as `VectorEnv.reset` does."""
        given = read_reset_options(options, self.pool, self._recipe, self.num_envs, self.batch_size)
        mask = given.mask
        seeds = seed_list(seed, self.num_envs)
        if mask is None:
            self.pool.discard(None)
        else:
            # the mask is checked before a seed is set, so that an error leaves the streams
            # unchanged
            self.pool.check_reset(mask)
        if given.env_options or given.model:
            with explained(self._recipe.headers, given.env_options):
                self.pool.change(mask, given.env_options, given.model)
            self._frames.find_models()
        self.seed(seeds, mask)
        self.pool.send_reset(mask)
        self._num_calls += 1
        return self.recv(None, None, None)

    def seed(self, seeds: list[int | None], mask: Array | None) -> None:
        """Begins the random streams of marked environments that have a seed."""
        for env, value in enumerate(seeds):
            if value is not None and (mask is None or mask[env]):
                self.pool.seed(env, value)

    def async_reset(self) -> None:
        """Starts a new episode everywhere without waiting."""
        self.pool.discard(None)
        self.pool.send_reset(None)
        self._num_calls += 1

    def step(
        self, actions: Any, env_id: npt.ArrayLike | None, out: dict[str, Any] | None
    ) -> Arrays:
        """Sends and receives in one call of the pool."""
        if env_id is None and not self.is_synchronous:
            env_id = self._last_received()
        try:
            arrays = self.pool.step(actions, env_id, out)
        except EnvError:
            self._num_calls += 1  # counts the batch of the environments that did not fail
            raise
        self._num_calls += 1
        if self._notes:
            self._note(arrays)
        return arrays

    def send(self, actions: Any, env_id: npt.ArrayLike | None, out: dict[str, Any] | None) -> None:
        """Starts stepping environments and returns at once."""
        if env_id is None and not self.is_synchronous:
            env_id = self._last_received()
        self.pool.send(actions, env_id, out)
        self._num_calls += 1

    def recv(self, timeout_s: float | None, min_envs: int | None, max_envs: int | None) -> Arrays:
        """Waits for the next batch."""
        timeout_s = seconds("timeout_s", timeout_s)
        if min_envs is None and max_envs is None:
            arrays = self.pool.recv(timeout_s)
        else:
            arrays = self.pool.recv_rows(*self._rows_wanted(min_envs, max_envs), timeout_s)
        self._num_calls += 1
        if self._notes:
            self._note(arrays)
        return arrays

    def drain(self, timeout_s: float | None) -> Arrays:
        """Waits for everything in flight."""
        arrays = self.pool.recv_all(seconds("timeout_s", timeout_s))
        self._num_calls += 1
        if self._notes:
            self._note(arrays)
        return arrays

    def _rows_wanted(self, min_envs: int | None, max_envs: int | None) -> tuple[int, int]:
        if self.is_synchronous:
            raise SpecError(
                "min_envs and max_envs need an asynchronous environment (batch_size < num_envs); "
                f"this one has batch_size {self.batch_size} and num_envs {self.num_envs}"
            )
        if min_envs is None:
            min_envs = min(self.batch_size, whole_number("max_envs", max_envs, 1, self.num_envs))
        least = whole_number("min_envs", min_envs, 1, self.num_envs)
        most = max(self.batch_size, least) if max_envs is None else max_envs
        return least, whole_number("max_envs", most, least, self.num_envs)

    def _last_received(self) -> Array:
        if self._last_env_id is None:
            raise ProtocolError("nothing was received yet; call async_reset() and recv() first")
        return self._last_env_id

    def _note(self, arrays: Arrays) -> None:
        """Copies data that are read after the batch, as views would keep its buffer in use."""
        if not self.is_synchronous and len(arrays[ENV_ID]):
            self._last_env_id = arrays[ENV_ID].copy()
        if MASK in self.info_names:
            self._last_masks = masks_of(arrays, self.info_names)

    # -- what a batch says ---------------------------------------------------------

    def info(self, arrays: Arrays) -> Info:
        """Columns of the batch by name; final_obs and final_info of ended episodes; errors."""
        info: Info = {
            "env_id": arrays[ENV_ID],
            "episode_return": arrays[EPISODE_RETURN],
            "episode_length": arrays[EPISODE_LENGTH],
        }
        if self._has_bare_infos:
            return info
        # a loop, because merging another dict into `info` costs a quarter of a light environment's
        # step
        for index, name in enumerate(self.info_names, NUM_STEP_ARRAYS):
            info[name] = arrays[index]
        if self._final_rows is not None:
            _, _, terminated, truncated, _, _, _, final_obs = arrays[:NUM_STEP_ARRAYS]
            begun = self._begun_infos(arrays) if self.info_names else {}
            self._final_rows.add(info, final_obs, terminated, truncated, begun)
        if self._reports_errors:
            add_errors(info, arrays[ENV_ID], self.pool.take_failures())
        return info

    def columns(self, arrays: Arrays) -> Info:
        """The environment's own columns; where an episode ended, those of its last step."""
        info: Info = {}
        for index, name in enumerate(self.info_names, NUM_STEP_ARRAYS):
            info[name] = arrays[index]
        if self._reports_errors:
            add_errors(info, arrays[ENV_ID], self.pool.take_failures())
        return info

    def _begun_infos(self, arrays: Arrays) -> Info:
        """Infos of the episodes that same-step autoreset began; empty if the pool has none."""
        first = NUM_STEP_ARRAYS + len(self.info_names)
        return dict(zip(self.info_names, arrays[first:], strict=False))

    def action_masks(self) -> Array:
        """As `VectorEnv.action_masks`."""
        if MASK not in self.info_names:
            raise SpecError(
                "the environments report no action_mask, but "
                f"{', '.join(self.info_names) or 'nothing'}"
            )
        if self._last_masks is None:
            raise ProtocolError("nothing was received yet; call reset() first")
        return self._last_masks

    # -- policies, states, models --------------------------------------------------

    @property
    def why_not_collects(self) -> str:
        """The reason why the pool's threads compute no policy; "" where they do."""
        if type(self.pool) is not _native.CpuPool:
            return (
                "Python computes rewards or ends of these environments, so that each step waits "
                "for it"
            )
        if not self.is_synchronous:
            return (
                f"the pool is asynchronous (batch_size {self.batch_size} of {self.num_envs} "
                "environments), expected batch_size == num_envs"
            )
        return ""

    def collect(
        self,
        policies: list[Any],
        arrays: list[dict[str, Array]],
        rules: dict[str, Any],
        poll: Callable[[], None] | None,
        normalize: dict[str, Any] | None,
    ) -> list[Array] | None:
        """Steps all environments T times; see `VectorEnv.collect`, whose checks have been made."""
        acting = [one.refresh(each["obs"][0]) for one, each in zip(policies, arrays, strict=True)]
        final_obs = self.pool.collect(acting, arrays, rules, poll, normalize)
        self._num_calls += 1
        return final_obs

    rollout = lacking("rollout")

    @property
    def num_calls(self) -> int:
        """Number of calls so far that step, reset, receive or set states, also from JAX."""
        return self._num_calls + self.pool.num_xla_calls

    def xla_handle(self) -> int:
        """The number by which compiled functions find the pool."""
        if self.groups or self.parts is not None:
            refuse(self, "xla")
        return self.pool.xla_handle()

    def save(self, env_id: npt.ArrayLike | None) -> list[bytes]:
        """As `VectorEnv.get_state`."""
        return self.pool.save_states(self._ids if env_id is None else env_id)

    def load(self, env_id: npt.ArrayLike | None, states: Sequence[Any]) -> None:
        """As `VectorEnv.set_state`."""
        self.pool.load_states(self._ids if env_id is None else env_id, as_bytes(states))
        self._num_calls += 1

    def env_specs(self) -> tuple[EnvSpec, ...]:
        """Specs of the environments' ids, in env order."""
        return self._recipe.env_specs()

    def env_options(self) -> dict[str, OptionValue | Array | None]:
        """As `VectorEnv.env_options`."""
        columns = self.pool.env_options()
        return {
            name: option_array(columns[name])
            for name in sorted(columns)
            if name in self._recipe.option_names
        }

    def model_fields(self) -> list[str]:
        """As `VectorEnv.model_fields`."""
        return self.pool.model_fields(0)

    def model_field(self, field: str, *, of_file: bool) -> Array:
        """As `VectorEnv.model_field`."""
        rows = [read_field(self.pool, env, field, of_file) for env in range(self.num_envs)]
        if any(row.shape != rows[0].shape for row in rows):
            raise SpecError(f"model field {field!r} has another shape in other environments")
        return np.stack(rows)

    def mujoco_engines(self) -> list[tuple[str, str]]:
        """("lanes", "") or ("mujoco", why not lanes) for each environment; "" without MuJoCo."""
        return self.pool.engines()

    # -- measurements and pictures -------------------------------------------------

    def render(self, env_ids: npt.ArrayLike | None, camera: int | str | None) -> tuple[Any, ...]:
        """As `VectorEnv.render`."""
        return self._frames.draw(env_ids, camera)

    @property
    def num_in_flight(self) -> int:
        """Environments sent and not yet received."""
        return int(self.pool.num_in_flight)

    @property
    def buffer_bytes(self) -> int:
        """Bytes of all batch buffers the pool owns."""
        return int(self.pool.buffer_bytes)

    def stats(self) -> PoolStats:
        """As `VectorEnv.stats`."""
        return PoolStats.from_native(self.pool.stats())

    def synchronize(self) -> None:
        """Does nothing: a batch of `recv` is complete when it is returned."""

    def reset_stats(self) -> None:
        """As `VectorEnv.reset_stats`."""
        self.pool.reset_stats()
