# SPDX-License-Identifier: Apache-2.0
"""Groups of agents: what environments with several agents share, native ones and others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

from rollouts.batch import StepBatch
from rollouts.errors import SpecError
from rollouts.specs import AgentGroup

Array = npt.NDArray[Any]
Info = dict[str, Any]
# (B, A, ...) of each group, by its name; of an environment with one group its array alone
Grouped = Any


class MultiAgentBatch(NamedTuple):
    """What one `recv_batch` hands out: B rows, one per environment, with A agents in each group.

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
      joined          (B, A) bool        the agent takes part from the next step on, and did not
                                         before; None: agents join where episodes begin alone
    Arrays of environments:
      ended           (B,) bool          the episode is over, for whatever reason
      failed          (B,) bool          for on_env_error="reset": the environment failed, and
                                         has no final_obs
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
    """Agents as environments of their own, where the pool autoresets.

    An agent that leaves early is terminated there, and what it saw last is in `obs`. The steps
    until it comes back or its environment's episode ends are an episode without rewards, which is
    truncated; so are those before it comes for the first time.

    Args:
      batch: Of B environments.
      rows: From (B, A, ...) by group to the rows (B * A, ...) that are wanted.
      env_id: Of these rows.
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
        # whose final observation is none
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


class AgentGroups:
    """Groups of agents, and batches of theirs by group."""

    groups: dict[str, AgentGroup]
    agents: list[str]
    single_observation_spaces: dict[str, spaces.Space[Any]]
    single_action_spaces: dict[str, spaces.Space[Any]]
    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]

    def _set_groups(self, groups: Sequence[AgentGroup], rows: int) -> None:
        """Sets what is public of them; `rows` is the size of a batch."""
        self.groups = {group.name: group for group in groups}
        self.agents = [agent for group in groups for agent in group.agents]
        self.single_observation_spaces = {
            group.name: group.single_observation_space for group in groups
        }
        self.single_action_spaces = {group.name: group.single_action_space for group in groups}
        self.observation_space = self._batch_space(self.single_observation_spaces, rows)
        self.action_space = self._batch_space(self.single_action_spaces, rows)

    def _batch_space(self, single: Mapping[str, spaces.Space[Any]], rows: int) -> spaces.Space[Any]:
        batched = {
            name: batch_space(batch_space(space, self.groups[name].num_agents), rows)
            for name, space in single.items()
        }
        return spaces.Dict(batched) if len(batched) > 1 else next(iter(batched.values()))

    def _grouped(self, arrays: Sequence[Any]) -> Grouped:
        """One array for each group, in their order, as callers get them."""
        if len(self.groups) == 1:
            return arrays[0]
        return dict(zip(self.groups, arrays, strict=True))

    def _in_order(self, actions: Grouped) -> list[Any]:
        """The groups' actions in the order of the groups, whatever the order of the dict."""
        if len(self.groups) == 1 and not isinstance(actions, Mapping):
            return [actions]
        if isinstance(actions, Mapping) and actions.keys() == self.groups.keys():
            return [actions[name] for name in self.groups]
        expected = ", ".join(repr(name) for name in self.groups)
        if not isinstance(actions, Mapping):
            raise SpecError(
                f"actions must be a dict of an array for each group ({expected}), got "
                f"{type(actions).__name__}"
            )
        missing = [name for name in self.groups if name not in actions]
        unknown = [name for name in actions if name not in self.groups]
        agents = [name for name in unknown if name in self.agents]
        raise SpecError(
            f"actions has {'no group' if missing else 'the unknown group'} "
            f"{(missing or unknown)[0]!r}, expected an array for each of {expected}"
            + (f"; {agents[0]!r} is an agent, not a group" if agents else "")
        )
