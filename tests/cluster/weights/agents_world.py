# SPDX-License-Identifier: Apache-2.0
"""Learners of several policies in actors, and workers whose values tell whose weights they have."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from learner_actors import start_by_value

import rollouts
from rollouts import FaultPolicy, MultiAgentRollout, RolloutCoordinator, WeightTransport
from rollouts.workers import Fragment
from rollouts.workers.weight_store import WeightStore

ENV_ID = "simple_tag_v3"
GROUPS = {group.name: group for group in rollouts.env_spec(ENV_ID).groups}
POLICIES = tuple(GROUPS)
# the time after which a test hangs
LIMIT_S = 300.0


class Net(torch.nn.Module):
    """An actor-critic for a group, with `size` numbers more that nobody reads."""

    def __init__(self, group: str, size: int = 0) -> None:
        super().__init__()
        width = GROUPS[group].single_observation_space.shape[0]
        self.body = torch.nn.Linear(width, 8)
        self.actor = torch.nn.Linear(8, int(GROUPS[group].single_action_space.n))
        self.critic = torch.nn.Linear(8, 1)
        self.register_buffer("frozen", torch.zeros(size))

    def forward(self, obs: Any) -> Any:
        hidden = torch.tanh(self.body(obs))
        return self.actor(hidden), self.critic(hidden)


def make_state(policy: str, step: int, size: int = 0) -> dict[str, torch.Tensor]:
    """A policy's arrays after so many steps; step 0 is what `make_policy` makes."""
    generator = torch.Generator().manual_seed(100 * step + POLICIES.index(policy))
    return {
        name: tensor if name == "frozen" else torch.randn(tensor.shape, generator=generator)
        for name, tensor in Net(policy, size).state_dict().items()
    }


def policy_maker(size: int = 0) -> Callable[[Any], rollouts.TorchPolicy]:
    def make_policy(spec: Any) -> rollouts.TorchPolicy:
        net = Net(spec.group, size)
        net.load_state_dict(make_state(spec.group, 0, size))
        return rollouts.TorchPolicy(net, spec.single_action_space)

    return make_policy


def make_learner(
    *, size: int = 0, alone: str | None = None, has_transport: bool = True, **options: Any
) -> Any:
    """Starts a learner of all policies, or of one alone; it has everything by value."""
    import ray

    @ray.remote(num_cpus=0, enable_tensor_transport=has_transport, **options)
    class Learner:
        def __init__(self) -> None:
            self.modules = {policy: Net(policy, size) for policy in POLICIES}
            self.answers = POLICIES

        def pid(self) -> int:
            import os

            return os.getpid()

        def train(self, steps: Mapping[str, int], answers: Collection[str]) -> None:
            """Makes policies those after so many steps, and answers with those named."""
            for policy, step in steps.items():
                # in place, as an optimiser does: what was published must not follow
                self.modules[policy].load_state_dict(make_state(policy, step, size))
            self.answers = tuple(answers)

        def train_for(self, seconds: float) -> None:
            import threading

            threading.Event().wait(seconds)

        def train_until(self, path: str) -> None:
            """Trains until there is such a file."""
            import os
            import threading

            while not os.path.exists(path):
                threading.Event().wait(0.01)

        def weights(self) -> Any:
            if alone is not None:
                return self.modules[alone].state_dict()
            return {policy: self.modules[policy].state_dict() for policy in self.answers}

        def listed(self) -> Any:
            return [self.modules["agent"].state_dict()]

        def empty(self) -> Any:
            return {}

        def flat(self) -> Any:
            return self.modules["agent"].state_dict()

        def unknown(self) -> Any:
            return {**self.weights(), "prey": {}}

        def lacking(self) -> Any:
            state = self.modules["agent"].state_dict()
            return {"agent": {name: state[name] for name in state if "body" not in name}}

        def swollen(self) -> Any:
            return {"agent": {**self.modules["agent"].state_dict(), "body.scale": torch.ones(1)}}

        def swapped(self) -> Any:
            return {"adversary": self.modules["agent"].state_dict()}

        def words(self) -> Any:
            return {"agent": {**self.modules["agent"].state_dict(), "body.bias": "text"}}

        def failing(self) -> Any:
            raise ValueError("the optimiser broke")

    return start_by_value(Learner)


class AgentsWorld:
    """A coordinator, a learner of all policies, and what each version must be like."""

    def __init__(self, learner: Any, *, size: int = 0, **kwargs: Any) -> None:
        self.options = kwargs.pop("weights", WeightTransport())
        self.coordinator = RolloutCoordinator[MultiAgentRollout](
            ENV_ID,
            policy_maker(size),
            **{
                "num_workers": 2,
                "num_envs_per_worker": 3,
                "rollout_length": 4,
                "faults": FaultPolicy(max_restarts=1000, restart_window_s=0.0),
                **kwargs,
            },
            weights=self.options,
        )
        self.learner, self._size = learner, size
        self.steps = dict.fromkeys(POLICIES, 0)
        self._expected: dict[int, dict[str, rollouts.NativePolicy]] = {}

    def train(self, policies: Iterable[str] = POLICIES) -> dict[str, int]:
        """Counts a step of policies; returns where they are."""
        for policy in policies:
            self.steps[policy] += 1
        return {policy: self.steps[policy] for policy in policies}

    def publish(self, policies: Collection[str] = POLICIES) -> int:
        """Trains policies a step, and publishes these."""
        self.learner.train.remote(self.train(policies), policies)
        return self.publish_from(self.learner)

    def publish_from(self, learner: Any) -> int:
        """Publishes what must be at `steps` then."""
        version = self.coordinator.publish_from(learner, timeout_s=LIMIT_S)
        assert version not in self._expected
        self._expected[version] = {policy: self._acting(policy) for policy in POLICIES}
        return version

    def _acting(self, policy: str) -> rollouts.NativePolicy:
        state: Any = make_state(policy, self.steps[policy], self._size)
        if self.steps[policy]:
            # a store's arrays, narrowed
            plain = WeightStore(transport=WeightTransport(dtype=self.options.dtype))
            plain.publish(state)
            assert plain.latest is not None
            state = plain.latest.fetch()
        net, group = Net(policy, self._size), GROUPS[policy]
        width = group.single_observation_space.shape[0]
        acting = rollouts.NativePolicy.from_torch(net, group.single_action_space, width)
        acting.load_weights(state, 0)
        return acting

    def take(self) -> Fragment:
        """Takes a fragment, and checks that its values are those of its version's weights."""
        (fragment,) = self.coordinator.get_fragments(1, LIMIT_S)
        version = fragment.min_policy_version
        assert version == fragment.max_policy_version
        assert {*fragment.batches} == {*POLICIES}
        for policy, batch in fragment.batches.items():
            value = self._expected[version][policy].value(
                batch.obs.reshape(-1, batch.obs.shape[-1])
            )
            np.testing.assert_array_equal(batch.value, value.reshape(batch.value.shape))
        return fragment

    def take_until(self, version: int, worker_ids: set[int]) -> list[Fragment]:
        """Takes fragments until all of these workers have delivered one of a version."""
        taken: list[Fragment] = []
        while not {f.worker_id for f in taken if f.min_policy_version == version} >= worker_ids:
            taken.append(self.take())
        return taken
