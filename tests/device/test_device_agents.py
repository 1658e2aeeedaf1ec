# SPDX-License-Identifier: Apache-2.0
"""Workers with a GPU's pool of several agents, as loops here: fragments in a learner's actor."""

from __future__ import annotations

from typing import Any

import pytest
from counter_world import assert_balanced
from fragments import TRANSPORTS

import rollouts
from rollouts import CollectOptions, MultiAgentRollout, RolloutCoordinator
from rollouts.errors import ProtocolError
from rollouts.workers.agent_policies import make_policies
from rollouts.workers.worker_config import WorkerConfig

torch = pytest.importorskip("torch")
ray = pytest.importorskip("ray")
pytest.importorskip("ray.experimental.rdt", reason="a Ray without direct transports")

pytestmark = pytest.mark.system

ENV_ID, NUM_ENVS, LENGTH = "simple_tag_v3", 5, 7
EMULATION: Any = "cpu-emulation"
LIMIT_S = 300.0


def make_policy(spec: Any) -> rollouts.TorchPolicy:
    size, num_actions = spec.single_observation_space.shape[0], int(spec.single_action_space.n)

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.actor, self.critic = torch.nn.Linear(size, num_actions), torch.nn.Linear(size, 1)

        def forward(self, obs: Any) -> Any:
            return self.actor(obs), self.critic(obs)

    torch.manual_seed(1)
    return rollouts.TorchPolicy(Net(), spec.single_action_space)


def alone(num_rollouts: int) -> list[rollouts.MultiAgentRollout]:
    """The rollouts of worker 0, collected in this process."""
    config = WorkerConfig(
        id=ENV_ID,
        num_envs=NUM_ENVS,
        rollout_length=LENGTH,
        num_threads=1,
        seed=0,
        env_options={},
    )
    env: Any = rollouts.make_vec(
        ENV_ID, NUM_ENVS, device=EMULATION, seed=config.env_seed, autoreset_mode="same_step"
    )
    _, policies = make_policies(env, config, make_policy)
    collector = rollouts.Collector(env, policies, LENGTH)
    return [collector.collect() for _ in range(num_rollouts)]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_fragments_of_groups_arrive_as_they_were_collected(
    ray_session: Any, transport: Any
) -> None:
    @ray.remote(num_cpus=0, enable_tensor_transport=True)
    class Learner(rollouts.FragmentInbox):
        def take_one(self) -> Any:
            fragment = self.take(LIMIT_S)
            rollout: Any = fragment.payload
            assert isinstance(rollout, rollouts.MultiAgentRollout)
            assert fragment.batches is rollout
            assert fragment.policy_version.shape == (LENGTH, NUM_ENVS)
            names = ("obs", "action", "reward", "value", "last_obs", "env_id")
            return fragment.seq_no, {
                (group, name): getattr(one, name).numpy()
                for group, one in rollout.items()
                for name in names
            }

    collect = CollectOptions(device=EMULATION, tensor_transport=transport)
    with RolloutCoordinator[MultiAgentRollout](
        ENV_ID,
        make_policy,
        num_workers=1,
        num_envs_per_worker=NUM_ENVS,
        rollout_length=LENGTH,
        collect=collect,
    ) as coordinator:
        groups = rollouts.env_spec(ENV_ID).groups
        coordinator.publish_weights({one.name: make_policy(one).weights() for one in groups})
        learner = Learner.remote()
        for seq_no, expected in enumerate(alone(3)):
            coordinator.hand_over(learner, timeout_s=LIMIT_S)
            taken, arrays = ray.get(learner.take_one.remote(), timeout=LIMIT_S)
            assert taken == seq_no
            assert {group for group, _ in arrays} == {*expected} == {"adversary", "agent"}
            for (group, name), array in arrays.items():
                assert (array == getattr(expected[group], name).numpy()).all(), (group, name)
        with pytest.raises(ProtocolError, match="not joined"):
            coordinator.get()
        coordinator.drain(timeout_s=LIMIT_S)
        stats = coordinator.stats()
        assert_balanced(stats)
        assert stats["env_steps"]["delivered"] == 3 * NUM_ENVS * LENGTH
