# SPDX-License-Identifier: Apache-2.0
"""RLlib's algorithms learn from RolloutsMultiAgentEnvRunner, with several modules and workers."""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip(
    "ray.tune", exc_type=ImportError, reason="RLlib is not installed: pip install 'rollouts[rllib]'"
)

import torch
from ray.rllib.algorithms.appo import APPOConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from rollouts.integrations.rllib import RolloutsMultiAgentEnvRunner

pytestmark = pytest.mark.system

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "integrations"
RANDOM_SPREAD = -80.0  # mean return of random actions, of the three agents together


def tag(config: Any, num_env_runners: int) -> Any:
    """Taggers learn, runners stay as they are."""
    options = {"num_taggers": 3, "num_runners": 4, "max_episode_steps": 20, "grid_length": 4.0}
    config.environment("TagContinuous-v0", env_config=options)
    config.env_runners(
        num_env_runners=num_env_runners,
        num_envs_per_env_runner=4,
        rollout_fragment_length=16,
        env_runner_cls=RolloutsMultiAgentEnvRunner,
    )
    config.multi_agent(
        policies={"tagger", "runner"},
        # workers cannot import this file
        policy_mapping_fn=lambda agent_id, episode, **_: agent_id.partition("_")[0],
        policies_to_train=["tagger"],
    )
    config.rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[16]))
    config.reporting(min_time_s_per_iteration=0.1)
    return config.debugging(seed=1)


def test_ppo_trains_one_of_two_modules_with_workers_and_evaluates(
    rllib_ray: None, tmp_path: Path
) -> None:
    config = tag(PPOConfig(), num_env_runners=1)
    config.training(train_batch_size_per_learner=256, minibatch_size=128, num_epochs=2, lr=1e-2)
    config.evaluation(evaluation_interval=1, evaluation_duration=3, evaluation_num_env_runners=0)
    algo = config.build_algo()
    try:
        before = {
            name: {key: value.clone() for key, value in state.items()}
            for name, state in _remote_weights(algo).items()
        }
        results = [algo.train() for _ in range(2)][-1]
        sampled = results["env_runners"]
        assert sampled["num_env_steps_sampled_lifetime"] >= 512
        assert set(sampled["module_episode_returns_mean"]) == {"tagger", "runner"}
        assert len(sampled["agent_episode_returns_mean"]) == 7
        assert results["evaluation"]["env_runners"]["num_episodes"] == 3
        assert isinstance(algo.eval_env_runner, RolloutsMultiAgentEnvRunner)
        after = _remote_weights(algo)
        changed = {
            name: any(not torch.equal(value, after[name][key]) for key, value in state.items())
            for name, state in before.items()
        }
        assert changed == {"tagger": True, "runner": False}
        algo.save_to_path(tmp_path)
        saved = algo.get_module("tagger").state_dict()
        algo.train()
        algo.restore_from_path(str(tmp_path))
        for key, value in algo.get_module("tagger").state_dict().items():
            assert torch.equal(value, saved[key]), key
    finally:
        algo.stop()


def _remote_weights(algo: Any) -> dict[str, dict[str, torch.Tensor]]:
    """The weights of the worker that samples."""
    [states] = algo.env_runner_group.foreach_env_runner(
        lambda runner: {name: module.state_dict() for name, module in runner.module.items()},
        local_env_runner=False,
    )
    return dict(states)


@pytest.mark.slow  # RLlib's loop waits busily for its actors, for minutes beside other tests
def test_an_asynchronous_algorithm_takes_its_episodes(rllib_ray: None) -> None:
    config = tag(APPOConfig(), num_env_runners=1)
    config.learners(num_learners=0).training(train_batch_size_per_learner=64)
    algo = config.build_algo()
    try:
        trained = 0
        # its actors take many seconds to start on a busy machine, RLlib's own runner's too
        deadline = time.monotonic() + 240
        while not trained and time.monotonic() < deadline:
            learned = algo.train().get("learners", {}).get("tagger", {})
            trained = learned.get("num_module_steps_trained_lifetime", 0)
        assert trained > 0
    finally:
        algo.stop()


@pytest.mark.parametrize(
    ("max_iterations", "least"),
    # what is learnt by and by is the longer form of the other
    [(2, RANDOM_SPREAD - 10), pytest.param(14, RANDOM_SPREAD + 10, marks=pytest.mark.slow)],
)
def test_example_learns_a_little(max_iterations: int, least: float, rllib_ray: None) -> None:
    spec = importlib.util.spec_from_file_location(
        "rllib_multi_agent", EXAMPLES / "rllib_multi_agent.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = module.main(num_env_runners=0, max_iterations=max_iterations, stop_return=-67.0)
    assert found >= least
