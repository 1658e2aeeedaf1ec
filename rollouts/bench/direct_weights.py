# SPDX-License-Identifier: Apache-2.0
"""Measures weights from a learner's actor to the workers: `python -m rollouts.bench.weights`.

The time runs from the call that publishes until a fragment with these weights has come from each of
the two workers. The workers have real policies. The ways take turns, each with a coordinator of its
own that waits while the others are measured.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable
from typing import Any

import ray as _typed_ray
import torch
from torch import Tensor, nn

import rollouts
from rollouts.workers import CollectOptions, QueueLimits, WeightTransport
from rollouts.workers.tensor_transport import TensorTransport

# ray annotates only half of what it exports
ray: Any = _typed_ray

NUM_WORKERS = 2
_WIDTH = 1 << 16  # elements of one array
_WAYS: tuple[tuple[str, TensorTransport | None], ...] = (
    ("ray.get + publish_weights", None),
    ("publish_from, object store", "object_store"),
)


class _Net(nn.Module):
    """A policy for CartPole with megabytes of weights that it does not need."""

    def __init__(self, megabytes: float) -> None:
        super().__init__()
        self.actor, self.critic = nn.Linear(4, 2), nn.Linear(4, 1)
        number = max(1, round(megabytes * 1e6 / 4 / _WIDTH))
        self.load = nn.ParameterList([torch.zeros(_WIDTH) for _ in range(number)])

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        return self.actor(obs), self.critic(obs)


class _Learner:
    """The owner of the module, which changes all weights in each call, as a gradient step would."""

    def __init__(self, megabytes: float) -> None:
        self._net = _Net(megabytes)

    def weights(self) -> dict[str, Any]:
        with torch.no_grad():
            for parameter in self._net.parameters():
                parameter.add_(1e-3)
        return {name: value.detach().numpy() for name, value in self._net.state_dict().items()}


def measure(megabytes: float, repeats: int) -> dict[str, tuple[float, float]]:
    """Returns medians in seconds, by way: of the publishing call, and until the last worker acts.

    Runs in the Ray that this process is connected to.
    """

    def make_policy(spec: Any) -> rollouts.TorchPolicy:
        return rollouts.TorchPolicy(_Net(megabytes), spec.single_action_space)

    learner = ray.remote(num_cpus=0, enable_tensor_transport=True)(_Learner).remote(megabytes)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name, _ in _WAYS}
    with contextlib.ExitStack() as stack:
        ways: dict[str, tuple[Any, Callable[[], int]]] = {}
        for name, transport in _WAYS:
            coordinator = stack.enter_context(
                rollouts.RolloutCoordinator(
                    "CartPole-v1",
                    make_policy,
                    num_workers=NUM_WORKERS,
                    num_envs_per_worker=1,
                    rollout_length=1,
                    sync_mode="synchronous",
                    queue=QueueLimits(merge="ordered", credits_per_worker=1),
                    placement=rollouts.Placement(num_cpus=0.1),
                    collect=CollectOptions(engine="torch", num_torch_threads=1),
                    weights=WeightTransport(tensor_transport=transport or "object_store"),
                )
            )
            ways[name] = coordinator, _publisher(coordinator, learner, transport)
        for repeat in range(repeats + 1):
            for name, (coordinator, publish) in ways.items():
                took = _once(coordinator, publish)
                # the first repeat waits for workers to start
                if repeat:
                    times[name].append(took)
    ray.kill(learner)
    return {
        name: (statistics.median(t[0] for t in took), statistics.median(t[1] for t in took))
        for name, took in times.items()
    }


def _publisher(coordinator: Any, learner: Any, transport: TensorTransport | None) -> Any:
    if transport is None:
        return lambda: coordinator.publish_weights(ray.get(learner.weights.remote()))
    return lambda: coordinator.publish_from(learner)


def _once(coordinator: Any, publish: Callable[[], int]) -> tuple[float, float]:
    start = time.perf_counter()
    version = publish()
    published = time.perf_counter()
    # in order, so that there is one of each worker
    fragments = coordinator.get_fragments(NUM_WORKERS, 300.0)
    acted = time.perf_counter()
    assert {f.worker_id for f in fragments} == set(range(NUM_WORKERS))
    assert {f.min_policy_version for f in fragments} == {version}
    return published - start, acted - start


def print_table(megabytes: float, repeats: int) -> None:
    """Prints what `measure` found."""
    print(f"\n{megabytes:g} MB from a learner's actor to {NUM_WORKERS} workers")
    print(f"{'':28} {'publish ms':>12} {'acting ms':>10}")
    for name, (publish, acting) in measure(megabytes, repeats).items():
        print(f"{name:28} {publish * 1e3:12.2f} {acting * 1e3:10.2f}")
