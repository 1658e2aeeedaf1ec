# SPDX-License-Identifier: Apache-2.0
"""Pools on a device next to what takes pools: faults are told, what needs arrays refuses them."""

from __future__ import annotations

import importlib
from typing import Any

import gymnasium
import numpy as np
import pytest

pytest.importorskip("torch", reason="needs torch")

from torch import nn

import rollouts
from rollouts import Collector, TorchPolicy
from rollouts.collecting.evaluation import evaluate
from rollouts.errors import ClosedError, EnvError, SpecError
from rollouts.workers.worker_config import CollectOptions

PLACE: dict[str, Any] = {"device": "cpu-emulation", "autoreset_mode": "same_step"}


@pytest.fixture(autouse=True)
def _needs_a_compiler() -> None:
    try:
        rollouts.make_vec("CartPole-v1", 1, **PLACE).close()
    except rollouts.EngineError as error:
        pytest.skip(str(error))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.both = nn.Linear(4, 3)

    def forward(self, obs: Any) -> Any:
        found = self.both(obs)
        return found[..., :2], found[..., 2]


def policy_of(env: Any) -> TorchPolicy:
    return TorchPolicy(Net(), env.single_action_space)


def broken(**options: Any) -> Any:
    """Environments whose state is soon infinite."""
    return rollouts.make_vec("CartPole-v1", 4, seed=1, force_mag=1e38, **PLACE, **options)


def test_an_evaluation_says_that_environments_failed() -> None:
    with broken() as env, pytest.raises(EnvError, match="not finite"):
        evaluate(env, policy_of(env), 8)


@pytest.mark.parametrize("prefetch", [0, 1])
def test_a_collector_of_closed_environments_says_so(prefetch: int) -> None:
    env = rollouts.make_vec("CartPole-v1", 4, **PLACE)
    collector = Collector(env, policy_of(env), 4, prefetch=prefetch)
    collector.collect()
    env.close()
    with pytest.raises(ClosedError):
        collector.collect()


def test_a_collector_of_ones_own_stays_on_the_host() -> None:
    def make_collector(config: Any, make_policy: Any) -> Any:
        env = rollouts.make_vec("CartPole-v1", 4, **PLACE)
        return Collector(env, policy_of(env), 4)

    pytest.importorskip("ray", reason="needs ray")
    from rollouts import RolloutCoordinator

    with pytest.raises(SpecError, match=r"collect\.make_collector made environments on a device"):
        RolloutCoordinator(
            "CartPole-v1",
            lambda spec: TorchPolicy(Net(), spec.action_space),
            num_envs_per_worker=4,
            rollout_length=4,
            num_workers=0,
            collect=CollectOptions(make_collector=make_collector),
        )


def test_wrappers_of_workers_on_a_device_are_refused_before_they_start() -> None:
    pytest.importorskip("ray", reason="needs ray")
    from rollouts import RolloutCoordinator

    with pytest.raises(SpecError, match="normalize_observation"):
        RolloutCoordinator(
            "CartPole-v1",
            lambda spec: TorchPolicy(Net(), spec.action_space),
            num_envs_per_worker=4,
            rollout_length=4,
            num_workers=1,
            env_options={"normalize_observation": True},
            collect=CollectOptions(device="cpu-emulation"),
        )


@pytest.mark.parametrize(
    ("library", "module", "name"),
    [
        ("stable_baselines3", "sb3", "RolloutsVecEnv"),
        ("tianshou", "tianshou", "RolloutsVectorEnv"),
        ("gymnasium", "cleanrl", "make_vec"),
    ],
)
def test_adapters_refuse_a_device_beside_an_id(library: str, module: str, name: str) -> None:
    pytest.importorskip(library, reason=f"needs {library}")
    adapter = importlib.import_module(f"rollouts.integrations.{module}")
    with pytest.raises(SpecError, match="leave device out"):
        getattr(adapter, name)("CartPole-v1", num_envs=2, device="cpu-emulation")


def test_a_generator_that_is_set_is_the_one_that_is_read() -> None:
    with rollouts.make_vec("CartPole-v1", 2) as env:
        mine = np.random.default_rng(3)
        env.np_random = mine
        assert env.np_random is mine and env.np_random_seed == -1
    with (
        rollouts.from_env_fns([lambda: gymnasium.make("CartPole-v1")] * 2, num_processes=0) as env,
        pytest.raises(AttributeError, match="cannot be set"),
    ):
        env.np_random = np.random.default_rng(3)


def test_jax_asks_for_an_engine_that_has_functions_for_it() -> None:
    pytest.importorskip("jax", reason="needs jax")
    from rollouts.integrations.jax import xla

    with (
        rollouts.from_env_fns([lambda: gymnasium.make("CartPole-v1")] * 2, num_processes=0) as env,
        pytest.raises(SpecError, match="cannot be stepped by functions that JAX compiles"),
    ):
        xla(env)
    with (
        rollouts.make_vec("simple_spread_v3", 2) as agents,
        pytest.raises(SpecError, match="one agent"),
    ):
        xla(agents)
