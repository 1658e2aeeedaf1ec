# SPDX-License-Identifier: Apache-2.0
"""RolloutsVecEnv: picks the class of a `VecEnv` by its argument: ids, a pool or functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, overload

from rollouts.envs.agent_rows import AgentRows
from rollouts.envs.vector_env import VectorEnv

from ..shared.hosted_env import EnvFn
from .agent_rows_env import AgentRowsVecEnv
from .env_fns import EnvFnsVecEnv
from .native_vec_env import NativeVecEnv
from .normalize import NativeVecNormalize, normalized, split_normalizers


@overload
def RolloutsVecEnv(
    env: Any,
    num_envs: int | None = None,
    *,
    normalize_observation: bool | Mapping[str, float],
    training: bool = True,
    **options: Any,
) -> NativeVecNormalize: ...


@overload
def RolloutsVecEnv(
    env: str | Sequence[str] | VectorEnv,
    num_envs: int | None = None,
    *,
    training: bool = True,
    **options: Any,
) -> NativeVecEnv: ...


@overload
def RolloutsVecEnv(
    env: AgentRows, num_envs: None = None, *, training: bool = True, **options: Any
) -> AgentRowsVecEnv: ...


@overload
def RolloutsVecEnv(
    env: Sequence[EnvFn], num_envs: int | None = None, *, training: bool = True, **options: Any
) -> EnvFnsVecEnv: ...


def RolloutsVecEnv(
    env: Any, num_envs: int | None = None, *, training: bool = True, **options: Any
) -> Any:
    """Makes a `VecEnv`; a function with the name of a class, since it replaces one.

    Args:
      env: An id, N ids or a pool: a `NativeVecEnv`. N functions that make an environment each: an
        `EnvFnsVecEnv`. Agents as rows (`MultiAgentVectorEnv.as_single_agent`): an
        `AgentRowsVecEnv`.
      num_envs: Environments N; not with a pool.
      training: Whether statistics of normalize_observation and normalize_reward are updated;
        False for evaluation.
      options: See these classes. With normalize_observation or normalize_reward the result is a
        `NativeVecNormalize` around the environment. It does the same as these options of
        `rollouts.make_vec`, so that Stable-Baselines3's callbacks find the statistics.

    Raises:
      SpecError: See these classes.

    Example:
      model = PPO("MlpPolicy", RolloutsVecEnv("CartPole-v1", 64, seed=1))
      env = make_vec_env("Acrobot-v1", 8, vec_env_cls=RolloutsVecEnv)
    """
    rest, wrappers = split_normalizers(options)
    if isinstance(env, (list, tuple)) and env and all(map(callable, env)):
        made: Any = EnvFnsVecEnv(env, num_envs, **rest)
    elif getattr(env, "reports_active", False):
        made = AgentRowsVecEnv(env, num_envs, **rest)
    else:
        made = NativeVecEnv(env, num_envs, **rest)
    try:
        return normalized(made, wrappers, training=training)
    except BaseException:
        made.close()
        raise
