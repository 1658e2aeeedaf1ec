# SPDX-License-Identifier: Apache-2.0
"""Code that has to see every step sees it; what cannot work is refused before it corrupts data."""

from __future__ import annotations

import logging
import os
import signal
import time
from typing import Any

import numpy as np
import pytest

pytest.importorskip(
    "ray.tune", exc_type=ImportError, reason="RLlib is not installed: pip install 'rollouts[rllib]'"
)

import gymnasium
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.connectors.env_to_module import MeanStdFilter
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
from ray.rllib.utils.metrics import (
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
)
from ray.tune.registry import register_env
from rllib_cases import ByTorch
from rollouts.integrations import rllib

import rollouts
from rollouts.errors import SpecError


def config_of(env: str = "CartPole-v1", num_envs: int = 3, **env_config: Any) -> PPOConfig:
    """PPO's, with a small network, for one runner in this process."""
    config = PPOConfig().environment(env, env_config=env_config)
    config.env_runners(
        num_env_runners=0,
        num_envs_per_env_runner=num_envs,
        gym_env_vectorize_mode="vector_entry_point",
        env_runner_cls=rllib.RolloutsEnvRunner,
    )
    config.rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[8]))
    config.debugging(seed=7)
    return config


class CountingCallback(RLlibCallback):
    """Counts what it is called for."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def on_episode_created(self, **kwargs: Any) -> None:
        self.calls.append("created")

    def on_episode_start(self, **kwargs: Any) -> None:
        self.calls.append("start")

    def on_episode_step(self, *, episode: Any, **kwargs: Any) -> None:
        self.calls.append("step")
        assert episode.get_infos(-1) is not None

    def on_episode_end(self, *, episode: Any, prev_episode_chunks: Any, **kwargs: Any) -> None:
        assert episode.is_done
        self.calls.append("end")


class SampleCallback(RLlibCallback):
    """Sees whole samples, and environments when they are made."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def on_environment_created(self, *, env: Any, env_context: Any, **kwargs: Any) -> None:
        assert isinstance(env, rollouts.VectorEnv)
        self.calls.append(f"env of {env_context.worker_index}")

    def on_sample_end(self, *, samples: Any, **kwargs: Any) -> None:
        self.calls.append(f"{sum(map(len, samples))} steps")


def test_callbacks_of_steps_are_called_as_by_rllib_s_own_runner() -> None:
    config = config_of(max_episode_steps=10)
    config.callbacks(CountingCallback)
    ours = rllib.RolloutsEnvRunner(config=config)
    assert "CountingCallback has the callback on_episode" in ours.slow_reason
    config = config_of(rllib.register("CartPole-v1"), max_episode_steps=10)
    config.callbacks(CountingCallback)
    stock = SingleAgentEnvRunner(config=config)
    stock.module.load_state_dict(ours.module.state_dict())
    for runner in (ours, stock):
        runner.sample(num_timesteps=90, explore=False)
    assert ours._callbacks[0].calls == stock._callbacks[0].calls
    assert ours._callbacks[0].calls.count("end") >= 6


def test_callback_functions_in_the_config_count_too() -> None:
    seen: list[int] = []
    config = config_of()
    config.callbacks(on_episode_step=lambda **kwargs: seen.append(1))
    runner = rllib.RolloutsEnvRunner(config=config)
    runner.sample(num_timesteps=30)
    assert sum(seen) >= 30 and "on_episode_step" in runner.slow_reason


def test_callbacks_of_whole_samples_need_no_slow_loop() -> None:
    config = config_of()
    config.callbacks(SampleCallback)
    runner = rllib.RolloutsEnvRunner(config=config)
    runner.sample(num_timesteps=30)
    assert runner.slow_reason == ""
    assert runner._callbacks[0].calls == ["env of None", "30 steps"]


def test_custom_connector_sees_what_it_sees_in_rllib() -> None:
    samples = []
    for env in ("CartPole-v1", rllib.register("CartPole-v1")):
        config = config_of(env, max_episode_steps=12)
        config.env_runners(env_to_module_connector=lambda env, spaces, device: MeanStdFilter())
        if env != "CartPole-v1":
            config.env_runners(env_runner_cls=SingleAgentEnvRunner)
        runner = config.env_runner_cls(config=config)
        state = samples and samples[0][1]
        if state:
            runner.module.load_state_dict(state)
        chunks = runner.sample(num_timesteps=60, explore=False)
        samples.append((chunks, runner.module.state_dict(), runner._env_to_module.get_state()))
    (ours, _, our_filter), (stock, _, their_filter) = samples
    assert len(ours) == len(stock)
    for one, other in zip(ours, stock, strict=True):
        # the filter has written normalised observations into the episodes
        np.testing.assert_allclose(one.get_observations(), other.get_observations(), rtol=1e-6)
    assert str(our_filter) == str(their_filter)


