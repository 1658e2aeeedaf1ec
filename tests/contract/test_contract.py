# SPDX-License-Identifier: Apache-2.0
"""Promises of every environment id, generated over the registry."""

from __future__ import annotations

import copy
import pickle
from contextlib import closing

import gymnasium
import numpy as np
import pytest
from contract_envs import actions_of, every_kind
from gymnasium.vector.utils import batch_space
from gymnasium.wrappers.vector import (
    DictInfoToList,
    NormalizeObservation,
    RecordEpisodeStatistics,
)

import rollouts

GYMNASIUM = tuple(int(number) for number in gymnasium.__version__.split(".")[:2])

pytestmark = every_kind


def test_spaces_are_batched(env_id: str, num_envs: int) -> None:
    spec = rollouts.env_spec(env_id)
    with rollouts.make_vec(env_id, num_envs, num_threads=1) as env:
        assert env.num_envs == num_envs
        assert env.single_observation_space == spec.single_observation_space
        assert env.single_action_space == spec.single_action_space
        assert env.observation_space == batch_space(spec.single_observation_space, num_envs)
        assert env.action_space == batch_space(spec.single_action_space, num_envs)
        assert env.action_space.sample().shape[0] == num_envs


def test_step_returns_five_values_of_the_promised_dtypes(env_id: str, num_envs: int) -> None:
    with rollouts.make_vec(env_id, num_envs, seed=1) as env:
        obs, info = env.reset()
        for step in range(20):
            assert obs in env.observation_space
            assert all(row in env.single_observation_space for row in obs)
            assert info["env_id"].dtype == np.int32
            assert info["episode_return"].dtype == np.float64
            assert info["episode_length"].dtype == np.int32
            obs, reward, terminated, truncated, info = env.step(actions_of(env, step))
            assert reward.dtype == np.float64 and reward.shape == (num_envs,)
            assert terminated.dtype == np.bool_ and terminated.shape == (num_envs,)
            assert truncated.dtype == np.bool_ and truncated.shape == (num_envs,)
            assert info["env_id"].tolist() == list(range(num_envs))


def test_reset_with_a_seed_is_reproducible(env_id: str, num_envs: int) -> None:
    with rollouts.make_vec(env_id, num_envs, seed=1) as env:
        first = [env.reset(seed=7)[0], *(env.step(actions_of(env, i))[0] for i in range(5))]
        again = [env.reset(seed=7)[0], *(env.step(actions_of(env, i))[0] for i in range(5))]
        # goes on with the streams: another episode
        env.reset()
    with rollouts.make_vec(env_id, num_envs, seed=7, num_threads=1) as env:
        third = [env.reset()[0], *(env.step(actions_of(env, i))[0] for i in range(5))]
    for one, two, three in zip(first, again, third, strict=True):
        np.testing.assert_array_equal(one, two)
        np.testing.assert_array_equal(one, three)


def test_reset_takes_one_seed_per_environment(env_id: str, num_envs: int) -> None:
    with rollouts.make_vec(env_id, num_envs, seed=1) as env:
        one = env.reset(seed=[3] * num_envs)[0]
        np.testing.assert_array_equal(one, env.reset(seed=3)[0])
        # None leaves a stream where it is
        mixed = env.reset(seed=[3, *[None] * (num_envs - 1)])[0]
        np.testing.assert_array_equal(mixed[0], one[0])
        for bad in ([3], [*[3] * (num_envs - 1), -1], -1, 2**64, "3", [0.5] * num_envs):
            with pytest.raises((rollouts.SpecError, rollouts.DTypeError)):
                env.reset(seed=bad)


