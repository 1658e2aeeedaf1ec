# SPDX-License-Identifier: Apache-2.0
"""The Gymnasium face of a native pool: `make_vec` and `VectorEnv`."""

from __future__ import annotations

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
from rollouts.arguments import add_final, as_bytes, int_between, seed_value, to_autoreset_mode
from rollouts.batch import StepBatch
from rollouts.cpu_count import usable_cpus
from rollouts.errors import ProtocolError, SpecError
from rollouts.registry import env_spec, resolve
from rollouts.specs import OptionValue

Array = npt.NDArray[Any]
Info = dict[str, Any]

# values of the native enum AutoresetMode
_NATIVE_AUTORESET = {
    AutoresetMode.NEXT_STEP: 0,
    AutoresetMode.SAME_STEP: 1,
    AutoresetMode.DISABLED: 2,
}


def make_vec(
    env_id: str,
    num_envs: int = 1,
    *,
    batch_size: int | None = None,
    num_threads: int | None = None,
    seed: int | None = None,
    autoreset_mode: str | AutoresetMode = "next_step",
    env_id_offset: int = 0,
    max_episode_steps: int | None = None,
    **env_options: OptionValue,
) -> VectorEnv:
    """Makes a batch of environments that C++ threads step.

    Args:
      env_id: One of `rollouts.env_ids()`, such as "CartPole-v1" or "ALE/Pong-v5".
      num_envs: Number of environments N.
      batch_size: Rows B of a recv. None or N: synchronous, every environment steps
        together. Less than N: asynchronous, recv returns the first B to finish.
      num_threads: Threads that step; None: as many as this process may use (affinity
        mask and cgroup quota), at most N.
      seed: Seed of all random streams, 0 <= seed < 2**64; None: from the system's
        entropy. The data depend on (seed, env_id, episode) alone, not on threads or
        batch_size.
      autoreset_mode: "next_step" (Gymnasium's default), "same_step" (the last
        observation comes as final_obs) or "disabled" (reset by reset_mask).
      env_id_offset: Global id of the first environment; workers of one job take
        consecutive ranges, so that no two environments share a random stream.
      max_episode_steps: Time limit in place of the id's own; 0: none.
      env_options: Options of the environment; `rollouts.env_spec(env_id).options`
        lists them with their defaults.

    Returns:
      The vector environment. It owns threads: close it or use it in a `with`.

    Raises:
      SpecError: Unknown id or option, or a value out of range.
      EngineError: The engine behind the id is missing or not supported.

    Example:
      with rollouts.make_vec("CartPole-v1", 64, seed=1) as env:
          obs, info = env.reset()
          obs, reward, terminated, truncated, info = env.step(env.action_space.sample())
    """
    return VectorEnv(
        env_id,
        num_envs,
        batch_size=batch_size,
        num_threads=num_threads,
        seed=seed,
        autoreset_mode=autoreset_mode,
        env_id_offset=env_id_offset,
        max_episode_steps=max_episode_steps,
        env_options=env_options,
    )


