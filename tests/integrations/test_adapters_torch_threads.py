# SPDX-License-Identifier: Apache-2.0
"""The number of torch's threads while the adapters' collectors act beside a pool."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rollouts.machine.torch_threads import torch_threads

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    with torch_threads(2):
        yield
        assert torch.get_num_threads() == 2


def watched(module: Any) -> list[int]:
    """Returns the list that gets torch's number of threads whenever the module computes."""
    seen: list[int] = []
    module.register_forward_pre_hook(lambda *_: seen.append(torch.get_num_threads()))
    return seen


@pytest.mark.parametrize(("asked", "threads"), [(None, 1), (2, 2)])
@pytest.mark.parametrize("name", ["RolloutsPPO", "RolloutsDQN"])
def test_sb3_collects_with_one_thread_and_trains_with_all(
    name: str, asked: int | None, threads: int
) -> None:
    pytest.importorskip("stable_baselines3")
    from rollouts.integrations import sb3
    from stable_baselines3.common.callbacks import BaseCallback

    class Watch(BaseCallback):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[int] = []

        def _on_step(self) -> bool:
            self.seen.append(torch.get_num_threads())
            return True

    env = sb3.RolloutsVecEnv("CartPole-v1", 4)
    options: dict[str, Any] = {"learning_starts": 4}
    if name == "RolloutsPPO":
        options = {"n_steps": 8, "rollout_engine": "torch"}
    model = getattr(sb3, name)("MlpPolicy", env, seed=0, device="cpu", **options)
    model.num_torch_threads = asked
    train, trained = model.train, []
    model.train = lambda *args, **kwargs: (
        trained.append(torch.get_num_threads()),
        train(*args, **kwargs),
    )
    watch = Watch()
    model.learn(32, callback=watch)
    env.close()
    assert set(watch.seen) == {threads}
    assert set(trained) == {2}


@pytest.mark.parametrize(("asked", "threads"), [(None, 1), (2, 2)])
def test_an_rllib_env_runner_samples_with_one_thread(asked: int | None, threads: int) -> None:
    pytest.importorskip("ray.rllib")
    from ray.rllib.algorithms.ppo import PPOConfig
    from rollouts.integrations.rllib import RolloutsEnvRunner

    config = (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(env_runner_cls=RolloutsEnvRunner, num_envs_per_env_runner=4)
        .debugging(seed=0)
    )
    runner = RolloutsEnvRunner(config=config)
    runner.num_torch_threads = asked
    seen = watched(runner.module.encoder)
    runner.sample(num_timesteps=16)
    assert not runner.slow_reason
    runner.stop()
    assert set(seen) == {threads}


@pytest.mark.parametrize(("asked", "threads"), [(None, 1), (2, 2)])
def test_tianshous_collector_acts_with_one_thread(asked: int | None, threads: int) -> None:
    pytest.importorskip("tianshou")
    from rollouts.integrations.tianshou import RolloutsCollector, RolloutsVectorEnv
    from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy
    from tianshou.data import VectorReplayBuffer
    from tianshou.utils.net.common import Net
    from tianshou.utils.net.discrete import DiscreteActor

    env = RolloutsVectorEnv("CartPole-v1", num_envs=4)
    space = env.action_space[0]
    net = Net(state_shape=(4,), hidden_sizes=[64, 64])
    actor = DiscreteActor(preprocess_net=net, action_shape=(2,), softmax_output=False)
    policy = DiscreteActorPolicy(
        actor=actor,
        dist_fn=lambda logits: torch.distributions.Categorical(logits=logits),
        action_space=space,
    )
    collector = RolloutsCollector(policy, env, VectorReplayBuffer(64, 4))
    collector.num_torch_threads = asked
    seen = watched(net)
    collector.collect(n_step=16, reset_before_collect=True)
    env.close()
    assert set(seen) == {threads}
