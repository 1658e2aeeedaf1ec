# SPDX-License-Identifier: Apache-2.0
"""Images of bytes through RLlib: uint8 in episodes and batches, floats only inside the network."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

pytest.importorskip(
    "ray.tune", exc_type=ImportError, reason="RLlib is not installed: pip install 'rollouts[rllib]'"
)
pytest.importorskip("ale_py", reason="ale-py is not installed")

import torch
from ray.rllib.algorithms.appo import APPOConfig
from ray.rllib.algorithms.bc import BCConfig
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.columns import Columns
from ray.rllib.core.models.base import ENCODER_OUT
from ray.rllib.core.models.configs import CNNEncoderConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
from rollouts.integrations import rllib
from rollouts.integrations.rllib.images import ByteCNNEncoderConfig

from rollouts.errors import SpecError

pytestmark = pytest.mark.system

FILTERS = [[4, 8, 8], [8, 4, 4]]
MODEL = DefaultModelConfig(conv_filters=FILTERS, head_fcnet_hiddens=[16])


def atari(config: Any, num_envs: int = 2) -> Any:
    """Pong in one runner of this process, with a tiny network."""
    config.environment("ALE/Pong-v5")
    config.env_runners(
        num_env_runners=0,
        num_envs_per_env_runner=num_envs,
        env_runner_cls=rllib.RolloutsEnvRunner,
        rollout_fragment_length=8,
    )
    config.rl_module(rl_module_spec=rllib.image_module(config, model_config=MODEL))
    return config


def test_episodes_keep_bytes() -> None:
    runner = rllib.RolloutsEnvRunner(config=atari(PPOConfig()))
    assert runner.slow_reason == ""
    for episode in runner.sample(num_timesteps=20):
        obs = episode.get_observations()
        assert obs.dtype == np.uint8 and obs.shape == (11, 4, 84, 84)
        # three of four frames were in the stack before
        np.testing.assert_array_equal(obs[1:, :3], obs[:-1, 1:])


def test_threads_share_the_rows_and_say_what_one_call_says() -> None:
    torch_threads = torch.get_num_threads()
    torch.set_num_threads(3)
    runner = rllib.RolloutsEnvRunner(config=atari(PPOConfig(), num_envs=13))
    try:
        assert torch.get_num_threads() == 3
        rows_of_calls: list[int] = []
        encoder = next(part for part in runner.module.modules() if hasattr(part, "_channels_first"))
        threads_of_calls: list[int] = []

        def note(_: object, args: Any) -> None:
            rows_of_calls.append(len(args[0]["obs"]))
            threads_of_calls.append(torch.get_num_threads())

        encoder.register_forward_pre_hook(note)
        episodes = runner.sample(num_timesteps=13)
        assert sorted(rows_of_calls) == [4, 4, 5]
        assert threads_of_calls == [1, 1, 1]  # none shares its operations with others
        with runner._acting():  # as while it samples
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 3
        obs = np.stack([episode.get_observations(0) for episode in episodes])
        expected = runner.module.forward_inference({Columns.OBS: torch.from_numpy(obs)})
        found = np.stack(
            [episode.get_extra_model_outputs("action_dist_inputs", 0) for episode in episodes]
        )
        np.testing.assert_allclose(found, expected["action_dist_inputs"].detach(), atol=1e-5)
        (names,) = {each.name.rpartition("_")[0] for each in running_inference_threads()}
        assert names == "inference"
    finally:
        runner.stop()
        torch.set_num_threads(torch_threads)
    assert not running_inference_threads()


def test_a_seed_gives_the_same_actions_again_with_threads() -> None:
    def actions() -> list[int]:
        config = atari(PPOConfig(), num_envs=8)
        config.debugging(seed=3)
        runner = rllib.RolloutsEnvRunner(config=config)
        torch.manual_seed(4)
        episodes = runner.sample(num_timesteps=80)
        runner.stop()
        return [int(action) for episode in episodes for action in episode.get_actions()]

    assert actions() == actions()


def test_modules_that_draw_numbers_are_not_split() -> None:
    runner = rllib.RolloutsEnvRunner(config=atari(DQNConfig(), num_envs=8))
    runner.sample(num_timesteps=8)
    assert not running_inference_threads()
    runner.stop()


def running_inference_threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name.startswith("inference")]


@pytest.mark.parametrize("channels_first", [True, False])
def test_network_is_rllib_s_own(channels_first: bool) -> None:
    shared = {"input_dims": (84, 84, 4), "cnn_filter_specifiers": FILTERS}
    theirs = CNNEncoderConfig(**shared).build("torch")
    ours = ByteCNNEncoderConfig(**shared, channels_first=channels_first).build()
    ours.load_state_dict(theirs.state_dict())
    images = torch.randint(0, 256, (5, 84, 84, 4), dtype=torch.uint8)
    expected = theirs({Columns.OBS: images.float() / 128 - 1})[ENCODER_OUT]
    given = images.permute(0, 3, 1, 2) if channels_first else images
    found = ours({Columns.OBS: given.contiguous()})[ENCODER_OUT]
    # other kernels add in another order
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert images.dtype == torch.uint8
    # images that are floats already are not copied
    floats = given.float()
    torch.testing.assert_close(ours({Columns.OBS: floats})[ENCODER_OUT], found)
    assert torch.equal(floats, given.float())


def test_module_for_floats_is_refused_with_what_to_do() -> None:
    config = atari(PPOConfig())
    config.rl_module(rl_module_spec=config.get_default_rl_module_spec(), model_config=MODEL)
    with pytest.raises(SpecError, match=r"image_module\(config\)"):
        rllib.RolloutsEnvRunner(config=config)


def test_rllib_s_own_runner_takes_bytes_from_the_plug_in() -> None:
    config = atari(PPOConfig())
    config.environment(rllib.register("ALE/Pong-v5"))
    config.env_runners(gym_env_vectorize_mode="vector_entry_point")
    runner = SingleAgentEnvRunner(config=config)
    (obs, *_) = [episode.get_observations() for episode in runner.sample(num_timesteps=8)]
    assert obs.dtype == np.uint8 and obs.shape[1:] == (4, 84, 84)


def test_image_module_knows_what_it_cannot_do() -> None:
    with pytest.raises(SpecError, match="BCConfig"):
        rllib.image_module(BCConfig())


@pytest.mark.parametrize(
    "config_class",
    [
        PPOConfig,
        pytest.param(DQNConfig, marks=pytest.mark.system),
        pytest.param(IMPALAConfig, marks=pytest.mark.slow),
        pytest.param(APPOConfig, marks=pytest.mark.slow),
    ],
)
def test_learners_are_given_bytes(config_class: Any, rllib_ray: None) -> None:
    config = atari(config_class())
    if config_class is PPOConfig:
        config.training(train_batch_size_per_learner=16, minibatch_size=16, num_epochs=1)
    elif config_class is DQNConfig:
        config.training(train_batch_size_per_learner=8, num_steps_sampled_before_learning_starts=16)
        config.env_runners(rollout_fragment_length=16)
    else:
        config.env_runners(num_env_runners=1)
        config.training(train_batch_size_per_learner=16)
        config.learners(num_learners=0)
    algo = config.build_algo()
    try:
        seen: list[Any] = []
        module = algo.learner_group._learner.module["default_policy"]
        for part in module.modules():
            if hasattr(part, "_channels_first"):
                part.register_forward_pre_hook(lambda _, args: seen.append(args[0]["obs"].dtype))
        for _ in range(20):
            result = algo.train()
            if seen:
                break
        assert seen and set(seen) == {torch.uint8}
        assert result["training_iteration"] >= 1
    finally:
        algo.stop()
