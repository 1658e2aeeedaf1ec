# SPDX-License-Identifier: Apache-2.0
"""Settings that cannot work are refused in the driver, with the reason, before a worker starts."""

from __future__ import annotations

import logging
import os
import random
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from processes import environ_with_path

import rollouts
from rollouts import RolloutCoordinator
from rollouts.errors import ProtocolError, SpecError
from rollouts.workers import CollectOptions, Inference, Placement, PolicySpec, WorkerConfig
from rollouts.workers.on_ray.ray_address import check_address
from rollouts.workers.policy_trial import try_policy

torch = pytest.importorskip("torch")
nn = torch.nn

from rollouts.policy import PolicyOutput, TorchPolicy  # noqa: E402
from rollouts.recurrent import RecurrentTorchPolicy  # noqa: E402

pytestmark = pytest.mark.system

TIMEOUT_S = 300.0


@pytest.fixture(autouse=True, scope="module")
def gpu_in_use() -> None:
    """Policies are tried where this process uses its GPU, if it has one."""
    if torch.cuda.is_available():
        torch.cuda.init()


class ActorCritic(nn.Module):
    def __init__(self, num_inputs: int = 4, num_actions: int = 2) -> None:
        super().__init__()
        self.logits, self.out = nn.Linear(num_inputs, num_actions), nn.Linear(num_inputs, 1)

    def forward(self, obs: Any) -> tuple[Any, Any]:
        return self.logits(obs), self.out(obs)


class Recurrent(nn.Module):
    def __init__(self, num_inputs: int = 4) -> None:
        super().__init__()
        self.cell, self.logits = nn.GRUCell(num_inputs, 8), nn.Linear(8, 2)
        self.out = nn.Linear(8, 1)

    def initial_state(self) -> tuple[Any, ...]:
        return (torch.zeros(8),)

    def forward(self, obs: Any, state: tuple[Any, ...]) -> tuple[Any, ...]:
        hidden = self.cell(obs, state[0])
        return self.logits(hidden), self.out(hidden), (hidden,)


def config(**changes: Any) -> WorkerConfig:
    settings: dict[str, Any] = {
        "id": "CartPole-v1",
        "num_envs": 4,
        "rollout_length": 8,
        "num_threads": 1,
        "seed": 0,
        "env_options": {},
    }
    return replace(WorkerConfig(**settings), **changes)


def of_module(
    make_module: Callable[[], Any], policy_type: Any = TorchPolicy
) -> Callable[[PolicySpec], Any]:
    return lambda spec: policy_type(make_module(), spec.single_action_space)


@pytest.mark.parametrize(("num_envs", "batch_size"), [(1, None), (4, None), (4, 2)])
@pytest.mark.parametrize(
    "make_policy", [of_module(ActorCritic), of_module(Recurrent, RecurrentTorchPolicy)]
)
def test_a_right_policy_passes(make_policy: Any, num_envs: int, batch_size: int | None) -> None:
    try_policy(
        make_policy, config(num_envs=num_envs, collect=CollectOptions(batch_size=batch_size))
    )


def test_every_kind_of_observation_can_be_tried() -> None:
    seen = []

    class Looking:
        policy_version = 0

        def __init__(self, spec: PolicySpec) -> None:
            self._space = spec.single_action_space

        def act(self, obs: Any) -> PolicyOutput:
            seen.append((obs.shape, obs.dtype))
            zeros = np.zeros(len(obs), np.float32)
            return PolicyOutput(np.stack([self._space.sample() for _ in obs]), zeros, zeros)

        def value(self, obs: Any) -> Any:
            return np.zeros(len(obs), np.float32)

    for env_id in ("FrozenLake-v1", "Blackjack-v1", "Pendulum-v1"):
        space = rollouts.env_spec(env_id).single_observation_space
        try_policy(Looking, config(id=env_id))
        assert seen.pop() == ((4, *space.shape), space.dtype)


