# SPDX-License-Identifier: Apache-2.0
"""Several agents: callbacks and connectors that need every step get it, in RLlib's own loop."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

pytest.importorskip(
    "ray.tune", exc_type=ImportError, reason="RLlib is not installed: pip install 'rollouts[rllib]'"
)
pytest.importorskip("pettingzoo", reason="PettingZoo is not installed: pip install pettingzoo")

from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.connectors.env_to_module import MeanStdFilter
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModule, MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.env.wrappers.pettingzoo_env import ParallelPettingZooEnv
from ray.rllib.examples.envs.classes.multi_agent import MultiAgentCartPole
from ray.rllib.utils.pre_checks.env import check_multiagent_environments
from rllib_agents_cases import (
    ENDING,
    LEAVING,
    UNLIKE,
    assert_same,
    config_of,
    key_of,
    runner_of,
    stitched,
    stock_of,
)
from rollouts.integrations import rllib
from rollouts.integrations.pettingzoo import parallel_env

import rollouts

SPREAD = "simple_spread_v3"


class CountingCallback(RLlibCallback):
    """Counts what it is called for."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def on_environment_created(self, *, env: Any, **kwargs: Any) -> None:
        self.calls.append(f"env {env.num_envs}")

    def on_episode_created(self, **kwargs: Any) -> None:
        self.calls.append("created")

    def on_episode_start(self, *, episode: Any, **kwargs: Any) -> None:
        self.calls.append("start")
        assert episode.env_t == 0

    def on_episode_step(self, *, episode: Any, **kwargs: Any) -> None:
        self.calls.append("step")
        assert set(episode.get_infos(-1)) == set(episode.get_observations(-1))

    def on_episode_end(self, *, episode: Any, prev_episode_chunks: Any, **kwargs: Any) -> None:
        assert episode.is_done
        self.calls.append("end")


class OwnMultiRLModule(MultiRLModule):
    """Lets all modules act as it wants."""

    def _forward_exploration(self, batch: Any, **kwargs: Any) -> Any:
        return super()._forward_exploration(batch, **kwargs)


@pytest.mark.parametrize(("env_id", "options"), [LEAVING, ENDING, UNLIKE])
def test_callbacks_and_episodes_are_those_of_rllib_s_own_runner(
    env_id: str, options: dict[str, Any]
) -> None:
    config = config_of(env_id, 3, **options).callbacks(CountingCallback)
    ours = rllib.RolloutsMultiAgentEnvRunner(config=config)
    assert "CountingCallback has the callback on_episode_created" in ours.slow_reason
    stock = stock_of(ours, env_id, 3, **options)
    stock._callbacks = [CountingCallback()]
    episodes = []
    for runner in (ours, stock):
        chunks = [e for n in (30, 75, 90) for e in runner.sample(num_timesteps=n, explore=False)]
        episodes.append(stitched(chunks))
    assert_same(*episodes)
    mine, theirs = ours._callbacks[0].calls, stock._callbacks[0].calls
    assert mine == ["env 3", *theirs]
    assert Counter(mine)["end"] >= 5


def test_the_slow_loop_has_the_episodes_of_the_bulk_loop() -> None:
    env_id, options = LEAVING
    bulk = runner_of(env_id, 3, **options)
    config = config_of(env_id, 3, **options).callbacks(CountingCallback)
    slow = rllib.RolloutsMultiAgentEnvRunner(config=config)
    slow.module.set_state(bulk.module.get_state())
    fast = stitched(bulk.sample(num_episodes=4, explore=False))
    slowly = {key_of(e): e for e in stitched(slow.sample(num_episodes=6, explore=False))}
    for episode in fast:
        for agent, data in slowly[key_of(episode)].items():
            np.testing.assert_array_equal(data["rewards"], episode[agent]["rewards"])


def test_callbacks_of_whole_samples_need_no_slow_loop() -> None:
    seen: list[int] = []
    config = config_of(SPREAD, 3)
    config.callbacks(on_sample_end=lambda *, samples, **_: seen.append(sum(map(len, samples))))
    runner = rllib.RolloutsMultiAgentEnvRunner(config=config)
    runner.sample(num_timesteps=30)
    assert runner.slow_reason == "" and seen == [30]


def test_a_connector_sees_every_observation() -> None:
    config = config_of(SPREAD, 2)
    config.env_runners(
        env_to_module_connector=lambda env, spaces, device: MeanStdFilter(multi_agent=True)
    )
    runner = rllib.RolloutsMultiAgentEnvRunner(config=config)
    assert runner.slow_reason == "the config has an env_to_module_connector"
    chunk = runner.sample(num_timesteps=2 * 30)[0]
    obs = chunk.agent_episodes["agent_0"].get_observations()
    # filtered observations are written back
    assert abs(obs[:, 2:].mean()) < 1.5 and np.abs(obs).max() <= 10