def test_reset_mask_leaves_the_other_rows_alone(env_id: str, num_envs: int, limit: int) -> None:
    with rollouts.make_vec(env_id, num_envs, seed=1, autoreset_mode="disabled") as env:
        env.reset()
        for step in range(limit):
            obs, *_, before = env.step(actions_of(env, step))
        mask = np.zeros(num_envs, dtype=np.bool_)
        mask[-1] = True
        options = {"reset_mask": mask}
        after, info = env.reset(options=options)
        np.testing.assert_array_equal(after[:-1], obs[:-1])
        assert info["episode_length"].tolist() == [limit] * (num_envs - 1) + [0]
        np.testing.assert_array_equal(info["episode_return"][:-1], before["episode_return"][:-1])
        assert options == {"reset_mask": mask}


def test_reset_mask_that_marks_nothing_changes_nothing(env_id: str, num_envs: int) -> None:
    with (
        rollouts.make_vec(env_id, num_envs, seed=1, autoreset_mode="disabled") as env,
        rollouts.make_vec(env_id, num_envs, seed=1, autoreset_mode="disabled") as alike,
    ):
        for one in (env, alike):
            one.reset()
            expected, _, terminated, truncated, told = one.step(actions_of(one))
        obs, info = env.reset(seed=9, options={"reset_mask": np.zeros(num_envs, np.bool_)})
        np.testing.assert_array_equal(obs, expected)
        for name in ("env_id", "episode_length", "episode_return"):
            np.testing.assert_array_equal(info[name], told[name])
        for one in (env, alike):
            if (ended := terminated | truncated).any():
                one.reset(options={"reset_mask": ended})
        np.testing.assert_equal(env.step(actions_of(env, 1)), alike.step(actions_of(alike, 1)))


def test_reset_refuses_bad_masks_and_unknown_options(env_id: str, num_envs: int) -> None:
    with rollouts.make_vec(env_id, num_envs, seed=1, autoreset_mode="disabled") as env:
        env.reset()
        bad = [
            {"reset_mask": [True] * num_envs},
            {"reset_mask": np.ones(num_envs)},
            {"reset_mask": np.ones(num_envs + 1, dtype=np.bool_)},
            {"mask": np.ones(num_envs, dtype=np.bool_)},
        ]
        for options in bad:
            with pytest.raises(rollouts.SpecError):
                env.reset(options=options)
        env.step(actions_of(env))


def test_reset_mask_may_not_leave_out_what_was_never_reset(env_id: str, num_envs: int) -> None:
    mask = np.arange(num_envs) == 0
    with (
        rollouts.make_vec(env_id, num_envs) as env,
        pytest.raises(rollouts.ProtocolError, match="never reset"),
    ):
        env.reset(options={"reset_mask": mask})


def test_episode_is_truncated_at_the_time_limit(env_id: str, num_envs: int, limit: int) -> None:
    with rollouts.make_vec(env_id, num_envs, seed=1, max_episode_steps=limit) as env:
        assert env.env_spec.max_episode_steps == limit
        env.reset()
        for step in range(1, limit + 1):
            _, _, terminated, truncated, info = env.step(actions_of(env, step - 1))
            assert step == limit or not terminated.any()
            assert truncated.tolist() == [step == limit] * num_envs
            assert info["episode_length"].tolist() == [step] * num_envs


def test_episode_return_is_the_sum_of_rewards(env_id: str, num_envs: int) -> None:
    with rollouts.make_vec(env_id, num_envs, seed=1, autoreset_mode="same_step") as env:
        env.reset()
        total = np.zeros(num_envs)
        length = np.zeros(num_envs, dtype=np.int64)
        for step in range(60):
            _, reward, terminated, truncated, info = env.step(actions_of(env, step))
            total, length = total + reward, length + 1
            np.testing.assert_array_equal(info["episode_return"], total)
            np.testing.assert_array_equal(info["episode_length"], length)
            ended = terminated | truncated
            total[ended], length[ended] = 0, 0