def test_a_policy_for_other_observations_is_refused_before_any_worker_starts() -> None:
    with pytest.raises(SpecError, match=r"mat1 and mat2.*first linear layer 'logits' reads 3"):
        RolloutCoordinator(
            "CartPole-v1",
            of_module(lambda: ActorCritic(num_inputs=3)),
            num_workers=1,
            num_envs_per_worker=4,
            rollout_length=8,
            # never looked at: who gets here would wait for it
            ray_address="127.0.0.1:1",
        )


@pytest.mark.parametrize(
    ("make_policy", "message"),
    [
        (of_module(lambda: nn.Linear(4, 2)), r"expected a tuple \(logits, value\)"),
        (of_module(lambda: Recurrent(5), RecurrentTorchPolicy), "before any worker was started"),
        (lambda spec: None, "make_policy returned None, expected a policy"),
    ],
)
def test_what_is_wrong_with_a_policy_is_named(make_policy: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        try_policy(make_policy, config())


def test_an_action_that_there_is_not_is_refused() -> None:
    class Five:
        policy_version = 0

        def act(self, obs: Any) -> PolicyOutput:
            zeros = np.zeros(len(obs), np.float32)
            return PolicyOutput(np.full(len(obs), 5), zeros, zeros)

    with pytest.raises(SpecError, match=r"returned action 5, expected one of Discrete\(2\)"):
        try_policy(lambda spec: Five(), config())
    with pytest.raises(SpecError, match=r"actions of shape \(4,\), expected \(4, 1\)"):
        try_policy(lambda spec: Five(), config(id="Pendulum-v1"))


class NeedsWeights:
    """Acts only once it has weights, as workers have when they begin."""

    policy_version = 0

    def __init__(self, error: Exception) -> None:
        self._error = error

    def act(self, obs: Any) -> PolicyOutput:
        raise self._error


def lacks_a_library(spec: PolicySpec) -> Any:
    raise ModuleNotFoundError("no module on the driver")


@pytest.mark.parametrize(
    ("make_policy", "message"),
    [
        (lacks_a_library, "ModuleNotFoundError: no module on the driver"),
        (of_module(lambda: "no module"), "module is a str"),
        (lambda spec: NeedsWeights(KeyError("w1")), "KeyError: 'w1'"),
        (lambda spec: NeedsWeights(RuntimeError("load weights first")), "load weights first"),
        (lambda spec: NeedsWeights(ProtocolError("load weights first")), "load weights first"),
    ],
)
def test_what_may_go_well_in_the_workers_is_a_warning(
    make_policy: Any, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    try_policy(make_policy, config())
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "tried on Box" in caplog.text
    assert "workers are started all the same" in caplog.text
    assert message in caplog.text


def test_nothing_is_tried_where_that_could_open_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[PolicySpec] = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    try_policy(lambda spec: made.append(spec), config())
    assert not made
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(SpecError, match="make_policy returned None"):
        try_policy(lambda spec: made.append(spec), config())
    assert len(made) == 1


def test_torch_that_the_policy_imports_first_does_not_keep_the_policys_seed() -> None:
    script = f"""
import sys
from rollouts.workers.policy_trial import try_policy
from rollouts.workers import CollectOptions, WorkerConfig
def make_policy(spec):
    import torch
    torch.manual_seed(7)
    raise KeyError("made")
assert "torch" not in sys.modules
try_policy(make_policy, {config()!r})
import torch
print(torch.initial_seed())
"""
    # no GPU, so that the policy is tried; a fresh import has a new seed in each process
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    seeds = set()
    for _ in range(2):
        result = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            env=environment,
            check=True,
        )
        assert "KeyError: 'made'" in result.stderr
        seeds.add(int(result.stdout))
    assert 7 not in seeds
    assert len(seeds) == 2


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_the_random_numbers_of_a_gpu_in_use_stay_the_same() -> None:
    def make_policy(spec: PolicySpec) -> Any:
        torch.manual_seed(7)
        torch.rand(1, device="cuda")
        return of_module(ActorCritic)(spec)

    torch.cuda.manual_seed(1)
    expected = torch.rand(1, device="cuda").item()
    torch.cuda.manual_seed(1)
    try_policy(make_policy, config())
    assert torch.rand(1, device="cuda").item() == expected


def test_the_random_numbers_of_the_driver_stay_the_same() -> None:
    def draw() -> tuple[Any, ...]:
        return random.random(), np.random.rand(), torch.rand(1).item()  # noqa: NPY002

    def seed() -> None:
        random.seed(1)
        np.random.seed(1)  # noqa: NPY002
        torch.manual_seed(1)

    def make_policy(spec: PolicySpec) -> Any:
        draw()
        torch.manual_seed(7)
        return of_module(ActorCritic)(spec)

    seed()
    expected = draw()
    seed()
    try_policy(make_policy, config())
    assert draw() == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"placement": Placement(num_gpus=1)},
            r"^placement\.num_gpus is 1, and the Ray cluster has 0 GPUs on 1 node.* no worker can "
            r"start: leave placement\.num_gpus out",
        ),
        (
            {"inference": Inference(num_gpus=0.5)},
            r"^inference\.num_gpus is 0.5, and the Ray cluster has 0 GPUs .* no inference server "
            r"can start: leave inference\.num_gpus out",
        ),
        (
            {"inference": Inference(num_gpus=1), "placement": Placement(num_gpus=2)},
            r"^inference\.num_gpus is 1 and placement\.num_gpus is 2, and",
        ),
    ],
)
def test_gpus_that_the_cluster_has_not_are_named_at_once(
    ray_session: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(SpecError, match=message):
        RolloutCoordinator(
            "CartPole-v1",
            of_module(ActorCritic),
            num_workers=1,
            num_envs_per_worker=4,
            rollout_length=8,
            **options,
        )


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def address_of(server: socket.socket) -> str:
    return f"127.0.0.1:{server.getsockname()[1]}"


def answer(server: socket.socket, reply: bytes) -> None:
    """Answers the next who connects, on another thread."""

    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(64)
            connection.sendall(reply)

    threading.Thread(target=serve, daemon=True).start()


@pytest.fixture
def unheard() -> Iterator[str]:
    """An address where nobody listens, and nobody can: another process might take a free port."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield address_of(held)


def test_an_address_where_nobody_listens_is_refused(unheard: str) -> None:
    for each in (unheard, f"ray://{unheard}"):
        with pytest.raises(SpecError, match=f"no Ray answers at ray_address '{each}' .*refused"):
            check_address(each, TIMEOUT_S)


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak gRPC"),
        (b"", "closed the connection|reset"),
    ],
)
def test_another_server_than_a_ray_is_refused(
    listener: socket.socket, reply: bytes, message: str
) -> None:
    answer(listener, reply)
    with pytest.raises(SpecError, match=message):
        check_address(address_of(listener), TIMEOUT_S)


def test_who_listens_and_says_nothing_is_given_up(listener: socket.socket) -> None:
    with pytest.raises(SpecError, match="timed out"):
        check_address(address_of(listener), 0.05)


def test_a_ray_passes(ray_session: Any) -> None:
    import ray

    check_address(ray.get_runtime_context().gcs_address, TIMEOUT_S)


@pytest.mark.parametrize("address", ["localhost", "localhost:", ":6379", "10.0.0.1:ray"])
def test_an_address_without_host_or_port_is_refused(address: str) -> None:
    with pytest.raises(SpecError, match=r"expected .* host:port"):
        check_address(address, TIMEOUT_S)


def test_a_bad_address_ends_in_one_line_of_our_own(unheard: str) -> None:
    script = f"""
from counter_world import CounterCollector, make_policy
from rollouts import RolloutCoordinator
from rollouts.workers import CollectOptions
from rollouts.errors import SpecError
collect = CollectOptions(make_collector=CounterCollector)
try:
    RolloutCoordinator("Counter", make_policy, collect=collect, num_workers=1,
                       num_envs_per_worker=1, rollout_length=1, ray_address="{unheard}")
except SpecError as error:
    print(error)
"""
    result = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env=environ_with_path(),
        check=True,
    )
    assert result.stdout.startswith(f"no Ray answers at ray_address '{unheard}'")
    assert result.stdout.count("\n") == 1
    assert result.stderr == ""
