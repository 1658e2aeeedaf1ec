# SPDX-License-Identifier: Apache-2.0
"""The shared inference actor in a real Ray: its clients, its faults, and a native worker."""

from __future__ import annotations

import functools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from inference_world import (
    ActorCritic,
    HangingPolicy,
    make_broken_policy,
    make_sum_policy,
    make_torch_policy,
    spec,
)

from rollouts.errors import WorkerError
from rollouts.policy import TorchPolicy
from rollouts.workers import WeightStore
from rollouts.workers.offers import local_part
from rollouts.workers.on_ray.ray_weights import ray_part
from rollouts.workers.policy_requests import BatchRule

pytestmark = pytest.mark.system

TIMEOUT_S = 300
FOREVER_S = 3600.0

Start = Callable[..., Any]


@pytest.fixture
def start(ray_session: Any) -> Iterator[Start]:
    """Starts inference servers and closes them."""
    from rollouts.workers.on_ray.inference import InferenceServer

    opened = []

    def start(make_policy: Any = make_sum_policy, **kwargs: Any) -> InferenceServer:
        server = InferenceServer(make_policy, spec(seed=11), **kwargs)
        opened.append(server)
        return server

    yield start
    for server in opened:
        server.close()


def observations(rows: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, 4)).astype(np.float32)


def wait_for_file(path: Path) -> str:
    deadline = time.monotonic() + TIMEOUT_S
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} was not written"
        threading.Event().wait(0.01)
    return path.read_text()


@pytest.mark.parametrize("make_offer", [local_part, ray_part])
def test_a_single_client_gets_what_a_local_policy_would_say(start: Start, make_offer: Any) -> None:
    remote = start(make_torch_policy).make_remote_policy(spec())
    local = TorchPolicy(ActorCritic(), spec().single_action_space, seed=11)
    store = WeightStore(make_offer)
    for round_number in range(1, 4):
        weights = TorchPolicy(ActorCritic(), spec().single_action_space).weights()
        store.publish(weights)
        assert store.latest is not None
        remote.load_offer(store.latest)
        local.load_weights(weights, round_number)
        obs = observations(16, round_number)
        got, expected = remote.act(obs), local.act(obs)
        assert remote.policy_version == round_number
        assert got.action.dtype == expected.action.dtype
        for name in ("action", "log_prob", "value"):
            np.testing.assert_array_equal(getattr(got, name), getattr(expected, name))
        np.testing.assert_array_equal(remote.value(obs), local.value(obs))
    for name, array in remote.weights().items():
        np.testing.assert_array_equal(array, weights[name])


def test_load_weights_does_what_the_protocol_says(start: Start) -> None:
    remote = start().make_remote_policy(spec())
    remote.load_weights({"offset": np.array([5.0])}, 9)
    output = remote.act(np.zeros((2, 4), np.float32))
    assert remote.policy_version == 9
    assert output.value.tolist() == output.action.tolist() == [5, 5]
    assert output.extras["twice"].tolist() == [10, 10]


def test_requests_of_two_workers_share_forward_passes(start: Start) -> None:
    import ray

    @ray.remote(num_cpus=0)
    class Client:
        def run(self, make: Any, rounds: int, first: int) -> list[float]:
            policy = make(None)
            obs = np.full((4, 4), first, np.float32)
            return [float(policy.act(obs + i).value.sum()) for i in range(rounds)]

    # a batch waits until the rows of both are there
    server = start(rule=BatchRule(min_rows=8, timeout_s=FOREVER_S))
    clients = [Client.remote() for _ in range(2)]
    results = [
        client.run.remote(server.make_remote_policy, 20, 100 * i)
        for i, client in enumerate(clients)
    ]
    for i, result in enumerate(ray.get(results, timeout=TIMEOUT_S)):
        assert result == [16 * (100 * i + n) for n in range(20)]
    stats = server.stats(TIMEOUT_S)
    assert (stats["requests"], stats["forward_passes"], stats["rows"]) == (40, 20, 160)


def test_the_driver_s_offer_reaches_clients_that_were_offered_nothing(start: Start) -> None:
    server = start()
    store = WeightStore(ray_part)
    store.publish({"offset": np.array([3.0])})
    server.offer(store.latest)
    remote = server.make_remote_policy(spec())
    # Ray may let the requests overtake the offer
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        value = remote.act(np.zeros((1, 4), np.float32)).value.tolist()
        assert value == [3 * remote.policy_version]
        if remote.policy_version == 1:
            return
        assert time.monotonic() < deadline, "the offer did not arrive"