def test_connector_added_later_takes_effect() -> None:
    runner = rllib.RolloutsEnvRunner(config=config_of())
    runner.sample(num_timesteps=30)
    assert runner.slow_reason == ""
    runner._env_to_module.prepend(MeanStdFilter())
    chunks = runner.sample(num_timesteps=30)
    assert "MeanStdFilter" in runner.slow_reason
    assert sum(map(len, chunks)) >= 30 and all(chunk.t_started == 0 for chunk in chunks)
    runner._env_to_module.remove("MeanStdFilter")
    chunks = runner.sample(num_timesteps=30)
    assert runner.slow_reason == "" and sum(map(len, chunks)) == 30


def test_a_stateful_module_that_torch_computes_runs_in_rllib_s_own_loop() -> None:
    config = config_of()
    config.rl_module(
        model_config=DefaultModelConfig(use_lstm=True, lstm_cell_size=8, max_seq_len=4)
    )
    runner = ByTorch(config=config)
    chunks = runner.sample(num_timesteps=30)
    assert "stateful" in runner.slow_reason
    assert all("state_out" in chunk.extra_model_outputs for chunk in chunks)
    for _ in range(3):
        runner.sample(num_timesteps=30)


def test_infos_are_kept_for_learner_connectors() -> None:
    config = config_of("CartPole-v1", max_episode_steps=5)
    config.training(learner_connector=lambda *args: [])
    runner = rllib.RolloutsEnvRunner(config=config)
    for chunk in runner.sample(num_timesteps=60):
        assert len(chunk.get_infos()) == len(chunk) + 1
    plain = rllib.RolloutsEnvRunner(config=config_of())
    assert all(info == {} for c in plain.sample(num_timesteps=30) for info in c.get_infos())


def test_any_other_environment_is_sampled_by_rllib_s_own_loop() -> None:
    register_env("someone-s-pendulum", lambda _: gymnasium.make("Pendulum-v1"))
    config = config_of("someone-s-pendulum")
    config.env_runners(gym_env_vectorize_mode="sync")
    runner = rllib.RolloutsEnvRunner(config=config)
    assert "not an environment of rollouts" in runner.slow_reason
    assert sum(map(len, runner.sample(num_timesteps=30))) >= 30
    assert isinstance(runner.env.unwrapped, gymnasium.vector.SyncVectorEnv)


def test_same_step_autoreset_is_refused_where_rllib_would_lose_final_observations() -> None:
    def same_step(env_config: Any) -> Any:
        return rollouts.make_vec(
            "CartPole-v1", env_config["num_envs"], autoreset_mode="same_step", seed=0,
            max_episode_steps=5,
        )  # fmt: skip

    register_env("same-step", same_step)
    # what is prevented: RLlib's own runner takes the data, and no episode has its 5 steps
    stock = SingleAgentEnvRunner(config=config_of("same-step"))
    chunks = [c for c in stock.sample(num_timesteps=90) if c.is_done]
    assert {len(chunk) for chunk in chunks[3:]} == {4}
    with pytest.raises(SpecError, match="next episode's first observation"):
        rllib.RolloutsEnvRunner(config=config_of("same-step"))
    with pytest.raises(SpecError, match="next-step autoreset for granted"):
        rllib.RolloutsEnvRunner(config=config_of(autoreset_mode="same_step"))
    creator = rllib.EnvCreator("CartPole-v1")
    with pytest.raises(SpecError, match="next-step autoreset for granted"):
        creator({"num_envs": 2, "autoreset_mode": "disabled"})
    # and ours have all their steps
    ours = rllib.RolloutsEnvRunner(config=config_of(max_episode_steps=5))
    done = [c for c in ours.sample(num_timesteps=90) if c.is_done]
    assert {len(chunk) for chunk in done} == {5}


def test_plug_in_wants_the_vector_entry_point() -> None:
    config = config_of(rllib.register("CartPole-v1"))
    config.env_runners(gym_env_vectorize_mode="sync")
    with pytest.raises(SpecError, match="vector_entry_point"):
        SingleAgentEnvRunner(config=config)


def test_plug_in_takes_options_from_both_sides() -> None:
    name = rllib.register("CartPole-v1", "long-poles", pole_half_length=1.0, max_episode_steps=7)
    config = config_of(name, max_episode_steps=3)
    runner = SingleAgentEnvRunner(config=config)  # its environment lives as long
    env = runner.env.unwrapped
    assert isinstance(env, rllib.RolloutsVectorEnv)
    assert env.env_options["pole_half_length"] == 1.0
    assert env.env_spec.max_episode_steps == 3
    with pytest.raises(SpecError, match="unknown environment id"):
        rllib.register("CartPole-v99")


