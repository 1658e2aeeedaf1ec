# SPDX-License-Identifier: Apache-2.0
"""Workers with a GPU's pool, as loops here: their fragments in a learner's actor, kills or not."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from counter_world import assert_balanced, wait_until
from fragments import TRANSPORTS, needs_nixl

import rollouts
from rollouts import CollectOptions, Collector, FaultPolicy, RolloutCoordinator
from rollouts.errors import LearnerError
from rollouts.workers import WorkerConfig

torch = pytest.importorskip("torch")
ray = pytest.importorskip("ray")
pytest.importorskip("ray.experimental.rdt", reason="a Ray without direct transports")

pytestmark = pytest.mark.system

ENV_ID, NUM_ENVS, LENGTH = "CartPole-v1", 6, 8
EMULATION: Any = "cpu-emulation"
# the time after which a test hangs
LIMIT_S = 300.0
NUM_KILLS = 4

Key = tuple[int, int, int]  # worker_id, incarnation, seq_no
Start = Callable[..., RolloutCoordinator]


def make_policy(spec: Any) -> rollouts.TorchPolicy:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.actor, self.critic = torch.nn.Linear(4, 2), torch.nn.Linear(4, 1)

        def forward(self, obs: Any) -> Any:
            return self.actor(obs), self.critic(obs)

    torch.manual_seed(1)
    return rollouts.TorchPolicy(Net(), spec.single_action_space)


def make_learner() -> Any:
    @ray.remote(num_cpus=0, enable_tensor_transport=True)
    class Learner(rollouts.FragmentInbox):
        def take_all(self) -> list[tuple[Key, dict[str, Any]]]:
            taken = []
            while self.num_fragments:
                fragment = self.take()
                rollout, info = fragment.payload, fragment.info
                assert isinstance(rollout, rollouts.RolloutBatch)
                names = ("obs", "action", "reward", "value", "last_obs", "env_id")
                arrays = {name: getattr(rollout, name).numpy() for name in names}
                taken.append(((info.worker_id, info.incarnation, info.seq_no), arrays))
            return taken

    return Learner.remote()


@pytest.fixture
def start(ray_session: Any) -> Iterator[Start]:
    opened = []

    def make(transport: Any, **kwargs: Any) -> RolloutCoordinator:
        coordinator = RolloutCoordinator(
            ENV_ID,
            make_policy,
            num_envs_per_worker=NUM_ENVS,
            rollout_length=LENGTH,
            collect=CollectOptions(device=EMULATION, tensor_transport=transport),
            **{"num_workers": 2, **kwargs},
        )
        opened.append(coordinator)
        coordinator.publish_weights(make_policy(rollouts.env_spec(ENV_ID)).weights())
        return coordinator

    yield make
    for coordinator in opened:
        coordinator.close()


class Alone:
    """The rollouts of each life of a worker, collected in this process."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, int], list[Any]] = {}
        self._collectors: dict[tuple[int, int], Collector] = {}

    def rollout(self, key: Key) -> Any:
        life, seq_no = key[:2], key[2]
        if life not in self._collectors:
            self._collectors[life] = self._make(*life)
            self._found[life] = []
        while len(self._found[life]) <= seq_no:
            self._found[life].append(self._collectors[life].collect())
        return self._found[life][seq_no]

    def _make(self, worker_id: int, incarnation: int) -> Collector:
        config = WorkerConfig(
            id=ENV_ID,
            worker_id=worker_id,
            incarnation=incarnation,
            num_envs=NUM_ENVS,
            rollout_length=LENGTH,
            num_threads=1,
            seed=0,
            env_options={},
        )
        env: Any = rollouts.make_vec(
            ENV_ID,
            NUM_ENVS,
            device=EMULATION,
            seed=config.env_seed,
            env_id_offset=config.env_id_offset,
            autoreset_mode="same_step",
        )
        policy = make_policy(env)
        policy.noise_seed = config.noise_seed
        return Collector(env, policy, LENGTH)


def check(coordinator: RolloutCoordinator, learner: Any) -> dict[str, Any]:
    """Compares all that the learner has with what was handed over and with lone rollouts."""
    taken = ray.get(learner.take_all.remote(), timeout=LIMIT_S)
    stats = coordinator.stats()
    assert_balanced(stats)
    keys = [key for key, _ in taken]
    assert len(set(keys)) == len(keys) == stats["fragments"]["delivered"]
    assert stats["env_steps"]["delivered"] == len(keys) * NUM_ENVS * LENGTH
    alone = Alone()
    for key, arrays in taken:
        expected = alone.rollout(key)
        for name, array in arrays.items():
            np.testing.assert_array_equal(array, getattr(expected, name), err_msg=f"{key} {name}")
    return stats


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_killed_workers_cost_no_step_twice(start: Start, transport: str) -> None:
    coordinator = start(transport, faults=FaultPolicy(restart_window_s=0.0))
    learner = make_learner()
    rng = random.Random(3)
    killed: set[int] = set()

    def kill() -> None:
        # so many, or on a slow machine none would live long enough to complete anything
        while len(killed) < NUM_KILLS:
            threading.Event().wait(rng.uniform(0.0, 0.5))
            # each life once: one that is dead may be told as running for a moment
            workers = coordinator.stats()["workers"]
            pids = {w["pid"] for w in workers if w["state"] == "running"} - killed
            if pids:
                killed.add(pid := rng.choice(sorted(pids)))
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    # a test that has failed waits for no kills that no worker is left for
    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    while killer.is_alive():
        coordinator.hand_over(learner, LIMIT_S)
    killer.join()
    for _ in range(10):
        coordinator.hand_over(learner, LIMIT_S)
    # the last one was perhaps killed a moment ago
    wait_until(lambda: sum(coordinator.stats()["failures"].values()) >= NUM_KILLS)
    stats = check(coordinator, learner)
    assert stats["failures"] == {"worker_died": NUM_KILLS}
    assert set(stats["fragments"]["discarded"]) <= ({"lost"} if transport == "nixl" else set())


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_workers_start_at_once(start: Start, transport: str) -> None:
    # several threads of an actor import what it needs
    coordinator = start(transport, num_workers=3)
    learner = make_learner()
    for _ in range(6):
        coordinator.hand_over(learner, LIMIT_S)
    wait_until(lambda: all(w["state"] == "running" for w in coordinator.stats()["workers"]))
    stats = check(coordinator, learner)
    assert stats["failures"] == {}
    assert not any(w["last_error"] for w in stats["workers"])


@needs_nixl
def test_a_learner_that_cannot_receive_raises_and_nothing_is_lost(start: Start) -> None:
    @ray.remote(num_cpus=0, enable_tensor_transport=True)
    class Learner(rollouts.FragmentInbox):
        def __init__(self) -> None:
            import sys

            super().__init__()
            # as on a machine where it is not installed
            sys.modules |= dict.fromkeys(("nixl", "nixl._api"))

    coordinator = start("nixl")
    learner = Learner.remote()
    for _ in range(2):
        with pytest.raises(
            LearnerError, match=r"cannot receive .* that worker . still has: .*nixl"
        ):
            coordinator.hand_over(learner, LIMIT_S)
    stats = coordinator.stats()
    assert stats["fragments"]["discarded"] == {} and stats["fragments"]["delivered"] == 0
    coordinator.hand_over(able := make_learner(), LIMIT_S)
    assert check(coordinator, able)["fragments"]["discarded"] == {}
