# SPDX-License-Identifier: Apache-2.0
"""Promises of every environment id on the step after an episode's end, in each mode."""

from __future__ import annotations

import numpy as np
import pytest
from contract_envs import ATARI_IDS, actions_of, every_kind, step_until_any_end
from gymnasium.vector import AutoresetMode

import rollouts

MODES = ["next_step", "same_step", "disabled"]

pytestmark = every_kind


@pytest.mark.parametrize("mode", MODES)
def test_autoreset_mode_is_in_the_metadata_of_the_instance(
    env_id: str, num_envs: int, mode: str
) -> None:
    # ale_py's vector environment writes into Gymnasium's class, whose metadata is ours, too
    of_class = dict(rollouts.VectorEnv.metadata)
    with rollouts.make_vec(env_id, num_envs, autoreset_mode=mode) as env:
        assert env.metadata["autoreset_mode"] is AutoresetMode[mode.upper()]
        assert env.autoreset_mode is AutoresetMode[mode.upper()]
    assert of_class == rollouts.VectorEnv.metadata


def test_next_step_mode_resets_in_the_step_after_an_end(env_id: str, num_envs: int) -> None:
    with rollouts.make_vec(env_id, num_envs, seed=1, max_episode_steps=3) as env:
        env.reset()
        ended = np.zeros(num_envs, dtype=np.bool_)
        for step in range(12):
            obs, reward, terminated, truncated, info = env.step(actions_of(env, step))
            assert "final_obs" not in info
            # the action is ignored where the last step ended an episode
            assert not reward[ended].any()
            assert not (terminated | truncated)[ended].any()
            assert not info["episode_length"][ended].any()
            assert info["episode_length"][~ended].all()
            ended = terminated | truncated
            assert obs in env.observation_space


def test_next_step_mode_begins_the_episode_that_reset_would(env_id: str, num_envs: int) -> None:
    with rollouts.make_vec(env_id, num_envs, seed=1, max_episode_steps=2) as env:
        env.reset()
        _, _, terminated, truncated, _ = step_until_any_end(env)
        automatic = env.step(actions_of(env))[0]
        env.reset(seed=1)
        same_episode = env.reset()[0]
    # games may start differently after a reset by hand (Atari without life loss)
    ended = terminated | truncated
    if env_id not in ATARI_IDS:
        np.testing.assert_array_equal(automatic[ended], same_episode[ended])


def test_same_step_mode_returns_the_reset_obs_and_the_final_obs(
    env_id: str, num_envs: int, limit: int
) -> None:
    arguments = {"seed": 1, "max_episode_steps": limit}
    with (
        rollouts.make_vec(env_id, num_envs, autoreset_mode="same_step", **arguments) as env,
        rollouts.make_vec(env_id, num_envs, autoreset_mode="next_step", **arguments) as slow,
    ):
        env.reset()
        slow.reset()
        for step in range(limit):
            actions = actions_of(env, step)
            obs, reward, terminated, truncated, info = env.step(actions)
            last_obs, *outcome, _ = slow.step(actions)
            for ours, theirs in zip((reward, terminated, truncated), outcome, strict=True):
                np.testing.assert_array_equal(ours, theirs)
        ended = terminated | truncated
        assert ended.all()
        first_obs = slow.step(actions)[0]
        np.testing.assert_array_equal(obs, first_obs)

        # Gymnasium's layout
        assert info["final_obs"].dtype == object
        np.testing.assert_array_equal(np.stack(list(info["final_obs"])), last_obs)
        np.testing.assert_array_equal(info["_final_obs"], ended)
        np.testing.assert_array_equal(info["_final_info"], ended)
        final_info = info["final_info"]
        assert final_info["episode_length"].tolist() == [limit] * num_envs
        np.testing.assert_array_equal(final_info["_episode_length"], ended)
        # the next step counts from one again
        assert env.step(actions)[4]["episode_length"].tolist() == [1] * num_envs


def test_same_step_infos_are_of_the_step_in_final_info_and_of_the_reset_beside_it(
    env_id: str, num_envs: int
) -> None:
    arguments = {"seed": 1, "max_episode_steps": 3}
    with (
        rollouts.make_vec(env_id, num_envs, autoreset_mode="same_step", **arguments) as env,
        rollouts.make_vec(env_id, num_envs, autoreset_mode="next_step", **arguments) as slow,
    ):
        env.reset()
        slow.reset()
        for step in range(3):
            actions = actions_of(env, step)
            _, _, terminated, truncated, info = env.step(actions)
            last = {name: np.array(column) for name, column in slow.step(actions)[4].items()}
            ended = terminated | truncated
            if ended.any():
                break
        first = slow.step(actions)[4]
        names = [name for name in last if not name.startswith("_") and name != "env_id"]
        for name in names:
            np.testing.assert_array_equal(info["final_info"][name][ended], last[name][ended])
            of_reset = name not in ("episode_return", "episode_length")
            expected = (first if of_reset else last)[name]
            np.testing.assert_array_equal(info[name][ended], expected[ended], err_msg=name)


def test_final_obs_is_none_where_no_episode_ended(env_id: str, num_envs: int) -> None:
    with rollouts.make_vec(
        env_id, num_envs, seed=1, autoreset_mode="same_step", max_episode_steps=5
    ) as env:
        env.reset()
        # environment 0 is two steps ahead of the others
        for _ in range(2):
            env.send(actions_of(env, batch=1), [0])
            _, _, terminated, truncated, info = env.recv()
            assert ("final_obs" in info) == bool(terminated | truncated)
        # where episodes are short, all may end together at times
        for seed in range(100):
            _, _, terminated, truncated, info = step_until_any_end(env, 1000 * seed)
            ended = terminated | truncated
            if not ended.all():
                break
        assert ended.any() and not ended.all()
        assert [one is not None for one in info["final_obs"]] == ended.tolist()
        assert info["_final_obs"].tolist() == ended.tolist()
        assert not info["final_info"]["episode_length"][~ended].any()


def test_disabled_mode_refuses_to_step_an_ended_environment(env_id: str, num_envs: int) -> None:
    with rollouts.make_vec(
        env_id,
        num_envs,
        seed=1,
        autoreset_mode="disabled",
        max_episode_steps=3,
        env_id_offset=100,
    ) as env:
        env.reset()
        _, _, terminated, truncated, _ = step_until_any_end(env)
        ended = terminated | truncated
        with pytest.raises(rollouts.ProtocolError, match=rf"env_id {100 + ended.argmax()} .*ended"):
            env.step(actions_of(env))
        assert env.num_in_flight == 0
        env.reset(options={"reset_mask": ended})
        info = env.step(actions_of(env))[4]
        assert (info["episode_length"][ended] == 1).all()
