# SPDX-License-Identifier: Apache-2.0
"""`EnvPoolMixin`: the common part of EnvPool's interfaces."""

from __future__ import annotations

import abc
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from rollouts.integrations.envpool.envpool_options import (
    NO_LIMIT,
    first_seeds,
    num_threads,
    pinned_cpus,
)
from rollouts.integrations.envpool.infos import own_infos
from rollouts.integrations.envpool.observations import dict_observations
from rollouts.integrations.envpool.python.env_spec import EnvSpec, is_atari

from rollouts.batch import StepBatch
from rollouts.checks import seed_list
from rollouts.envs.native import NativeEngine
from rollouts.envs.vector_env import VectorEnv
from rollouts.errors import ProtocolError, SpecError

Array = npt.NDArray[Any]


class EnvPoolMixin(abc.ABC):
    """A batch of environments with EnvPool's methods; subclasses shape what `recv` returns.

    Returned arrays belong to the caller: nothing writes into them later.
    """

    spec: Any
    _engine: NativeEngine
    _env: VectorEnv

    def _start(self, spec: EnvSpec) -> None:
        """Makes the environments; the constructors of subclasses call it."""
        config = spec.config._asdict()
        seed, self._first_seeds = first_seeds(config)
        limit = config["max_episode_steps"]
        engine = NativeEngine(
            spec.task.id,
            config["num_envs"],
            batch_size=config["batch_size"],
            num_threads=num_threads(config),
            seed=seed,
            max_episode_steps=0 if limit == NO_LIMIT else limit,
            pin_threads=pinned_cpus(config),
            render_mode=spec.task.frames["render_mode"],
            env_options=spec.task.env_options | _frame_options(spec.task.frames),
        )
        self._engine, self._env = engine, VectorEnv(engine)
        self.spec = spec
        self._dicts = dict_observations(spec.task)
        self._is_atari = is_atari(spec)
        self._episodic_life = spec.task.env_options.get("episodic_life") in (True, "continue")
        self._started = False

    # -- what there is -----------------------------------------------------------------

    @property
    def config(self) -> dict[str, Any]:
        """All options, under EnvPool's names."""
        return dict(self.spec.config._asdict())

    @property
    def all_env_ids(self) -> npt.NDArray[np.int32]:
        """(N,) int32."""
        return np.arange(self._env.num_envs, dtype=np.int32)

    @property
    def is_async(self) -> bool:
        """Tells if a recv returns fewer environments than there are."""
        return self._env.batch_size < self._env.num_envs

    def __len__(self) -> int:
        return self._env.num_envs

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in self.config.items())
        return f"{type(self).__name__}({self.spec.id!r}, {options})"

    # -- stepping ----------------------------------------------------------------------

    def async_reset(self) -> None:
        """Starts a new episode everywhere without waiting; `recv` returns the first obs."""
        if self._first_seeds is not None:
            self._begin_streams(self._first_seeds)
            self._first_seeds = None
        self._env.async_reset()
        self._started = True

    def send(self, action: Any, env_id: npt.ArrayLike | None = None) -> None:
        """Starts stepping environments and returns at once.

        Args:
          action: (n, *action_shape), or a dict of it and perhaps "env_id".
          env_id: (n,) int. None: all environments in synchronous mode, those of the last
            recv otherwise.

        Raises:
          SpecError, DTypeError, ProtocolError: As `rollouts.VectorEnv.send`.
        """
        if isinstance(action, Mapping):
            env_id = action.get("env_id", env_id)
            if "action" not in action:
                raise SpecError(f"action has the keys {sorted(action)}, expected 'action'")
            action = action["action"]
        if not self._started:
            raise ProtocolError("nothing was reset yet: call reset() or async_reset() first")
        self._env.send(action, env_id)

    def recv(self, reset: bool = False, return_info: bool = True) -> Any:
        """Waits for the next batch.

        Args:
          reset: Shapes the batch as the result of a reset.
          return_info: True makes `reset` return info, too, in the interface that has a choice.
        """
        return self._to(self._env.recv_batch(), reset=reset, return_info=return_info)

    def step(self, action: Any, env_id: npt.ArrayLike | None = None) -> Any:
        """Does `send` and `recv`. Before the first reset it resets instead, whatever the action."""
        if not self._started:
            self.async_reset()
        else:
            self.send(action, env_id)
        return self.recv()

    def seed(self, seed: Any = None) -> None:
        """Does nothing but warn, as EnvPool's."""
        warnings.warn("seed() does nothing: give the seed to make() or reset()", stacklevel=2)

    def render(self, env_ids: Any = None, camera_id: int | None = None) -> Array:
        """Draws MuJoCo, Atari and classic control, as EnvPool where render_mode is "rgb_array".

        Args:
          env_ids: (n,) int or int; None: render_env_id of `make`.
          camera_id: Camera of the MuJoCo model; None: render_camera_id of `make`, -1 the free one.

        Returns:
          (n, height, width, 3) uint8. Only MuJoCo has the size that `make` was given.

        Raises:
          ProtocolError: Made without render_mode, or as `rollouts.VectorEnv.render`.
        """
        if self._env.render_mode is None:
            raise ProtocolError("render() needs an environment made with render_mode='rgb_array'")
        chosen = self.spec.task.frames["render_env_id"] if env_ids is None else env_ids
        return np.stack(self._env.render(chosen, camera_id))

    def xla(self) -> tuple[Any, Any, Any, Any]:
        """(handle, recv, send, step) for JAX; see `rollouts.integrations.jax.xla`.

        Returns:
          Functions that can be compiled: `recv(handle) -> (handle, result)`,
          `send(handle, action, env_id=None) -> handle` and
          `step(handle, action, env_id=None) -> (handle, result)`, with results as of `recv`
          and `step` here.
        """
        from rollouts.integrations.jax import xla

        functions: tuple[Any, Any, Any, Any] = xla(self._env, shape_result=self._shape_jax)
        return functions

    # -- helpers -----------------------------------------------------------------------

    @abc.abstractmethod
    def _to(self, batch: StepBatch, *, reset: bool, return_info: bool) -> Any:
        """Shapes a batch as the interface returns it."""

    def _shape_jax(self, batch: StepBatch) -> Any:
        """As `_to`, for a batch of JAX arrays."""
        return self._to(batch, reset=False, return_info=True)

    def _reset_batch(self, env_id: npt.ArrayLike | None, seed: Any = None) -> StepBatch:
        """Begins new episodes and returns their first rows: of all, or of `env_id` in its order."""
        if env_id is not None and self._started and not self.is_async:
            return self._reset_some(np.asarray(env_id), seed)
        if seed is not None:
            self._begin_streams(seed)
            self._first_seeds = None
        self.async_reset()
        batch = self._env.recv_batch()
        if env_id is None:
            return batch
        if self.is_async:
            raise SpecError("reset(env_id) needs batch_size == num_envs, as in EnvPool")
        return select(batch, np.asarray(env_id))

    def _begin_streams(self, seed: Any) -> None:
        """Seeds the environments; their next reset begins their random streams anew."""
        self._engine.pool.discard(None)
        self._engine.seed(seed_list(seed, len(self)), None)

    def _reset_some(self, env_id: Array, seed: Any) -> StepBatch:
        if env_id.size == 0:
            raise SpecError("env_id is empty: name at least one environment to reset")
        mask = np.zeros(len(self), np.bool_)
        mask[env_id] = True
        seeds = None
        if seed is not None:
            seeds = seed_list(seed, len(self))
        obs, info = self._env.reset(seed=seeds, options={"reset_mask": mask})
        zeros = np.zeros(len(self))
        false = np.zeros(len(self), np.bool_)
        names = set(info) - {"env_id", "episode_return", "episode_length"}
        batch = StepBatch(
            obs,
            zeros,
            false,
            false,
            info["env_id"],
            info["episode_return"],
            info["episode_length"],
            None,
            {name: info[name] for name in names if not name.startswith("_")},
        )
        return select(batch, env_id)

    def _obs(self, batch: StepBatch) -> Any:
        space = self.spec.native_observation_space
        if self._dicts is not None:
            return self._dicts.split(batch.obs, batch.env_id)
        if batch.obs.dtype == np.int64:  # discrete observations, which are int32 in EnvPool
            return batch.obs.astype(np.int32)
        if not self._is_atari or len(space.shape) != 4:
            return batch.obs
        # colours are stacked along the frames' axis, as in EnvPool
        stack, height, width, colours = space.shape
        frames = batch.obs.transpose(0, 1, 4, 2, 3)
        return frames.reshape(-1, stack * colours, height, width)

    def _infos(self, batch: StepBatch) -> dict[str, Any]:
        """The infos that EnvPool reports, without elapsed_step."""
        if self._is_atari:
            raw_reward, lives = batch.info["raw_reward"], batch.info["lives"]
        else:
            raw_reward, lives = batch.reward, batch.episode_length * 0
        over = batch.terminated
        if self._episodic_life:
            # with lives left, only a life has ended and not the game
            over = over & (lives == 0)
        own: dict[str, Any] = own_infos(self.spec.task, batch)
        return own | {
            "env_id": batch.env_id,
            "players": {"env_id": batch.env_id},
            "lives": lives.astype(np.int32),
            "reward": raw_reward.astype(np.float32),
            "terminated": over.astype(np.int32),
        }


def select(batch: StepBatch, env_id: Array) -> StepBatch:
    """Returns the rows of these environments from a batch that has all of them in order."""
    info = {name: values[env_id] for name, values in batch.info.items()}
    arrays = (None if array is None else array[env_id] for array in batch[:-1])
    return StepBatch._make((*arrays, info))


def _frame_options(frames: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of `rollouts.make_vec` that were given."""
    names = ("render_width", "render_height", "render_camera_id")
    return {name: frames[name] for name in names if frames[name] not in (None, -1)}
