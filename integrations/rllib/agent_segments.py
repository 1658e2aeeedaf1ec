# SPDX-License-Identifier: Apache-2.0
"""The steps of environments with several agents, and the multi-agent episodes cut from them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from ray.rllib.env.multi_agent_episode import MultiAgentEpisode
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.env.utils.infinite_lookback_buffer import InfiniteLookbackBuffer
from ray.rllib.utils.metrics import WEIGHTS_SEQ_NO

from rollouts.batch import StepBatch
from rollouts.specs import AgentGroup
from rollouts.support.no_collection import no_collection

from .agent_actions import ModuleOutputs
from .by_env import Chunks, Ends, done_chunks, going_chunks
from .segment import EndedEpisode, Segment

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class AgentsEnded:
    """A whole episode, for metrics: its steps in all calls of `sample`.

    Attributes:
      length: Steps of the environment.
      duration_s: From its first to its last step.
      returns, steps: Return and number of steps of each agent, by name.
      module_returns: Sums over the agents of each module.
    """

    length: int
    duration_s: float
    returns: dict[str, float]
    steps: dict[str, int]
    module_returns: dict[str, float]


class AgentsTaken(NamedTuple):
    """Chunks of episodes, as objects of RLlib.

    Attributes:
      done: Chunks whose episode ended, in the order of time.
      ended: The whole episodes that end with these chunks.
      going: Chunks that go on, in the order of environments.
    """

    done: list[MultiAgentEpisode]
    ended: list[AgentsEnded]
    going: list[MultiAgentEpisode]


class AgentSegments:
    """A segment for each group, whose rows are the agents of environment 0, of 1, and so on.

    A row ends when its agent leaves and, a second time, when the environment's episode ends; the
    steps between belong to no agent, and are left out.

    Attributes:
      acting: group -> (N * A,) bool, the agents that are in the episode and act next.
      episodes: The episode of each environment, which maps its agents to modules.
    """

    def __init__(
        self,
        groups: Mapping[str, AgentGroup],
        num_envs: int,
        new_episode: Callable[[], MultiAgentEpisode],
        *,
        lookback: int,
    ) -> None:
        """Starts without steps; `begin` comes next. `new_episode` returns one without data."""
        self._num_envs, self._new_episode = num_envs, new_episode
        self._groups = groups
        self._segments = {
            name: Segment(
                num_envs * group.num_agents,
                group.single_observation_space,
                group.single_action_space,
                lookback=lookback,
                keep_infos=False,
            )
            for name, group in groups.items()
        }
        self._lookback = lookback
        self._agents = [
            (agent, name, index, group.num_agents)
            for name, group in groups.items()
            for index, agent in enumerate(group.agents)
        ]

    @property
    def obs(self) -> dict[str, Array]:
        """Observations to act on: group -> (N * A, ...)."""
        return {name: segment.obs for name, segment in self._segments.items()}

    @property
    def num_ended(self) -> int:
        """Episodes that ended since the last `take`."""
        return len(self._ended)

    def begin(self, obs: Mapping[str, Array]) -> None:
        """Starts an episode everywhere with (N, A, ...) by group; drops all steps."""
        self.episodes = [self._new_episode() for _ in range(self._num_envs)]
        self.acting = {}
        for name, segment in self._segments.items():
            first = _rows(obs[name])
            segment.begin(first, {})
            self.acting[name] = np.ones(len(first), np.bool_)
        self._first = self._next = 0
        # steps before this call, of the episodes that go on, and agents that left these episodes
        self._length = [0] * self._num_envs
        self._left: list[dict[str, EndedEpisode]] = [{} for _ in range(self._num_envs)]
        self._ended: list[tuple[int, int, MultiAgentEpisode]] = []

    def resume(self, num_steps: int) -> None:
        """Begins a call: makes room for `num_steps` and starts the clocks of the episodes."""
        for segment in self._segments.values():
            segment.resume(num_steps)

    def add(self, acted: ModuleOutputs, version: int, outcome: Mapping[str, Any]) -> bool:
        """Writes a step of all environments.

        Args:
          acted: The modules' outputs.
          version: Sequence number of their weights.
          outcome: Result of a same-step pool's step: obs, reward, terminated, truncated and, where
            an episode ended, final_obs by group; ended (N,); _env_error (N,) or None.
        Returns:
          Whether the agents that act next, or their modules, differ from those of this step.
        """
        ended: Array = outcome["ended"]
        changed = False
        for name, segment in self._segments.items():
            step, acting = self._step(name, outcome)
            segment.add(acted.actions[name], acted.extras[name], version, step)
            changed = changed or not np.array_equal(acting, self.acting[name])
            self.acting[name] = acting
        for env in ended.nonzero()[0].tolist():
            before, new = self.episodes[env], self._new_episode()
            self._ended.append((self._next, env, before))
            self.episodes[env] = new
            changed = changed or any(
                before.module_for(agent) != new.module_for(agent) for agent, *_ in self._agents
            )
        self._next += 1
        return changed

    def take(self, said: Mapping[str, set[str]]) -> AgentsTaken:
        """Cuts the steps since the last call into chunks of episodes.

        Args:
          said: module -> names of its outputs other than actions.

        Returns:
          The chunks; their arrays are new, writable and not shared.
        """
        ends = _ends(self._ended)
        done_at = done_chunks(ends, self._first)
        going_at = going_chunks(ends, self._first, self._next, self._num_envs)
        # as in `Segment`
        with no_collection():
            parts = {name: _by_place(segment) for name, segment in self._segments.items()}
            done, ended, going = [], [], []
            for place, (_, _, episode) in zip(_places(done_at), self._ended, strict=True):
                ends_of = self._fill(episode, place, parts, said)
                flags = [each.is_truncated for each in episode.agent_episodes.values()]
                # agents that left before the last step were terminated
                episode.is_truncated = any(flags)
                episode.is_terminated = not episode.is_truncated
                done.append(episode)
                ended.append(_totals(episode, ends_of))
            for env, begin, end, is_first in _places(going_at):
                episode = self.episodes[env]
                self._left[env] = self._fill(episode, (env, begin, end, is_first), parts, said)
                self._length[env] = episode.env_t
                going.append(episode)
                self.episodes[env] = self._successor(episode)
        self._forget_ended(ends, going_at)
        self._first = self._next = min(self._lookback, self._next)
        self._ended.clear()
        return AgentsTaken(done, ended, going)

    # -- helpers -------------------------------------------------------------------

    def _step(self, name: str, outcome: Mapping[str, Any]) -> tuple[StepBatch, Array]:
        """A group's rows as environments of one agent, and the rows that act next."""
        num_agents = self._groups[name].num_agents
        ended = np.repeat(outcome["ended"], num_agents)
        active = self.acting[name]
        terminated = _rows(outcome["terminated"][name]) & active
        truncated = _rows(outcome["truncated"][name]) & active
        obs = _rows(outcome["obs"][name])
        final_obs, info = obs, {}
        if ended.any():
            # an agent that leaves earlier has its last observation in `obs`
            final_obs = obs.copy()
            final_obs[ended] = _rows(outcome["final_obs"][name])[ended]
            if outcome["_env_error"] is not None:
                info["_env_error"] = np.repeat(outcome["_env_error"], num_agents)
        acting = ended | (active & ~(terminated | truncated))
        nobody = np.zeros(0, np.int32)
        step = StepBatch(
            obs=obs,
            reward=_rows(outcome["reward"][name]),
            terminated=terminated,
            truncated=truncated | (ended & ~terminated),
            env_id=nobody,
            episode_return=np.zeros(0),
            episode_length=nobody,
            final_obs=final_obs,
            info=info,
        )
        return step, acting

    def _fill(
        self,
        episode: MultiAgentEpisode,
        place: tuple[int, int, int, bool],
        parts: Mapping[
            str, Mapping[tuple[int, int], tuple[SingleAgentEpisode, EndedEpisode | None]]
        ],
        said: Mapping[str, set[str]],
    ) -> dict[str, EndedEpisode]:
        """Puts the steps at one of `_places` into an episode; returns the agents that ended so
        far."""
        env, begin, end, is_first = place
        before = self._length[env] if is_first else 0
        lookback = min(before, self._first)
        left = dict(self._left[env]) if is_first else {}
        times = episode.env_t_to_agent_t
        for agent, name, index, num_agents in self._agents:
            if agent in left:
                continue
            chunk, ended = parts[name][env * num_agents + index, begin]
            module_id = episode.module_for(agent)
            names = said.get(module_id, ())
            chunk.agent_id, chunk.module_id = agent, module_id
            chunk.multi_agent_episode_id = episode.id_
            chunk.extra_model_outputs = {
                key: value
                for key, value in chunk.extra_model_outputs.items()
                if key in names or key == WEIGHTS_SEQ_NO
            }
            episode.agent_episodes[agent] = chunk
            if chunk.t_started:
                episode.agent_t_started[agent] = chunk.t_started
            stepped: list[Any] = list(range(chunk.t_started - lookback, chunk.t + 1))
            absent = end - begin - len(chunk)
            buffer = InfiniteLookbackBuffer(
                stepped + [episode.SKIP_ENV_TS_TAG] * absent, lookback=lookback
            )
            times[agent] = buffer
            if ended is not None:
                left[agent] = ended
        chunks = episode.agent_episodes.values()
        if chunks:
            episode._start_time = min(chunk._start_time for chunk in chunks)
            episode._last_step_time = max(chunk._last_step_time for chunk in chunks)
        episode.env_t_started, episode.env_t = before, before + end - begin
        episode._len_lookback_buffers = lookback
        return left

    def _successor(self, episode: MultiAgentEpisode) -> MultiAgentEpisode:
        """The chunk that goes on with an episode, without data."""
        return MultiAgentEpisode(
            episode.id_,
            observation_space=episode.observation_space,
            action_space=episode.action_space,
            agent_module_ids=dict(episode._agent_to_module_mapping),
            agent_to_module_mapping_fn=episode.agent_to_module_mapping_fn,
        )

    def _forget_ended(self, ends: Ends, going: Chunks) -> None:
        """Resets the length and the agents that left, for episodes that have no step yet."""
        for env in set(ends.row.tolist()) - set(going.row.tolist()):
            self._length[env], self._left[env] = 0, {}


