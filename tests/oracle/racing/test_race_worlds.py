# SPDX-License-Identifier: Apache-2.0
"""CarRacing's later episodes are Gymnasium's first ones; states, options per environment.

What every environment keeps (autoreset, limits, states, threads) is asked in tests/contract and
tests/parity of this one too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from own_numbers import NumpyLike, Rng

import rollouts

ENV_ID = "CarRacing-v3"
SEED = 11

pytestmark = pytest.mark.skipif(ENV_ID not in rollouts.env_ids(), reason="a build without Box2D")


def make(num_envs: int, **arguments: Any) -> rollouts.VectorEnv:
    return rollouts.make_vec(ENV_ID, num_envs, **{"seed": SEED, "num_threads": 1, **arguments})


def drive(step: int, num_envs: int) -> np.ndarray:
    generator = np.random.default_rng(step // 10)
    action = generator.uniform([-0.5, 0.2, 0], [0.5, 0.8, 0.1], (num_envs, 3))
    return action.astype(np.float32)


def test_later_episodes_are_a_references_first() -> None:
    gymnasium = pytest.importorskip("gymnasium")
    pytest.importorskip("Box2D", reason="Gymnasium's environment needs Box2D")
    with make(1, max_episode_steps=20, domain_randomize=True) as env:
        obs, _ = env.reset()
        step = 0
        for episode in range(3):
            reference = gymnasium.make(ENV_ID, disable_env_checker=True, domain_randomize=True)
            reference.unwrapped.np_random = NumpyLike(Rng(SEED, 0, episode))
            theirs, _ = reference.reset()
            truncated = np.zeros(1, bool)
            while not truncated[0]:
                np.testing.assert_array_equal(obs[0, :87], theirs[:87])
                action = drive(step, 1)
                obs, reward, _, truncated, _ = env.step(action)
                theirs, their_reward, *_ = reference.step(action[0])
                assert reward[0] == their_reward
                step += 1
            # next-step autoreset: the row after the last one begins an episode
            obs, *_ = env.step(drive(step, 1))


def test_resets_keep_colours_as_gymnasiums_do() -> None:
    gymnasium = pytest.importorskip("gymnasium")
    pytest.importorskip("Box2D", reason="Gymnasium's environment needs Box2D")
    options: dict[str, Any] = {"domain_randomize": True}
    with make(1, **options) as env:
        before = None
        for episode, randomize in enumerate((True, False, False, True, False)):
            reference = gymnasium.make(ENV_ID, disable_env_checker=True, **options)
            task = reference.unwrapped
            task.np_random = NumpyLike(Rng(SEED, 0, episode))
            if before is not None:
                for name in ("road_color", "bg_color", "grass_color"):
                    setattr(task, name, getattr(before, name))
            obs, _ = env.reset(options={"randomize": randomize})
            theirs, _ = reference.reset(options={"randomize": randomize})
            for step in range(15):
                np.testing.assert_array_equal(obs[0, :87], theirs[:87])
                action = drive(step, 1)
                obs, reward, *_ = env.step(action)
                theirs, their_reward, *_ = reference.step(action[0])
                assert reward[0] == their_reward
            before = task


def colours(env: rollouts.VectorEnv) -> list[list[int]]:
    """Colours of the fields: the most frequent ones but for black."""
    found = []
    for frame in env.render():
        pixels = frame.reshape(-1, 3)
        shades, counts = np.unique(pixels[pixels.any(1)], axis=0, return_counts=True)
        found.append(shades[counts.argmax()].tolist())
    return found


def test_kept_colours_last_over_resets_masks_and_states() -> None:
    options: dict[str, Any] = {
        "domain_randomize": True,
        "max_episode_steps": 3,
        "render_mode": "rgb_array",
    }
    with make(2, **options) as env, make(2, randomize=False, **options) as other:
        env.reset()
        first = colours(env)
        env.reset(options={"randomize": False})
        assert colours(env) == first
        # and where the autoreset begins episodes
        for step in range(4):
            env.step(drive(step, 2))
        assert colours(env) == first
        other.set_state([0, 1], env.get_state())
        assert colours(other) == first
        other.reset()
        assert colours(other) == first
        env.reset(options={"randomize": True, "reset_mask": np.array([True, False])})
        assert colours(env)[0] != first[0] and colours(env)[1] == first[1]
        assert env.env_options["randomize"].tolist() == [True, False]


def test_an_episode_with_none_before_draws_its_colours() -> None:
    with make(2, domain_randomize=True) as env, make(2, randomize=False) as kept:
        drawn, _ = env.reset()
        # its first episode in other colours than the usual ones, of which there are none to keep
        obs, _ = kept.reset(options={"domain_randomize": True})
        np.testing.assert_array_equal(obs, drawn)


@pytest.mark.parametrize("continuous", [True, False])
def test_a_state_goes_on_as_its_episode_did(continuous: bool) -> None:
    options = {"continuous": continuous, "domain_randomize": True}

    def act(env: rollouts.VectorEnv, step: int) -> tuple[Any, ...]:
        action = drive(step, 2) if continuous else np.full(2, (3, 3, 1, 2)[step // 7 % 4])
        obs, reward, *_ = env.step(action)
        return obs.copy(), reward.copy()

    with make(2, **options) as env, make(2, **options) as other:
        env.reset()
        for step in range(80):
            act(env, step)
        state = env.get_state()
        expected = [act(env, step) for step in range(80, 120)]
        frame = env.render()[0]
        other.set_state([0, 1], state)
        assert other.get_state() == state
        for step, (obs, reward) in enumerate(expected, 80):
            again = act(other, step)
            np.testing.assert_array_equal(again[0], obs)
            np.testing.assert_array_equal(again[1], reward)
        np.testing.assert_array_equal(other.render()[0], frame)


def test_environments_of_one_pool_have_options_of_their_own() -> None:
    with (
        make(
            3, lap_complete_percent=[0.95, 0.01, 0.95], domain_randomize=[False, False, True]
        ) as env,
        make(3) as plain,
    ):
        obs, _ = env.reset()
        theirs, _ = plain.reset()
        np.testing.assert_array_equal(obs[:2], theirs[:2])
        assert (obs[2] != theirs[2]).any()


def test_actions_beyond_all_bounds_fail_nothing() -> None:
    with make(2) as env:
        env.reset()
        for step in range(30):
            action = drive(step, 2) * np.float32(1e38 if step % 3 else -1e38)
            obs, reward, *_ = env.step(action)
        assert np.isfinite(reward).all() and obs.any()


@pytest.mark.parametrize("share", [float("nan"), float("inf")])
def test_a_share_of_no_size_is_refused(share: float) -> None:
    with pytest.raises(rollouts.SpecError, match="lap_complete_percent"):
        make(1, lap_complete_percent=share)
