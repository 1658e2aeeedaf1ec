# SPDX-License-Identifier: Apache-2.0
"""Action masks in Tianshou's observations and in TorchRL's tensordicts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rollouts
from rollouts.errors import SpecError

torch = pytest.importorskip("torch")


def masks_of(env_id: str, num_envs: int, seed: int, actions: list[Any]) -> list[Any]:
    """(N, A) bool of the first observations and after each step, of a plain pool."""
    env = rollouts.make_vec(
        env_id, num_envs, seed=seed, autoreset_mode="same_step", max_episode_steps=9
    )
    env.reset()
    found = [env.action_masks().copy()]
    for each in actions:
        env.step(each)
        found.append(env.action_masks().copy())
    env.close()
    return found


def test_tianshou_reads_masks_of_observations() -> None:
    pytest.importorskip("tianshou")
    from rollouts.integrations.tianshou import RolloutsCollector, RolloutsVectorEnv
    from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
    from tianshou.data import Batch, Collector, VectorReplayBuffer

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(500, 6)

        def forward(self, obs: Any, state: Any = None, info: Any = None) -> Any:
            return self.table(torch.as_tensor(np.asarray(obs)).long()), state

    env: Any = RolloutsVectorEnv(
        "Taxi-v3", num_envs=6, seed=3, max_episode_steps=9, action_masks=True
    )
    assert {*env.observation_space[0].spaces} == {"obs", "mask"}
    assert env.observation_space[0]["mask"].n == 6
    torch.manual_seed(1)
    policy = DiscreteQLearningPolicy(
        model=Net(),
        action_space=env.action_space[0],
        observation_space=env.observation_space[0],
        eps_training=0.5,
    )
    for make in (Collector, RolloutsCollector):
        buffer = VectorReplayBuffer(600, 6)
        collector: Any = make(policy, env, buffer)
        collector.reset()
        collector.collect(n_step=300)
        stored, _ = buffer.sample(0)
        allowed = np.asarray(stored.obs.mask)
        assert allowed.shape == (300, 6) and allowed.dtype == np.bool_
        assert allowed.sum() < 0.9 * allowed.size
        # each action, random or greedy, is among what its observation allows
        assert np.take_along_axis(allowed, np.asarray(stored.act)[:, None], 1).all()
        assert np.asarray(stored.obs_next.mask).shape == (300, 6)
    assert isinstance(stored.obs, Batch)
    env.close()


def test_tianshou_resets_have_the_masks_of_the_first_observations() -> None:
    pytest.importorskip("tianshou")
    from rollouts.integrations.tianshou import RolloutsVectorEnv

    actions = [np.full(5, step % 4) for step in range(25)]
    expected = masks_of("Taxi-v3", 5, 3, actions)
    env: Any = RolloutsVectorEnv(
        "Taxi-v3", num_envs=5, seed=3, max_episode_steps=9, action_masks=True
    )
    obs, _ = env.reset()
    assert (np.stack([one["mask"] for one in obs]) == expected[0]).all()
    num_resets = 0
    for step, each in enumerate(actions):
        # in two parts, so that the pool's last batch has some of them alone
        parts = [env.step(each[ids], ids) for ids in (np.arange(2), np.arange(2, 5))]
        obs = np.concatenate([part[0] for part in parts])
        ended = np.concatenate([part[2] | part[3] for part in parts])
        ids = np.flatnonzero(ended)
        for i in np.flatnonzero(~ended):
            assert (obs[i]["mask"] == expected[step + 1][i]).all()
        if len(ids):
            num_resets += 1
            first, _ = env.reset(ids)
            assert (np.stack([one["mask"] for one in first]) == expected[step + 1][ids]).all()
    assert num_resets == 2
    env.close()


def test_torchrl_has_masks_in_tensordicts() -> None:
    pytest.importorskip("torchrl")
    from rollouts.integrations.torchrl import RolloutsCollector, RolloutsEnv
    from tensordict.nn import TensorDictModule
    from torchrl.envs import ActionMask, TransformedEnv
    from torchrl.envs.utils import check_env_specs
    from torchrl.modules import MaskedCategorical, ProbabilisticActor

    def make() -> Any:
        env: Any = RolloutsEnv(
            "Taxi-v3",
            num_envs=6,
            seed=3,
            max_episode_steps=9,
            action_mask=True,
            categorical_action_encoding=True,
        )
        return TransformedEnv(env, ActionMask())

    check_env_specs(make())
    env = make()
    found = env.rollout(40, break_when_any_done=False)
    allowed, action = found["action_mask"], found["action"]
    assert allowed.shape == (6, 40, 6) and allowed.float().mean() < 0.9
    assert allowed.gather(-1, action.unsqueeze(-1)).all()
    actions = list(action.unbind(1))
    expected = masks_of("Taxi-v3", 6, 3, [one.numpy() for one in actions])
    assert (allowed.numpy().swapaxes(0, 1) == np.stack(expected[:-1])).all()
    ended = found["next", "done"][..., 0]
    assert (
        ended.any()
        and (found["next", "action_mask"] == allowed.roll(-1, 1))[:, :-1][~ended[:, :-1]].all()
    )
    # a policy that reads them, in the collector that has native code where there are none
    logits = TensorDictModule(torch.nn.Embedding(500, 6), ["observation"], ["logits"])
    policy = ProbabilisticActor(
        logits,
        in_keys={"logits": "logits", "mask": "action_mask"},
        distribution_class=MaskedCategorical,
    )
    env = make().base_env
    collector: Any = RolloutsCollector(env, policy, frames_per_batch=60, total_frames=60)
    for batch in collector:
        assert batch["action_mask"].gather(-1, batch["action"].unsqueeze(-1)).all()
    assert collector.engine == "torch" and "action masks" in collector.why_not_native
    collector.shutdown()


def test_environments_without_masks_are_refused() -> None:
    pytest.importorskip("tianshou")
    pytest.importorskip("torchrl")
    from rollouts.integrations.tianshou import RolloutsVectorEnv
    from rollouts.integrations.torchrl import RolloutsEnv

    with pytest.raises(SpecError, match="expected Discrete actions and an action_mask"):
        RolloutsVectorEnv("CartPole-v1", num_envs=2, action_masks=True)
    with pytest.raises(SpecError, match="leave wait_num and timeout out"):
        RolloutsVectorEnv("Taxi-v3", num_envs=4, wait_num=2, action_masks=True)
    with pytest.raises(SpecError, match="expected an action_mask"):
        RolloutsEnv("CartPole-v1", num_envs=2, action_mask=True)
