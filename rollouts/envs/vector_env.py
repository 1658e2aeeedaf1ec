# SPDX-License-Identifier: Apache-2.0
"""`VectorEnv`: environments with one agent behind Gymnasium's interface."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy.typing as npt
from gymnasium.vector import VectorEnv as GymnasiumVectorEnv

from rollouts.batch import NUM_STEP_ARRAYS, A, StepBatch
from rollouts.checks import check_collects, flag
from rollouts.envs.engine import Arrays, Engine
from rollouts.envs.face import PoolFace, check_is_engine
from rollouts.envs.of_engine import OfEngine
from rollouts.envs.statistics import RunningStatistics
from rollouts.errors import SpecError

if TYPE_CHECKING:
    from rollouts.policies.native import FrozenPolicy, NativePolicy

Array = npt.NDArray[Any]
Info = dict[str, Any]


class VectorEnv(PoolFace[A], GymnasiumVectorEnv[A, A, A]):
    """N environments, of one id or with equal spaces, stepped as a batch by an engine.

    Implements `gymnasium.vector.VectorEnv`. `send` and `recv` are the two halves of `step`, and
    `async_reset` is the first half of `reset`, for callers that do other work in between. Arrays
    returned are views of the pool's buffers. A buffer is written again only when no view of it is
    left, so keeping an array is safe and costs no copy.

    With a device, arrays are torch tensors there (`VectorEnv[torch.Tensor]` to type checkers) and
    rewards are float32. A step is a launch on torch's current stream, and the call does not wait
    for it: see `KernelEngine` and `PhysicsEngine` in rollouts.envs.kernel and
    rollouts.envs.physics.

    Attributes:
      engine: The engine that steps the environments: a NativeEngine, KernelEngine, PhysicsEngine or
        HostedEngine.
      device: `torch.device` of all tensors; None: arrays are NumPy's.
      num_envs: Environments N.
      batch_size: Rows B of a batch; N in synchronous mode.
      num_threads: Threads that step, the caller's among them in synchronous mode.
      env_id_offset: Global id of row 0's environment.
      env_spec: The `rollouts.EnvSpec` of the id; in a mixed pool that of the first id, and
        `env_specs` has all of them.
      autoreset_mode: As in `metadata["autoreset_mode"]`.
    """

    # only environments in Python have these halves of `reset` and `step`, named as in
    # AsyncVectorEnv
    reset_async = OfEngine("python", "async_calls.reset_async")
    reset_wait = OfEngine("python", "async_calls.reset_wait")
    step_async = OfEngine("python", "async_calls.step_async")
    step_wait = OfEngine("python", "async_calls.step_wait")
    # environments in Python have random generators of their own; others use Gymnasium's
    np_random = OfEngine("python", "np_random", otherwise=GymnasiumVectorEnv.np_random)
    np_random_seed = OfEngine(
        "python", "np_random_seed", otherwise=GymnasiumVectorEnv.np_random_seed
    )

    def __init__(self, engine: Engine) -> None:
        """Takes over an engine, which `close` closes too; `make_vec` makes both.

        Raises:
          SpecError: Its environments have several agents.
        """
        check_is_engine("VectorEnv", engine)
        if engine.groups:
            engine.close()
            raise SpecError(
                f"{engine.env_spec.id} has several agents: make_vec makes a MultiAgentVectorEnv "
                "of it"
            )
        super().__init__(engine)
        self.single_observation_space = engine.single_observation_space
        self.single_action_space = engine.single_action_space
        self.observation_space = engine.observation_space
        self.action_space = engine.action_space
        self._parts = engine.parts

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[A, Info]:
        """Starts new episodes and returns their first observations.

        Batches in flight are waited for and discarded. In asynchronous mode the
        result is the first batch of B environments; recv returns the others.

        Args:
          seed: int: seeds every random stream (they differ by env_id) and begins episode 0.
            Sequence of N ints or None: one seed per environment, where None lets its stream go on.
            None: every stream goes on.
          options: {"reset_mask": (N,) bool, array or tensor} resets only the marked environments
            and returns all N observations (synchronous mode only); a mask that marks none changes
            nothing. Every other entry is an option of the environments, as in `make_vec`: one
            value, or N values, of which those of marked environments count. It holds from this
            episode on, until it is changed. A heavy environment (Atari, MuJoCo) is built anew if
            its options change.
            {"model": {field: values}} changes MuJoCo's model of each environment: see
            `model_fields`. Values have the field's shape, or (N, *shape), of which those
            of marked environments count; `rollouts.mujoco.Uniform` and `Scaled` draw them for
            every episode, also for those that autoreset begins. They stay until they are given
            anew; None restores the file's values. MuJoCo's constants that derive from masses,
            inertias, sizes or gear are updated, as by mj_setConst. Nothing else is updated: a
            body's inertia stays when its mass changes.

        Returns:
          obs (B, *obs_shape) and info, as `step`.

        Raises:
          SpecError: Unknown option or field, or one that would change the spaces; not N values;
            mask that is not (N,) bool; bad seed. DTypeError: options is no dict with str for keys.
            Nothing has changed then, except that batches in flight may have been discarded.
          ClosedError: The environment was closed.

        Example:
          env.reset(options={"reset_mask": info["episode_length"] > 100, "gravity": 12.0})
          mass = env.model_field("body_mass")  # (N, nbody)
          env.reset(options={"model": {"body_mass": mass * rng.uniform(0.8, 1.2, mass.shape)}})
          env.reset(options={"model": {"body_mass": rollouts.mujoco.Scaled(0.8, 1.2)}})
        """
        obs, _, _, _, info = self._five(self.engine.reset(seed, options))
        return obs, info

    def step(
        self,
        actions: Any,
        env_id: npt.ArrayLike | None = None,
        *,
        out: dict[str, Array] | None = None,
    ) -> tuple[A, A, A, A, Info]:
        """Steps the environments and waits for a batch: `send` and `recv` in one call.

        Args:
          actions: (B, *action_shape), one row per environment stepped; for environments in Python
            nested as the batched action space.
          env_id, out: As for `send`.

        Returns:
          obs (B, *obs_shape), reward (B,) float64, terminated (B,) bool, truncated (B,)
          bool, info. Rows are in env order in synchronous mode, in the order of
          `info["env_id"]` otherwise. `info` has env_id (B,) int32, episode_return (B,)
          float64 (sum of unclipped rewards, complete where the episode ended),
          episode_length (B,) int32 and the environment's own keys. Same-step mode adds
          final_obs and final_info where an episode ended; the own keys of Atari and toy text belong
          to the new episode there. on_env_error="reset" adds env_error (B,) object and _env_error
          (B,) bool where an environment failed.

        Raises:
          SpecError, DTypeError: Wrong shape, dtype or value; the message names the row.
          ProtocolError: Never reset, already in flight, or ended with autoreset disabled.
          EnvError: An environment failed; the others' batch comes with the next recv.
          ClosedError: The environment was closed.
        """
        return self._five(self.engine.step(actions, env_id, out))

    def send(
        self,
        actions: Any,
        env_id: npt.ArrayLike | None = None,
        *,
        out: dict[str, Array] | None = None,
    ) -> None:
        """Starts stepping environments and returns at once.

        Args:
          actions: (n, *action_shape), one row per environment.
          env_id: (n,) int, global ids as in `info["env_id"]`. None: all environments in
            synchronous mode, those of the last `recv` in asynchronous mode.
          out: Arrays that the environments write instead of the pool's own, by any of the names
            obs, reward, terminated, truncated, env_id, episode_return, episode_length and
            final_obs: n rows, with the dtype that recv returns, C-contiguous, such as row t + 1 of
            a rollout's (T + 1, B, ...) array. `recv` returns them; until then they belong to the
            pool. Synchronous mode only.

        Raises:
          As `step`. Then nothing was sent.
        """
        self.engine.send(actions, env_id, out)

    def recv(
        self,
        timeout_s: float | None = None,
        *,
        min_envs: int | None = None,
        max_envs: int | None = None,
    ) -> tuple[A, A, A, A, Info]:
        """Waits for the next batch.

        Args:
          timeout_s: Seconds to wait; None waits for ever.
          min_envs, max_envs: Returns as soon as min_envs environments have finished, with all that
            have finished by then, at most max_envs. With only one given, min_envs is
            min(batch_size, max_envs), or max_envs is max(batch_size, min_envs). Asynchronous mode
            only. Arrays are copies if the rows lie in two of the pool's buffers.

        Returns:
          As `step`. In synchronous mode the rows sent since the last recv, in the order
          sent; in asynchronous mode the first environments to finish.

        Raises:
          TimeoutError: No batch within timeout_s. ProtocolError: too few environments
          are in flight to fill a batch. SpecError: not 1 <= min_envs <= max_envs <=
          num_envs, or synchronous mode. DTypeError: timeout_s is no number. EnvError,
          ClosedError: as `step`.
        """
        return self._five(self.engine.recv(timeout_s, min_envs, max_envs))

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
        arrays = self.engine.recv(timeout_s, min_envs, max_envs)
        batch = StepBatch._make((*arrays[:NUM_STEP_ARRAYS], self.engine.columns(arrays)))
        return batch if self._parts is None else self._parts.split_batch(batch)

    def drain(self, timeout_s: float | None = None) -> tuple[A, A, A, A, Info]:
        """Waits for everything in flight and returns it as one batch, as `recv` does.

        Afterwards no environment is in flight, so that `get_state`, `set_state` and another
        thread's `send` can be called.

        Returns:
          As `step`, with as many rows as environments were in flight, maybe none.

        Raises:
          TimeoutError, DTypeError, EnvError, ClosedError: As `recv`.
        """
        return self._five(self.engine.drain(timeout_s))

    def collect(
        self,
        policy: NativePolicy | FrozenPolicy,
        arrays: dict[str, Array] | None = None,
        *,
        rules: dict[str, Any] | None = None,
        poll: Callable[[], None] | None = None,
        normalize: dict[str, Any] | None = None,
    ) -> Array | None:
        """Steps all environments T times with a policy, by the pool's threads, without Python.

        Threads step some environments T times before they begin with others. Where statistics are
        updated, threads wait for each other at each step, and each step counts as one received
        batch.

        `rollouts.Collector`, which owns the arrays, calls it. The environments must have been
        reset, and nothing may be in flight. Ctrl-C and `close` end the call; as after an error,
        environments have then made some of their steps.

        Args:
          policy: Computes actions and values; its weights are read once, before the start.
          arrays: T is the T of reward (T, B) float32.
            obs              (T + 1, B, *obs_shape)   row 0 is read, the others are written
            action           (T, B, *action_shape)    as sampled; environments get it clipped
            log_prob, value, bootstrap_value   (T, B) float32
            terminated, truncated              (T, B) bool
            episode_return   (T, B) float64           episode_length   (T, B) int32
            last_value       (B,) float32             of the last row of obs
            may be left out:
            inputs           (T, B, k) float32        the head's inputs: logits, or mean and log_std
            entropy          (T, B) float32           nats of the distribution of actions; of
                                                      "tanh_gaussian" before its tanh, 0 of
                                                      "epsilon_greedy"
            action_mask      (T + 1, B, A) bool       actions that may be chosen; row 0 is read
            advantage, target  (T, B) float32         of each environment's T steps, by `returns`
            for a policy with memory, whose states have s features together:
            state            (B, s) float32           read where begins is False; written, so that
            begins           (B,) bool                the next rollout continues from both
            policy_state     (1 or T, B, s) float32   the state before the first step, or before
            each step
          rules: Options by name. "keep_final_obs": True returns the last observation of each
            episode that ended. "returns": the `rule` of a Gae or Nstep, which defines advantage
            and target with the same bits as `rollouts.returns`.
          poll: Called about every 50 ms by the calling thread; an error that it raises ends the
            rollout.
          normalize: Foreign statistics that scale what the policy sees; for adapters, see
            rollouts.integrations.sb3. What was counted is written into it.
        Returns:
          (E, obs_bytes) uint8 by step and environment, or None.
        Raises:
          SpecError: The policy does not fit the pool, a weight or an output is NaN or infinite;
            the pool does not autoreset in the same step; an array has another shape or dtype.
          ProtocolError: Environments are in flight or were never reset.
          EnvError: An environment failed, unless on_env_error="reset".
        """
        check_collects(policy, arrays, self.engine.why_not_collects)
        assert arrays is not None
        final_obs = self.engine.collect([policy], [arrays], rules or {}, poll, normalize)
        return None if final_obs is None else final_obs[0]

    def rollout(
        self, num_steps: int, actions: Any = "random", *, action_seed: int = 0, record: bool = False
    ) -> tuple[A, A, A, A, Info]:
        """Steps all environments `num_steps` times by one launch; states stay on the chip.

        For environments whose `env_spec` has runs_on_gpu, with a device.

        Args:
          num_steps: K.
          actions: "random": uniform over the space (a Box must be bounded), as a function of
            (action_seed, env_id, step). A tensor (N, *action_shape): the same actions in each step.
            (K, N, *action_shape): actions for each step.
          action_seed: Seed of random actions.
          record: True returns all K rows, (K, N, ...), new tensors each time, and with random
            actions info["action"] (K, N, *action_shape). Same-step mode doubles the observations.
            False returns the last step's rows, (N, ...).

        Returns:
          As `step`; `stats` counts all episodes.

        Raises:
          As `step`. SpecError: No kernel steps these environments.
        """
        arrays, taken = self.engine.rollout(num_steps, actions, action_seed, record)
        five = self._five(arrays)
        if taken:
            five[4]["action"] = taken[0]
        return five

    def render(  # type: ignore[override]
        self, env_ids: npt.ArrayLike | None = None, camera: int | str | None = None
    ) -> tuple[Array, ...]:
        """Draws environments as they are now, which changes nothing about them.

        MuJoCo is drawn by OpenGL as in Gymnasium, except that all positions are those of the state;
        Gymnasium's bodies lag one substep behind it after a step. Atari's frames are the whole
        screen of the emulator in colour; those of classic control come from Gymnasium's own
        renderers (extra `render`). Works with any render_mode, which only wrappers read.

        Args:
          env_ids: (n,) int or int, global ids. None: all environments, in order.
          camera: Number or name of a camera of the MuJoCo model in place of camera_id or
            camera_name of `make_vec`; -1: the free camera.

        Returns:
          n frames (height, width, 3) uint8.

        Raises:
          ProtocolError: An environment is in flight (call `drain` first) or was never reset.
          SpecError, DTypeError: Not ids of this VectorEnv, no such camera, or environments that
            cannot be drawn. ClosedError: it was closed.
          EngineError: There is no OpenGL; the message names the variable and the packages that
            help. Or this process was forked from one that has rendered.
        """
        return self.engine.render(env_ids, camera)

    @property
    def model_fields(self) -> list[str]:
        """Fields of MuJoCo's model that `reset(options={"model": ...})` may change.

        Named as in MuJoCo's mjModel, and "opt.gravity" and so on for its options. Fields that
        define the structure of the model (types, addresses, sizes, names, meshes, textures) and
        fields that MuJoCo computes from others are not among them.

        Raises:
          SpecError: The environments have no model. ClosedError: The environment was closed.
        """
        return self.engine.model_fields()

    def model_field(self, field: str, *, of_file: bool = False) -> Array:
        """The values of a field of MuJoCo's model, one for each environment.

        Args:
          field: One of `model_fields`, such as "body_mass".
          of_file: Whether to return the values of the model's file instead of the present ones.

        Returns:
          (N, *shape of the field), of its dtype: a copy.

        Raises:
          SpecError: No such field, no model, or models whose shapes differ. DTypeError:
            of_file is no bool.
          ProtocolError: An environment is in flight. ClosedError: The environment was closed.
        """
        return self.engine.model_field(field, of_file=flag("of_file", of_file))

    def xla(self) -> tuple[Any, Any, Any, Any]:
        """(handle, recv, send, step) for functions that JAX compiles; results are StepBatches.

        See `rollouts.integrations.jax.xla`.

        Raises:
          EngineError: JAX is not installed. SpecError: flatten_observation is False.
        """
        if self._parts is not None:
            raise SpecError("xla() hands out flat rows: leave flatten_observation=False out")
        # imported by name, because this package does not depend on its adapters
        adapter = importlib.import_module("rollouts.integrations.jax")
        made: tuple[Any, Any, Any, Any] = adapter.xla(self)
        return made

    def action_masks(self) -> Array:
        """Actions that the observations of the last batch allow, as in info["action_mask"].

        Where same-step autoreset began an episode, the mask is that of its first observation, while
        the info of `recv_batch` belongs to the step that ended the episode before.

        Returns:
          (B, A) bool, in the order of the batch that was received last.
        Raises:
          SpecError: The environments report none. ProtocolError: Nothing was received yet.
        """
        return self.engine.action_masks()

    @property
    def observation_statistics(self) -> RunningStatistics:
        """Statistics that scale observations: (obs - mean) / sqrt(var + epsilon).

        Each received batch counts once, whatever its number of rows; rows that a masked reset only
        repeats do not count. Setting the property replaces the statistics, as for evaluation or
        from a checkpoint.

        Raises:
          SpecError: make_vec had no normalize_observation, or the new statistics do not fit.
          ProtocolError: Frozen statistics are set while environments are in flight.
          ClosedError: The environment was closed.
        """
        return self.engine.statistics.read("observation")

    @observation_statistics.setter
    def observation_statistics(self, statistics: RunningStatistics) -> None:
        self.engine.statistics.replace("observation", statistics)

    @property
    def reward_statistics(self) -> RunningStatistics:
        """Statistics of discounted returns: rewards are divided by sqrt(var + epsilon). Shape ().

        Raises:
          As `observation_statistics`, for normalize_reward.
        """
        return self.engine.statistics.read("reward")

    @reward_statistics.setter
    def reward_statistics(self, statistics: RunningStatistics) -> None:
        self.engine.statistics.replace("reward", statistics)

    @property
    def update_statistics(self) -> bool:
        """True while batches are counted, as update_running_mean of Gymnasium; for both statistics.

        False freezes the statistics, for evaluation. Threads then scale rows as they step, without
        waiting for the whole batch.

        Raises:
          SpecError: Something else than a bool is set, or nothing is normalised.
          ProtocolError: It is set while environments are in flight. ClosedError: closed.
        """
        return self.engine.statistics.are_updated

    @update_statistics.setter
    def update_statistics(self, updates: bool) -> None:
        self.engine.statistics.update(updates)

    @property
    def normalizes(self) -> tuple[str, ...]:
        """Kinds of statistics that are kept: "observation", "reward", both or none."""
        return self.engine.statistics.kinds

    def _five(self, arrays: Arrays) -> tuple[A, A, A, A, Info]:
        info = self.engine.info(arrays)
        obs: Any = arrays[0]
        if self._parts is not None:
            obs = self._parts.split_step(obs, info)
        # the arrays are listed, because a slice would make another tuple in each step
        return obs, arrays[1], arrays[2], arrays[3], info
