# SPDX-License-Identifier: Apache-2.0
"""Stable-Baselines3's rollouts with the policy in native code: as its own loop with these actions.

Each is replayed: an equal environment is stepped with the buffer's actions, the way that
`collect_rollouts` does, and the policy is asked by torch.
"""

from __future__ import annotations

import signal
from typing import Any

import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="needs the extra sb3")

from rollouts.integrations.sb3 import RolloutsA2C, RolloutsPPO, RolloutsVecEnv
from sb3_cases import (
    FAILING,
    NUM_ENVS,
    NUM_STEPS,
    Clamped,
    Seen,
    Twin,
    assert_replayed,
    make_model,
)
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback

from rollouts.errors import EnvError

pytestmark = pytest.mark.usefixtures("one_torch_thread")

# actions and observations of each kind; ends of each kind; a failure that is passed over
ENDS = ("TimeLimit.truncated", "env_error")
ENVS = [
    ("CartPole-v1", {"max_episode_steps": 25}, ENDS[:1]),
    ("Pendulum-v1", {"max_episode_steps": 15}, ENDS[:1]),
    ("Hopper-v5", {"max_episode_steps": 17}, ENDS[:1]),
    ("FrozenLake-v1", {}, ()),
    ("Blackjack-v1", {}, ()),
    ("CartPole-v1", FAILING, ENDS[1:]),
]


@pytest.mark.parametrize("algorithm", [RolloutsPPO, RolloutsA2C])
@pytest.mark.parametrize(("env_id", "options", "happens"), ENVS)
def test_the_buffer_is_that_of_the_librarys_loop(
    algorithm: Any, env_id: str, options: dict[str, Any], happens: tuple[str, ...]
) -> None:
    env, other = (RolloutsVecEnv(env_id, NUM_ENVS, seed=3, **options) for _ in range(2))
    settings: dict[str, Any] = {"n_steps": NUM_STEPS, "seed": 1, "device": "cpu"}
    settings |= (
        {"policy_kwargs": {"features_extractor_class": Clamped}} if options is FAILING else {}
    )
    if algorithm is RolloutsPPO:
        settings |= {"batch_size": 60, "n_epochs": 1}
    model = algorithm("MlpPolicy", env, rollout_engine="native", **settings)
    assert (model.engine, model.why_not_native) == ("native", "")
    _, callback = model._setup_learn(10**6)
    twin = Twin(model, other)
    # weights that were learnt in place are those of the next rollout
    for _ in range(3):
        assert model.collect_rollouts(env, callback, model.rollout_buffer, NUM_STEPS)
        assert_replayed(model, twin)
        model.train()
    assert [(e["r"], e["l"]) for e in model.ep_info_buffer] == twin.episodes[-100:] != []
    assert model.num_timesteps == 3 * NUM_ENVS * NUM_STEPS
    # steps by hand go on from there, with the failure that comes every second step
    actions = np.zeros_like(model.rollout_buffer.actions.reshape(-1, *model.action_space.shape))
    ours, theirs = (each.step(actions[:NUM_ENVS])[3] for each in (env, other))
    for info, expected in zip(ours, theirs, strict=True):
        assert info.get("env_error") == expected.get("env_error")
        last, other_last = (i.get("terminal_observation") for i in (info, expected))
        np.testing.assert_array_equal(last, other_last)
    ends = {name: any(info.get(name) for info in twin.infos) for name in ENDS}
    assert ends == {name: name in happens for name in ENDS}


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_callbacks_see_every_step_with_what_the_library_shows(env_id: str) -> None:
    env, other = (RolloutsVecEnv(env_id, NUM_ENVS, seed=3, max_episode_steps=15) for _ in "ab")
    model, seen, stock = make_model(env=env), Seen(), Seen()
    model.learn(NUM_STEPS * NUM_ENVS, callback=seen)
    PPO("MlpPolicy", RolloutsVecEnv(env_id, NUM_ENVS), n_steps=NUM_STEPS).learn(1, callback=stock)
    assert seen.events == stock.events == ["start", *["step"] * NUM_STEPS, "end"]
    twin = Twin(model, other)
    for t, shown in enumerate(seen.shown):
        # the model has learnt since: only what the environment says is asked of the twin
        assert shown["num_timesteps"] == (t + 1) * NUM_ENVS
        # names that a truncation leaves behind
        left = {"done", "idx", "terminal_obs", "terminal_value"}
        assert stock.shown[t]["names"] - left <= shown["names"]
        for name in ("values", "log_probs", "actions", "new_obs", "obs_tensor", "clipped_actions"):
            assert shown[name].shape == stock.shown[t][name].shape, name
        np.testing.assert_array_equal(shown["obs_tensor"], twin.obs)
        twin.obs, rewards, dones, infos = twin.env.step(shown["clipped_actions"])
        np.testing.assert_array_equal(shown["new_obs"], twin.obs)
        np.testing.assert_array_equal(shown["rewards"], rewards)
        np.testing.assert_array_equal(shown["dones"], dones)
        for ours, theirs in zip(shown["infos"], infos, strict=True):
            assert ours.keys() == theirs.keys()
            assert ours["TimeLimit.truncated"] == theirs["TimeLimit.truncated"]
            if "episode" in theirs:
                assert [ours["episode"][k] for k in "rl"] == [theirs["episode"][k] for k in "rl"]
                final = theirs["terminal_observation"]
                np.testing.assert_array_equal(ours["terminal_observation"], final)


def test_without_a_monitor_nothing_is_said_of_episodes() -> None:
    env, seen = RolloutsVecEnv("CartPole-v1", NUM_ENVS, monitor=False), Seen()
    model = make_model(env=env).learn(1, callback=seen)
    names = {name for shown in seen.shown for info in shown["infos"] for name in info}
    assert names == {"TimeLimit.truncated", "terminal_observation"} and not model.ep_info_buffer


def test_a_callback_that_stops_the_training_leaves_a_model_that_goes_on() -> None:
    env, other = (RolloutsVecEnv("CartPole-v1", NUM_ENVS, seed=3) for _ in "ab")
    model, seen = make_model(env=env), Seen(stop_after=7)
    twin = Twin(model, other)
    model.learn(10**6, callback=seen)
    assert (model.num_timesteps, seen.events[-1]) == (7 * NUM_ENVS, "step")
    # the rest of the rollout was made, and is not learnt from
    twin.replay(model)
    _, callback = model._setup_learn(10**6, reset_num_timesteps=False)
    model.collect_rollouts(env, callback, model.rollout_buffer, NUM_STEPS)
    assert_replayed(model, twin)


def test_an_error_ends_a_rollout_and_the_next_begins_new_episodes() -> None:
    env = RolloutsVecEnv("CartPole-v1", 3, seed=3, gravity=[9.8, 1e308, 9.8])
    model = make_model(env=env, policy_kwargs={"features_extractor_class": Clamped})
    with pytest.raises(EnvError, match="env_id 1"):
        model.learn(10**6)
    env.set_options({"gravity": 9.8})
    model.learn(3 * NUM_STEPS, reset_num_timesteps=False)
    assert model.rollout_buffer.episode_starts[0].all()


def test_ctrl_c_ends_a_long_rollout() -> None:
    class Interrupt(BaseCallback):
        def _on_rollout_start(self) -> None:
            signal.setitimer(signal.ITIMER_REAL, 0.1)

        def _on_step(self) -> bool:
            return True

    model = make_model(n_steps=400_000, batch_size=400_000)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            model.learn(10**9, callback=Interrupt())
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert model.num_timesteps == 0 and model._last_obs is None
