# SPDX-License-Identifier: Apache-2.0
"""Learners in actors whose weights are told by their number, and workers that say what they got."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from counter_world import CounterCollector, StepChecker
from digest_policy import digest, make_policy
from learner_actors import start_by_value

from rollouts import CollectOptions, FaultPolicy, RolloutCoordinator, WeightTransport
from rollouts.workers.weight_store import WeightStore

# the time after which a test hangs
LIMIT_S = 300.0


def make_weights(step: int, size: int) -> dict[str, Any]:
    """A learner's arrays after so many steps: changing ones, and a frozen one."""
    generator = torch.Generator().manual_seed(step)
    return {
        "matrix": torch.randn(size, 3, generator=generator).t(),
        "double": torch.randn(7, generator=generator, dtype=torch.float64),
        "half": torch.randn(5, generator=generator).to(torch.bfloat16),
        "scalar": torch.tensor(step),
        "flag": torch.tensor([step % 2 == 0, True]),
        "array": np.arange(3, dtype=np.uint16) + np.uint16(step),
        "frozen": torch.ones(size),
        "empty": torch.empty(0, 4),
    }


def make_learner(*, size: int = 1000, has_transport: bool = True, **options: Any) -> Any:
    """Starts a learner in an actor; it has everything by value, as users' do."""
    import ray

    @ray.remote(num_cpus=0, enable_tensor_transport=has_transport, **options)
    class Learner:
        def __init__(self) -> None:
            self.step = 0
            self.tensors: dict[str, Any] = {}

        def pid(self) -> int:
            import os

            return os.getpid()

        def train(self) -> int:
            self.step += 1
            return self.step

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
            fresh = make_weights(self.step, size)
            for name, value in fresh.items():
                # in place, as an optimiser does: what was published must not follow
                if name in self.tensors:
                    self.tensors[name][...] = value
                else:
                    self.tensors[name] = value
            return self.tensors

        def nothing(self) -> Any:
            return [1.0]

        def words(self) -> Any:
            return {"w": "text"}

        def failing(self) -> Any:
            raise ValueError("the optimiser broke")

    return start_by_value(Learner)


class World:
    """A coordinator, a learner in an actor, and what each version must be like."""

    def __init__(self, learner: Any, *, size: int = 1000, **kwargs: Any) -> None:
        self.options = kwargs.pop("weights", WeightTransport())
        self.coordinator = RolloutCoordinator(
            "Counter",
            make_policy,
            **{
                "num_workers": 2,
                "num_envs_per_worker": 3,
                "rollout_length": 4,
                "faults": FaultPolicy(max_restarts=1000, restart_window_s=0.0),
                **kwargs,
            },
            weights=self.options,
            collect=CollectOptions(make_collector=CounterCollector),
        )
        self.learner, self._size = learner, size
        self.checker = StepChecker()
        self._expected: dict[int, int] = {}
        self._step = 0

    def publish(self) -> int:
        """Trains a step and publishes."""
        self.learner.train.remote()
        self._step += 1
        version = self.coordinator.publish_from(self.learner, timeout_s=LIMIT_S)
        self.expect(version, make_weights(self._step, self._size))
        return version

    def expect(self, version: int, weights: Mapping[str, Any]) -> None:
        plain = WeightStore(transport=WeightTransport(dtype=self.options.dtype))
        plain.publish(weights)
        assert plain.latest is not None and version not in self._expected
        self._expected[version] = digest(plain.latest.fetch())

    def take(self, num_fragments: int = 1) -> list[Any]:
        """Takes fragments, and checks that their actions are those of their versions."""
        fragments = self.coordinator.get_fragments(num_fragments, LIMIT_S)
        self.checker.add(*fragments)
        for fragment in fragments:
            versions = np.unique(fragment.policy_version)
            assert len(versions) == 1
            assert (fragment.batch.action == self._expected[int(versions[0])]).all()
        return fragments

    def take_until(self, is_enough: Callable[[list[Any]], bool]) -> list[Any]:
        taken: list[Any] = []
        while not is_enough(taken):
            taken += self.take()
        return taken

    def has_acted(self, version: int, worker_ids: set[int]) -> Callable[[list[Any]], bool]:
        """Tells whether all of these workers have delivered fragments of a version."""
        return lambda taken: (
            {f.worker_id for f in taken if f.min_policy_version == version} >= worker_ids
        )
