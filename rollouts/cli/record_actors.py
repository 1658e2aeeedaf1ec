# SPDX-License-Identifier: Apache-2.0
"""Actors of a recording: random ones, and policies of checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from rollouts.envs.agent_groups import Grouped

Array = npt.NDArray[Any]


class Actor(Protocol):
    """Chooses actions in one environment."""

    def act(self, obs: Array, begins: bool) -> Array:
        """Chooses an action (1, *action_shape) for obs (1, *obs_shape).

        Args:
          obs: The observation.
          begins: Whether it is the first of an episode.
        """
        ...


class RandomActor:
    """Draws actions from the action space."""

    def __init__(self, action_space: spaces.Space[Any], seed: int) -> None:
        """Takes a space of one environment, and seeds it."""
        self._space = action_space
        self._space.seed(seed)

    def act(self, obs: Array, begins: bool) -> Array:
        """See `Actor`."""
        return np.asarray(self._space.sample())[None]


class RandomAgents:
    """Draws actions of all agents of an environment with several."""

    def __init__(self, action_space: spaces.Space[Any], seed: int) -> None:
        """Takes the space of a batch of one environment, and seeds it."""
        self._space = action_space
        self._space.seed(seed)

    def act(self, obs: Grouped, begins: bool) -> Grouped:
        """See `Actor`; returns group -> (1, A, *action_shape), or the array of a single group."""
        return self._space.sample()


class PolicyActor:
    """Acts as a `rollouts.policy.Policy`, with or without memory."""

    def __init__(self, policy: Any, action_space: spaces.Space[Any] | None) -> None:
        """Wraps a policy that was made for one environment; None: actions are not clipped."""
        self._policy = policy
        self._bounds = None
        if isinstance(action_space, spaces.Box):
            self._bounds = action_space.low, action_space.high

    def act(self, obs: Array, begins: bool) -> Array:
        """See `Actor`; actions are clipped to the bounds, as by `rollouts.Collector`."""
        if hasattr(self._policy, "act_rows"):
            output = self._policy.act_rows(obs, None, np.full(len(obs), begins))
        else:
            output = self._policy.act(obs)
        action: Array = output.action
        return action if self._bounds is None else action.clip(*self._bounds)


class PolicyAgents:
    """Acts as a policy for each group of agents of one environment."""

    def __init__(self, policies: Mapping[str, Any]) -> None:
        """Takes group -> the policy that its agents share."""
        self._actors = {name: PolicyActor(policy, None) for name, policy in policies.items()}

    def act(self, obs: Grouped, begins: bool) -> Grouped:
        """See `RandomAgents`."""
        if not isinstance(obs, Mapping):
            (actor,) = self._actors.values()
            return actor.act(obs[0], begins)[None]
        return {name: self._actors[name].act(seen[0], begins)[None] for name, seen in obs.items()}
