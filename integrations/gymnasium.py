# SPDX-License-Identifier: Apache-2.0
"""Gymnasium: our ids in its registry, and one native environment as a `gymnasium.Env`.

What to change, after `import rollouts`:

    - envs = gymnasium.make_vec("CartPole-v1", num_envs=8, vectorization_mode="async")
    + envs = gymnasium.make_vec("rollouts/CartPole-v1", num_envs=8, seed=1)

Every argument of `rollouts.make_vec` may follow: autoreset_mode, num_threads, batch_size, options
of the environment. "rollouts:rollouts/CartPole-v1" imports the package by itself; RLlib and others
that make environments in processes of their own need that form. Atari games are
"rollouts/ALE-Pong-v5", as Gymnasium allows one namespace only.

Traps handled. Gymnasium refuses vector_kwargs here, so autoreset_mode is a plain argument.
Gymnasium also passes the spec's time limit on, which is the id's own. A single environment leaves
the limit to Gymnasium's TimeLimit wrapper, so that `gymnasium.make(..., max_episode_steps=...)` may
lengthen it.

Costs: none for batches. `gymnasium.make` steps a pool of one environment: a call takes about as
long as with a Python environment, mostly in Gymnasium's wrappers. render_mode="rgb_array" is for
MuJoCo, Atari and classic control, as in `rollouts.make_vec`, and costs nothing by itself.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from rollouts.envs.gymnasium_ids import gymnasium_id
from rollouts.envs.make import make_vec
from rollouts.envs.native import NativeEngine
from rollouts.envs.statistics import carry_statistics
from rollouts.envs.vector_env import VectorEnv
from rollouts.rendering.frame_options import MODES

__all__ = ["NativeEnv", "gymnasium_id", "make_vector_env"]

# infos of the pool, not of the environment
_NOT_IN_INFO = frozenset({"env_id"})


def make_vector_env(*, env_id: str, num_envs: int = 1, **arguments: Any) -> VectorEnv:
    """Makes a batch: the `vector_entry_point` of every id.

    Args:
      env_id: One of `rollouts.env_ids()`; Gymnasium takes it from the spec.
      num_envs: Environments N.
      arguments: As for `rollouts.make_vec`.
    """
    return make_vec(env_id, num_envs, **arguments)


class NativeEnv(gymnasium.Env[Any, Any]):
    """One native environment, as `gymnasium.make` returns it.

    Attributes:
      pool: The `rollouts.VectorEnv` of one environment behind it.
    """

    metadata = {"render_modes": list(MODES)}  # noqa: RUF012 (Gymnasium declares it so)

    def __init__(
        self,
        env_id: str,
        *,
        seed: int | None = None,
        max_episode_steps: int = 0,
        render_mode: str | None = None,
        flatten_observation: bool = True,
        **env_options: Any,
    ) -> None:
        """Makes the environment.

        Args:
          env_id: One of `rollouts.env_ids()`.
          seed: Seed of its random stream, until a reset gives one.
          max_episode_steps: Time limit of the pool; 0 for none, which is right where Gymnasium's
            TimeLimit wrapper sets the limit.
          render_mode: "rgb_array" or None.
          flatten_observation: As for `rollouts.make_vec`.
          env_options: Options of the environment and of its frames, as for
            `rollouts.make_vec`.

        Raises:
          As `rollouts.make_vec`.
        """
        engine = NativeEngine(
            env_id,
            1,
            num_threads=1,
            seed=seed,
            autoreset_mode=AutoresetMode.DISABLED,
            max_episode_steps=max_episode_steps,
            render_mode=render_mode,
            flatten_observation=flatten_observation,
            env_options=env_options,
        )
        self.pool = VectorEnv(engine)
        self._was_reset = False
        self.render_mode = render_mode
        pool_metadata = self.pool.metadata
        self.metadata = {k: v for k, v in pool_metadata.items() if k.startswith("render")}
        self.observation_space = self.pool.single_observation_space
        self.action_space = self.pool.single_action_space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begins an episode; options are those of the environment, and stay in force."""
        super().reset(seed=seed)
        obs, info = self.pool.reset(seed=seed, options=options)
        self._was_reset = True
        return _row(obs), _first(info)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Steps; see `gymnasium.Env.step`. info has episode_return and episode_length so far."""
        batch = np.asarray(action, self.action_space.dtype)[None]
        obs, reward, terminated, truncated, info = self.pool.step(batch)
        return _row(obs), float(reward[0]), bool(terminated[0]), bool(truncated[0]), _first(info)

    def render(self) -> Any:
        """Returns the frame (height, width, 3) uint8; None without a render_mode."""
        return None if self.render_mode is None else self.pool.render()[0]

    def close(self) -> None:
        """Frees the environment; may be called twice."""
        self.pool.close()

    def __deepcopy__(self, memo: dict[int, Any]) -> NativeEnv:
        """Makes another environment, which goes on from the present state of this one.

        Raises:
          SpecError: This one is under way and its state cannot be saved.
        """
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        made.__dict__.update({name: deepcopy(one, memo) for name, one in self.__dict__.items()})
        if self._was_reset and not self.pool.closed:
            now, then = self.pool.env_options, made.pool.env_options
            # options that resets have changed
            changed = {name: value for name, value in now.items() if value != then[name]}
            if changed:
                made.pool.reset(options=changed)
            made.pool.set_state(None, self.pool.get_state())
            carry_statistics(self.pool, made.pool)
        return made


def _row(obs: Any) -> Any:
    # a part that is one number stays an array, as in its space
    return {name: one[0, ...] for name, one in obs.items()} if isinstance(obs, dict) else obs[0]


def _first(info: dict[str, Any]) -> dict[str, Any]:
    return {name: values[0] for name, values in info.items() if name not in _NOT_IN_INFO}
