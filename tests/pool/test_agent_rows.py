# SPDX-License-Identifier: Apache-2.0
"""Agents as rows of a Gymnasium vector environment, and a collector over them."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from leaving_walkers import leaving_walkers
from torch import nn

import rollouts
from rollouts.collecting.evaluation import evaluate

LEAVING: dict[str, Any] = {"grid_length": 3.0, "tagging_distance": 0.2, "num_taggers": 2}


def make(num_envs: int, **options: Any) -> rollouts.MultiAgentVectorEnv:
    arguments = {"seed": 1, "autoreset_mode": "same_step", **options}
    env = rollouts.make_vec("TagContinuous-v0", num_envs, **arguments)
    assert isinstance(env, rollouts.MultiAgentVectorEnv)
    return env


def test_rows_are_the_agents_of_one_environment_after_the_other() -> None:
    with make(3) as envs, make(3).as_single_agent() as rows:
        assert isinstance(rows, gymnasium.vector.VectorEnv)
        assert rows.num_envs == 33
        obs, info = rows.reset()
        envs.reset()
        assert obs in rows.observation_space
        for step in range(3):
            rows.action_space.seed(step)
            actions = rows.action_space.sample()
            obs, reward, _, _, info = rows.step(actions)
            per_env = actions.reshape(3, 11, 2)
            wanted = envs.step({"tagger": per_env[:, :1], "runner": per_env[:, 1:]})
            for name, cut in (("tagger", slice(0, 1)), ("runner", slice(1, 11))):
                np.testing.assert_array_equal(obs.reshape(3, 11, -1)[:, cut], wanted[0][name])
                np.testing.assert_array_equal(reward.reshape(3, 11)[:, cut], wanted[1][name])
        assert info["env_id"].tolist() == list(range(33))


def test_a_row_whose_agent_left_waits_for_the_end_of_the_episode() -> None:
    with make(4, max_episode_steps=25, **LEAVING).as_single_agent() as rows:
        rows.reset()
        gone = np.zeros(rows.num_envs, np.bool_)
        seen_leaving = 0
        for step in range(60):
            rows.action_space.seed(step)
            obs, reward, terminated, truncated, info = rows.step(rows.action_space.sample())
            over = terminated | truncated
            assert not reward[gone].any() and not terminated[gone].any()
            np.testing.assert_array_equal(info["active"], ~gone)
            env_over = over.reshape(4, -1).all(axis=1) | (
                (over | gone).reshape(4, -1).all(axis=1) & truncated.reshape(4, -1).any(axis=1)
            )
            ended = np.repeat(env_over, rows.num_envs // 4)
            assert over[ended].all()
            if over.any():
                assert (info["_final_obs"] == over).all()
                for row in np.flatnonzero(terminated & ~ended):
                    # nothing begins anew: it is the same observation
                    np.testing.assert_array_equal(info["final_obs"][row], obs[row])
            seen_leaving += int((terminated & ~ended).sum())
            gone = (gone | over) & ~ended
        assert seen_leaving > 0


class ActorCritic(nn.Module):
    def __init__(self, num_obs: int, num_outputs: int) -> None:
        super().__init__()
        self.actor, self.critic = nn.Linear(num_obs, num_outputs), nn.Linear(num_obs, 1)

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.actor(obs), self.critic(obs).squeeze(-1)


def test_a_collector_steps_them_with_one_policy() -> None:
    env = rollouts.make_vec("TagGridWorld-v0", 4, seed=1, autoreset_mode="same_step")
    assert isinstance(env, rollouts.MultiAgentVectorEnv)
    with env.as_single_agent() as rows:
        policy = rollouts.TorchPolicy(ActorCritic(45, 5), rows.single_action_space)
        batch = rollouts.Collector(rows, policy, 120).collect()
        assert batch.reward.shape == (120, 44)
        # ten taggers of an environment end with their runner
        ended = len(batch.episodes().returns)
        assert ended % 11 == 0 and ended > 0


def test_rollouts_of_rows_list_no_episodes_of_agents_that_left() -> None:
    with leaving_walkers() as envs, leaving_walkers().as_single_agent() as rows:
        policies = [
            rollouts.TorchPolicy(ActorCritic(2, 2), rows.single_action_space) for _ in range(2)
        ]
        policies[1].module.load_state_dict(policies[0].module.state_dict())
        ((_, grouped),) = rollouts.Collector(envs, policies[0], 20).collect().items()
        batch = rollouts.Collector(rows, policies[1], 20).collect()
        np.testing.assert_array_equal(batch.extras["active"], grouped.extras["active"])
        assert batch.active is not None and not batch.active.all()
        # the walker who leaves has episodes of two steps, the other of five
        assert sorted(batch.episodes().returns.tolist()) == [2.0] * 12 + [5.0] * 12
        for mine, theirs in zip(batch.episodes()[:3], grouped.episodes()[:3], strict=True):
            np.testing.assert_array_equal(mine, theirs)
        for name in ("reward", "terminated", "truncated", "bootstrap_value"):
            np.testing.assert_array_equal(getattr(batch, name), getattr(grouped, name))


def test_evaluation_of_rows_counts_no_episodes_of_agents_that_left() -> None:
    with leaving_walkers().as_single_agent() as rows:
        policy = rollouts.TorchPolicy(ActorCritic(2, 2), rows.single_action_space)
        assert sorted(evaluate(rows, policy, 18).returns.tolist()) == [2.0] * 9 + [5.0] * 9


def test_what_cannot_be_rows_is_refused() -> None:
    with (
        make(4, autoreset_mode="disabled") as env,
        pytest.raises(rollouts.SpecError, match="need autoreset"),
    ):
        env.as_single_agent()
    with (
        make(4, batch_size=2) as env,
        pytest.raises(rollouts.SpecError, match="synchronous"),
    ):
        env.as_single_agent()
    with make(2).as_single_agent() as rows:
        rows.reset()
        with pytest.raises(rollouts.SpecError, match=r"expected \(22, ...\)"):
            rows.step(np.zeros((2, 2), int))


def test_rows_of_an_environment_that_failed_are_marked() -> None:
    # in the second world a tag is worth more than a number holds
    options = {"tag_reward_for_tagger": np.array([1.0, 3.0e38]), "max_episode_steps": 9} | LEAVING
    with make(2, on_env_error="reset", **options).as_single_agent() as rows:
        rows.reset()
        failed = 0
        for step in range(40):
            rows.action_space.seed(step)
            _, _, terminated, truncated, info = rows.step(rows.action_space.sample())
            marks = info.get("_env_error", np.zeros(rows.num_envs, np.bool_))
            assert not marks[: rows.num_envs // 2].any()
            assert (truncated[marks] & ~terminated[marks]).all()
            failed += int(marks.any())
        assert failed > 0


@pytest.mark.parametrize("make_envs", [lambda: make(2), leaving_walkers], ids=["native", "hosted"])
@pytest.mark.parametrize("asked", [{"engine": "native"}, {"prefetch": 1}])
def test_what_a_collector_refuses_of_rows_speaks_of_rows(make_envs: Any, asked: Any) -> None:
    with make_envs().as_single_agent() as rows:
        size = rows.single_observation_space.shape[0]
        policy = rollouts.TorchPolicy(ActorCritic(size, 5), rows.single_action_space)
        with pytest.raises(rollouts.SpecError, match="cannot be had of agents as rows: Python"):
            rollouts.Collector(rows, policy, 4, **asked)
        collector = rollouts.Collector(rows, policy, 4)
        assert "its rows are agents" in collector.why_not_native
