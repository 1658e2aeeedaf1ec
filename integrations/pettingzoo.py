# SPDX-License-Identifier: Apache-2.0
"""PettingZoo: one environment with several agents as a `pettingzoo.ParallelEnv`.

    from rollouts.integrations.pettingzoo import parallel_env
    env = parallel_env("TagContinuous-v0", num_runners=20)

It is for code that expects PettingZoo's interface; `rollouts.make_vec` steps many environments at
once and is many times as fast.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

import rollouts
from rollouts.errors import ProtocolError, SpecError

from .shared.missing import needs

try:
    from pettingzoo import ParallelEnv
except ImportError as error:
    raise needs("pettingzoo", error) from error

Array = npt.NDArray[Any]
ByAgent = dict[str, Any]


def parallel_env(
    id: str,
    *,
    max_episode_steps: int | None = None,
    render_mode: str | None = None,
    **env_options: Any,
) -> RolloutsParallelEnv:
    """Makes one environment of an id of `rollouts.multi_agent_ids()`.

    Args:
      id, max_episode_steps, env_options: As `rollouts.make_vec`.
      render_mode: "rgb_array" or None, with which `render` returns nothing.

    Raises:
      SpecError: Unknown id, mode or option, or an environment with one agent.
    """
    return RolloutsParallelEnv(
        id, max_episode_steps=max_episode_steps, render_mode=render_mode, **env_options
    )


class RolloutsParallelEnv(ParallelEnv):
    """A native environment with several agents behind PettingZoo's parallel interface.

    Attributes:
      possible_agents: All agents, group after group, such as tagger_0.
      agents: The agents in the episode; none before the first reset and after an episode's end.
      state_space: Box, of what `state` returns.
      vector_env: The `rollouts.MultiAgentVectorEnv` behind it, of one environment.
    """

    def __init__(self, id: str, **arguments: Any) -> None:
        """See `parallel_env`."""
        env = rollouts.make_multi_agent_vec(
            id, 1, num_threads=1, autoreset_mode="disabled", **arguments
        )
        self.vector_env: rollouts.MultiAgentVectorEnv = env
        self.render_mode = env.render_mode
        drawn = {name: value for name, value in env.metadata.items() if name.startswith("render_")}
        self.metadata = {"name": id, "is_parallelizable": True, **drawn}
        self.possible_agents = list(env.agents)
        self.agents: list[str] = []
        self._places = {
            agent: (name, index)
            for name, group in env.groups.items()
            for index, agent in enumerate(group.agents)
        }
        self._obs: ByAgent = {}
        self.state_space = _joined([self.observation_space(one) for one in self.possible_agents])

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        """Space of one agent's observation, the same object at each call."""
        return self._group_of(agent).single_observation_space

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """Space of one agent's action, the same object at each call."""
        return self._group_of(agent).single_action_space

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[ByAgent, ByAgent]:
        """Begins an episode with all agents.

        Args:
          seed: Seed of a random stream, whose first episode begins; None: the next episode of the
            present stream begins.
          options: Options of the environment by name, as `MultiAgentVectorEnv.reset`; other names
            are for other wrappers and ignored, as everywhere in PettingZoo.

        Returns:
          Observations and empty infos, by agent.
        """
        known = self.vector_env.env_options
        own = {name: value for name, value in (options or {}).items() if name in known}
        obs, info = self.vector_env.reset(seed=seed, options=own)
        active = self._by_agent(info["active"])
        self.agents = [agent for agent in self.possible_agents if active[agent]]
        self._obs = self._by_agent(obs)
        return {agent: self._obs[agent] for agent in self.agents}, {
            agent: {} for agent in self.agents
        }

    def step(
        self, actions: Mapping[str, Any]
    ) -> tuple[ByAgent, ByAgent, ByAgent, ByAgent, ByAgent]:
        """Steps the agents that are in the episode.

        Args:
          actions: agent -> action, for each of `agents`; those of agents that left are ignored.

        Returns:
          obs, rewards, terminations, truncations, infos by agent, for those that were in `agents`.

        Raises:
          SpecError: An agent without an action, or an action out of its space.
          ProtocolError: The episode is over, or has not begun.
        """
        if not self.agents:
            raise ProtocolError("no agent is in the episode: call reset first")
        unknown = [agent for agent in actions if agent not in self._places]
        missing = [agent for agent in self.agents if agent not in actions]
        if unknown or missing:
            raise SpecError(
                f"agent {unknown[0]!r} is not in this environment"
                if unknown
                else f"agent {missing[0]!r} has no action"
            )
        batch = self._batch(actions)
        arrays = self.vector_env.step(batch if len(batch) > 1 else next(iter(batch.values())))
        obs, rewards, terminations, truncations = (self._by_agent(each) for each in arrays[:4])
        stepped, self._obs = self.agents, obs
        self.agents = [
            agent for agent in stepped if not (terminations[agent] or truncations[agent])
        ]

        def of_stepped(values: ByAgent) -> ByAgent:
            return {agent: values[agent] for agent in stepped}

        return (
            of_stepped(obs),
            {agent: float(rewards[agent]) for agent in stepped},
            {agent: bool(terminations[agent]) for agent in stepped},
            {agent: bool(truncations[agent]) for agent in stepped},
            {agent: {} for agent in stepped},
        )

    def state(self) -> Array:
        """All agents' last observations, one after the other, for a centralised critic."""
        if not self._obs:
            raise ProtocolError("the environment was never reset: call reset first")
        return np.concatenate([np.ravel(self._obs[agent]) for agent in self.possible_agents])

    def render(self) -> npt.NDArray[np.uint8] | None:
        """Draws the environment as it is now; see `MultiAgentVectorEnv.render`.

        Returns:
          (height, width, 3) uint8; None without a render_mode, and a warning.
        """
        if self.render_mode is None:
            gymnasium.logger.warn('render was called without render_mode="rgb_array"')
            return None
        (frame,) = self.vector_env.render()
        return frame

    def close(self) -> None:
        """Frees the environment. May be called twice."""
        self.vector_env.close()

    def _group_of(self, agent: str) -> rollouts.AgentGroup:
        name, _ = self._places[agent]
        return self.vector_env.groups[name]

    def _by_agent(self, arrays: Any) -> ByAgent:
        """Copies the rows of the only environment, so that a user may keep them."""
        groups = (
            arrays if isinstance(arrays, Mapping) else dict.fromkeys(self.vector_env.groups, arrays)
        )
        return {
            agent: np.array(groups[name][0, index]) for agent, (name, index) in self._places.items()
        }

    def _batch(self, actions: Mapping[str, Any]) -> dict[str, Array]:
        """(1, A, ...) of each group; zeros for agents that left."""
        batch = {}
        for name, group in self.vector_env.groups.items():
            space = group.single_action_space
            shape: tuple[int, ...] = space.shape or ()
            rows = np.zeros((1, group.num_agents, *shape), space.dtype)
            for index, agent in enumerate(group.agents):
                if agent not in self.agents:
                    continue
                action = np.asarray(actions[agent])
                # a float for a Discrete space would be cut to an int silently
                if action.shape != shape or (
                    rows.dtype.kind == "i" and action.dtype.kind not in "iu"
                ):
                    raise SpecError(
                        f"the action of agent {agent!r} has shape {action.shape} and dtype "
                        f"{action.dtype}, expected one of {space}"
                    )
                rows[0, index] = action
            batch[name] = rows
        return batch


def _joined(parts: list[spaces.Space[Any]]) -> spaces.Box:
    """The space of values of `parts`, flat and one after the other."""
    lows, highs = zip(*(_bounds(part) for part in parts), strict=True)
    low, high = np.concatenate(lows), np.concatenate(highs)
    return spaces.Box(low, high, dtype=low.dtype.type)


def _bounds(space: spaces.Space[Any]) -> tuple[Array, Array]:
    """Least and largest values, flat."""
    if isinstance(space, spaces.Box):
        return space.low.ravel(), space.high.ravel()
    if isinstance(space, spaces.Discrete):
        first = np.array([space.start], space.dtype)
        return first, first + (int(space.n) - 1)
    if isinstance(space, spaces.MultiDiscrete):
        first = np.asarray(space.start, space.dtype).ravel()
        return first, first + np.asarray(space.nvec, first.dtype).ravel() - 1
    assert isinstance(space, spaces.MultiBinary)
    zeros = np.zeros(space.shape, space.dtype).ravel()
    return zeros, zeros + 1
