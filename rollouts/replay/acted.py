# SPDX-License-Identifier: Apache-2.0
"""Acted: what `ReplayBuffer.add_step` takes together with a step; and the reading of that step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from numpy.typing import ArrayLike, NDArray

from rollouts.batch import StepBatch
from rollouts.errors import DTypeError

Array = NDArray[Any]

# what Gymnasium's step returns: obs, reward, terminated, truncated, info
GymnasiumStep = tuple[Array, Array, Array, Array, Mapping[str, Any]]
# what the core reads of a step besides reward and ends: next_obs; env_id or None; the rows where an
# environment failed or None; a mapping with "final_obs" in same-step mode
Outcome = tuple[Any, Any, Any, Mapping[str, Any]]


class Acted(NamedTuple):
    """One step of B environments: observations, actions and the policy's values for them.

    Attributes:
      obs             (B, *obs_shape)      observations to which the actions respond
      action          (B, *action_shape)   as given to the environment
      policy_version  of the policy that chose; one or (B,)
      policy_state    tuple of (B, ...)    before this step
      extras          name -> (B, ...)
      priority        of the items that begin here; one or (B,); None: see `ReplayBuffer.add_batch`
    """

    obs: Array
    action: Array
    policy_version: int | Array = 0
    policy_state: Sequence[Array] = ()
    extras: Mapping[str, Array] = MappingProxyType({})
    priority: ArrayLike | None = None


def read_step(step: StepBatch | GymnasiumStep) -> tuple[tuple[Any, Any, Any], Outcome]:
    """Returns (reward, terminated, truncated), and the rest.

    Raises:
      DTypeError: It is neither a StepBatch nor Gymnasium's five values.
    """
    if type(step) is StepBatch:
        obs, reward, terminated, truncated, env_id, _, _, final_obs, info = step
        failed = info.get("_env_error")
        return (reward, terminated, truncated), (obs, env_id, failed, {"final_obs": final_obs})
    if not isinstance(step, tuple) or len(step) != 5 or not isinstance(step[4], Mapping):
        raise DTypeError(
            f"step is {_described(step)}, expected a StepBatch, as recv_batch returns, or what "
            "Gymnasium's step returns: obs, reward, terminated, truncated and a dict"
        )
    obs, reward, terminated, truncated, said = step
    rest = (obs, said.get("env_id"), said.get("_env_error"), said)
    return (reward, terminated, truncated), rest


def _described(step: object) -> str:
    if not isinstance(step, tuple):
        return f"of type {type(step).__name__}"
    return f"a tuple of {', '.join(type(value).__name__ for value in step) or 'nothing'}"
