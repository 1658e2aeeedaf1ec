# SPDX-License-Identifier: Apache-2.0
"""The PettingZoo adapter under PettingZoo's own tests, and its agents as the pool has them."""

from __future__ import annotations

import numpy as np
import pytest
from pettingzoo.test import parallel_api_test, parallel_seed_test
from pettingzoo.utils.conversions import parallel_to_aec
from rollouts.integrations.pettingzoo import RolloutsParallelEnv, parallel_env

import rollouts

IDS = rollouts.multi_agent_ids()


@pytest.mark.parametrize("env_id", IDS)
def test_it_passes_pettingzoos_tests(env_id: str) -> None:
    env = parallel_env(env_id)
    parallel_api_test(env, num_cycles=120)
    env.close()
    parallel_seed_test(lambda: parallel_env(env_id), num_cycles=40)


def test_agents_come_and_go_as_in_the_pool() -> None:
    options = {"grid_length": 3.0, "tagging_distance": 0.2, "max_episode_steps": 30}
    env = parallel_env("TagContinuous-v0", **options)
    with rollouts.make_vec("TagContinuous-v0", 1, autoreset_mode="disabled", **options) as pool:
        assert isinstance(pool, rollouts.MultiAgentVectorEnv)
        obs, infos = env.reset()
        pool.reset()
        assert env.agents == env.possible_agents == pool.agents == list(obs) == list(infos)
        random = np.random.default_rng(0)
        left: set[str] = set()
        while env.agents:
            playing = list(env.agents)
            rows = {
                name: random.integers(0, 11, (1, group.num_agents, 2))
                for name, group in pool.groups.items()
            }
            actions = {
                agent: rows[name][0, index]
                for name, group in pool.groups.items()
                for index, agent in enumerate(group.agents)
            }
            got = env.step(actions)
            wanted = pool.step(rows)
            assert all(set(part) == set(playing) for part in got)
            for part, want in zip(got[:4], wanted[:4], strict=True):
                for name, group in pool.groups.items():
                    for index, agent in enumerate(group.agents):
                        if agent in part:
                            np.testing.assert_array_equal(part[agent], want[name][0, index])
            left |= set(playing) - set(env.agents)
        assert len(left) == len(env.possible_agents)
        assert wanted[4]["ended"].all()
    with pytest.raises(rollouts.ProtocolError, match="call reset first"):
        env.step({})
    assert env.reset()[0].keys() == set(env.possible_agents)
    assert env.state().shape == (11 * 71,)
    env.close()
    env.close()


def test_bad_actions_name_the_agent() -> None:
    env = parallel_env("TagGridWorld-v0", num_taggers=2)
    env.reset(seed=1)
    good = {agent: 0 for agent in env.agents}
    for bad, message in (
        ({"tagger_0": 0, "tagger_1": 0}, "agent 'runner_0' has no action"),
        ({**good, "tagger_7": 0}, "agent 'tagger_7' is not in this environment"),
        ({**good, "tagger_1": 0.5}, "action of agent 'tagger_1' has shape .* dtype float64"),
        ({**good, "runner_0": np.zeros(2, int)}, r"agent 'runner_0' has shape \(2,\)"),
        ({**good, "runner_0": 5}, "agent runner_0 in row 0 is 5"),
    ):
        with pytest.raises(rollouts.SpecError, match=message):
            env.step(bad)
    env.step(good)
    env.close()
    with pytest.raises(rollouts.SpecError, match="has one agent"):
        RolloutsParallelEnv("CartPole-v1")


@pytest.mark.parametrize("env_id", ["TagGridWorld-v0", "simple_spread_v3"])
def test_frames_are_the_pools(env_id: str) -> None:
    env = parallel_env(env_id, render_mode="rgb_array")
    assert env.render_mode == "rgb_array"
    assert env.metadata["render_modes"] == ["rgb_array"] and env.metadata["render_fps"] == 10
    env.reset(seed=3)
    frames = [env.render()]
    for _ in range(2):  # a particle at rest moves with the second push
        env.step({agent: 1 for agent in env.agents})
    frames.append(env.render())
    with rollouts.make_multi_agent_vec(env_id, 1) as pool:
        pool.reset(seed=3)
        np.testing.assert_array_equal(frames[0], pool.render()[0])
    assert frames[0] is not None and (frames[0] != frames[1]).any()
    env.close()


def test_without_a_mode_there_is_no_frame() -> None:
    env = parallel_env("simple_v3")
    env.reset()
    with pytest.warns(UserWarning, match="without render_mode"):
        assert env.render() is None
    env.close()
    with pytest.raises(rollouts.SpecError, match="render_mode must be"):
        parallel_env("simple_v3", render_mode="human")


@pytest.mark.parametrize("env_id", IDS)
def test_the_state_is_in_its_space_through_an_episode(env_id: str) -> None:
    env = parallel_env(env_id, max_episode_steps=5)
    env.reset(seed=1)
    for _ in range(3):
        state = env.state()
        assert state.dtype == env.state_space.dtype and env.state_space.contains(state)
        env.step({agent: env.action_space(agent).sample() for agent in env.agents})
    # converters take it over
    assert parallel_to_aec(env).state_space is env.state_space
    env.close()
