# SPDX-License-Identifier: Apache-2.0
"""Options that cannot work are refused; a state that is not finite is its environment's failure."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

import rollouts

NAN = float("nan")


@pytest.mark.parametrize("autoreset_mode", ["next_step", "same_step"])
@pytest.mark.parametrize("num_envs", [3, 130])  # less than a block; blocks and a rest
def test_a_state_that_is_not_finite_fails_its_environment_alone(
    num_envs: int, autoreset_mode: str
) -> None:
    broken = num_envs - 1
    actions = np.ones(num_envs, np.int64)
    arguments: dict[str, Any] = {"seed": 3, "autoreset_mode": autoreset_mode}
    with (
        rollouts.make_vec("CartPole-v1", num_envs, **arguments) as env,
        rollouts.make_vec("CartPole-v1", num_envs, **arguments) as healthy,
    ):
        env.reset()
        healthy.reset()
        state = (0.0, NAN, 0.0, 0.0)
        env.engine.pool.set_state(broken, struct.pack("4d", *state))
        with pytest.raises(
            rollouts.EnvError, match=rf"env_id {broken}: its state is not finite .*\(x = nan\)"
        ):
            env.step(actions)
        obs, reward, terminated, truncated, _ = env.recv()
        expected = healthy.step(actions)
        # in same-step mode the row shows the next episode, as after any end
        begins = autoreset_mode == "same_step"
        assert obs[broken].any() == begins and np.all(np.abs(obs[broken]) <= 0.05)
        assert (reward[broken], terminated[broken], truncated[broken]) == (0, False, True)
        for ours, theirs in zip((obs, reward, terminated, truncated), expected[:4], strict=True):
            np.testing.assert_array_equal(ours[:broken], theirs[:broken])

        # otherwise its next step begins one, whatever the action
        obs, reward, terminated, truncated, _ = env.step(actions)
        assert obs[broken].any() and (begins or np.all(np.abs(obs[broken]) <= 0.05))
        assert (reward[broken], terminated[broken], truncated[broken]) == (begins, False, False)
        np.testing.assert_array_equal(obs[:broken], healthy.step(actions)[0][:broken])
        assert env.step(actions)[1][broken] == 1


@pytest.mark.parametrize("batch_size", [6, 2])
def test_failures_can_be_reported_in_info_instead(batch_size: int) -> None:
    with rollouts.make_vec(
        "CartPole-v1",
        6,
        batch_size=batch_size,
        seed=3,
        autoreset_mode="same_step",
        on_env_error="reset",
    ) as env:
        env.async_reset()
        env.drain()
        for broken in (1, 4):
            env.engine.pool.set_state(broken, struct.pack("4d", 0.0, NAN, 0.0, 0.0))
        env.send(np.ones(6, np.int64), np.arange(6))
        seen = 0
        while env.num_in_flight:
            obs, reward, terminated, truncated, info = env.recv()
            failed = np.isin(info["env_id"], [1, 4])
            np.testing.assert_array_equal(truncated, failed)
            np.testing.assert_array_equal(reward, ~failed)
            assert not terminated.any() and obs.any(axis=1).all()
            np.testing.assert_array_equal(info.get("_env_error", np.zeros_like(failed)), failed)
            if not failed.any():
                assert "env_error" not in info
                continue
            assert all("x = nan" in message for message in info["env_error"][failed])
            assert all(message is None for message in info["env_error"][~failed])
            seen += failed.sum()
        assert seen == 2
        assert env.stats().num_env_errors == 2
        env.send(np.ones(6, np.int64), np.arange(6))
        assert "env_error" not in env.drain()[4]


def test_on_env_error_is_raise_or_reset() -> None:
    with pytest.raises(rollouts.SpecError, match=r"on_env_error must be one of .*got 'ignore'"):
        rollouts.make_vec("CartPole-v1", 1, on_env_error="ignore")


@pytest.mark.parametrize(
    ("env_id", "options", "actions", "field"),
    [
        ("CartPole-v1", {"gravity": 1e308}, np.ones(2, np.int64), "x_dot"),
        # 3 / mass overflows, and no torque times infinity is not a number
        ("Pendulum-v1", {"mass": 1e-320}, np.zeros((2, 1), np.float32), "theta"),
    ],
)
def test_options_beyond_the_integrator_are_reported_as_failures(
    env_id: str, options: dict[str, float], actions: np.ndarray, field: str
) -> None:
    with rollouts.make_vec(env_id, 2, seed=0, **options) as env:
        env.reset()
        with pytest.raises(rollouts.EnvError, match=rf"env_id 0: .*\({field} = .*options"):
            for _ in range(3):
                env.step(actions)
        assert env.recv()[3].tolist() == [True, True]


@pytest.mark.parametrize(
    ("env_id", "option", "value", "message"),
    [
        ("FrozenLake-v1", "success_rate", 7, "between 0 and 1, got 7"),
        ("FrozenLake8x8-v1", "reward_hole", float("inf"), "finite number, got inf"),
        ("Taxi-v4", "rainy_probability", -0.5, "between 0 and 1, got -0.5"),
        ("Taxi-v3", "fickle_probability", NAN, "between 0 and 1, got nan"),
        ("NChain-v0", "slip", 1.5, "between 0 and 1, got 1.5"),
        ("NChain-v0", "large", NAN, "finite number, got nan"),
        ("CartPole-v1", "mass_cart", -1.0, "finite number above 0, got -1"),
        ("CartPole-v0", "pole_half_length", 0, "finite number above 0, got 0"),
        ("Pendulum-v1", "length", 0.0, "finite number above 0, got 0"),
        ("MountainCar-v0", "goal_velocity", NAN, "finite number, got nan"),
        ("MountainCarContinuous-v0", "goal_velocity", NAN, "finite number, got nan"),
    ],
)
def test_an_option_out_of_range_is_refused(
    env_id: str, option: str, value: float, message: str
) -> None:
    options: dict[str, Any] = {option: value}
    with pytest.raises(rollouts.SpecError, match=f"option '{option}' must be .*{message}"):
        rollouts.make_vec(env_id, 1, **options)


def test_a_world_that_cannot_be_simulated_fails_its_environment_alone() -> None:
    wind = [15.0, 1e300, 15.0]
    arguments: dict[str, Any] = {"seed": 3, "num_threads": 1, "enable_wind": True}
    if "LunarLander-v3" not in rollouts.env_ids():
        pytest.skip("this build has no Box2D")
    with (
        rollouts.make_vec("LunarLander-v3", 3, wind_power=wind, **arguments) as env,
        rollouts.make_vec("LunarLander-v3", 3, wind_power=15.0, **arguments) as healthy,
    ):
        with pytest.raises(rollouts.EnvError, match=r"env_id 1: .*forces are too large"):
            env.reset()
        obs, reward, terminated, truncated, _ = env.recv()
        assert (obs[1].any(), reward[1], terminated[1], truncated[1]) == (False, 0, False, True)
        np.testing.assert_array_equal(obs[::2], healthy.reset()[0][::2])
        # one whose reset failed has no world, and is saved as such
        before = env.get_state()
        env.set_state([0, 1, 2], before)
        assert env.get_state() == before
        env.reset(options={"wind_power": 15.0})
        np.testing.assert_array_equal(env.step(np.ones(3, np.int64))[2], [False] * 3)
