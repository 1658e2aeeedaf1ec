# SPDX-License-Identifier: Apache-2.0
"""Agents that share a policy as the rows of a `VecEnv`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rollouts

pytest.importorskip("stable_baselines3")

from leaving_walkers import leaving_walkers
from rollouts.integrations.sb3 import NativeVecEnv, RolloutsPPO, RolloutsVecEnv
from stable_baselines3 import PPO
from stable_baselines3.common.monitor import Monitor

from rollouts.errors import SpecError


def make(num_envs: int = 3, env_id: str = "simple_spread_v3", **options: Any) -> Any:
    return rollouts.make_vec(env_id, num_envs, seed=1, autoreset_mode="same_step", **options)


def test_each_row_is_an_agent_of_the_same_environment_to_the_end_of_many_episodes() -> None:
    with make() as pool, make().as_single_agent() as rows:
        env, random = RolloutsVecEnv(rows), np.random.default_rng(2)
        assert env.num_envs == 9
        obs, _ = pool.reset()
        np.testing.assert_array_equal(env.reset(), obs.reshape(9, -1))
        totals, held = np.zeros(9), []
        for _ in range(60):
            actions = random.integers(0, int(env.action_space.n), 9)
            before = pool.step(actions.reshape(3, 3))
            obs, reward, done, infos = env.step(actions)
            np.testing.assert_array_equal(obs, before[0].reshape(9, -1))
            held.append((obs, obs.copy()))
            np.testing.assert_array_equal(reward, before[1].reshape(9).astype(np.float32))
            np.testing.assert_array_equal(done, np.repeat(before[3].any(axis=1), 3))
            totals += before[1].reshape(9)
            for row, info in enumerate(infos):
                # these episodes are cut after 25 steps
                assert info["TimeLimit.truncated"] == done[row] == ("episode" in info)
                assert ("terminal_observation" in info) == done[row]
                if done[row]:
                    assert info["episode"]["l"] == 25
                    assert info["episode"]["r"] == pytest.approx(totals[row], abs=1e-5)
                    final = before[4]["final_obs"].reshape(9, -1)[row]
                    np.testing.assert_array_equal(info["terminal_observation"], final)
                    totals[row] = 0.0
    # what was returned belongs to the caller
    assert all((obs == then).all() for obs, then in held)


def test_an_agent_that_leaves_has_one_record_and_then_idle_steps() -> None:
    with leaving_walkers(num_envs=1).as_single_agent() as rows:
        env = RolloutsVecEnv(rows)
        env.reset()
        told = [env.step(np.zeros(2, int)) for _ in range(10)]
    records = [[info.get("episode", {}).get("r") for info in infos] for *_, infos in told]
    assert records == 2 * [[None, None], [2.0, None], [None, None], [None, None], [None, 5.0]]
    assert [infos[0]["active"] for *_, infos in told] == 2 * [True, True, False, False, False]
    assert [done.tolist() for _, _, done, _ in told[:5]] == [
        *([False, False], [True, False]),
        *([False, False], [False, False], [True, True]),
    ]
    # the rest of an episode without the agent is cut, and its leaving was an end
    assert [infos[0]["TimeLimit.truncated"] for *_, infos in told[:5]] == [False] * 4 + [True]


@pytest.mark.parametrize("algorithm", [PPO, RolloutsPPO])
def test_an_algorithm_learns_from_the_rows(algorithm: Any) -> None:
    with make().as_single_agent() as rows:
        env = RolloutsVecEnv(rows)
        model = algorithm("MlpPolicy", env, n_steps=50, batch_size=90, n_epochs=1, seed=1)
        before = [one.clone() for one in model.policy.parameters()]
        model.learn(900)
        assert model.num_timesteps == 900
        assert len(model.ep_info_buffer) == 4 * 9
        after = model.policy.parameters()
        assert all(not old.equal(new) for old, new in zip(before, after, strict=True))


def test_seeds_of_environments_are_those_of_their_first_agents() -> None:
    with make().as_single_agent() as rows:
        env = RolloutsVecEnv(rows)
        env.seed(7)  # 7, 8, ... for the rows
        obs = env.reset()
    with make() as pool:
        expected, _ = pool.reset(seed=[7, 10, 13])
    np.testing.assert_array_equal(obs, expected.reshape(9, -1))


def test_attributes_of_rows_are_read_and_set() -> None:
    with make().as_single_agent() as rows:
        env = RolloutsVecEnv(rows)
        assert env.get_attr("num_envs", [0, 4]) == [9, 9]
        env.set_attr("level", 3, 4)
        assert env.get_attr("level", 4) == [3]
        with pytest.raises(AttributeError, match="level"):
            env.get_attr("level", 5)
        assert env.env_is_wrapped(Monitor) == [True] * 9
        with pytest.raises(SpecError, match=r"'hop' cannot be called of one agent"):
            env.env_method("hop")
        env.set_options({"limit": 3})
        with pytest.raises(SpecError, match="share their environments' options"):
            env.reset()


def test_what_does_not_fit_is_refused_in_a_sentence() -> None:
    with make() as pool, pytest.raises(SpecError, match=r"several agents: .* as_single_agent\(\)"):
        NativeVecEnv(pool)
    with make() as pool, pytest.raises(SpecError, match=r"several agents: .* as_single_agent\(\)"):
        RolloutsVecEnv(pool)
    with (
        make().as_single_agent() as rows,
        pytest.raises(SpecError, match=r"\['num_envs', 'seed'\] were given besides AgentRows"),
    ):
        RolloutsVecEnv(rows, 4, seed=2)  # type: ignore[call-overload]
    with (
        rollouts.make_vec("simple_spread_v3", 2) as pool,  # type: ignore[attr-defined]
        pytest.raises(SpecError, match="NEXT_STEP, expected SAME_STEP"),
    ):
        RolloutsVecEnv(pool.as_single_agent())  # type: ignore[attr-defined]
