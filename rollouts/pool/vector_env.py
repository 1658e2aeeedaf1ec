# SPDX-License-Identifier: Apache-2.0
"""`VectorEnv`: the Gymnasium face of a native pool."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import VectorEnv as GymnasiumVectorEnv
from gymnasium.vector.utils import batch_space

from rollouts.checks import flag
from rollouts.errors import EnvError, SpecError
from rollouts.families.model_fields import read_field
from rollouts.pool.native_vector_env import NativeVectorEnv
from rollouts.pool.statistics import KeepsStatistics

Array = npt.NDArray[Any]
Info = dict[str, Any]


class VectorEnv(NativeVectorEnv, KeepsStatistics, GymnasiumVectorEnv[Array, Array, Array]):
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

    def _set_spaces(self) -> None:
        spec, parts = self.env_spec, self._parts
        if spec.groups:
            raise SpecError(
                f"{spec.id} has several agents: make_vec makes a MultiAgentVectorEnv of it"
            )
        self.single_action_space = spec.single_action_space
        self.action_space = batch_space(spec.single_action_space, self.batch_size)
        if parts is None:
            self.single_observation_space = spec.single_observation_space
            self.observation_space = batch_space(spec.single_observation_space, self.batch_size)
        else:
            self.single_observation_space = parts.space()
            self.observation_space = parts.space(self.batch_size)

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
        self._send_reset(seed, options)
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
        try:
            arrays = self._pool.step(actions, self._targets(env_id), out)
        except EnvError:
            self.num_calls += 1  # the others were stepped
            raise
        self.num_calls += 1
        return self._five(arrays)

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
