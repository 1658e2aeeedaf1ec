# SPDX-License-Identifier: Apache-2.0
"""RLlib: RolloutsEnvRunner next to RLlib's own runner, over its own and over our environments.

The call that is measured is `sample(num_timesteps=T * N)` of one runner in this process; it builds
the episodes, but no learner runs. Vectors go through two tanh layers of 64, images through
the four convolutions of RLlib's own Atari examples: all contestants have the same network. (RLlib's
default for 84 x 84 images has 120 million multiplications in its last layer alone, which would hide
all differences.) Atari ids are preprocessed by RLlib's own wrappers for RLlib's contestant (84 x 84
x 4 float32, frame skip 4) and natively for the others (4 x 84 x 84 uint8, frame skip 4). A
contestant named "...-random" acts at random without its network, so that only environments and
episodes take time. "rollouts-torch" computes the network with torch, step by step.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
from ray.tune.registry import register_env
from rollouts.integrations.rllib import RolloutsEnvRunner, image_module, register
from rollouts.integrations.shared.missing import needs

from comparisons.adapters.measuring import Case, Contestant

_ATARI = "ALE/"
# rllib/examples/algorithms/ppo/atari_ppo.py
_CONV_FILTERS = [[16, 4, 2], [32, 4, 2], [64, 4, 2], [128, 4, 2]]


class SamplingRunner:
    """A runner that samples; `note` describes its differences."""

    def __init__(self, case: Case, runner: Any, *, random_actions: bool, note: str) -> None:
        """Takes a runner that is ready."""
        self._steps, self._runner = case.rollout_length * case.num_envs, runner
        self._random_actions = random_actions
        self.note = note

    def collect(self) -> int:
        """Samples T steps of N environments; returns the env-steps in the episodes."""
        episodes = self._runner.sample(
            num_timesteps=self._steps, random_actions=self._random_actions
        )
        return sum(len(episode) for episode in episodes)

    def close(self) -> None:
        """Closes the environments."""
        self._runner.stop()


class _TorchRunner(RolloutsEnvRunner):
    rollout_engine = "torch"


def _ours(
    case: Case,
    *,
    random_actions: bool = False,
    runner_class: type[RolloutsEnvRunner] = RolloutsEnvRunner,
) -> Contestant:
    config = _config(case, case.id)
    config.environment(env_config={"num_threads": case.num_threads})
    runner = runner_class(config=config)
    assert not runner.slow_reason, runner.slow_reason
    note = "torch" if runner.native_reason else "native"
    if case.id.startswith(_ATARI):
        note = "uint8"
    return SamplingRunner(case, runner, random_actions=random_actions, note=note)


def _stock(case: Case, *, random_actions: bool = False) -> Contestant:
    env, note = case.id, "sync"
    if env.startswith(_ATARI):
        env, note = _register_atari(env), "sync, float32"
    config = _config(case, env, byte_images=False)
    runner = SingleAgentEnvRunner(config=config)
    return SamplingRunner(case, runner, random_actions=random_actions, note=note)


def _entry_point(case: Case, *, random_actions: bool = False) -> Contestant:
    config = _config(case, register(case.id, num_threads=case.num_threads))
    config.env_runners(gym_env_vectorize_mode="vector_entry_point")
    runner = SingleAgentEnvRunner(config=config)
    note = "our environments, RLlib's loop"
    return SamplingRunner(case, runner, random_actions=random_actions, note=note)


def _config(case: Case, env: str, *, byte_images: bool = True) -> PPOConfig:
    config = PPOConfig().environment(env)
    config.env_runners(num_env_runners=0, num_envs_per_env_runner=case.num_envs)
    config.debugging(seed=case.seed)
    is_atari = case.id.startswith(_ATARI)
    model = DefaultModelConfig(
        fcnet_hiddens=[64, 64],
        conv_filters=_CONV_FILTERS if is_atari else None,
        conv_activation="relu",
        head_fcnet_hiddens=[256] if is_atari else [],
        vf_share_layers=True,
    )
    if byte_images and is_atari:
        config.rl_module(rl_module_spec=image_module(config, model_config=model))
    else:
        config.rl_module(model_config=model)
    torch.manual_seed(case.seed)
    return config


def _register_atari(id: str) -> str:
    """Registers RLlib's own preprocessing, as in its examples; the wrapper stacks frames."""
    try:
        importlib.import_module("cv2")  # fails here rather than in RLlib's wrappers
    except ImportError as error:
        raise needs("bench", error) from error

    def make(_: Any) -> Any:
        import ale_py
        import gymnasium
        from ray.rllib.env.wrappers.atari_wrappers import wrap_atari_for_new_api_stack

        gymnasium.register_envs(ale_py)
        # the wrapper skips frames
        env = gymnasium.make(id, frameskip=1)
        return wrap_atari_for_new_api_stack(env, dim=84, frameskip=4, framestack=4)

    name = f"rllib-own/{id}"
    register_env(name, make)
    return name


def _random(make: Callable[..., Contestant]) -> Callable[[Case], Contestant]:
    return lambda case: make(case, random_actions=True)


CONTESTANTS: dict[str, Callable[[Case], Contestant]] = {
    "rollouts": _ours,
    "rollouts-torch": lambda case: _ours(case, runner_class=_TorchRunner),
    "rllib": _stock,
    "rllib-vector-entry-point": _entry_point,
    "rollouts-random": _random(_ours),
    "rllib-random": _random(_stock),
}
