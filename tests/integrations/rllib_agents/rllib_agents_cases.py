# SPDX-License-Identifier: Apache-2.0
"""Runners of several agents, what is in their episodes, and the same steps taken by hand."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.env.multi_agent_env_runner import MultiAgentEnvRunner
from ray.rllib.env.multi_agent_episode import MultiAgentEpisode
from ray.rllib.env.wrappers.pettingzoo_env import ParallelPettingZooEnv
from ray.tune.registry import register_env
from rllib_cases import columns
from rollouts.integrations import rllib
from rollouts.integrations.pettingzoo import parallel_env

import rollouts

SEED = 7
# five runners, some of which are tagged and leave before the episode ends
LEAVING = (
    "TagContinuous-v0",
    {
        "num_taggers": 4,
        "num_runners": 5,
        "grid_length": 4.0,
        "tagging_distance": 0.1,
        "max_episode_steps": 30,
        "randomize_starts": True,
    },
)
# ends by its rules, when the runner is tagged
ENDING = (
    "TagGridWorld-v0",
    {"num_taggers": 5, "grid_length": 4, "max_episode_steps": 30, "randomize_starts": True},
)
# groups whose spaces differ
UNLIKE = ("simple_tag_v3", {"max_episode_steps": 11})
CASES = [LEAVING, ENDING, UNLIKE]


def by_group(agent: str, *args: Any, **kwargs: Any) -> str:
    """A module for each group: of "tagger_1" that is "tagger"."""
    return agent.partition("_")[0]


def config_of(
    env: str,
    num_envs: int = 4,
    *,
    runner: Any = rllib.RolloutsMultiAgentEnvRunner,
    policies: Sequence[str] = (),
    mapping: Any = by_group,
    **env_config: Any,
) -> PPOConfig:
    """PPO's, with small networks, for one runner in this process."""
    config = PPOConfig().environment(env, env_config=env_config)
    config.env_runners(num_env_runners=0, num_envs_per_env_runner=num_envs, env_runner_cls=runner)
    # not known of environments that are not ours
    groups = rollouts.env_spec(env).groups if env in rollouts.multi_agent_ids() else ()
    # in an order, so that the modules' weights are the same every time
    names = policies or [group.name for group in groups]
    config.multi_agent(policies=list(names), policy_mapping_fn=mapping)
    config.rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[8]))
    config.debugging(seed=SEED)
    return config


def runner_of(env: str, num_envs: int = 4, **arguments: Any) -> Any:
    """Our runner in its bulk loop."""
    runner = rllib.RolloutsMultiAgentEnvRunner(config=config_of(env, num_envs, **arguments))
    assert runner.slow_reason == ""
    return runner


class _OneEnv(ParallelPettingZooEnv):
    """An environment whose stream of random numbers is that of environment i of a pool."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        # RLlib's vector seeds environment i with seed + i, a pool with seed and i
        return super().reset(seed=None if seed is None else SEED, options=options)

    def step(self, action_dict: Any) -> Any:
        # RLlib's wrapper does not end an episode that some agents' end and others' limit ends
        obs, rewards, terminateds, truncateds, infos = super().step(action_dict)
        if all(terminateds[agent] or truncateds[agent] for agent in obs):
            truncateds["__all__"] = not terminateds["__all__"]
        return obs, rewards, terminateds, truncateds, infos


def stock_of(ours: Any, env_id: str, num_envs: int = 4, **options: Any) -> MultiAgentEnvRunner:
    """RLlib's own runner over the same environments one by one, with the weights of `ours`."""
    numbers = itertools.count()
    register_env(
        "one-by-one",
        lambda _: _OneEnv(parallel_env(env_id, env_id_offset=next(numbers), **options)),
    )
    policies = tuple(group.name for group in rollouts.env_spec(env_id).groups)
    config = config_of("one-by-one", num_envs, runner=None, policies=policies)
    # RLlib's check of an environment steps it
    stock = MultiAgentEnvRunner(config=config.environment(disable_env_checking=True))
    stock.module.set_state(ours.module.get_state())
    return stock


class Recorded:
    """Calls `env.step` and keeps the actions."""

    def __init__(self, runner: Any) -> None:
        """Takes a runner whose environments step in bulk."""
        self.actions: list[dict[str, Any]] = []
        self._step = runner.env.step
        runner.env.step = self

    def __call__(self, actions: Mapping[str, Any]) -> Any:
        """Steps with actions (N, A, ...) by group."""
        self.actions.append({name: array.copy() for name, array in actions.items()})
        return self._step(actions)


