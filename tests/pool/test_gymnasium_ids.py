# SPDX-License-Identifier: Apache-2.0
"""Our ids in Gymnasium's registry."""

from __future__ import annotations

import subprocess
import sys
import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from grid_ids import without_equal_kinds
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

import rollouts
from rollouts.envs.gymnasium_ids import gymnasium_id, register_ids
from rollouts.families import dm_control

pytestmark = pytest.mark.system

IDS = rollouts.env_ids()
# one task of the DeepMind Control Suite stands for all: their models take seconds to compile
SUITE = [env_id for env_id in dm_control.task_ids() if env_id != "CheetahRun-v1"]
LIGHT = [env_id for env_id in IDS if not env_id.startswith("ALE/") and env_id not in SUITE]
# those beside them share a type with one of these, in another size or by other options: some grids,
# version 5 of a task, and of Doom a scenario with buttons and one with amounts
DOOM = ["VizdoomBasic-v1", "VizdoomDeathmatch-v1"]
SOME = {
    env_id
    for env_id in without_equal_kinds(LIGHT)
    if (not env_id.startswith("Vizdoom") or env_id in DOOM)
    and (not env_id.endswith("-v4") or env_id == "Taxi-v4")
}


def run_python(code: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/"
    )
    assert result.stderr == ""
    return result.stdout.strip()


def test_every_id_is_registered_with_its_own_limits() -> None:
    for env_id in LIGHT:
        spec, ours = gymnasium.spec(gymnasium_id(env_id)), rollouts.env_spec(env_id)
        assert spec.max_episode_steps == ours.max_episode_steps
        assert spec.reward_threshold == ours.reward_threshold
    assert {gymnasium_id(env_id) for env_id in IDS} <= set(gymnasium.registry)
    assert gymnasium_id("ALE/Pong-v5") == "rollouts/ALE-Pong-v5"


def test_registering_twice_is_silent() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        register_ids()


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "Taxi-v3", "ALE/Pong-v5"])
@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, "disabled"])
def test_make_vec_makes_our_batch(env_id: str, mode: Any) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*out of date.*")
        envs = gymnasium.make_vec(gymnasium_id(env_id), num_envs=3, seed=5, autoreset_mode=mode)
    plain = rollouts.make_vec(env_id, 3, seed=5, autoreset_mode=mode)
    with plain, envs:
        assert isinstance(envs, rollouts.VectorEnv)
        assert envs.unwrapped.spec.id == gymnasium_id(env_id)
        assert envs.metadata["autoreset_mode"] is plain.autoreset_mode
        np.testing.assert_array_equal(envs.reset()[0], plain.reset()[0])
        plain.action_space.seed(0)
        actions = plain.action_space.sample()
        for ours, theirs in zip(envs.step(actions)[:4], plain.step(actions)[:4], strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_make_vec_passes_options_and_limits_on() -> None:
    with gymnasium.make_vec(
        "rollouts/CartPole-v1", num_envs=2, gravity=[1.0, 2.0], max_episode_steps=3
    ) as envs:
        assert envs.env_options["gravity"].tolist() == [1.0, 2.0]
        envs.reset(seed=0)
        for _ in range(3):
            truncated = envs.step([0, 1])[3]
        assert truncated.all()
    with pytest.raises(rollouts.SpecError, match="no option 'gravitas'"):
        gymnasium.make_vec("rollouts/CartPole-v1", num_envs=2, gravitas=1)


def test_the_module_form_needs_no_import() -> None:
    code = (
        "import gymnasium\n"
        "envs = gymnasium.make_vec('rollouts:rollouts/CartPole-v1', num_envs=2)\n"
        "print(type(envs).__module__, envs.reset(seed=0)[0].shape)\n"
    )
    assert run_python(code) == "rollouts.envs.vector_env (2, 4)"


def test_registering_loads_no_adapter_and_no_engine() -> None:
    names = ["rollouts.integrations.gymnasium", "ale_py", "torch", "ray", "rollouts.envs.hosted"]
    assert run_python(
        f"import sys, rollouts; print([m for m in {names!r} if m in sys.modules])"
    ) == "[]"  # fmt: skip


@pytest.mark.parametrize(
    "env_id", [i if i in SOME else pytest.param(i, marks=pytest.mark.slow) for i in LIGHT]
)
def test_single_environments_pass_the_checker(env_id: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about bounds that the environments have by nature
        env = gymnasium.make(gymnasium_id(env_id))
        check_env(env.unwrapped)
        env.close()


def test_an_atari_game_passes_the_checker() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        env = gymnasium.make("rollouts/ALE-Breakout-v5", stack_num=2)
        check_env(env.unwrapped)
        assert env.observation_space.shape == (2, 84, 84)


def test_single_environment_does_what_the_batch_does() -> None:
    env = gymnasium.make("rollouts/CartPole-v1")
    with rollouts.make_vec("CartPole-v1", 1, autoreset_mode="disabled") as batch:
        for seed in (3, 4):
            obs, _ = env.reset(seed=seed)
            np.testing.assert_array_equal(obs, batch.reset(seed=seed)[0][0])
            ended = False
            while not ended:
                obs, reward, terminated, truncated, info = env.step(1)
                row = batch.step([1])
                np.testing.assert_array_equal(obs, row[0][0])
                assert (reward, terminated, truncated) == (row[1][0], row[2][0], row[3][0])
                assert info["episode_length"] == row[4]["episode_length"][0]
                ended = terminated or truncated
    env.close()
    env.close()


def test_time_limit_is_that_of_the_wrapper() -> None:
    env = gymnasium.make("rollouts/MountainCar-v0", max_episode_steps=300)
    env.reset(seed=0)
    lengths = [env.step(1)[3] for _ in range(300)]
    assert lengths == [False] * 299 + [True]


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_gymnasiums_own_vector_environments_take_single_ones(mode: str) -> None:
    envs = gymnasium.make_vec("rollouts/CartPole-v1", num_envs=2, vectorization_mode=mode)
    envs.reset(seed=0)
    assert envs.step([0, 1])[1].tolist() == [1, 1]
    envs.close()