class VectorEnv(GymnasiumVectorEnv[Array, Array, Array]):
    """N environments of one id, stepped as a batch by the native pool.

    Implements `gymnasium.vector.VectorEnv`; `send`, `recv` and `async_reset` are the
    two halves of `step` for callers that want to overlap. Arrays returned are views
    of the pool's buffers: a buffer is written again only when nobody holds a view of
    it, so keeping an array is safe and costs no copy.

    Attributes:
      num_envs: Environments N.
      batch_size: Rows B of a batch; N in synchronous mode.
      num_threads: Threads that step, in synchronous mode the caller's among them.
      env_id_offset: Global id of row 0's environment.
      env_spec: What the id stands for (`rollouts.EnvSpec`).
      autoreset_mode: As in `metadata["autoreset_mode"]`.
    """

    def __init__(
        self,
        env_id: str,
        num_envs: int = 1,
        *,
        batch_size: int | None = None,
        num_threads: int | None = None,
        seed: int | None = None,
        autoreset_mode: str | AutoresetMode = "next_step",
        env_id_offset: int = 0,
        max_episode_steps: int | None = None,
        env_options: Mapping[str, OptionValue] | None = None,
    ) -> None:
        """Checks the arguments and starts the threads; see `make_vec`."""
        self.closed = True  # until there is something to close
        options = dict(env_options or {})
        self.num_envs = int_between("num_envs", num_envs, 1, 2**24)
        rows = num_envs if batch_size is None else batch_size
        self.batch_size = int_between("batch_size", rows, 1, num_envs)
        threads = min(usable_cpus(), num_envs) if num_threads is None else num_threads
        self.num_threads = int_between("num_threads", threads, 1, 4096)
        self.env_id_offset = int_between("env_id_offset", env_id_offset, 0, 2**31 - 1 - num_envs)
        self.autoreset_mode = to_autoreset_mode(autoreset_mode)
        self.metadata = {**self.metadata, "autoreset_mode": self.autoreset_mode}

        recipe = resolve(env_id, max_episode_steps, options)
        self.env_spec = env_spec(env_id, max_episode_steps=max_episode_steps, **options)
        self.single_observation_space = self.env_spec.single_observation_space
        self.single_action_space = self.env_spec.single_action_space
        self.observation_space = batch_space(self.single_observation_space, self.batch_size)
        self.action_space = batch_space(self.single_action_space, self.batch_size)

        # what makes this environment again in another process
        self._recipe: dict[str, Any] = {
            "batch_size": self.batch_size,
            "num_threads": num_threads,
            "seed": seed,
            "autoreset_mode": self.autoreset_mode,
            "env_id_offset": env_id_offset,
            "max_episode_steps": max_episode_steps,
            "env_options": options,
        }
        self._pool = _native.CpuPool(
            id=recipe.native_id,
            env_options=recipe.options,
            num_envs=self.num_envs,
            batch_size=self.batch_size,
            num_threads=self.num_threads,
            env_id_offset=self.env_id_offset,
            seed=secrets.randbits(64) if seed is None else seed_value(seed),
            autoreset_mode=_NATIVE_AUTORESET[self.autoreset_mode],
            max_episode_steps=recipe.max_episode_steps,
        )
        self._info_names: tuple[str, ...] = self._pool.info_names
        self._synchronous = self.batch_size == self.num_envs
        self._same_step = self.autoreset_mode is AutoresetMode.SAME_STEP
        self._last_env_id: Array | None = None
        self.closed = False

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
            returns all N observations (synchronous mode only).

        Returns:
          obs (B, *obs_shape) and info, as `step`.

        Raises:
          SpecError: Unknown option; mask of the wrong shape or all False; bad seed.
          ClosedError: The environment was closed.
        """
        mask = self._reset_mask(options)
        if mask is None:
            self._pool.drain(None)
        self._apply_seed(seed, mask)
        self._pool.send_reset(mask)
        obs, _, _, _, info = self.recv()
        return obs, info

    def step(
        self, actions: npt.ArrayLike, env_id: npt.ArrayLike | None = None
    ) -> tuple[Array, Array, Array, Array, Info]:
        """Steps the environments and waits for a batch: `send` and `recv` in one call.

        Args:
          actions: (B, *action_shape), one row per environment stepped.
          env_id: As for `send`.

        Returns:
          obs (B, *obs_shape), reward (B,) float64, terminated (B,) bool, truncated (B,)
          bool, info. Rows are in env order in synchronous mode, in the order of
          `info["env_id"]` otherwise. `info` has env_id (B,) int32, episode_return (B,)
          float64 (sum of unclipped rewards, complete where the episode ended),
          episode_length (B,) int32 and the environment's own keys; in same-step mode
          also final_obs and final_info where an episode ended.

        Raises:
          SpecError, DTypeError: Wrong shape, dtype or value; the message names the row.
          ProtocolError: Never reset, already in flight, or ended with autoreset disabled.
          EnvError: An environment failed; the others' batch comes with the next recv.
          ClosedError: The environment was closed.
        """
        return self._five(self._pool.step(actions, self._targets(env_id)))

    def close_extras(self, **kwargs: Any) -> None:
        """Stops the threads and frees environments and buffers nobody holds."""
        self._pool.close()

    def close(self, **kwargs: Any) -> None:
        """Closes the pool; wakes whoever waits in `recv`. May be called twice."""
        if not self.closed:
            self.close_extras(**kwargs)
            self.closed = True

    # -- send / recv ---------------------------------------------------------------

    def async_reset(self) -> None:
        """Starts a new episode everywhere without waiting; `recv` returns the first obs.

        Raises:
          ClosedError: The environment was closed.
        """
        self._pool.drain(None)
        self._pool.send_reset(None)

    def send(self, actions: npt.ArrayLike, env_id: npt.ArrayLike | None = None) -> None:
        """Starts stepping environments and returns at once.

        Args:
          actions: (n, *action_shape), one row per environment.
          env_id: (n,) int, global ids as in `info["env_id"]`. None: all environments in
            synchronous mode, those of the last `recv` otherwise.

        Raises:
          As `step`. Nothing is sent when an error is raised.
        """
        self._pool.send(actions, self._targets(env_id))

    def recv(self, timeout_s: float | None = None) -> tuple[Array, Array, Array, Array, Info]:
        """Waits for the next batch.

        Args:
          timeout_s: Seconds to wait; None waits for ever.

        Returns:
          As `step`. In synchronous mode the rows sent since the last recv, in the order
          sent; in asynchronous mode the first B environments to finish.

        Raises:
          TimeoutError: No batch within timeout_s. ProtocolError: too few environments
          are in flight to fill a batch. EnvError, ClosedError: as `step`.
        """
        return self._five(self._pool.recv(timeout_s))

    def recv_batch(self, timeout_s: float | None = None) -> StepBatch:
        """Waits for the next batch and returns its plain arrays; see `recv`.

        Returns:
          StepBatch; final_obs is dense, valid where terminated | truncated in same-step
          mode, None in the others.
        """
        arrays = self._pool.recv(timeout_s)
        if not self._synchronous:
            self._last_env_id = arrays[4].copy()
        info = dict(zip(self._info_names, arrays[8:], strict=True))
        return StepBatch._make((*arrays[:8], info))

    # -- state ---------------------------------------------------------------------

    def get_state(self, env_id: npt.ArrayLike | None = None) -> list[bytes]:
        """Saves environments whole: what they do next is a function of state and actions.

        That is the environment itself, its random stream (seed, stream, episode and
        position in it), elapsed steps, episode return, and whether its episode has ended.
        Time limit and autoreset mode belong to this VectorEnv and are not part of it.

        Args:
          env_id: (n,) int, global ids. None: all environments, in order.

        Returns:
          n states of type bytes, for `set_state` of this or any other VectorEnv of the
          same environment and options, in any process. The format has a version; other
          releases of rollouts may refuse it, and an engine's state may need the same
          release of the engine. With frameskip 1 or 2, the first frame after a restore
          of ALE/YarsRevenge-v5 may differ in a few pixels (native/.../atari.h).

        Raises:
          ProtocolError: An environment is in flight or was never reset.
          SpecError, DTypeError: Not ids of this VectorEnv. ClosedError: it was closed.
        """
        ids = self._all_ids() if env_id is None else env_id
        return self._pool.save_states(ids)

    def set_state(
        self, env_id: npt.ArrayLike | None, state: Sequence[bytes | bytearray | memoryview]
    ) -> None:
        """Puts saved states into environments; the next `step` goes on from there.

        An environment keeps its own env_id and takes everything else over. It also goes on
        in the random stream that the state was saved in, and so do its later episodes:
        copies of one state do the same for the same actions until `reset(seed=...)` gives
        each its own stream again. An environment whose state is set needs no reset.
        Observations handed out before stay as they are; nothing is observed before the
        next step, but `reset(options={"reset_mask": ...})` shows unmarked environments.

        Args:
          env_id: (n,) int, global ids, none twice. None: all environments, in order.
          state: n states of `get_state`, one per id; the same one may come many times.

        Raises:
          SpecError: A state is of another environment or other options, truncated,
            damaged, or of another format version; number of states is not n; bad ids.
            The checksum finds damage, not malice: load states that you trust.
          ProtocolError: An environment is in flight or listed twice.
          DTypeError: A state is not bytes-like. ClosedError: the VectorEnv was closed.
          Nothing has changed when an error is raised.
        """
        ids = self._all_ids() if env_id is None else env_id
        self._pool.load_states(ids, as_bytes(state))

    @property
    def num_in_flight(self) -> int:
        """Environments sent and not yet received."""
        return int(self._pool.num_in_flight)

    @property
    def buffer_bytes(self) -> int:
        """Bytes of all batch buffers the pool owns."""
        return int(self._pool.buffer_bytes)

    # -- helpers -------------------------------------------------------------------

    def _all_ids(self) -> Array:
        return np.arange(self.env_id_offset, self.env_id_offset + self.num_envs)

    def _targets(self, env_id: npt.ArrayLike | None) -> npt.ArrayLike | None:
        if env_id is not None or self._synchronous:
            return env_id
        if self._last_env_id is None:
            raise ProtocolError("nothing was received yet; call async_reset() and recv() first")
        return self._last_env_id

    def _five(self, arrays: tuple[Array, ...]) -> tuple[Array, Array, Array, Array, Info]:
        obs, reward, terminated, truncated, env_id, returns, lengths, final_obs = arrays[:8]
        info: Info = {"env_id": env_id, "episode_return": returns, "episode_length": lengths}
        if self._info_names:
            info.update(zip(self._info_names, arrays[8:], strict=True))
        if not self._synchronous:
            # a copy, because a view would keep the whole batch's buffer from being reused
            self._last_env_id = env_id.copy()
        if self._same_step:
            ended = terminated | truncated
            if ended.any():
                add_final(info, final_obs, ended)
        return obs, reward, terminated, truncated, info

    def _reset_mask(self, options: dict[str, Any] | None) -> Array | None:
        if not options:
            return None
        unknown = set(options) - {"reset_mask"}
        if unknown:
            raise SpecError(f"unknown reset options {sorted(unknown)}; expected only 'reset_mask'")
        mask = options["reset_mask"]
        if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_:
            raise SpecError(f"reset_mask must be a NumPy array of bool, got {mask!r}")
        if mask.shape != (self.num_envs,):
            raise SpecError(f"reset_mask has shape {mask.shape}, expected ({self.num_envs},)")
        if not mask.any():
            raise SpecError("reset_mask is all False: mark at least one environment")
        if not self._synchronous:
            raise SpecError(
                "reset_mask needs a synchronous environment (batch_size == num_envs), "
                f"this one has batch_size {self.batch_size} and num_envs {self.num_envs}"
            )
        return mask

    def _apply_seed(self, seed: int | Sequence[int | None] | None, mask: Array | None) -> None:
        if seed is None:
            return
        if isinstance(seed, (int, np.integer)):
            seeds: list[int | None] = [seed_value(seed)] * self.num_envs
        elif len(seed) == self.num_envs:
            seeds = [None if one is None else seed_value(one) for one in seed]
        else:
            raise SpecError(
                f"seed has {len(seed)} entries, expected an int or one entry for each of the "
                f"{self.num_envs} environments"
            )
        # every seed was checked before the first one counts
        chosen = range(self.num_envs) if mask is None else np.flatnonzero(mask).tolist()
        for env in chosen:
            value = seeds[env]
            if value is not None:
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
        """Pickles the arguments, not the state: unpickling makes a fresh environment."""
        return _remake, (self.env_spec.id, self.num_envs, self._recipe)

    def __repr__(self) -> str:
        return (
            f"rollouts.VectorEnv({self.env_spec.id!r}, num_envs={self.num_envs}, "
            f"batch_size={self.batch_size}, num_threads={self.num_threads}, "
            f"autoreset_mode={self.autoreset_mode.name})"
        )


def _remake(env_id: str, num_envs: int, recipe: dict[str, Any]) -> VectorEnv:
    return VectorEnv(env_id, num_envs, **recipe)
