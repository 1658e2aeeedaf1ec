# SPDX-License-Identifier: Apache-2.0
"""EnvPool's Gymnasium interface: `terminated` and `truncated` are separate."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode
from gymnasium.vector import VectorEnv as GymnasiumVectorEnv
from rollouts.integrations.envpool.python.env_spec import EnvSpec
from rollouts.integrations.envpool.python.envpool import EnvPoolMixin

from rollouts.batch import StepBatch
from rollouts.errors import SpecError


class GymFace(EnvPoolMixin):
    """The common part of the interfaces for Gymnasium and for gym.

    Attributes may be set by the caller, as CleanRL's scripts do. observation_space and
    action_space are those of one environment, as in EnvPool.
    """

    is_vector_env = True

    def _start(self, spec: EnvSpec) -> None:
        super()._start(spec)
        self.num_envs = self._env.num_envs
        self.observation_space: Any = spec.observation_space
        self.action_space: Any = spec.action_space
        self.single_observation_space: Any = spec.observation_space
        self.single_action_space: Any = spec.action_space
        self.metadata = {**self._env.metadata, "autoreset_mode": AutoresetMode.NEXT_STEP}
        self.render_mode: Any = self._env.render_mode
        self.closed = False
        self._new_api = bool(spec.config.gym_reset_return_info)

    def reset(
        self,
        env_id: npt.ArrayLike | None = None,
        *,
        seed: Any = None,
        options: dict[str, Any] | None = None,
    ) -> Any:
        """Starts new episodes.

        Args:
          env_id: (n,) int: these environments alone, whose rows are returned in this order;
            synchronous mode only.
          seed: Seed of the random streams that begin with it. EnvPool ignores it.
          options: {"reset_mask": (N,) bool} is another way to name environments.

        Returns:
          (obs, info), in the old API obs alone.
        """
        unknown = sorted(set(options or {}) - {"reset_mask"})
        if unknown:
            raise SpecError(f"unknown reset options {unknown}, expected 'reset_mask'")
        if options:
            env_id = np.flatnonzero(options["reset_mask"])
        batch = self._reset_batch(env_id, seed)
        return self._to(batch, reset=True, return_info=self._new_api)

    def close(self, **kwargs: Any) -> None:
        """Stops the threads and frees the environments. May be called twice."""
        self._env.close()
        self.closed = True

    def _to(self, batch: StepBatch, *, reset: bool, return_info: bool) -> Any:
        obs = self._obs(batch)
        info = self._infos(batch)
        info["elapsed_step"] = batch.episode_length
        info["TimeLimit.truncated"] = batch.truncated
        if reset:
            return (obs, info) if return_info else obs
        reward = batch.reward.astype(np.float32)
        if self._new_api:
            return obs, reward, batch.terminated, batch.truncated, info
        return obs, reward, batch.terminated | batch.truncated, info


class GymnasiumEnvPool(  # type: ignore[misc]  # both bases name render and np_random_seed
    GymFace, GymnasiumVectorEnv[Any, Any, Any], gymnasium.Env[Any, Any]
):
    """`make(..., env_type="gymnasium")`; also a `gymnasium.vector.VectorEnv` and a
    `gymnasium.Env`, as EnvPool's."""

    def __init__(self, spec: EnvSpec) -> None:
        self._start(spec)