def _rows(array: Array) -> Array:
    """(N, A, ...) as (N * A, ...)."""
    return array.reshape(-1, *array.shape[2:])


def _ends(ended: Sequence[tuple[int, int, MultiAgentEpisode]]) -> Ends:
    t = np.array([each[0] for each in ended], np.int64)
    row = np.array([each[1] for each in ended], np.int64)
    never = np.zeros(len(t), np.bool_)
    return Ends(t, row, never, never, never)


def _places(chunks: Chunks) -> list[tuple[int, int, int, bool]]:
    """Each chunk's environment, first step, step after the last, and whether it is the
    environment's first."""
    return list(zip(*(column.tolist() for column in chunks), strict=True))


def _by_place(
    segment: Segment,
) -> dict[tuple[int, int], tuple[SingleAgentEpisode, EndedEpisode | None]]:
    """A segment's chunks by row and first step."""
    taken = segment.take()
    at_done = zip(taken.done_at.row.tolist(), taken.done_at.begin.tolist(), strict=True)
    at_going = zip(taken.going_at.row.tolist(), taken.going_at.begin.tolist(), strict=True)
    chunks = dict(zip(at_going, ((chunk, None) for chunk in taken.going), strict=True))
    return chunks | dict(zip(at_done, zip(taken.done, taken.ended, strict=True), strict=True))


def _totals(episode: MultiAgentEpisode, ended: Mapping[str, EndedEpisode]) -> AgentsEnded:
    module_returns: defaultdict[str, float] = defaultdict(float)
    for agent, each in ended.items():
        module_returns[episode.module_for(agent)] += each.episode_return
    return AgentsEnded(
        length=episode.env_t,
        duration_s=max(each.duration_s for each in ended.values()),
        returns={agent: each.episode_return for agent, each in ended.items()},
        steps={agent: each.length for agent, each in ended.items()},
        module_returns=dict(module_returns),
    )
