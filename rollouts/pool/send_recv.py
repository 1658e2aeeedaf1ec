# SPDX-License-Identifier: Apache-2.0
"""What VectorEnv offers beside Gymnasium: the two halves of `step`, whole states, measurements."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from rollouts import _native
from rollouts.batch import ENV_ID, NUM_STEP_ARRAYS, StepBatch
from rollouts.checks import add_errors, as_bytes, check_collects, seconds, whole_number
from rollouts.errors import ProtocolError, SpecError
from rollouts.pool.action_masks import TellsMasks
from rollouts.pool.observation_parts import ObservationParts
from rollouts.pool.stats import PoolStats
from rollouts.pool.wrappers import Wrappers

if TYPE_CHECKING:
    from rollouts.policies.native import FrozenPolicy, NativePolicy
    from rollouts.returns import Gae, Nstep

Array = npt.NDArray[Any]
Info = dict[str, Any]


class SendRecv(TellsMasks):
    """Sends actions to a native pool and receives batches; VectorEnv sets the attributes."""

    num_envs: int
    batch_size: int
    env_id_offset: int
    _pool: _native.CpuPool
    _info_names: tuple[str, ...]
    _synchronous: bool
    _final_rows: _native.FinalRows | None  # of same-step autoreset
    _reports_errors: bool
    _last_env_id: Array | None
    _parts: ObservationParts | None
    _wrappers: Wrappers

    def async_reset(self) -> None:
        """Starts a new episode everywhere without waiting; `recv` returns the first obs.

        Raises:
          ClosedError: The environment was closed.
        """
        self._pool.discard(None)
        self._pool.send_reset(None)
        self.num_calls += 1

    @property
    def collects_natively(self) -> bool:
        """Whether `collect` is there: a synchronous pool whose rules are native."""
        return not self.why_not_collects

    @property
    def why_not_collects(self) -> str:
        """What keeps a policy out of the pool's threads; "" where nothing does."""
        if type(self._pool) is not _native.CpuPool:
            return (
                "Python computes rewards or ends of these environments, so that each step waits "
                "for it"
            )
        if not self._synchronous:
            return (
                f"the pool is asynchronous (batch_size {self.batch_size} of {self.num_envs} "
                "environments), expected batch_size == num_envs"
            )
        return ""

    def collect(
        self,
        policy: NativePolicy | FrozenPolicy,
        arrays: dict[str, Array] | None = None,
        *,
        keep_final_obs: bool = False,
        poll: Callable[[], None] | None = None,
        returns: Gae | Nstep | None = None,
        normalize: dict[str, Any] | None = None,
    ) -> Array | None:
        """Steps all environments T times with a policy, by the pool's threads, without Python.

        Threads take some environments through all steps before others. Where statistics are
        updated they wait for each other at each step, which counts as a received batch does.

        What `rollouts.Collector` calls; it has the arrays. The environments have been reset, and
        nothing is in flight. Ctrl-C and `close` end it; the environments are then somewhere in the
        rollout, as after an error.

        Args:
          policy: Computes actions and values; its weights are looked at once, before the start.
          arrays: T is that of reward (T, B) float32.
            obs              (T + 1, B, *obs_shape)   row 0 is read, the others are written
            action           (T, B, *action_shape)    as sampled; environments get it clipped
            log_prob, value, bootstrap_value   (T, B) float32
            terminated, truncated              (T, B) bool
            episode_return   (T, B) float64           episode_length   (T, B) int32
            last_value       (B,) float32             of the last row of obs
            may be left out:
            inputs           (T, B, k) float32        what the head read, logits or mean and log_std
            entropy          (T, B) float32           nats of what actions are drawn from; of a
                                                      "tanh_gaussian" before its tanh, 0 of
                                                      "epsilon_greedy"
            action_mask      (T + 1, B, A) bool       what may be chosen; row 0 is read
            advantage, target  (T, B) float32         of each environment's T steps, by `returns`
            of a policy with memory, whose states have s features together:
            state            (B, s) float32           read where begins does not hold; written as
            begins           (B,) bool                the next rollout goes on from them
            policy_state     (1 or T, B, s) float32   what the first row met, or each
          keep_final_obs: Whether to return the last observation of each episode that ended.
          poll: Called about every 50 ms by the calling thread; what it raises ends the rollout.
          returns: What advantage and target are; the bits of `rollouts.returns`.
          normalize: Statistics of somebody else's, which scale what the policy sees; for adapters,
            see rollouts.integrations.sb3. What was counted is written into it.
        Returns:
          (E, obs_bytes) uint8 by step and environment, or None.
        Raises:
          SpecError: The policy does not fit the pool, a weight or an output is NaN or infinite;
            the pool does not autoreset in the same step; an array has another shape or dtype.
          ProtocolError: Environments are in flight or were never reset.
          EnvError: An environment failed, unless on_env_error="reset".
        """
        check_collects(policy, arrays, self.why_not_collects)
        assert arrays is not None
        policies, rule = [policy.refresh(arrays["obs"][0])], returns.rule if returns else None
        final_obs = self._pool.collect(policies, [arrays], keep_final_obs, poll, rule, normalize)
        self.num_calls += 1
        return None if final_obs is None else final_obs[0]

    def send(
        self,
        actions: npt.ArrayLike,
        env_id: npt.ArrayLike | None = None,
        *,
        out: dict[str, Array] | None = None,
    ) -> None:
        """Starts stepping environments and returns at once.

        Args:
          actions: (n, *action_shape), one row per environment.
          env_id: (n,) int, global ids as in `info["env_id"]`. None: all environments in
            synchronous mode, those of the last `recv` otherwise.
          out: Arrays that the environments write in place of the pool's own, by the names
            obs, reward, terminated, truncated, env_id, episode_return, episode_length and
            final_obs, any of them: n rows, the dtype that recv returns, C-contiguous,
            such as row t + 1 of a rollout's (T + 1, B, ...) array. The recv returns them;
            until then they belong to the pool. Synchronous mode only.

        Raises:
          As `step`. Nothing is sent when an error is raised.
        """
        self._pool.send(actions, self._targets(env_id), out)
        self.num_calls += 1

    def recv(
        self,
        timeout_s: float | None = None,
        *,
        min_envs: int | None = None,
        max_envs: int | None = None,
    ) -> tuple[Array, Array, Array, Array, Info]:
        """Waits for the next batch.

        Args:
          timeout_s: Seconds to wait; None waits for ever.
          min_envs, max_envs: Return as soon as min_envs environments have finished, with
            what has by then, at most max_envs. If one is None it is batch_size, or the
            other one if that leaves them in order. Asynchronous mode only. Arrays are
            copies if the rows asked for lie in two of the pool's buffers.

        Returns:
          As `step`. In synchronous mode the rows sent since the last recv, in the order
          sent; in asynchronous mode the first environments to finish.

        Raises:
          TimeoutError: No batch within timeout_s. ProtocolError: too few environments
          are in flight to fill a batch. SpecError: not 1 <= min_envs <= max_envs <=
          num_envs, or synchronous mode. DTypeError: timeout_s is no number. EnvError,
          ClosedError: as `step`.
        """
        return self._five(self._recv(timeout_s, min_envs, max_envs))

    def recv_batch(
        self,
        timeout_s: float | None = None,
        *,
        min_envs: int | None = None,
        max_envs: int | None = None,
    ) -> StepBatch:
        """Waits for the next batch and returns its plain arrays; see `recv`.

        Returns:
          StepBatch; final_obs is dense, valid where terminated | truncated in same-step
          mode, None in the others.
        """
        arrays = self._recv(timeout_s, min_envs, max_envs)
        if not self._synchronous:
            self._last_env_id = arrays[ENV_ID].copy()
        info = self._own_infos(arrays)
        self._note_masks(arrays)
        if self._reports_errors:
            add_errors(info, arrays[ENV_ID], self._pool.take_failures())
        batch = StepBatch._make((*arrays[:NUM_STEP_ARRAYS], info))
        return batch if self._parts is None else self._with_parts(batch)

    def drain(self, timeout_s: float | None = None) -> tuple[Array, Array, Array, Array, Info]:
        """Waits for everything in flight and returns it as one batch, as `recv` does.

        Then every environment is at rest, so that `get_state`, `set_state` and another
        thread's `send` find none of them in flight.

        Returns:
          As `step`, with as many rows as environments were in flight, maybe none.

        Raises:
          TimeoutError, DTypeError, EnvError, ClosedError: As `recv`.
        """
        arrays = self._pool.recv_all(seconds("timeout_s", timeout_s))
        self.num_calls += 1
        return self._five(arrays)

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
        self.num_calls += 1

    def xla(self) -> tuple[Any, Any, Any, Any]:
        """(handle, recv, send, step) for functions that JAX compiles; results are StepBatches.

        See `rollouts.integrations.jax.xla`.

        Raises:
          EngineError: JAX is not installed. SpecError: flatten_observation is False.
        """
        if self._parts is not None:
            raise SpecError("xla() hands out flat rows: leave flatten_observation=False out")
        # by name, because this package does not depend on its adapters
        adapter = importlib.import_module("rollouts.integrations.jax")
        return adapter.xla(self)  # type: ignore[no-any-return]

    @property
    def num_in_flight(self) -> int:
        """Environments sent and not yet received."""
        return int(self._pool.num_in_flight)

    @property
    def buffer_bytes(self) -> int:
        """Bytes of all batch buffers the pool owns."""
        return int(self._pool.buffer_bytes)

    def stats(self) -> PoolStats:
        """Counts and times since construction or `reset_stats`: steps, waits, stragglers.

        Cheap next to a step of many environments; callable from any thread at any time,
        also after `close`. Other threads go on stepping meanwhile, so numbers taken while
        environments are in flight may be a step apart.
        """
        return PoolStats.from_native(self._pool.stats())

    def reset_stats(self) -> None:
        """Begins the counts and times of `stats` anew. From any thread, at any time."""
        self._pool.reset_stats()

    def _recv(
        self, timeout_s: float | None, min_envs: int | None, max_envs: int | None
    ) -> tuple[Array, ...]:
        arrays = self._received(timeout_s, min_envs, max_envs)
        self.num_calls += 1
        return arrays

    def _received(
        self, timeout_s: float | None, min_envs: int | None, max_envs: int | None
    ) -> tuple[Array, ...]:
        timeout_s = seconds("timeout_s", timeout_s)
        if min_envs is None and max_envs is None:
            return self._pool.recv(timeout_s)
        if self._synchronous:
            raise SpecError(
                "min_envs and max_envs need an asynchronous environment (batch_size < num_envs); "
                f"this one has batch_size {self.batch_size} and num_envs {self.num_envs}"
            )
        if min_envs is None:
            min_envs = min(self.batch_size, whole_number("max_envs", max_envs, 1, self.num_envs))
        least = whole_number("min_envs", min_envs, 1, self.num_envs)
        most = max(self.batch_size, least) if max_envs is None else max_envs
        most = whole_number("max_envs", most, least, self.num_envs)
        return self._pool.recv_rows(least, most, timeout_s)

    def _all_ids(self) -> Array:
        return np.arange(self.env_id_offset, self.env_id_offset + self.num_envs)

    def _targets(self, env_id: npt.ArrayLike | None) -> npt.ArrayLike | None:
        if env_id is not None or self._synchronous:
            return env_id
        if self._last_env_id is None:
            raise ProtocolError("nothing was received yet; call async_reset() and recv() first")
        return self._last_env_id

    def _five(self, arrays: tuple[Array, ...]) -> tuple[Array, Array, Array, Array, Info]:
        obs, reward, terminated, truncated, env_id, returns, lengths, final_obs = arrays[
            :NUM_STEP_ARRAYS
        ]
        info: Info = {"env_id": env_id, "episode_return": returns, "episode_length": lengths}
        # in a loop: a dict of them to merge costs a quarter of a light environment's step
        for index, name in enumerate(self._info_names, NUM_STEP_ARRAYS):
            info[name] = arrays[index]
        self._note_masks(arrays)
        if not self._synchronous and len(env_id):
            # a copy, because a view would keep the whole batch's buffer from being reused
            self._last_env_id = env_id.copy()
        if self._final_rows is not None:
            begun = self._begun_infos(arrays) if self._info_names else {}
            self._final_rows.add(info, final_obs, terminated, truncated, begun)
        if self._parts is not None:
            obs = self._in_parts(obs, info)
        if self._reports_errors:
            add_errors(info, env_id, self._pool.take_failures())
        return obs, reward, terminated, truncated, info

    def _own_infos(self, arrays: tuple[Array, ...]) -> Info:
        """The environment's own keys; of the step that ended an episode where one did."""
        end = NUM_STEP_ARRAYS + len(self._info_names)
        return dict(zip(self._info_names, arrays[NUM_STEP_ARRAYS:end], strict=True))

    def _begun_infos(self, arrays: tuple[Array, ...]) -> Info:
        """Of the episodes that same-step autoreset began; empty if that is not told."""
        first = NUM_STEP_ARRAYS + len(self._info_names)
        return dict(zip(self._info_names, arrays[first:], strict=False))

    def _in_parts(self, obs: Array, info: Info) -> Any:
        """A dict of views; so are the last observations in `info`, if any."""
        assert self._parts is not None
        if "final_obs" in info:
            for row in np.flatnonzero(info["_final_obs"]):
                info["final_obs"][row] = self._parts.split_row(info["final_obs"][row])
        return self._parts.split(obs)

    def _with_parts(self, batch: StepBatch) -> StepBatch:
        assert self._parts is not None
        final_obs = batch.final_obs
        parts: Any = {"obs": self._parts.split(batch.obs)}
        if final_obs is not None:
            parts["final_obs"] = self._parts.split(final_obs)
        return batch._replace(**parts)
