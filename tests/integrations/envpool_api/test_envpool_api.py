# SPDX-License-Identifier: Apache-2.0
"""The module that stands in for EnvPool: ids, options, and the three faces."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import rollouts.integrations.envpool as envpool

import rollouts
from rollouts.errors import ProtocolError, SpecError

pytestmark = pytest.mark.system

STEP_INFO = {
    "env_id": np.int32,
    "lives": np.int32,
    "reward": np.float32,
    "terminated": np.int32,
    "elapsed_step": np.int32,
    "TimeLimit.truncated": np.bool_,
}


def native(task: str, num_envs: int, **options: Any) -> rollouts.VectorEnv:
    return rollouts.make_vec(task, num_envs, seed=3, **options)


def check_info(info: dict[str, Any], rows: int) -> None:
    for name, dtype in STEP_INFO.items():
        assert info[name].dtype == dtype and info[name].shape == (rows,), name
    np.testing.assert_array_equal(info["players"]["env_id"], info["env_id"])


def test_gymnasium_face_returns_what_the_native_pool_does() -> None:
    env = envpool.make("CartPole-v1", env_type="gymnasium", num_envs=6, seed=3)
    reference = native("CartPole-v1", 6)
    obs, info = env.reset()
    np.testing.assert_array_equal(obs, reference.reset()[0])
    check_info(info, 6)
    for _ in range(60):
        actions = np.zeros(6, np.int64)
        obs, reward, terminated, truncated, info = env.step(actions)
        expected = reference.step(actions)
        for got, want in zip((obs, reward, terminated, truncated), expected, strict=False):
            np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(info["elapsed_step"], expected[4]["episode_length"])
        np.testing.assert_array_equal(info["terminated"], expected[2])
        check_info(info, 6)
    assert reward.dtype == np.float32
    env.close()
    env.close()


def test_gym_face_is_the_old_api() -> None:
    env = envpool.make_gym("CartPole-v1", num_envs=4, max_episode_steps=5)
    assert env.reset().shape == (4, 4)
    for _ in range(5):
        obs, _, done, info = env.step(np.arange(4) % 2)
    assert done.all() and done.dtype == np.bool_
    assert (info["TimeLimit.truncated"] | info["terminated"].astype(bool)).all()
    first, reward, done, info = env.step(np.zeros(4, int))
    assert not done.any() and not reward.any() and not info["elapsed_step"].any()
    assert not np.array_equal(first, obs)
    assert isinstance(env, gymnasium.Env)


def test_gym_face_with_reset_info_is_the_new_api() -> None:
    env = envpool.make_gym("CartPole-v1", num_envs=2, gym_reset_return_info=True)
    obs, info = env.reset()
    assert obs.shape == (2, 4) and set(info) >= set(STEP_INFO)
    assert len(env.step(np.zeros(2, int))) == 5
    with pytest.raises(SpecError, match="env_type='gym'"):
        envpool.make_gymnasium("CartPole-v1", gym_reset_return_info=False)


def test_dm_face_begins_episodes_with_first_and_ends_them_with_last() -> None:
    pytest.importorskip("dm_env", reason="the dm face needs dm-env")
    env = envpool.make_dm("CartPole-v1", num_envs=3, max_episode_steps=4)
    step = env.reset()
    assert (step.step_type == 0).all() and (step.discount == 1).all() and (step.reward == 0).all()
    types = []
    for _ in range(5):
        step = env.step(np.arange(3) % 2)
        types.append(step.step_type[0])
    assert types == [1, 1, 1, 2, 0]
    assert step.observation.obs.shape == (3, 4)
    assert step.observation.players.env_id.tolist() == [0, 1, 2]
    assert env.observation_spec().obs.shape == (4,) and env.action_spec().num_values == 2


def test_attributes_are_envpools_and_may_be_set() -> None:
    env: Any = envpool.make("CartPole-v1", env_type="gym", num_envs=4)
    assert len(env) == env.num_envs == 4 and not env.is_async
    assert env.all_env_ids.tolist() == [0, 1, 2, 3] and env.all_env_ids.dtype == np.int32
    assert env.spec.config.max_episode_steps == env.config["max_episode_steps"] == 500
    assert env.spec.reward_threshold == 475.0
    assert env.single_action_space == env.action_space == env.spec.action_space
    env.num_envs, env.is_vector_env = 4, True
    env.single_action_space = env.action_space
    env.single_observation_space = env.observation_space
    wrapped: Any = gymnasium.Wrapper(env)
    assert wrapped.reset().shape == (4, 4)
    assert envpool.make_spec("Blackjack-v1").config.max_episode_steps == 2**31 - 1


def test_partial_step_and_reset_return_rows_in_the_order_given() -> None:
    env = envpool.make_gymnasium("CartPole-v1", num_envs=4, seed=3)
    obs, info = env.reset(np.array([3, 1]))
    np.testing.assert_array_equal(obs, native("CartPole-v1", 4).reset()[0][[3, 1]])
    obs, *_, info = env.step(np.array([0, 1]), np.array([2, 0]))
    assert info["env_id"].tolist() == [2, 0] and info["elapsed_step"].tolist() == [1, 1]
    obs, info = env.reset([3, 0])
    assert info["env_id"].tolist() == [3, 0] and obs.shape == (2, 4)
    check_info(info, 2)
    # the others went on
    assert env.step(np.zeros(4, int))[4]["elapsed_step"].tolist() == [1, 1, 2, 1]
    _, info = env.reset(options={"reset_mask": np.array([False, True, False, False])})
    assert info["env_id"].tolist() == [1]


def test_async_recv_returns_batches_and_names_their_environments() -> None:
    env = envpool.make("CartPole-v1", env_type="gymnasium", num_envs=6, batch_size=2)
    assert env.is_async
    env.async_reset()
    steps = np.zeros(6, np.int64)
    for _ in range(300):
        obs, *_, info = env.recv()
        assert obs.shape == (2, 4)
        steps[info["env_id"]] += 1
        env.send({"action": np.zeros(2, np.int32), "env_id": info["env_id"]})
    assert steps.sum() == 600 and (steps > 0).all()
    with pytest.raises(SpecError, match="batch_size"):
        env.reset([0])


def test_the_first_step_without_reset_is_one() -> None:
    env = envpool.make_gym("CartPole-v1", num_envs=2)
    _, reward, _, info = env.step(np.ones(2, int))
    assert not info["elapsed_step"].any() and not reward.any()
    with pytest.raises(ProtocolError, match="reset"):
        envpool.make_gym("CartPole-v1", num_envs=2).send(np.ones(2, int))


def test_atari_options_are_translated_and_defaults_are_envpools() -> None:
    pytest.importorskip("ale_py", reason="Atari games need ale-py")
    spec = envpool.make_spec("Breakout-v5", frame_skip=2, gray_scale=False, img_height=64)
    assert spec.task.id == "ALE/Breakout-v5"
    assert spec.task.env_options["frameskip"] == 2
    assert spec.task.env_options["repeat_action_probability"] == 0.0
    assert spec.task.env_options["reward_clipping"] is False
    assert spec.config.frame_skip == 2 and spec.config.max_episode_steps == 27000
    # colours lie along the frames
    assert spec.observation_space.shape == (12, 64, 84)
    env = envpool.make_gym("Breakout-v5", gray_scale=False, img_height=64, noop_max=1, seed=3)
    obs = env.reset()
    frames = native("ALE/Breakout-v5", 1, **env.spec.task.env_options).reset()[0]
    assert obs.shape == (1, 12, 64, 84)
    for channel in range(3):
        np.testing.assert_array_equal(obs[0, 9 + channel], frames[0, 3, :, :, channel])
    bilinear = envpool.make_gym("Breakout-v5", use_inter_area_resize=False, noop_max=1, seed=3)
    assert bilinear.spec.task.env_options["use_inter_area_resize"] is False


def test_episodic_life_ends_episodes_but_not_games() -> None:
    pytest.importorskip("ale_py", reason="Atari games need ale-py")
    env = envpool.make_gym("Breakout-v5", num_envs=2, episodic_life=True, reward_clip=True, seed=1)
    env.reset()
    ended, over = 0, 0
    lives_at_end = set()
    for _ in range(400):
        _, reward, done, info = env.step(np.array([1, 3]))
        assert (np.abs(reward) <= 1).all()
        ended += done.sum()
        over += info["terminated"].sum()
        lives_at_end |= set(info["lives"][done].tolist())
        assert (info["ram"].shape, info["ram"].dtype) == ((2, 128), np.uint8)
        assert not {"frame_number", "episode_frame_number"} & info.keys()
        # as CleanRL decides that a game is over
        np.testing.assert_array_equal(done & (info["lives"] == 0), info["terminated"] == 1)
    assert ended > over >= 1 and len(lives_at_end) > 1


def test_render_returns_an_array_of_the_environments_asked_for() -> None:
    size = {"render_width": 64, "render_height": 48}
    env = envpool.make_gymnasium(
        "Hopper-v5", num_envs=3, seed=1, render_mode="rgb_array", render_env_id=2, **size
    )
    env.reset()
    frames = env.render([0, 2])
    assert (frames.shape, frames.dtype) == ((2, 48, 64, 3), np.uint8)
    np.testing.assert_array_equal(env.render(), frames[1:])
    assert (env.render(2, camera_id=-1) != frames[1:]).any()
    env.close()
    silent = envpool.make_gymnasium("Hopper-v5")
    silent.reset()
    with pytest.raises(ProtocolError, match="render_mode"):
        silent.render()


def test_wrong_ids_and_options_are_named() -> None:
    with pytest.raises(SpecError, match=r"nope.*frame_skip"):
        envpool.make_gym("Pong-v5", nope=1)
    with pytest.raises(SpecError, match="CartPole-v1"):
        envpool.make_gym("CartPol-v1")
    with pytest.raises(SpecError, match="env_type"):
        envpool.make("CartPole-v1", "tf")
    with pytest.raises(SpecError, match="one player"):
        envpool.make_gym("CartPole-v1", max_num_players=2)
    with pytest.raises(SpecError, match="seeds"):
        envpool.make_gym("CartPole-v1", num_envs=3, seed=[1, 2])
    with pytest.raises(SpecError, match="from_pixels"):
        envpool.make_gym("Hopper-v5", from_pixels=True)
    with pytest.raises(SpecError, match="render_mode"):
        envpool.make_gym("Hopper-v5", render_mode="human")
    with pytest.raises(SpecError, match="out of range"):
        env = envpool.make_gym("CartPole-v1")
        env.reset()
        env.step(np.array([2]))


def test_seeds_may_be_given_one_by_one() -> None:
    seeds = [5, 5, 6]
    env = envpool.make_gym("CartPole-v1", num_envs=3, seed=seeds)
    obs = env.reset()
    np.testing.assert_array_equal(obs, native("CartPole-v1", 3).reset(seed=seeds)[0])
    other = envpool.make_gymnasium("CartPole-v1", num_envs=3, env_seed=seeds)
    np.testing.assert_array_equal(obs, other.reset()[0])
    assert not np.array_equal(obs, other.reset()[0])
    np.testing.assert_array_equal(obs, other.reset(seed=seeds)[0])


def test_all_ids_can_be_described() -> None:
    ids = envpool.list_all_envs()
    assert {"CartPole-v1", "CliffWalking-v0"} <= set(ids)
    for task_id in [i for i in ids if not i.endswith("-v5")] + ids[-5:]:
        assert envpool.make_spec(task_id).id == task_id
    assert envpool.make_spec("CartPole-v1", gravity=5.0).task.env_options["gravity"] == 5.0


def test_faces_are_instances_of_the_classes_that_envpools_are() -> None:
    new = envpool.make_gym("CartPole-v1", num_envs=2, gym_reset_return_info=True)
    for env in (new, envpool.make_gymnasium("CartPole-v1", num_envs=2)):
        assert isinstance(env, gymnasium.vector.VectorEnv) and isinstance(env, gymnasium.Env)
        env.close()
    assert not isinstance(envpool.make_gym("CartPole-v1"), gymnasium.vector.VectorEnv)


def test_dm_face_is_a_dm_env_environment() -> None:
    dm_env = pytest.importorskip("dm_env", reason="the dm face needs dm-env")
    with envpool.make_dm("CartPole-v1", num_envs=2) as env:
        assert isinstance(env, dm_env.Environment)
        step = env.reset()
        step = env.step(np.zeros(2, np.int64))
        for row in range(2):
            env.reward_spec().validate(step.reward[row])
            env.discount_spec().validate(step.discount[row])


@pytest.mark.parametrize(
    ("task", "space"),
    [
        ("Blackjack-v1", gymnasium.spaces.Box(0, 31, (3,), np.int32)),
        ("FrozenLake-v1", gymnasium.spaces.Discrete(16)),
    ],
)
def test_discrete_observations_have_envpools_space_and_dtype(
    task: str, space: gymnasium.Space[Any]
) -> None:
    env = envpool.make_gymnasium(task, num_envs=3)
    obs, _ = env.reset()
    assert env.observation_space == space
    assert obs.dtype == np.int32 and all(row in space for row in obs)
    env.close()


def test_infos_of_the_environment_are_passed_on() -> None:
    pytest.importorskip("mujoco", reason="MuJoCo tasks need mujoco")
    env = envpool.make_gymnasium("HalfCheetah-v5", num_envs=2)
    env.reset()
    info = env.step(np.zeros((2, 6)))[4]
    assert {"reward_ctrl", "reward_forward", "x_position", "x_velocity"} <= set(info)
    check_info(info, 2)
    env.close()


@pytest.mark.parametrize("batch_size", [3, -1])
def test_a_batch_of_more_environments_than_there_are_is_refused_by_the_spec(
    batch_size: int,
) -> None:
    with pytest.raises(SpecError, match=f"batch_size is {batch_size}, expected 0"):
        envpool.make_spec("CartPole-v1", num_envs=2, batch_size=batch_size)
