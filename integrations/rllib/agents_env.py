# SPDX-License-Identifier: Apache-2.0
"""Native pools with several agents per environment as RLlib's VectorMultiAgentEnv."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from ray.rllib.env.multi_agent_env import MultiAgentEnv
from ray.rllib.env.vector.vector_multi_agent_env import VectorMultiAgentEnv

from rollouts import MultiAgentVectorEnv

Array = NDArray[Any]
ByAgent = dict[str, Any]
# obs, rewards, terminateds, truncateds, infos: a dict by agent for each environment
Dicts = tuple[list[ByAgent], list[ByAgent], list[ByAgent], list[ByAgent], list[ByAgent]]


class AgentsEnv(VectorMultiAgentEnv):
    """A pool with RLlib's attributes; `reset` and `step` are the pool's own, and return whole
    batches.

    Attributes:
      pool: The `rollouts.MultiAgentVectorEnv`, which is closed with this.
      envs: Objects that RLlib asks for the spaces of one environment; they cannot be stepped.
      single_observation_spaces, single_action_spaces: agent -> space.
      single_observation_space, single_action_space: The same as `spaces.Dict`.
    """

    def __init__(self, pool: MultiAgentVectorEnv) -> None:
        """Takes over a pool."""
        self.pool = pool
        self.num_envs = pool.num_envs
        self.metadata = dict(pool.metadata)
        groups = pool.groups.values()
        self.single_observation_spaces = {
            agent: group.single_observation_space for group in groups for agent in group.agents
        }
        self.single_action_spaces = {
            agent: group.single_action_space for group in groups for agent in group.agents
        }
        self.single_observation_space = spaces.Dict(self.single_observation_spaces)
        self.single_action_space = spaces.Dict(self.single_action_spaces)
        self.envs = [_OneEnv(self) for _ in range(self.num_envs)]

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> Any:
        """As `rollouts.MultiAgentVectorEnv.reset`."""
        return self.pool.reset(seed=seed, options=None if options is None else dict(options))

    def step(self, actions: Any) -> Any:
        """As `rollouts.MultiAgentVectorEnv.step`."""
        return self.pool.step(actions)

    def close_extras(self, **kwargs: Any) -> None:
        """Closes the pool."""
        self.pool.close()

    def by_group(self, grouped: Any) -> dict[str, Array]:
        """Returns group -> array for a result of the pool, which is an array if there is one
        group."""
        if isinstance(grouped, Mapping):
            return dict(grouped)
        return {next(iter(self.pool.groups)): grouped}


class AgentDictsEnv(AgentsEnv):
    """A next-step pool whose `reset` and `step` are RLlib's: dicts by agent, one per environment.

    Agents that left have no entries. In the step after an episode's end actions are ignored, and
    all agents observe the next episode.
    """

    def __init__(self, pool: MultiAgentVectorEnv) -> None:
        """Takes over a next-step pool."""
        super().__init__(pool)
        self._places = {
            agent: (name, index)
            for name, group in pool.groups.items()
            for index, agent in enumerate(group.agents)
        }
        self._idle = {
            name: idle_action(group.single_action_space) for name, group in pool.groups.items()
        }

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[list[ByAgent], list[ByAgent]]:
        """Begins an episode in every environment; as `rollouts.MultiAgentVectorEnv.reset`."""
        obs, _ = super().reset(seed=seed, options=options)
        self._ended = np.zeros(self.num_envs, np.bool_)
        groups = self.by_group(obs)
        observations = [self._obs_of(groups, env, self._places) for env in range(self.num_envs)]
        return observations, _no_infos(observations)

    def step(self, actions: Sequence[Mapping[str, Any]]) -> Dicts:
        """Steps with a dict by agent for each environment."""
        *grouped, info = self.pool.step(self._batch(actions))
        obs, *rest = (self.by_group(each) for each in (*grouped, info["active"]))
        rows = [self._row(env, rest, bool(info["ended"][env])) for env in range(self.num_envs)]
        self._ended = info["ended"].copy()
        rewards, terminateds, truncateds = (list(column) for column in zip(*rows, strict=True))
        observations = [self._obs_of(obs, env, agents) for env, agents in enumerate(rewards)]
        return observations, rewards, terminateds, truncateds, _no_infos(observations)

    # -- helpers -------------------------------------------------------------------

    def _obs_of(self, groups: Mapping[str, Array], env: int, agents: Iterable[str]) -> ByAgent:
        places = ((agent, *self._places[agent]) for agent in agents)
        return {agent: groups[name][env, index].copy() for agent, name, index in places}

    def _row(
        self, env: int, grouped: Sequence[Mapping[str, Array]], ended: bool
    ) -> tuple[ByAgent, ByAgent, ByAgent]:
        """Rewards, terminateds and truncateds of the agents that took part in a step."""
        if self._ended[env]:
            going = {**dict.fromkeys(self._places, False), "__all__": False}
            return dict.fromkeys(self._places, 0.0), going, dict(going)
        values = {
            agent: [groups[name][env, index] for groups in grouped]
            for agent, (name, index) in self._places.items()
        }
        stepped = {agent: each for agent, each in values.items() if each[-1]}
        is_cut = ended and any(truncated for _, _, truncated, _ in stepped.values())
        rewards = {agent: float(reward) for agent, (reward, _, _, _) in stepped.items()}
        terminateds = {agent: bool(flag) for agent, (_, flag, _, _) in stepped.items()}
        truncateds = {agent: bool(flag) for agent, (_, _, flag, _) in stepped.items()}
        return (
            rewards,
            {**terminateds, "__all__": ended and not is_cut},
            {**truncateds, "__all__": is_cut},
        )

    def _batch(self, actions: Sequence[Mapping[str, Any]]) -> dict[str, Array]:
        batch = {
            name: np.tile(
                idle, (self.num_envs, self.pool.groups[name].num_agents, *[1] * idle.ndim)
            )
            for name, idle in self._idle.items()
        }
        for env, by_agent in enumerate(actions):
            for agent, action in by_agent.items():
                name, index = self._places[agent]
                batch[name][env, index] = action
        return batch


class _OneEnv(MultiAgentEnv):
    """A stand-in for one environment, which RLlib's runner asks for spaces."""

    def __init__(self, whole: AgentsEnv) -> None:
        super().__init__()
        self.possible_agents = list(whole.pool.agents)
        self.agents = list(whole.pool.agents)
        self.observation_spaces = whole.single_observation_spaces
        self.action_spaces = whole.single_action_spaces
        self.observation_space = whole.single_observation_space
        self.action_space = whole.single_action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        raise NotImplementedError("one of a pool's environments: reset them all together")

    def step(self, action_dict: Mapping[str, Any]) -> Any:
        raise NotImplementedError("one of a pool's environments: step them all together")


def idle_action(space: spaces.Space[Any]) -> Array:
    """An action in the space, for agents whose action does not count."""
    nothing = np.zeros(space.shape or (), space.dtype)
    if isinstance(space, spaces.Box):
        return nothing.clip(space.low, space.high)
    start: Array = nothing + np.asarray(getattr(space, "start", 0), nothing.dtype)
    return start


def _no_infos(observations: list[ByAgent]) -> list[ByAgent]:
    return [{agent: {} for agent in each} for each in observations]
