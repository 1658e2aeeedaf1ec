# SPDX-License-Identifier: Apache-2.0
"""RolloutsVecEnv: picks the `VecEnv` for what it is given, as `make_vec_env` calls it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

from rollouts.pool.vector_env import VectorEnv

from ..shared.hosted_env import EnvFn
from .env_fns import EnvFnsVecEnv
from .native_vec_env import NativeVecEnv


@overload
def RolloutsVecEnv(
    env: str | Sequence[str] | VectorEnv, num_envs: int | None = None, **options: Any
) -> NativeVecEnv: ...


@overload
def RolloutsVecEnv(
    env: Sequence[EnvFn], num_envs: int | None = None, **options: Any
) -> EnvFnsVecEnv: ...


def RolloutsVecEnv(
    env: Any, num_envs: int | None = None, **options: Any
) -> NativeVecEnv | EnvFnsVecEnv:
    """Makes a `VecEnv`; a function with the name of a class, so that it stands where one stood.

    Args:
      env: An id, N ids or a pool: a `NativeVecEnv`. N functions that make an environment each: an
        `EnvFnsVecEnv`.
      num_envs: Environments N; not with a pool.
      options: See the two classes.

    Raises:
      SpecError: See the two classes.

    Example:
      model = PPO("MlpPolicy", RolloutsVecEnv("CartPole-v1", 64, seed=1))
      env = make_vec_env("Acrobot-v1", 8, vec_env_cls=RolloutsVecEnv)
    """
    if isinstance(env, (list, tuple)) and env and all(map(callable, env)):
        return EnvFnsVecEnv(env, num_envs, **options)
    return NativeVecEnv(env, num_envs, **options)
