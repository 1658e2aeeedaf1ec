# SPDX-License-Identifier: Apache-2.0
"""PettingZoo environments in processes: as they are by themselves, and agents that come and go."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from mpe2 import simple_tag_v3
from pettingzoo import ParallelEnv

import rollouts
from rollouts.envs.hosted.agents.one_env import agent_groups
from rollouts.policy import PolicyOutput


class Countdown(ParallelEnv):
    """Agent i leaves after i + 2 steps; a late one appears at step 2; one fails on demand."""

    metadata = {"name": "countdown"}  # noqa: RUF012 (PettingZoo declares it so)

    def __init__(self, fails_at: int = 0) -> None:
        self.possible_agents = ["runner_0", "runner_1", "runner_2", "late"]
        self.fails_at = fails_at

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Box(-100, 100, (2,), np.float32)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(7)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        self.t = 0
        self.agents = self.possible_agents[:3]
        return {agent: np.zeros(2, np.float32) for agent in self.agents}, {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, Any]:
        assert set(actions) == set(self.agents), "actions of those who are there, and of no others"
        self.t += 1
        if self.t == self.fails_at:
            raise RuntimeError("the world broke")
        here = list(self.agents)
        leaves = {agent: agent == f"runner_{self.t - 2}" for agent in here}
        obs = {agent: np.array([self.t, actions[agent]], np.float32) for agent in here}
        reward = {agent: float(actions[agent]) for agent in here}
        self.agents = [agent for agent in here if not leaves[agent]]
        truncated = dict.fromkeys(here, False)
        if self.t == 2:
            self.agents.append("late")
            obs["late"] = np.array([-1, -1], np.float32)
        if self.t == 4:
            truncated["late"] = True
            self.agents = []
        infos = {agent: {"t": self.t} for agent in here}
        return obs, reward, leaves, truncated, infos


def test_groups_are_names_without_their_numbers() -> None:
    env = simple_tag_v3.parallel_env()
    groups = agent_groups(env)
    assert [(one.name, one.agents) for one in groups] == [
        ("adversary", ("adversary_0", "adversary_1", "adversary_2")),
        ("agent", ("agent_0",)),
    ]
    with pytest.raises(rollouts.SpecError, match="has no possible_agents"):
        agent_groups(object())


def test_steps_are_those_of_the_environments_themselves() -> None:
    make = functools.partial(simple_tag_v3.parallel_env, max_cycles=4)
    alone = [make() for _ in range(3)]
    with rollouts.from_parallel_env_fns([make] * 3, num_processes=2) as envs:
        obs, _ = envs.reset(seed=5)
        assert obs in envs.observation_space
        for index, env in enumerate(alone):
            first, _ = env.reset(seed=5 + index)
            np.testing.assert_array_equal(obs["adversary"][index, 2], first["adversary_2"])
        for step in range(4):
            envs.action_space.seed(step)
            actions = envs.action_space.sample()
            obs, reward, terminated, truncated, info = envs.step(actions)
            for index, env in enumerate(alone):
                own = env.step(
                    {
                        agent: int(actions[name][index, i])
                        for name, group in envs.groups.items()
                        for i, agent in enumerate(group.agents)
                    }
                )
                for name, group in envs.groups.items():
                    for i, agent in enumerate(group.agents):
                        np.testing.assert_array_equal(obs[name][index, i], own[0][agent])
                        assert reward[name][index, i] == own[1][agent]
                        assert terminated[name][index, i] == own[2][agent]
                        assert truncated[name][index, i] == own[3][agent]
        assert info["ended"].all() and info["active"]["agent"].all()


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_agents_come_and_go(mode: str) -> None:
    with rollouts.from_parallel_env_fns(
        [Countdown] * 2, num_processes=1, autoreset_mode=mode
    ) as envs:
        _, info = envs.reset()
        assert info["active"]["runner"].all() and not info["active"]["late"].any()
        actions = {"runner": np.full((2, 3), 2), "late": np.full((2, 1), 5)}
        active, reward, over = [], [], []
        for _ in range(4):
            obs, rewards, terminated, truncated, info = envs.step(actions)
            both = {name: terminated[name] | truncated[name] for name in envs.groups}
            for kept, arrays in ((active, info["active"]), (reward, rewards), (over, both)):
                kept.append(np.concatenate([arrays["runner"][1], arrays["late"][1]]).tolist())
        assert active == [
            [True, True, True, False],
            [True, True, True, False],
            [False, True, True, True],
            [False, False, True, True],
        ]
        assert over == [
            [False, False, False, False],
            [True, False, False, False],
            [False, True, False, False],
            [False, False, True, True],
        ]
        assert reward[2:] == [[0, 2, 2, 5], [0, 0, 2, 5]]
        assert info["ended"].all()
        assert info["episode_return"]["runner"][0].tolist() == [4, 6, 8]
        if mode == "same_step":
            assert info["final_obs"]["late"][0, 0].tolist() == [4, 5]
            assert not obs["late"].any()
        else:
            assert info["agent_infos"][0]["late"] == {"t": 4}
            obs, rewards, *_, info = envs.step(actions)
            assert not rewards["runner"].any() and not obs["runner"].any()
            assert info["active"]["runner"].all()


def test_a_failure_truncates_all_agents_of_its_environment() -> None:
    fns = [Countdown, functools.partial(Countdown, fails_at=1)]
    actions = {"runner": np.zeros((2, 3), int), "late": np.zeros((2, 1), int)}
    with rollouts.from_parallel_env_fns(fns, num_processes=1, on_env_error="reset") as envs:
        envs.reset()
        _, _, _, truncated, info = envs.step(actions)
        assert "the world broke" in str(info["env_error"][1])
        assert truncated["runner"].tolist() == [[False] * 3, [True] * 3]
        assert info["ended"].tolist() == [False, True]
    with rollouts.from_parallel_env_fns(fns, num_processes=1) as envs:
        envs.reset()
        with pytest.raises(rollouts.EnvError, match="the world broke"):
            envs.step(actions)


def test_asynchronous_batches_have_the_rows_that_are_done() -> None:
    make = functools.partial(simple_tag_v3.parallel_env, max_cycles=3)
    with rollouts.from_parallel_env_fns([make] * 4, num_processes=2, batch_size=2) as envs:
        envs.async_reset()
        seen: set[int] = set()
        for step in range(8):
            batch = envs.recv_batch()
            assert batch.obs["adversary"].shape == (2, 3, 16)
            seen |= set(batch.env_id.tolist())
            envs.action_space.seed(step)
            envs.send(envs.action_space.sample(), batch.env_id)
        assert seen == {0, 1, 2, 3}


def test_bad_arguments_are_named() -> None:
    with pytest.raises(rollouts.DTypeError, match="sequence of functions"):
        rollouts.from_parallel_env_fns(Countdown)  # type: ignore[arg-type]
    with rollouts.from_parallel_env_fns([Countdown] * 2, num_processes=1) as envs:
        envs.reset()
        with pytest.raises(rollouts.SpecError, match="no group 'late'"):
            envs.step({"runner": np.zeros((2, 3), int)})
        rows = envs.as_single_agent
        assert callable(rows)
    with pytest.raises(rollouts.SpecError, match="has the agents"):
        rollouts.from_parallel_env_fns([Countdown, _two], num_processes=1)


def _two() -> Countdown:
    env = Countdown()
    env.possible_agents = ["runner_0", "runner_1", "runner_3", "late"]
    return env


class Unpruned(Countdown):
    """Tells of all agents at each step, and never takes one out of `agents` if `keeps`."""

    def __init__(self, keeps: bool = True) -> None:
        super().__init__()
        self.possible_agents = ["runner_0", "runner_1"]
        self.keeps = keeps

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        self.t = 0
        self.agents = list(self.possible_agents)
        return {agent: np.ones(2, np.float32) for agent in self.agents}, {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, Any]:
        self.t += 1
        ends = {"runner_0": self.t >= 1, "runner_1": self.t >= 3}
        if not self.keeps:
            self.agents = [agent for agent in self.agents if not ends[agent]]
        everybody = self.possible_agents
        return (
            {agent: np.full(2, self.t, np.float32) for agent in everybody},
            dict.fromkeys(everybody, 7.0),
            ends,
            dict.fromkeys(everybody, False),
            {agent: {"t": self.t} for agent in everybody},
        )


@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_what_is_told_of_agents_that_have_left_is_ignored(mode: str, keeps: bool) -> None:
    make = functools.partial(Unpruned, keeps)
    with rollouts.from_parallel_env_fns([make], num_processes=0, autoreset_mode=mode) as envs:
        envs.reset()
        steps = [envs.step(np.zeros((1, 2), int)) for _ in range(3)]
        told = [
            (reward[0].tolist(), terminated[0].tolist(), info["active"][0].tolist())
            for _, reward, terminated, _, info in steps
        ]
        assert told == [
            ([7, 7], [True, False], [True, True]),
            ([0, 7], [False, False], [False, True]),
            ([0, 7], [False, True], [False, True]),
        ]
        assert steps[1][0][0].tolist() == [[0, 0], [2, 2]]
        assert list(steps[1][4]["agent_infos"][0]) == ["runner_1"]
        assert [step[4]["ended"][0] for step in steps] == [False, False, True]
        assert steps[2][4]["episode_return"][0].tolist() == [7, 21]
        # the next episode has both again
        *_, info = envs.step(np.zeros((1, 2), int))
        assert info["active"][0].tolist() == [True, True]


class Returning(Countdown):
    """`runner_1` is there in steps 1 and 2 and from 5 on, `late` from 3 on; 8 steps; reward 1."""

    def __init__(self) -> None:
        self.possible_agents = ["runner_0", "runner_1", "runner_2"]

    def _there(self, step: int) -> list[str]:
        there = ["runner_0"]
        if step in (1, 2) or step >= 5:
            there.append("runner_1")
        return there + (["runner_2"] if step >= 3 else [])

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        self.t = 0
        self.agents = self._there(1)
        return {agent: np.zeros(2, np.float32) for agent in self.agents}, {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, Any]:
        assert set(actions) == set(self.agents)
        self.t += 1
        here, self.agents = self.agents, [] if self.t == 8 else self._there(self.t + 1)
        shown = {*here, *self.agents}
        return (
            {agent: np.full(2, self.t, np.float32) for agent in shown},
            dict.fromkeys(here, 1.0),
            {agent: self.t in (2, 8) and agent == "runner_1" for agent in here},
            {agent: self.t == 8 and agent != "runner_1" for agent in here},
            {agent: {} for agent in here},
        )


def test_an_agent_that_comes_late_or_again_begins_as_a_new_one() -> None:
    with rollouts.from_parallel_env_fns(
        [Returning], num_processes=0, autoreset_mode="same_step"
    ) as envs:
        rows = envs.as_single_agent()
        obs, _ = rows.reset()
        ends, returns, seen = [], [], [obs[1:, 0].tolist()]
        for _ in range(8):
            obs, _, terminated, truncated, info = rows.step(np.zeros(3, int))
            ends.append((terminated | truncated)[1:].tolist())
            returns.append(info["episode_return"][1:].tolist())
            seen.append(obs[1:, 0].tolist())
    # what is remembered of a row is forgotten at its ends
    assert np.flatnonzero(np.array(ends)[:, 0]).tolist() == [1, 3, 7]
    assert np.flatnonzero(np.array(ends)[:, 1]).tolist() == [1, 7]
    assert np.array(returns)[:, 0].tolist() == [1, 2, 2, 2, 1, 2, 3, 4]
    assert np.array(returns)[:, 1].tolist() == [0, 0, 1, 2, 3, 4, 5, 6]
    # the first observation of a new life is there before its first step
    assert np.array(seen)[:-1, 0].tolist() == [0, 1, 2, 0, 4, 5, 6, 7]
    assert np.array(seen)[:-1, 1].tolist() == [0, 0, 2, 3, 4, 5, 6, 7]


class Remembers:
    """Acts by chance, and notes which rows begin; its state is what it has seen since then."""

    policy_version = 0

    def __init__(self, num_rows: int) -> None:
        self.sums = np.zeros((num_rows, 1), np.float32)
        self.begun: list[list[bool]] = []

    def states(self, rows: Any, begins: Any) -> tuple[Any, ...]:
        return (np.where(begins[:, None], 0, self.sums[rows]),)

    def act_rows(self, obs: Any, rows: Any, begins: Any) -> Any:
        self.begun.append(begins.tolist())
        self.sums[begins] = 0
        self.sums += obs[:, :1]
        zeros = np.zeros(len(obs), np.float32)
        return PolicyOutput(np.zeros(len(obs), np.int64), zeros, zeros)

    def value_rows(self, obs: Any, rows: Any, begins: Any) -> Any:
        return np.zeros(len(obs), np.float32)


def test_a_policy_s_memory_of_an_agent_begins_with_it() -> None:
    with rollouts.from_parallel_env_fns(
        [Returning], num_processes=0, autoreset_mode="same_step"
    ) as envs:
        policy = Remembers(3)
        batch = rollouts.Collector(envs, policy, 8).collect()["runner"]
        begun = np.array(policy.begun)
    assert np.flatnonzero(begun[:, 1]).tolist() == [0, 2, 4]
    assert np.flatnonzero(begun[:, 2]).tolist() == [0, 2]
    active = batch.extras["active"]
    assert np.flatnonzero(~active[:, 1]).tolist() == [2, 3]
    assert np.flatnonzero(~active[:, 2]).tolist() == [0, 1]
    assert not batch.reward[~active].any()


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_a_failed_step_shows_nothing_of_the_step_before(mode: str) -> None:
    make = functools.partial(Countdown, fails_at=3)
    with rollouts.from_parallel_env_fns(
        [make], num_processes=0, on_env_error="reset", autoreset_mode=mode
    ) as envs:
        envs.reset()
        actions = {"runner": np.full((1, 3), 2), "late": np.full((1, 1), 5)}
        for _ in range(2):
            _, _, terminated, _, _ = envs.step(actions)
        assert terminated["runner"][0].tolist() == [True, False, False]
        _, reward, terminated, truncated, info = envs.step(actions)
        assert info["ended"].all() and truncated["runner"].all()
        assert not terminated["runner"].any() and not reward["runner"].any()