def test_seed_of_the_config_decides_and_runners_differ() -> None:
    def first(worker_index: int, seed: int) -> Any:
        config = config_of()
        config.debugging(seed=seed)
        runner = rllib.RolloutsEnvRunner(config=config, worker_index=worker_index)
        return np.stack([c.get_observations(0) for c in runner.sample(num_timesteps=3)])

    assert np.array_equal(first(1, 3), first(1, 3))
    assert not np.array_equal(first(1, 3), first(2, 3))
    assert not np.array_equal(first(1, 3), first(1, 4))


def test_module_of_other_spaces_is_refused() -> None:
    config = config_of()
    config.rl_module(
        rl_module_spec=RLModuleSpec(
            action_space=gymnasium.spaces.Discrete(5), model_config={"fcnet_hiddens": [8]}
        )
    )
    # what is prevented: RLlib's own runner fails in the middle, or plays actions 0 and 1 of 5
    with pytest.raises(SpecError, match=r"action space is Discrete\(5\)"):
        rllib.RolloutsEnvRunner(config=config)
    config = config_of()
    config.environment(action_space=gymnasium.spaces.Discrete(3))
    with pytest.raises(SpecError, match="leave action_space out"):
        rllib.RolloutsEnvRunner(config=config)


def test_multi_agent_is_refused() -> None:
    config = config_of()
    config.multi_agent(policies={"a", "b"}, policy_mapping_fn=lambda *_, **__: "a")
    with pytest.raises(SpecError, match="single agents only"):
        rllib.RolloutsEnvRunner(config=config)


class Fragile(rllib.RolloutsVectorEnv):
    """Fails once, at its fifth step."""

    steps = 0

    def step_batch(self, actions: Any) -> Any:
        Fragile.steps += 1
        if Fragile.steps == 5:
            raise RuntimeError("the engine is on fire")
        return super().step_batch(actions)


@pytest.mark.parametrize("restarts", [True, False])
def test_failed_environments_are_made_anew_if_asked_for(
    restarts: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("rollouts.integrations.rllib.env.RolloutsVectorEnv", Fragile)
    caplog.set_level(logging.CRITICAL)
    Fragile.steps = 0
    config = config_of(max_episode_steps=3)
    config.fault_tolerance(restart_failed_sub_environments=restarts)
    runner = ByTorch(config=config)
    if not restarts:
        with pytest.raises(RuntimeError):
            runner.sample(num_timesteps=30)
        return
    chunks = runner.sample(num_timesteps=30)
    # three episodes had ended before the failure; what was cut by it is not returned
    assert sum(map(len, chunks)) == 9 + 30
    assert all(len(chunk) == 3 for chunk in chunks if chunk.is_done)
    assert runner.metrics.peek("num_env_step_failures") == 1


def test_failure_of_one_environment_can_be_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = ByTorch(config=config_of(on_env_error="reset"))
    runner.sample(num_timesteps=9)
    segment = runner._steps
    real = runner.env.unwrapped

    def failing(actions: Any) -> Any:
        batch = type(real).step_batch(real, actions)
        truncated = batch.truncated.copy()
        truncated[1] = True
        lost = np.array([False, True, False])
        garbage = np.full_like(batch.final_obs, np.nan)
        info = {**batch.info, "_env_error": lost}
        return batch._replace(truncated=truncated, final_obs=garbage, info=info)

    monkeypatch.setattr(real, "step_batch", failing)
    before = segment.obs[1].copy()
    (failed, *_) = [c for c in runner.sample(num_timesteps=3) if c.is_done]
    assert failed.is_truncated
    np.testing.assert_array_equal(failed.get_observations(-1), before)


@pytest.mark.slow
def test_a_killed_runner_comes_back_and_samples_on(rllib_ray: None) -> None:
    config = config_of()
    config.env_runners(num_env_runners=1)
    config.fault_tolerance(restart_failed_env_runners=True)
    config.training(train_batch_size_per_learner=60, minibatch_size=30, num_epochs=1)
    algo = config.build_algo()
    try:
        first = algo.train()["env_runners"][NUM_ENV_STEPS_SAMPLED_LIFETIME]
        (killed,) = algo.env_runner_group.foreach_env_runner(
            lambda _: os.getpid(), local_env_runner=False
        )
        os.kill(killed, signal.SIGKILL)
        deadline = time.monotonic() + 300
        steps = first
        # a killed runner's sample is lost, then it is found to be back
        while steps < first + 60 and time.monotonic() < deadline:
            steps = algo.train()["env_runners"][NUM_ENV_STEPS_SAMPLED_LIFETIME]
        assert steps >= first + 60
        weights = algo.get_module().state_dict()
        (theirs,) = algo.env_runner_group.foreach_env_runner(
            lambda runner: (os.getpid(), runner.module.state_dict()), local_env_runner=False
        )
        assert theirs[0] != killed
        for name, tensor in theirs[1].items():
            np.testing.assert_array_equal(tensor.numpy(), weights[name].numpy())
    finally:
        algo.stop()