def test_a_stateful_module_goes_through_rllib_s_own_loop() -> None:
    config = config_of(SPREAD, 2)
    config.rl_module(
        model_config=DefaultModelConfig(fcnet_hiddens=[8], use_lstm=True, lstm_cell_size=4)
    )
    runner = rllib.RolloutsMultiAgentEnvRunner(config=config)
    episodes = runner.sample(num_episodes=2)
    assert runner.slow_reason == "the RLModule is stateful (module 'agent')"
    states = episodes[0].agent_episodes["agent_1"].get_extra_model_outputs("state_out")
    assert states["h"].shape[0] == 25 and states["h"].shape[-1] == 4


def test_a_multi_rl_module_of_its_own_is_asked_itself() -> None:
    config = config_of(SPREAD, 2)
    spec = MultiRLModuleSpec(
        multi_rl_module_class=OwnMultiRLModule, rl_module_specs={"agent": RLModuleSpec()}
    )
    runner = rllib.RolloutsMultiAgentEnvRunner(config=config.rl_module(rl_module_spec=spec))
    runner.sample(num_timesteps=6)
    assert runner.slow_reason == (
        "OwnMultiRLModule is a MultiRLModule with its own _forward_exploration"
    )


def test_environments_of_others_are_stepped_by_rllib() -> None:
    config = config_of(MultiAgentCartPole, 2, policies=("p",), mapping=lambda *_, **__: "p")
    config.environment(env_config={"num_agents": 2})
    runner = rllib.RolloutsMultiAgentEnvRunner(config=config)
    assert "is not an environment of rollouts" in runner.slow_reason
    assert sum(map(len, runner.sample(num_timesteps=20))) >= 20


def test_environments_that_fail_are_made_anew() -> None:
    config = config_of(SPREAD, 2, max_episode_steps=5)
    config.fault_tolerance(restart_failed_sub_environments=True)
    runner = rllib.RolloutsMultiAgentEnvRunner(config=config)
    first, step = runner.env, runner.env.step
    left = iter(range(7))

    def fail_in_step_7(actions: Any) -> Any:
        if next(left, None) is None:
            raise RuntimeError("a broken engine")
        return step(actions)

    first.step = fail_in_step_7
    episodes = runner.sample(num_timesteps=2 * 8)
    assert runner.env is not first
    # the whole episodes of before, and 8 steps after the failure
    assert [len(e) for e in episodes if e.is_done] == [5] * 4
    assert sum(map(len, episodes)) == 2 * 5 + 2 * 8
    assert all(e.env_t_started == 0 for e in episodes)
    config.fault_tolerance(restart_failed_sub_environments=False)
    runner = rllib.RolloutsMultiAgentEnvRunner(config=config)
    runner.env.step = lambda actions: 1 / 0
    with pytest.raises(RuntimeError):
        runner.sample(num_timesteps=2)


def test_a_failed_environment_is_truncated_at_its_last_observation() -> None:
    options = {
        "grid_length": 1.0,
        "tagging_distance": 1.0,
        "runner_exits_game_after_tagged": False,
        "on_env_error": "reset",
        # the second environment alone fails: two tags at once are above all 32-bit numbers
        "tag_reward_for_tagger": np.array([1.0, 3e38]),
    }
    runner = runner_of("TagContinuous-v0", 2, **options)
    for _ in range(2):
        *failed, going = runner.sample(num_timesteps=2 * 3)
        assert not going.is_done and len(failed) == 3
        for episode in failed:
            assert len(episode) == 1 and episode.is_truncated
            for each in episode.agent_episodes.values():
                assert (each.is_terminated, each.is_truncated) == (False, True)
                first, last = each.get_observations()
                np.testing.assert_array_equal(last, first)


@pytest.mark.parametrize("env_id", rollouts.multi_agent_ids())
def test_one_environment_for_rllib_s_own_runner_passes_its_checks(env_id: str) -> None:
    check_multiagent_environments(ParallelPettingZooEnv(parallel_env(env_id)))


def test_actions_of_boxes_are_unsquashed_as_by_rllib_s_own_runner() -> None:
    options = {"continuous_actions": True, "max_episode_steps": 6}
    ours = runner_of(SPREAD, 2, **options)
    stock = stock_of(ours, SPREAD, 2, **options)
    mine = stitched(ours.sample(num_timesteps=24, explore=False))
    theirs = {key_of(e): e for e in stitched(stock.sample(num_timesteps=30, explore=False))}
    for episode in mine:
        other = theirs[key_of(episode)]
        for agent, data in episode.items():
            for name in ("actions", "rewards", "obs"):
                expected = np.asarray(other[agent][name])[: len(data[name])]
                np.testing.assert_allclose(data[name], expected, rtol=1e-4, atol=1e-5)


def test_one_of_a_pool_s_environments_cannot_be_stepped_alone() -> None:
    runner = runner_of(SPREAD, 2)
    with pytest.raises(NotImplementedError, match="step them all together"):
        runner.env.envs[0].step({})
    with pytest.raises(NotImplementedError, match="reset them all together"):
        runner.env.envs[1].reset()
    runner.stop()
    assert runner.env.pool.closed
