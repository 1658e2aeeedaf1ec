# SPDX-License-Identifier: Apache-2.0
"""The number of torch's threads while a policy acts beside a pool, and afterwards."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import rollouts
from rollouts.collecting.collector import Collector
from rollouts.errors import SpecError
from rollouts.machine.torch_threads import WORK_PER_THREAD, threads_for, torch_threads
from rollouts.workers import CollectOptions, PolicySpec, RolloutWorker, WorkerConfig
from rollouts.workers.local import LocalRunner

torch = pytest.importorskip("torch")
nn = torch.nn

from rollouts.policy import PolicyOutput, TorchPolicy  # noqa: E402


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    # the process's own, not those of a block around
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


class ActorCritic(nn.Module):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(4, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh()
        )
        self.logits, self.out = nn.Linear(width, 2), nn.Linear(width, 1)
        self.seen: list[int] = []

    def forward(self, obs: Any) -> tuple[Any, Any]:
        self.seen.append(torch.get_num_threads())
        features = self.body(obs)
        return self.logits(features), self.out(features)


def atari_network() -> Any:
    return nn.Sequential(
        nn.Conv2d(4, 32, 8, 4),
        nn.Conv2d(32, 64, 4, 2),
        nn.Conv2d(64, 64, 3),
        nn.Linear(3136, 512),
        nn.Linear(512, 7),
    )


def collector(policy: Any, **options: Any) -> Collector:
    env = rollouts.make_vec("CartPole-v1", 4, autoreset_mode="same_step", seed=0)
    return Collector(env, policy, 3, engine="torch", **options)


def torch_policy(width: int = 64) -> TorchPolicy:
    return TorchPolicy(ActorCritic(width), rollouts.env_spec("CartPole-v1").single_action_space)


def test_a_small_network_has_one_thread_however_many_rows_there_are() -> None:
    assert threads_for(torch_policy(), 4096, most=16) == 1


@pytest.mark.parametrize(("rows", "threads"), [(1, 1), (13, 1), (14, 2), (28, 4), (1024, 8)])
def test_a_large_network_has_a_thread_per_two_milliseconds_of_work(rows: int, threads: int) -> None:
    assert threads_for(atari_network(), rows, most=8) == threads


def test_of_a_policy_without_modules_nothing_is_known() -> None:
    assert threads_for(object(), 1_000_000, most=8) == 1


def test_parameters_elsewhere_than_on_the_cpu_do_not_count() -> None:
    with torch.device("meta"):
        module = nn.Linear(WORK_PER_THREAD, 8)
    assert threads_for(module, 64, most=8) == 1


def test_a_module_within_a_module_counts_once() -> None:
    class Policy:
        def __init__(self) -> None:
            self.whole = nn.Sequential(nn.Linear(1000, 1000, bias=False))
            self.part = self.whole[0]

    assert threads_for(Policy(), 64, most=8) == 1
    assert threads_for(Policy(), 128, most=8) == 2


def test_collect_computes_a_small_network_with_one_thread_and_gives_the_rest_back() -> None:
    policy = torch_policy()
    with collector(policy).env as env:
        Collector(env, policy, 3, engine="torch").collect()
    assert set(policy.module.seen) == {1}
    assert torch.get_num_threads() == 2


def test_collect_keeps_torchs_threads_for_a_large_network() -> None:
    policy = torch_policy(6000)
    each = collector(policy)
    each.collect()
    each.close()
    assert set(policy.module.seen) == {2}


def test_the_callers_own_number_wins() -> None:
    policy = torch_policy()
    each = collector(policy, num_torch_threads=3)
    each.collect()
    each.close()
    assert set(policy.module.seen) == {3}
    assert torch.get_num_threads() == 2


def in_a_new_thread(function: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(function).result()


def test_overlapping_blocks_of_two_threads_give_every_thread_its_number_back() -> None:
    entered, may_leave = threading.Event(), threading.Event()

    def other() -> int:
        with torch_threads(1):
            entered.set()
            assert may_leave.wait(60)
        return torch.get_num_threads()

    with ThreadPoolExecutor(1) as thread:
        with torch_threads(1):
            left_last = thread.submit(other)
            assert entered.wait(60)
        assert torch.get_num_threads() == 2
        may_leave.set()
        assert left_last.result(60) == 2
    assert torch.get_num_threads() == 2
    assert in_a_new_thread(torch.get_num_threads) == 2


def test_a_thread_with_a_number_of_its_own_keeps_it_beside_anothers_block() -> None:
    def own() -> tuple[int, int]:
        torch.set_num_threads(3)
        with torch_threads(2):
            with torch_threads(1):
                pass
            inside = torch.get_num_threads()
        return inside, torch.get_num_threads()

    with torch_threads(1):
        assert in_a_new_thread(own) == (2, 3)


def test_threads_come_back_after_a_policy_that_raises() -> None:
    class Raising(TorchPolicy):
        def act(self, obs: np.ndarray) -> PolicyOutput:
            raise KeyError(torch.get_num_threads())

    each = collector(Raising(ActorCritic(), rollouts.env_spec("CartPole-v1").single_action_space))
    with pytest.raises(KeyError, match="1"):
        each.collect()
    each.close()
    assert torch.get_num_threads() == 2


def test_no_threads_are_refused() -> None:
    with pytest.raises(SpecError, match="num_torch_threads is 0, expected at least 1 thread"):
        collector(torch_policy(), num_torch_threads=0)


def worker(width: int = 64, **changes: Any) -> RolloutWorker:
    settings: dict[str, Any] = {
        "id": "CartPole-v1",
        "num_envs": 4,
        "rollout_length": 3,
        "num_threads": 2,
        "seed": 0,
        "env_options": {},
    }

    def make_policy(spec: PolicySpec) -> TorchPolicy:
        return TorchPolicy(ActorCritic(width), spec.single_action_space)

    config = WorkerConfig(**settings, collect=CollectOptions(**changes))
    return RolloutWorker(config, make_policy, owns_process=True)


@pytest.mark.system
@pytest.mark.parametrize(
    ("width", "asked", "threads"), [(64, None, 1), (6000, None, 2), (64, 3, 3), (6000, 1, 1)]
)
def test_a_worker_gives_torch_as_many_threads_as_its_network_is_worth(
    width: int, asked: int | None, threads: int
) -> None:
    worker(width, num_torch_threads=asked).close()
    assert torch.get_num_threads() == threads


def test_a_local_worker_leaves_torchs_threads_as_they_were() -> None:
    from rollouts import RolloutCoordinator
    from rollouts.workers import CollectOptions

    policies = []

    def make_policy(spec: PolicySpec) -> TorchPolicy:
        policies.append(TorchPolicy(ActorCritic(), spec.single_action_space))
        return policies[0]

    with RolloutCoordinator(
        "CartPole-v1",
        make_policy,
        num_workers=0,
        num_envs_per_worker=4,
        rollout_length=3,
        collect=CollectOptions(engine="torch"),
    ) as coordinator:
        assert isinstance(coordinator._runner, LocalRunner)
        coordinator.publish_weights(torch_policy().weights())
        coordinator.get()
    assert set(policies[-1].module.seen) == {1}
    assert torch.get_num_threads() == 2
