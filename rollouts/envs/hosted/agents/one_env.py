# SPDX-License-Identifier: Apache-2.0
"""A PettingZoo ParallelEnv as a `gymnasium.Env` whose observation holds all that a step returns."""

from __future__ import annotations

import re
from collections import UserDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate

from rollouts.errors import SpecError
from rollouts.specs import AgentGroup

ParallelEnvFn = Callable[[], Any]

FLAGS = ("terminated", "truncated", "active", "joined")
NUMBERS = ("reward", "episode_return")


def agent_groups(env: Any) -> tuple[AgentGroup, ...]:
    """Groups of `env.possible_agents`: equal spaces, and equal names but for a number at the end.

    Agents of one name with unlike spaces are groups of their own.

    Raises:
      SpecError: The environment has no possible_agents.
    """
    agents: Sequence[str] = list(getattr(env, "possible_agents", ()))
    if not agents:
        raise SpecError(
            f"{type(env).__name__} has no possible_agents: expected a PettingZoo ParallelEnv that "
            "names all agents it will ever have (AEC environments: pettingzoo.utils.conversions."
            "aec_to_parallel)"
        )
    stems: dict[str, list[str]] = {}
    for agent in agents:
        stems.setdefault(re.sub(r"_?\d+$", "", str(agent)) or str(agent), []).append(agent)
    groups = []
    for stem, members in stems.items():
        equal = all(
            space_of(members[0]) == space_of(other)
            for space_of in (env.observation_space, env.action_space)
            for other in members[1:]
        )
        for name, some in [(stem, members)] if equal else [(one, [one]) for one in members]:
            groups.append(
                AgentGroup(
                    name,
                    tuple(some),
                    env.observation_space(some[0]),
                    env.action_space(some[0]),
                )
            )
    return tuple(groups)


class ParallelEnvAsOne(gymnasium.Env[Any, Any]):
    """A ParallelEnv with all agents' rewards, ends and observations in one observation.

    The observation is a dict of dicts by group: obs, reward, episode_return (A,) float64, and
    terminated, truncated, active, joined (A,) int8; and `is_over` () int8. The environment's reward
    is the sum of the agents' rewards. The environment terminates where the last agents terminate,
    and truncates where the last agents are truncated.

    An agent takes part from the step after it appears in `agents` to the step that ends it or takes
    it out of `agents`; results for other agents are ignored. An agent that has ended comes back
    only if it was missing in `agents` in between.
    """

    def __init__(self, make: ParallelEnvFn) -> None:
        """Makes the environment in the process that steps it."""
        self.env = make()
        self.groups = agent_groups(self.env)
        self.render_mode = getattr(self.env, "render_mode", None)
        self.metadata = {**getattr(self.env, "metadata", {})}
        self._obs_spaces = {
            one.name: batch_space(one.single_observation_space, one.num_agents)
            for one in self.groups
        }

        def column(low: float, high: float, dtype: Any) -> spaces.Dict:
            return spaces.Dict(
                {one.name: spaces.Box(low, high, (one.num_agents,), dtype) for one in self.groups}
            )

        self.observation_space = spaces.Dict(
            {
                "obs": spaces.Dict(self._obs_spaces),
                **{name: column(-np.inf, np.inf, np.float64) for name in NUMBERS},
                **{name: column(0, 1, np.int8) for name in FLAGS},
                "is_over": spaces.Discrete(2, dtype=np.int8),
            }
        )
        self._action_spaces = {
            one.name: batch_space(one.single_action_space, one.num_agents) for one in self.groups
        }
        self.action_space = spaces.Dict(self._action_spaces)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begins an episode."""
        obs, infos = self.env.reset(seed=seed, options=options)
        self._returns = dict.fromkeys(self.env.possible_agents, 0.0)
        self._active = self._there = list(self.env.agents)
        self._gone: set[Any] = set()  # agents that ended, but are still in `agents`
        return self._observation(obs, active=dict.fromkeys(self._there, 1)), self._told(infos)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Steps the agents that are there; actions of others are not read."""
        agents = set(self.env.agents)
        actions = {agent: each for agent, each in self._actions(action) if agent in agents}
        obs, rewards, terminations, truncations, infos = self.env.step(actions)
        before, self._active = self._active, self._there
        rewards = {agent: float(rewards.get(agent, 0)) for agent in self._active}
        for agent, reward in rewards.items():
            # an agent that was not there begins anew
            self._returns[agent] = reward + (self._returns[agent] if agent in before else 0.0)

        left = list(self.env.agents)
        terminated = {agent: bool(terminations.get(agent, False)) for agent in self._active}
        truncated = {
            agent: bool(truncations.get(agent, False)) or (agent not in left and not has_terminated)
            for agent, has_terminated in terminated.items()
        }
        over = {agent for agent in self._active if terminated[agent] or truncated[agent]}
        self._gone = {agent for agent in left if agent in self._gone or agent in over}
        self._there = [agent for agent in left if agent not in self._gone]
        joined = dict.fromkeys(set(self._there).difference(self._active), 1)
        is_over = not self._there
        observation = self._observation(
            obs,
            is_over=is_over,
            reward=rewards,
            terminated=terminated,
            truncated=truncated,
            active=dict.fromkeys(self._active, 1),
            joined=joined,
        )
        has_terminated = is_over and any(terminated.values())
        total = sum(rewards.values())
        told = self._told(infos)
        return observation, total, has_terminated, is_over and not has_terminated, told

    def render(self) -> Any:
        """Returns the frame that the environment draws."""
        return self.env.render()

    def close(self) -> None:
        """Closes the environment."""
        self.env.close()

    def _actions(self, action: Any) -> Iterator[tuple[str, Any]]:
        for group in self.groups:
            rows = iterate(self._action_spaces[group.name], action[group.name])
            yield from zip(group.agents, rows, strict=True)

    def _observation(
        self, obs: Mapping[str, Any], *, is_over: bool = False, **columns: Mapping[str, Any]
    ) -> dict[str, Any]:
        result: dict[str, Any] = {"obs": {}, "is_over": np.int8(is_over)}
        known = {agent: obs[agent] for agent in (*self._active, *self._there) if agent in obs}
        for group in self.groups:
            space = group.single_observation_space
            nothing = create_empty_array(space, 1, np.zeros)
            # zeros for agents that are not there
            (empty,) = iterate(batch_space(space, 1), nothing)
            rows = [known.get(agent, empty) for agent in group.agents]
            out = create_empty_array(space, group.num_agents, np.zeros)
            result["obs"][group.name] = concatenate(space, rows, out)
        columns["episode_return"] = self._returns
        for names, dtype in ((NUMBERS, np.float64), (FLAGS, np.int8)):
            for name in names:
                values = columns.get(name, {})
                result[name] = {
                    group.name: np.array([values.get(agent, 0) for agent in group.agents], dtype)
                    for group in self.groups
                }
        return result

    def _told(self, infos: Mapping[str, Any]) -> dict[str, Any]:
        """Agents' infos as one object, if there are any; a dict would be merged with others."""
        known = {agent: infos[agent] for agent in infos if agent in (*self._active, *self._there)}
        return {"agent_infos": UserDict(known)} if any(known.values()) else {}