def test_exception_of_the_policy_is_a_worker_error_and_the_server_goes_on(start: Start) -> None:
    remote = start().make_remote_policy(spec())
    with pytest.raises(WorkerError, match="the beast"):
        remote.act(np.full((1, 4), 666, np.float32))
    assert remote.act(np.zeros((1, 4), np.float32)).value.tolist() == [0]


def test_policy_that_cannot_be_made_is_a_worker_error(start: Start) -> None:
    server = start(make_broken_policy)
    with pytest.raises(WorkerError, match="no such model"):
        server.make_remote_policy(spec()).act(np.zeros((1, 4), np.float32))
    with pytest.raises(WorkerError, match="no such model"):
        server.stats(TIMEOUT_S)


def make_hanging_policy(path: Path, spec: Any) -> Any:
    return HangingPolicy(path)


def act_in_thread(remote: Any) -> tuple[threading.Thread, list[Any]]:
    outcome: list[Any] = []

    def act() -> None:
        try:
            outcome.append(remote.act(np.zeros((2, 4), np.float32)))
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=act)
    thread.start()
    return thread, outcome


def test_death_in_the_middle_of_a_request_is_a_worker_error(start: Start, tmp_path: Path) -> None:
    make = functools.partial(make_hanging_policy, tmp_path / "pid")
    remote = start(make, max_restarts=0).make_remote_policy(spec())
    thread, outcome = act_in_thread(remote)
    os.kill(int(wait_for_file(tmp_path / "pid")), signal.SIGKILL)
    thread.join(TIMEOUT_S)
    assert isinstance(outcome[0], WorkerError) and "the inference server died" in str(outcome[0])
    with pytest.raises(WorkerError, match="the inference server died"):
        remote.act(np.zeros((2, 4), np.float32))


def test_request_survives_a_restart_with_its_weights(start: Start, tmp_path: Path) -> None:
    make = functools.partial(make_hanging_policy, tmp_path / "pid")
    server = start(make, max_restarts=1)
    remote = server.make_remote_policy(spec())
    store = WeightStore(ray_part)
    store.publish({"offset": np.array([4.0])})
    assert store.latest is not None
    remote.load_offer(store.latest)
    thread, outcome = act_in_thread(remote)
    os.kill(int(wait_for_file(tmp_path / "pid")), signal.SIGKILL)
    thread.join(TIMEOUT_S)
    assert not isinstance(outcome[0], Exception), outcome[0]
    assert outcome[0].value.tolist() == [4, 4]
    assert remote.policy_version == 1
    assert server.stats(TIMEOUT_S)["forward_passes"] == 1


def test_server_that_does_not_answer_is_a_worker_error(start: Start, tmp_path: Path) -> None:
    from rollouts.workers.on_ray.remote_policy import RemotePolicy

    make = functools.partial(make_hanging_policy, tmp_path / "pid")
    server = start(make)
    # waits until the server is there, so that it is the policy that is too slow
    server.make_remote_policy(spec())
    with pytest.raises(WorkerError, match=r"did not answer within 1\.0 s"):
        RemotePolicy(server._actor, timeout_s=1.0).act(np.zeros((2, 4), np.float32))
    wait_for_file(tmp_path / "pid")


def test_closing_the_server_ends_a_request(start: Start, tmp_path: Path) -> None:
    make = functools.partial(make_hanging_policy, tmp_path / "pid")
    server = start(make)
    thread, outcome = act_in_thread(server.make_remote_policy(spec()))
    wait_for_file(tmp_path / "pid")
    server.close()
    thread.join(TIMEOUT_S)
    assert isinstance(outcome[0], WorkerError)


@pytest.mark.parametrize("batch_size", [None, 4])
def test_coordinator_s_workers_act_through_the_server(start: Start, batch_size: int | None) -> None:
    from rollouts import RolloutCoordinator
    from rollouts.workers import CollectOptions

    server = start(make_torch_policy, num_cpus=1)
    with RolloutCoordinator(
        "CartPole-v1",
        server.make_remote_policy,
        num_workers=2,
        num_envs_per_worker=8,
        rollout_length=16,
        collect=CollectOptions(batch_size=batch_size),
    ) as coordinator:
        weights = TorchPolicy(ActorCritic(), spec().single_action_space).weights()
        coordinator.publish_weights(weights)
        batch = coordinator.get(2, TIMEOUT_S)
        assert (batch.policy_version == 1).all()
        local = TorchPolicy(ActorCritic(), spec().single_action_space)
        local.load_weights(weights, 1)
        expected = local.value(batch.obs.reshape(-1, 4)).reshape(batch.value.shape)
        # the same network on batches of another size
        np.testing.assert_allclose(batch.value, expected, rtol=1e-5, atol=1e-6)
        assert server.stats(TIMEOUT_S)["rows"] >= batch.num_steps