def test_close_may_be_called_twice_and_ends_all_use(env_id: str, num_envs: int) -> None:
    env = rollouts.make_vec(env_id, num_envs, seed=1)
    obs, _ = env.reset()
    before = obs.copy()
    actions = actions_of(env)
    env.close()
    env.close()
    assert env.closed
    for call in (
        lambda: env.step(actions),
        lambda: env.send(actions),
        env.recv,
        env.recv_batch,
        env.reset,
        env.async_reset,
        lambda: env.reset(options={"reset_mask": np.ones(num_envs, dtype=np.bool_)}),
    ):
        with pytest.raises(rollouts.ClosedError):
            call()
    # what was handed out stays the holder's
    np.testing.assert_array_equal(obs, before)


def test_context_manager_closes(env_id: str, num_envs: int) -> None:
    with rollouts.make_vec(env_id, num_envs) as env:
        assert not env.closed
    assert env.closed


@pytest.mark.parametrize("remake", [lambda env: pickle.loads(pickle.dumps(env)), copy.deepcopy])
def test_pickle_is_a_recipe(env_id: str, num_envs: int, remake) -> None:
    with rollouts.make_vec(
        env_id,
        num_envs,
        seed=5,
        num_threads=1,
        autoreset_mode="same_step",
        env_id_offset=3,
        max_episode_steps=9,
    ) as env:
        first = env.reset()[0]
        env.step(actions_of(env))
        with remake(env) as other:
            assert repr(other) == repr(env)
            assert other.env_id_offset == 3
            assert other.env_spec == env.env_spec
            np.testing.assert_array_equal(other.reset()[0], first)


# before 1.4 RecordEpisodeStatistics counted every mode as next-step
STATISTICS_MODES = ["next_step", "same_step"] if GYMNASIUM >= (1, 4) else ["next_step"]


@pytest.mark.parametrize("mode", STATISTICS_MODES)
def test_gymnasiums_episode_statistics_agree_with_ours(
    env_id: str, num_envs: int, mode: str
) -> None:
    env = rollouts.make_vec(env_id, num_envs, seed=1, autoreset_mode=mode, max_episode_steps=7)
    ends = 0
    with closing(RecordEpisodeStatistics(env)) as wrapped:
        wrapped.reset()
        for step in range(20):
            *_, terminated, truncated, info = wrapped.step(actions_of(env, step))
            ended = terminated | truncated
            if ended.any():
                ends += 1
                theirs = info["episode"]
                np.testing.assert_array_equal(theirs["l"][ended], info["episode_length"][ended])
                # the wrapper may keep its sums in float32
                np.testing.assert_allclose(
                    theirs["r"][ended], info["episode_return"][ended], rtol=1e-5
                )
    assert ends > 1
    assert env.closed


def test_gymnasiums_observation_normaliser_works(env_id: str, num_envs: int) -> None:
    env = rollouts.make_vec(env_id, num_envs, seed=1)
    with closing(NormalizeObservation(env)) as wrapped:
        obs, _ = wrapped.reset()
        for step in range(5):
            obs = wrapped.step(actions_of(env, step))[0]
        assert np.isfinite(obs).all()


def test_gymnasiums_info_lists_work(env_id: str, num_envs: int, limit: int) -> None:
    env = rollouts.make_vec(
        env_id, num_envs, seed=1, autoreset_mode="same_step", max_episode_steps=limit
    )
    with closing(DictInfoToList(env)) as wrapped:
        _, infos = wrapped.reset()
        assert [info["env_id"] for info in infos] == list(range(num_envs))
        for step in range(limit):
            infos = wrapped.step(actions_of(env, step))[4]
        assert [info["final_info"]["episode_length"] for info in infos] == [limit] * num_envs
        assert all(info["final_obs"] in env.single_observation_space for info in infos)


def test_unknown_options_are_named(env_id: str, num_envs: int) -> None:
    with pytest.raises(rollouts.SpecError, match="no option 'gravitas'"):
        rollouts.make_vec(env_id, num_envs, gravitas=1)


def test_every_option_can_be_given_its_own_default(env_id: str) -> None:
    options = rollouts.env_spec(env_id).options
    with rollouts.make_vec(env_id, 1, seed=1, **options) as env:
        assert env.env_spec.options == options
        env.reset()
