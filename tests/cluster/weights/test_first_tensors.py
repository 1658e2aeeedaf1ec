# SPDX-License-Identifier: Apache-2.0
"""The first tensors of a process: two of Ray's threads use one store."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import pytest
from fragments import needs_nixl
from learner_actors import make_net, start_by_value

import rollouts
from rollouts import CollectOptions, FaultPolicy, RolloutCoordinator
from rollouts.errors import LearnerError

ray = pytest.importorskip("ray")
pytest.importorskip("ray.experimental.rdt", reason="a Ray without direct transports")

pytestmark = [pytest.mark.system, needs_nixl]

EMULATION: Any = "cpu-emulation"
# the time after which a test hangs
LIMIT_S = 300.0


def make_policy(spec: Any) -> rollouts.TorchPolicy:
    # the store is there before any tensors can come
    assert ray._private.worker.global_worker._rdt_manager is not None
    return rollouts.TorchPolicy(make_net(), spec.single_action_space)


def make_learner() -> Any:
    @ray.remote(num_cpus=0, enable_tensor_transport=True, max_restarts=1)
    class Learner(rollouts.FragmentInbox):
        def __init__(self) -> None:
            self._make_slowly()
            super().__init__()

        def _make_slowly(self) -> None:
            """Slows down Ray's making of the store, so that all threads try at once."""
            worker_class = type(ray._private.worker.global_worker)
            made = worker_class.rdt_manager.fget

            def make(worker: Any) -> Any:
                if worker._rdt_manager is not None:
                    return worker._rdt_manager
                threading.Event().wait(1.0)
                # several threads come here at once, each having found no manager, and make one
                worker._rdt_manager = None
                return made(worker)

            worker_class.rdt_manager = property(make)

        def pid(self) -> int:
            return os.getpid()

        def num_taken(self) -> int:
            return len(self.take().payload.obs)

    return start_by_value(Learner)


def start_coordinator() -> RolloutCoordinator:
    coordinator = RolloutCoordinator(
        "CartPole-v1",
        make_policy,
        num_workers=1,
        num_envs_per_worker=2,
        rollout_length=8,
        faults=FaultPolicy(max_restarts=0),
        collect=CollectOptions(device=EMULATION, tensor_transport="nixl"),
    )
    coordinator.publish_weights(make_net().state_dict())
    return coordinator


def test_a_learner_that_was_there_first_gets_its_first_tensors(
    ray_session: Any,
) -> None:
    learner = make_learner()
    with start_coordinator() as coordinator:
        coordinator.hand_over(learner, timeout_s=LIMIT_S)
        assert ray.get(learner.num_taken.remote()) == 8
        stats = coordinator.stats()
    assert stats["fragments"]["discarded"].get("lost", 0) == 0
    ray.kill(learner)


def test_a_learner_that_ray_started_again_gets_fragments(ray_session: Any) -> None:
    learner = make_learner()
    with start_coordinator() as coordinator:
        coordinator.hand_over(learner, timeout_s=LIMIT_S)
        os.kill(ray.get(learner.pid.remote()), signal.SIGKILL)
        while True:
            try:
                coordinator.hand_over(learner, timeout_s=LIMIT_S)
                break
            except LearnerError:
                # not there yet
                again = learner.pid.options(max_task_retries=-1).remote()
                assert ray.get(again, timeout=LIMIT_S)
        assert ray.get(learner.num_taken.remote()) == 8
        stats = coordinator.stats()
    # one, by which it is found out that the learner has to be told again
    assert stats["fragments"]["discarded"].get("lost", 0) <= 1
    ray.kill(learner)