def by_hand(
    env_id: str, num_envs: int, actions: Sequence[Mapping[str, Any]], **options: Any
) -> list[dict[str, Any]]:
    """Episodes of a pool that is stepped with these actions, put together agent by agent.

    Returns:
      For each episode, ended or not, agent -> {"obs", "actions", "rewards": lists, "end"}.
    """
    env = rollouts.make_multi_agent_vec(
        env_id, num_envs, num_threads=1, autoreset_mode="same_step", **options
    )
    several = len(env.groups) > 1

    def of(grouped: Any, name: str) -> Any:
        return grouped[name] if several else grouped

    def begin(obs: Any, index: int) -> dict[str, Any]:
        return {
            agent: {"obs": [of(obs, name)[index, i]], "actions": [], "rewards": [], "end": None}
            for name, group in env.groups.items()
            for i, agent in enumerate(group.agents)
        }

    obs, _ = env.reset(seed=SEED)
    obs = _copied(obs)
    going = [begin(obs, index) for index in range(num_envs)]
    done = []
    for action in actions:
        batch = action if several else next(iter(action.values()))
        obs, reward, terminated, truncated, info = env.step(batch)
        obs, final_obs = _copied(obs), _copied(info["final_obs"])
        for index in range(num_envs):
            ended = info["ended"][index]
            for name, group in env.groups.items():
                for i, agent in enumerate(group.agents):
                    mine = going[index][agent]
                    assert of(info["active"], name)[index, i] == (mine["end"] is None)
                    if mine["end"] is not None:
                        continue
                    mine["obs"].append(of(final_obs if ended else obs, name)[index, i])
                    mine["actions"].append(action[name][index, i])
                    mine["rewards"].append(of(reward, name)[index, i])
                    flags = of(terminated, name)[index, i], of(truncated, name)[index, i]
                    mine["end"] = flags if any(flags) else None
            if ended:
                done.append(going[index])
                going[index] = begin(obs, index)
    env.close()
    return done + [each for each in going if any(mine["actions"] for mine in each.values())]


def key_of(episode: Mapping[str, Any]) -> tuple[bytes, ...]:
    """A key that tells episodes apart: all agents' first observations."""
    return tuple(np.asarray(episode[agent]["obs"][0]).tobytes() for agent in sorted(episode))


def stitched(chunks: Sequence[MultiAgentEpisode]) -> list[dict[str, Any]]:
    """Episodes put together of their chunks, agent by agent, as `by_hand` has them."""
    by_id: dict[str, list[MultiAgentEpisode]] = defaultdict(list)
    for chunk in chunks:
        chunk.validate()
        assert chunk.is_numpy
        by_id[chunk.id_].append(chunk)
    return [_whole(parts) for parts in by_id.values()]


def _whole(parts: list[MultiAgentEpisode]) -> dict[str, Any]:
    whole: dict[str, Any] = {}
    for before, after in itertools.pairwise(parts):
        assert not before.is_done and before.env_t == after.env_t_started
        ongoing = {a for a, each in before.agent_episodes.items() if not each.is_done}
        assert after.agent_ids == ongoing
    for part in parts:
        for agent, chunk in part.agent_episodes.items():
            lookback = chunk.observations.lookback
            data = columns(chunk)
            assert chunk.agent_id == agent and chunk.multi_agent_episode_id == part.id_
            mine = whole.setdefault(
                agent,
                {"obs": [data["obs"][0]], "actions": [], "rewards": [], "id": chunk.id_},
            )
            assert mine["id"] == chunk.id_ and chunk.t_started == len(mine["actions"])
            # the lookback and the first observation are the end of the chunk before
            np.testing.assert_array_equal(data["obs"][: lookback + 1], mine["obs"][-lookback - 1 :])
            for name in ("actions", "rewards"):
                known = mine[name][len(mine[name]) - lookback :]
                np.testing.assert_array_equal(list(data[name][:lookback]), known)
                mine[name] += list(data[name][lookback:])
            mine["obs"] += list(data["obs"][lookback + 1 :])
            mine["end"] = (chunk.is_terminated, chunk.is_truncated) if chunk.is_done else None
            steps = list(range(chunk.t_started - lookback, chunk.t + 1))
            skipped = len(part) - len(chunk)
            assert part.env_t_to_agent_t[agent].data == steps + ["S"] * skipped
            assert part.env_t_to_agent_t[agent].lookback == lookback
    return whole


def assert_same(ours: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]]) -> None:
    """Equal to the bit, whatever the order of the episodes."""
    theirs = {key_of(each): each for each in others}
    assert len(theirs) == len(others) == len(ours)
    for episode in ours:
        other = theirs[key_of(episode)]
        assert list(episode) == list(other)
        for agent, mine in episode.items():
            for name in ("obs", "actions", "rewards"):
                np.testing.assert_array_equal(mine[name], other[agent][name], err_msg=agent)
            assert mine["end"] == other[agent]["end"]


def _copied(grouped: Any) -> Any:
    if isinstance(grouped, Mapping):
        return {name: array.copy() for name, array in grouped.items()}
    return grouped.copy()
