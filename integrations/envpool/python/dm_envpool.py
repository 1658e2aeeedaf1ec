# SPDX-License-Identifier: Apache-2.0
"""EnvPool's dm_env interface: `TimeStep`s of arrays."""

from __future__ import annotations

import functools
from collections import namedtuple
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
from rollouts.integrations.envpool.python.env_spec import EnvSpec
from rollouts.integrations.envpool.python.envpool import EnvPoolMixin

from rollouts.batch import StepBatch


class Players(NamedTuple):
    """The environment of each player."""

    env_id: Any


@functools.cache
def state_class(names: tuple[str, ...]) -> Any:
    """The named tuple of an observation, which also contains what EnvPool's gym types have in info.

    Its fields are env_id (B,) int32, players, obs (B, *obs_shape) or the named arrays of a dict,
    lives (B,) int32, reward (B,) float32, unclipped, terminated (B,) int32 (the game is over),
    and what the environment itself reports.
    """
    # a namedtuple, because scripts read its fields by these names
    return cast(Any, namedtuple)("State", names)


def state(env_id: Any, players: Players, obs: Any, infos: Mapping[str, Any]) -> Any:
    """A State of arrays or of specs."""
    parts = obs if isinstance(obs, dict) else {"obs": obs}
    fields = {"env_id": env_id, "players": players, **parts, **infos}
    return state_class(tuple(fields))(**fields)


class DMEnvPool(EnvPoolMixin):
    """`make(..., env_type="dm")`; passes `isinstance` for `dm_env.Environment`.

    Unlike in dm_env itself, a FIRST step has reward 0 and discount 1.
    """

    def __init__(self, spec: EnvSpec) -> None:
        from rollouts.integrations.dm_env import dm_env, step_types

        # no base class, because this module is imported where dm-env is not installed
        dm_env.Environment.register(DMEnvPool)
        self._step_types = step_types
        self._start(spec)
        self._zero_on_life_loss = bool(
            self.spec.config._asdict().get("zero_discount_on_life_loss", False)
        )
        self._lives = np.zeros(len(self), np.int32)

    def observation_spec(self) -> Any:
        """Specs of one environment's `State`."""
        return observation_spec(self.spec)

    def action_spec(self) -> Any:
        """Spec of one environment's action."""
        return self.spec.action_spec()

    def reward_spec(self) -> Any:
        """Spec of one environment's reward: float32."""
        from rollouts.integrations.dm_env import dm_env

        return dm_env.specs.Array((), np.float32, "reward")

    def discount_spec(self) -> Any:
        """Spec of one environment's discount: float32 from 0 to 1."""
        from rollouts.integrations.dm_env import dm_env

        return dm_env.specs.BoundedArray((), np.float32, 0.0, 1.0, "discount")

    def __enter__(self) -> DMEnvPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def reset(self, env_id: npt.ArrayLike | None = None) -> Any:
        """Starts new episodes, everywhere or in `env_id` alone; returns their TimeSteps."""
        return self._to(self._reset_batch(env_id), reset=True, return_info=True)

    def close(self) -> None:
        """Stops the threads and frees the environments. May be called twice."""
        self._env.close()

    def _to(self, batch: StepBatch, *, reset: bool, return_info: bool) -> Any:
        info = self._infos(batch)
        discount = 1.0 - batch.terminated.astype(np.float32)
        if self._zero_on_life_loss:
            discount = np.where(info["lives"] < self._lives[batch.env_id], 0.0, discount)
            self._lives[batch.env_id] = info["lives"]
        return self._time_step(batch, info, discount)

    def _shape_jax(self, batch: StepBatch) -> Any:
        # a compiled function does not know of a life that was lost in the step before
        discount = 1.0 - batch.terminated.astype(np.float32)
        return self._time_step(batch, self._infos(batch), discount)

    def _time_step(self, batch: StepBatch, info: dict[str, Any], discount: Any) -> Any:
        from rollouts.integrations.dm_env import dm_env

        del info["env_id"], info["players"]
        return dm_env.TimeStep(
            step_type=self._step_types(batch),
            reward=batch.reward.astype(np.float32),
            discount=discount.astype(np.float32),
            observation=state(batch.env_id, Players(batch.env_id), self._obs(batch), info),
        )


def observation_spec(spec: EnvSpec) -> Any:
    """Specs of one environment's `State`."""
    from rollouts.integrations.dm_env import dm_env, spec_of_space

    def numbers(dtype: Any, name: str, shape: tuple[int, ...] = ()) -> Any:
        return dm_env.specs.Array(shape, dtype, name)

    infos = {name: numbers(dtype, name, shape) for name, (dtype, shape) in spec.own_infos.items()}
    infos |= {
        "lives": numbers(np.int32, "lives"),
        "reward": numbers(np.float32, "reward"),
        "terminated": dm_env.specs.DiscreteArray(2, np.int32, "terminated"),
    }
    obs = spec_of_space(spec.gymnasium_observation_space, "obs")
    env_id = numbers(np.int32, "env_id")
    return state(env_id, Players(env_id), obs, infos)
