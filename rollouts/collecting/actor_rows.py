# SPDX-License-Identifier: Apache-2.0
"""`ActorRows`: the rows of a device's environments for which one policy acts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium


@dataclass(frozen=True, slots=True)
class ActorRows:
    """The rows that a policy acts for: all environments, or the agents of one of their groups.

    Attributes:
      num_envs: N.
      num_agents, first_agent, all_agents: A of the group, the index of its first agent among the
        environment's, and the environment's number of agents; 1, 0 and 1 without groups.
      has_groups: Whether there are agents, which may leave before the others.
      obs_shape, obs_dtype: Shape and dtype of one observation.
      action_space: The space of one action.
    """

    num_envs: int
    num_agents: int
    first_agent: int
    all_agents: int
    has_groups: bool
    obs_shape: tuple[int, ...]
    obs_dtype: str
    action_space: gymnasium.Space[Any]

    @property
    def num_rows(self) -> int:
        """N * A."""
        return self.num_envs * self.num_agents
