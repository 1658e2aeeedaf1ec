# SPDX-License-Identifier: Apache-2.0
"""Starts learners' actors and worlds, and kills workers, for tests of weights from learners."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from fragments import ANY_TRANSPORT

from rollouts import WeightTransport


def make_net() -> torch.nn.Module:
    """An actor-critic for CartPole."""

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.actor, self.critic = torch.nn.Linear(4, 2), torch.nn.Linear(4, 1)

        def forward(self, obs: Any) -> Any:
            return self.actor(obs), self.critic(obs)

    return Net()


def start_by_value(actor_class: Any) -> Any:
    """Starts an actor whose module goes with it, as that of a user's script does."""
    import ray

    module = sys.modules[actor_class.__ray_metadata__.modified_class.__module__]
    ray.cloudpickle.register_pickle_by_value(module)
    try:
        return actor_class.remote()
    finally:
        ray.cloudpickle.unregister_pickle_by_value(module)


@contextmanager
def opened_worlds(open_world: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Opens worlds by a transport, options of `WeightTransport` and those of `open_world`.

    Their coordinators are closed at the end, and their learners killed.
    """
    import ray

    opened = []

    def make(transport: Any = ANY_TRANSPORT, **kwargs: Any) -> Any:
        options = WeightTransport(tensor_transport=transport, **kwargs.pop("options", {}))
        opened.append(open_world(weights=options, **kwargs))
        return opened[-1]

    yield make
    for each in opened:
        each.coordinator.close()
        ray.kill(each.learner)


def running_pids(coordinator: Any) -> dict[int, int]:
    """worker_id -> process of the workers that run."""
    workers = coordinator.stats()["workers"]
    return {w["worker_id"]: w["pid"] for w in workers if w["state"] == "running"}


def start_killer(coordinator: Any, num_kills: int, seed: int) -> threading.Thread:
    """Kills workers at random moments, and ends when so many are dead."""
    rng = random.Random(seed)
    killed: set[int] = set()

    def kill() -> None:
        # so many, or on a slow machine none would live long enough to complete anything
        while len(killed) < num_kills:
            threading.Event().wait(rng.uniform(0.0, 0.5))
            # each life once: one that is dead may be told as running for a moment
            pids = set(running_pids(coordinator).values()) - killed
            if pids:
                killed.add(pid := rng.choice(sorted(pids)))
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    # a test that has failed waits for no kills that no worker is left for
    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    return killer
