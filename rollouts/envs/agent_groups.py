# SPDX-License-Identifier: Apache-2.0
"""Groups of agents: what environments with several agents share, native ones and others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rollouts.batch import StepBatch

Array = npt.NDArray[Any]
Info = dict[str, Any]
# (B, A, ...) arrays by the name of their group; with a single group, just its array
Grouped = Any


class MultiAgentBatch(NamedTuple):
    """One batch as `recv_batch` returns it: B rows, one per environment, with A agents in a group.

    `{group: array}`, or the array alone where there is one group:
      obs             (B, A, *obs_shape) obs_dtype  same-step autoreset: of the next episode
      reward          (B, A) float64
      terminated      (B, A) bool        the agent left, or the episode is over by its rules
      truncated       (B, A) bool        the time limit, or a failure, ended it for this agent
      active          (B, A) bool        the agent took part in this step; where not, its reward
                                         is 0 and its next actions are ignored
      episode_return  (B, A) float64     sum of the agent's rewards in this episode
      final_obs       (B, A, *obs_shape) obs_dtype  valid where the episode ended; None unless the
                                         pool autoresets in the same step
      joined          (B, A) bool        the agent takes part from the next step on, but did not in
                                         this one; None: agents join only where episodes begin
    Arrays of environments:
      ended           (B,) bool          the episode is over, for whatever reason
      failed          (B,) bool          for on_env_error="reset": the environment failed and has
                                         no final_obs
      env_id          (B,) int32         episode_length  (B,) int32
    """

    obs: Grouped
    reward: Grouped
    terminated: Grouped
    truncated: Grouped
    active: Grouped
    episode_return: Grouped
    final_obs: Grouped | None
    ended: npt.NDArray[np.bool_]
    failed: npt.NDArray[np.bool_]
    env_id: npt.NDArray[np.int32]
    episode_length: npt.NDArray[np.int32]
    joined: Grouped | None = None


def agent_steps(
    batch: MultiAgentBatch, rows: Callable[[Grouped], Array], env_id: npt.NDArray[np.int32]
) -> StepBatch:
    """Rows that show agents as environments of their own, where the pool autoresets.

    An agent that leaves early is terminated in that step, and its last observation is in `obs`. The
    steps until it comes back, or until its environment's episode ends, are an episode without
    rewards, which is truncated. The same holds for the steps before the agent comes for the first
    time.

    Args:
      batch: A batch of B environments.
      rows: Turns (B, A, ...) arrays by group into the rows (B * A, ...) that are wanted.
      env_id: The env_id of each of these rows.
    Returns:
      The rows; `info` has "active" and, where an environment failed, "_env_error".
    """
    active = rows(batch.active)
    agents = len(env_id) // len(batch.ended)
    ended = np.repeat(batch.ended, agents)
    obs = rows(batch.obs)
    final_obs = None
    if batch.final_obs is not None:
        final_obs = obs
        if ended.any():
            where = ended.reshape(-1, *[1] * (obs.ndim - 1))
            final_obs = np.where(where, rows(batch.final_obs), obs)
    truncated = rows(batch.truncated) | (ended & ~active)
    if batch.joined is not None:
        truncated |= rows(batch.joined)
    info: Info = {"active": active}
    if batch.failed.any():
        # failed environments have no final observation
        info["_env_error"] = np.repeat(batch.failed, agents)
    return StepBatch(
        obs=obs,
        reward=rows(batch.reward),
        terminated=rows(batch.terminated),
        truncated=truncated,
        env_id=env_id,
        episode_return=rows(batch.episode_return),
        episode_length=np.repeat(batch.episode_length, agents),
        final_obs=final_obs,
        info=info,
    )
