# SPDX-License-Identifier: Apache-2.0
"""`BatchedEnv`: the interface of environments that a collector steps."""

from __future__ import annotations

from typing import Any, Protocol

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from rollouts.batch import StepBatch
from rollouts.errors import SpecError
from rollouts.features import Cell

Array = NDArray[Any]


class BatchedEnv(Protocol):
    """The members of an environment that a collector uses; `rollouts.VectorEnv` has them."""

    @property
    def num_envs(self) -> int:
        """Environments in the pool."""
        ...

    @property
    def single_observation_space(self) -> gymnasium.Space[Any]:
        """The observation space of one environment."""
        ...

    @property
    def single_action_space(self) -> gymnasium.Space[Any]:
        """The action space of one environment."""
        ...

    @property
    def batch_size(self) -> int:
        """Rows of one `recv_batch`; num_envs in a synchronous pool."""
        ...

    @property
    def env_id_offset(self) -> int:
        """The env_id of the pool's first environment."""
        ...

    @property
    def autoreset_mode(self) -> AutoresetMode:
        """The rule for an environment whose episode ended."""
        ...

    def async_reset(self) -> None:
        """Starts a new episode in every environment; `recv_batch` delivers the observations."""
        ...

    def send(self, actions: Array, env_id: NDArray[np.int32] | None = None) -> None:
        """Starts a step of the environments `env_id`; None means all in order."""
        ...

    def recv_batch(self, timeout_s: float | None = None) -> StepBatch:
        """Waits for the next `batch_size` environments that finished."""
        ...

    def close(self, **kwargs: Any) -> None:
        """Frees the environments; may be called twice."""
        ...


def device_pool(env: Any) -> Any:
    """Returns the engine that steps an environment on a device; None on the host."""
    engine = getattr(env, "engine", None)
    return None if getattr(engine, "device", None) is None else engine


def cell_of(env: Any) -> Cell:
    """Returns the kind of environments that a collector steps."""
    if getattr(env, "reports_active", False):
        return Cell("rows")
    # environments of other libraries have no engine
    kind = getattr(getattr(env, "engine", None), "kind", "hosted")
    return Cell(kind, bool(getattr(env, "groups", None)))


def is_async(env: Any) -> bool:
    """Returns whether an environment can return some rows while others are still stepping."""
    return device_pool(env) is None and bool(env.batch_size < env.num_envs)


def check_env(env: Any) -> None:
    """Checks an environment that a collector is to step.

    Raises:
      SpecError: It has no such batches, does not autoreset in the same step, or its observations
        are not one array.
    """
    if device_pool(env) is None and not hasattr(env, "recv_batch"):
        kind = type(env).__name__
        raise SpecError(f"env is a {kind}, expected one of make_vec, from_env_fns or the like")
    check_autoreset(env)
    groups = getattr(env, "groups", None)
    for name, one in (groups or {"": env}).items():
        check_observed(one.single_observation_space, f" of group {name!r}" if name else "")


def check_autoreset(env: Any) -> None:
    """Raises SpecError where an environment does not begin new episodes in the same step."""
    if env.autoreset_mode is not AutoresetMode.SAME_STEP:
        raise SpecError(
            f"env.autoreset_mode is {env.autoreset_mode}, expected AutoresetMode.SAME_STEP: "
            'call make_vec(..., autoreset_mode="same_step"), which keeps final_obs'
        )


def check_observed(space: gymnasium.Space[Any], of_whom: str = "") -> None:
    """Raises SpecError where observations are not a single array, as rollouts need."""
    if space.shape is None or space.dtype is None:
        raise SpecError(
            f"observations{of_whom} are {space}, expected one array: leave "
            "flatten_observation=False out, or wrap Python environments in "
            "gymnasium.wrappers.FlattenObservation before from_env_fns"
        )
