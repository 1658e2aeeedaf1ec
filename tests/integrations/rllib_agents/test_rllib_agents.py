# SPDX-License-Identifier: Apache-2.0
"""RolloutsMultiAgentEnvRunner's episodes: the pool's steps, and RLlib's own runner's episodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip(
    "ray.tune", exc_type=ImportError, reason="RLlib is not installed: pip install 'rollouts[rllib]'"
)
pytest.importorskip("pettingzoo", reason="PettingZoo is not installed: pip install pettingzoo")

from ray.rllib.env.multi_agent_episode import MultiAgentEpisode
from rllib_agents_cases import (
    CASES,
    LEAVING,
    Recorded,
    assert_same,
    by_hand,
    config_of,
    key_of,
    runner_of,
    stitched,
    stock_of,
)
from rollouts.integrations import rllib

pytestmark = pytest.mark.system


@pytest.mark.parametrize(("env_id", "options"), CASES)
@pytest.mark.parametrize("lookback", [0, 1, 3])
def test_episodes_are_the_pool_stepped_by_hand(
    env_id: str, options: dict[str, Any], lookback: int
) -> None:
    config = config_of(env_id, 4, **options).env_runners(episode_lookback_horizon=lookback)
    runner = rllib.RolloutsMultiAgentEnvRunner(config=config)
    recorded = Recorded(runner)
    chunks = [e for steps in (7, 1, 20, 3, 64) for e in runner.sample(num_timesteps=4 * steps)]
    expected = by_hand(env_id, 4, recorded.actions, **options)
    assert_same(stitched(chunks), expected)
    for chunk in chunks:
        agents = chunk.agent_episodes.values()
        is_cut = any(each.is_truncated for each in agents)
        assert chunk.is_done == all(each.is_done for each in agents)
        assert (chunk.is_terminated, chunk.is_truncated) == (chunk.is_done and not is_cut, is_cut)
    ended = [e for e in expected if all(mine["end"] for mine in e.values())]
    assert len(ended) >= 8 and len(chunks) > len(expected)
    lengths = [{len(mine["actions"]) for mine in e.values()} for e in ended]
    # some agents left before their episode ended, where agents do that
    assert any(len(each) > 1 for each in lengths) == (env_id == LEAVING[0])


@pytest.mark.parametrize(("env_id", "options"), CASES)
def test_episodes_are_those_of_rllib_s_own_runner(env_id: str, options: dict[str, Any]) -> None:
    ours = runner_of(env_id, 3, **options)
    stock = stock_of(ours, env_id, 3, **options)
    mine = stitched([e for _ in range(4) for e in ours.sample(num_timesteps=99, explore=False)])
    theirs = stitched([e for _ in range(5) for e in stock.sample(num_timesteps=99, explore=False)])
    ended = [e for e in mine if all(agent["end"] for agent in e.values())]
    by_key = {key_of(each): each for each in theirs}
    assert len(ended) >= 6
    for episode in ended:
        other = by_key[key_of(episode)]
        for agent, data in episode.items():
            # RLlib's own runner takes an agent that was truncated for one that terminated, too
            assert other[agent]["end"] in (data["end"], (True, True))
            other[agent]["end"] = data["end"]
    assert_same(ended, [by_key[key_of(each)] for each in ended])


def facts(episode: MultiAgentEpisode) -> dict[str, Any]:
    """All of an episode that is not an array of steps."""
    agents = episode.agent_episodes
    return {
        "lookback": episode._len_lookback_buffers,
        "t": (episode.env_t_started, episode.env_t, len(episode), episode.is_done),
        "agent_t_started": {a: episode.agent_t_started[a] for a in agents},
        "env_t_to_agent_t": {
            a: (episode.env_t_to_agent_t[a].data, episode.env_t_to_agent_t[a].lookback)
            for a in sorted(agents)
        },
        "modules": {a: each.module_id for a, each in agents.items()},
        "agents": {
            a: (
                *(each.t_started, each.t, each.is_done, len(each.infos), each.is_numpy),
                *(buffer.lookback for buffer in (each.observations, each.actions, each.rewards)),
                sorted(each.extra_model_outputs),
                [each.observations.data.dtype, each.actions.data.dtype, each.rewards.data.dtype],
                [each.extra_model_outputs[n].data.dtype for n in sorted(each.extra_model_outputs)],
            )
            for a, each in agents.items()
        },
    }


def test_chunks_before_the_first_end_are_equal_in_everything() -> None:
    env_id, options = LEAVING
    ours = runner_of(env_id, 3, **options)
    stock = stock_of(ours, env_id, 3, **options)
    num_left = 0
    for steps in (1, 6, 3, 8, 9):
        mine = ours.sample(num_timesteps=3 * steps, explore=False)
        theirs = stock.sample(num_timesteps=3 * steps, explore=False)
        for one, other in zip(mine, theirs, strict=True):
            assert facts(one) == facts(other)
            for agent, episode in one.agent_episodes.items():
                said = other.agent_episodes[agent].extra_model_outputs
                for name, buffer in episode.extra_model_outputs.items():
                    # the same rows in another order: kernels may round otherwise
                    np.testing.assert_allclose(buffer.data, said[name].data, rtol=1e-5, atol=1e-6)
            num_left += sum(each.is_done for each in one.agent_episodes.values())
            assert not one.is_done
    assert num_left >= 2


def test_getters_read_what_rllib_s_own_episodes_say() -> None:
    env_id, options = LEAVING
    ours = runner_of(env_id, 3, **options)
    stock = stock_of(ours, env_id, 3, **options)
    for _ in range(2):
        mine = ours.sample(num_timesteps=3 * 12, explore=False)
        theirs = stock.sample(num_timesteps=3 * 12, explore=False)
    for one, other in zip(mine, theirs, strict=True):
        # RLlib's getters of actions and rewards fail for agents that left, also in its own episodes
        stayed = [a for a, each in one.agent_episodes.items() if not each.is_done]
        for indices in (-1, 5, slice(2, 9), slice(-3, None)):
            for name, agents in (("observations", None), ("actions", stayed), ("rewards", stayed)):
                got = getattr(one, f"get_{name}")(indices, agents)
                expected = getattr(other, f"get_{name}")(indices, agents)
                assert set(got) == set(expected) >= set(stayed)
                for agent, values in got.items():
                    np.testing.assert_array_equal(values, expected[agent])
        assert one.get_agents_to_act() == other.get_agents_to_act()
        assert one.get_return() == pytest.approx(other.get_return())
        assert len(one[2:7]) == len(other[2:7]) == 5


def test_num_episodes_returns_whole_episodes_from_fresh_resets() -> None:
    env_id, options = LEAVING
    runner = runner_of(env_id, 3, **options)
    runner.sample(num_timesteps=3 * 5)
    episodes = runner.sample(num_episodes=7)
    assert len(episodes) == 7
    for episode in episodes:
        assert episode.is_done and episode.env_t_started == 0 and len(episode) <= 30
        assert all(each.is_done for each in episode.agent_episodes.values())
    assert len(runner.sample(num_episodes=2)) == 2


@pytest.mark.parametrize(("env_id", "options"), CASES)
def test_metrics_are_those_of_rllib_s_own_runner(env_id: str, options: dict[str, Any]) -> None:
    ours = runner_of(env_id, 3, **options)
    stock = stock_of(ours, env_id, 3, **options)
    results = []
    for runner in (ours, stock):
        # two chunks of one episode each, then episodes that ended
        episodes = []
        while len(episodes) < 3:
            sampled = runner.sample(num_timesteps=3 * 7, explore=False)
            episodes += [each for each in sampled if each.is_done]
        reduced = _flat(runner.get_metrics())
        of_episodes = ("episode_", "agent_episode_", "module_episode_", "agent_steps/")
        results.append({n: v for n, v in reduced.items() if n.startswith(of_episodes)})
    mine, theirs = results
    for each in results:
        assert each.pop("episode_duration_sec_mean") > 0
    assert mine == pytest.approx(theirs, rel=1e-12)
    agents = len(ours.env.pool.agents)
    assert sum(name.startswith("agent_steps") for name in mine) == agents


def _flat(metrics: Any, prefix: str = "") -> dict[str, float]:
    flat: dict[str, float] = {}
    for name, value in metrics.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{name}/")
        elif hasattr(value, "peek"):
            flat[prefix + name] = float(np.mean(value.peek()))
    return flat


def test_steps_are_counted_by_agent_and_module() -> None:
    env_id, options = LEAVING
    runner = runner_of(env_id, 3, **options)
    chunks = [e for _ in range(3) for e in runner.sample(num_timesteps=3 * 20)]
    metrics = _flat(runner.get_metrics())
    assert metrics["num_env_steps_sampled"] == sum(map(len, chunks)) == 180
    of_module = dict.fromkeys(("tagger", "runner"), 0)
    for agent in runner.env.pool.agents:
        steps = sum(len(e.agent_episodes[agent]) for e in chunks if agent in e.agent_episodes)
        assert metrics[f"num_agent_steps_sampled/{agent}"] == steps
        of_module[agent.partition("_")[0]] += steps
    assert of_module["runner"] < 5 * 180
    for name, steps in of_module.items():
        assert metrics[f"num_module_steps_sampled/{name}"] == steps
    assert metrics["num_episodes"] == sum(e.is_done for e in chunks) > 0


def test_agent_steps_can_be_what_counts() -> None:
    env_id, options = LEAVING
    config = config_of(env_id, 3, **options).multi_agent(count_steps_by="agent_steps")
    runner = rllib.RolloutsMultiAgentEnvRunner(config=config)
    chunks = runner.sample(num_timesteps=500)
    steps = sum(chunk.agent_steps() for chunk in chunks)
    # at most 9 agents of 3 environments step at once
    assert 500 <= steps < 500 + 27
