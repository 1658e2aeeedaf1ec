# SPDX-License-Identifier: Apache-2.0
"""`rollouts bench-collect`: turns, counting, policies, and the real Ray worker and peers."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import signal
import sys
from typing import Any

import numpy as np
import pytest
import torch
from counter_world import wait_until
from gymnasium import spaces

from rollouts import distributed
from rollouts.bench import Settings, collect
from rollouts.bench.collect import Coordinated, InProcess, Task, compare_collecting, measure_streams
from rollouts.bench.policies import ActorCritic, RandomPolicy
from rollouts.cli import main as cli
from rollouts.errors import EngineError, SpecError, WorkerError
from rollouts.pool.registry import env_spec

pytestmark = pytest.mark.system


class FakeStream:
    """Writes down what is called."""

    api, notes, num_envs, num_threads = "collect", (), 2, 1

    def __init__(self, name: str, log: list[str], *, num_steps: int = 6) -> None:
        self.name, self.log, self.num_steps = name, log, num_steps

    def version(self) -> str:
        return "1"

    def resume(self) -> None:
        self.log.append(f"{self.name} on")

    def collect(self) -> int:
        return self.num_steps

    def pause(self) -> None:
        self.log.append(f"{self.name} off")

    def close(self) -> None:
        self.log.append(f"{self.name} closed")


def measure(streams: list[FakeStream]) -> Any:
    return measure_streams(streams, rollout_length=3, duration_s=1e-4, repeats=2, options={"a": 1})


def settings(num_envs: int = 4, **changes: Any) -> Settings:
    given = {"duration_s": 0.01, "repeats": 2} | changes
    return Settings("CartPole-v1", num_envs, num_envs, 1, **given)


def task(policy: Any = "network") -> Task:
    return Task(settings(), env_spec("CartPole-v1"), 8, policy)


def test_each_stream_works_only_in_its_own_turns() -> None:
    log: list[str] = []
    measure([FakeStream("a", log), FakeStream("b", log)])
    assert log == ["a on", "a off", "b on", "b off"] * 3


def test_rollouts_are_counted_in_env_steps() -> None:
    (found,) = measure([FakeStream("a", [])])
    rollouts, rest = divmod(found.calls, 3)
    assert (rest, found.batch_size, found.options) == (0, 2, {"a": 1})
    expected = tuple(rollouts * 6 / elapsed for elapsed in found.elapsed_s)
    assert found.env_steps_per_s == pytest.approx(expected)


def test_steps_beyond_those_asked_for_are_counted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(1000))
    monkeypatch.setattr(collect.time, "perf_counter", lambda: float(next(clock)))
    # one second on this clock for any number of rollouts
    assert collect._timed(FakeStream("a", [], num_steps=6), 10, 3) == 1.0
    assert collect._timed(FakeStream("a", [], num_steps=12), 10, 3) == 0.5


def test_the_random_policy_hands_out_valid_actions_in_turn() -> None:
    space = spaces.Discrete(3)
    policy = RandomPolicy(space, 5, seed=1)
    outputs = [policy.act(np.zeros((5, 4))) for _ in range(32)]
    assert all(action in space for output in outputs for action in output.action)
    assert outputs[0] is outputs[16]
    assert len({output.action.tobytes() for output in outputs}) > 1
    assert policy.value(np.zeros((3, 4))).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("obs_space", "action_space", "shapes"),
    [
        (spaces.Box(-1, 1, (4,)), spaces.Discrete(3), [(2, 3), (2, 1)]),
        (spaces.Box(-1, 1, (4,)), spaces.Box(-1, 1, (2, 3)), [(2, 2, 3), (2, 3), (2, 1)]),
        (spaces.Box(0, 255, (4, 84, 84), np.uint8), spaces.Discrete(6), [(2, 6), (2, 1)]),
    ],
)
def test_the_network_fits_the_spaces(obs_space: Any, action_space: Any, shapes: Any) -> None:
    module = ActorCritic(obs_space, action_space)
    obs = torch.as_tensor(np.stack([obs_space.sample(), obs_space.sample()]))
    assert [tuple(out.shape) for out in module(obs)] == shapes


def test_the_network_refuses_observations_that_are_no_arrays_of_features() -> None:
    with pytest.raises(SpecError, match="expected a Box of vectors"):
        ActorCritic(spaces.Discrete(16), spaces.Discrete(4))


def test_all_processes_make_equal_networks() -> None:
    first, second = (task().local_policy(4).weights() for _ in range(2))
    assert first.keys() == second.keys()
    assert all(np.array_equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rollout_length": 0}, "rollout_length is 0"),
        ({"peers": ["sebulba"]}, "peer is 'sebulba', expected one of"),
        ({"peer_num_envs": 0}, "peer_num_envs is 0"),
        ({"policy": "lazy"}, "policy is 'lazy', expected one of"),
    ],
)
def test_arguments_out_of_range_are_refused(changes: dict[str, Any], message: str) -> None:
    ray = pytest.importorskip("ray")
    was_running = ray.is_initialized()
    with pytest.raises(SpecError, match=message):
        compare_collecting(settings(), **({"rollout_length": 8} | changes))
    assert ray.is_initialized() == was_running


def test_asynchronous_pools_are_refused() -> None:
    with pytest.raises(SpecError, match="batch_size is 2 with num_envs 4"):
        compare_collecting(Settings("CartPole-v1", 4, 2, 1), rollout_length=8)


def test_a_paused_worker_has_nothing_in_flight(ray_session: Any) -> None:
    stream = Coordinated(task("random"))
    try:
        stream.resume()
        assert stream.collect() == 32
        stream.pause()
        fragments = stream._coordinator.stats()["fragments"]
        assert fragments["in_flight"] == 0
        # nothing starts by itself either: as many wait as there are credits
        assert fragments["queued"] == stream._coordinator.stats()["outstanding_limit"]
        stream.resume()
        assert stream._coordinator.stats()["queue_depth"] <= fragments["queued"]
    finally:
        stream.close()


def test_pause_says_why_no_worker_is_left(
    ray_session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # one life more and not three: each begins with the imports of a new process
    faults = distributed.FaultPolicy(max_restarts=1)
    once = functools.partial(distributed.RolloutCoordinator, faults=faults)
    monkeypatch.setattr(distributed, "RolloutCoordinator", once)
    stream = Coordinated(task("random"))
    killed: set[int] = set()

    def is_benched() -> bool:
        """Kills each life once; takes what is queued, so that the next call finds it dead."""
        (worker,) = stream._coordinator.stats()["workers"]
        if worker["pid"] and worker["incarnation"] not in killed:
            os.kill(worker["pid"], signal.SIGKILL)
            killed.add(worker["incarnation"])
        elif stream._coordinator.stats()["queue_depth"]:
            stream.collect()
        return bool(worker["state"] == "benched")

    try:
        wait_until(is_benched)
        with pytest.raises(WorkerError, match="no worker is left"):
            stream.pause()
    finally:
        stream.close()


def test_the_worker_collects_what_the_collector_in_process_does(ray_session: Any) -> None:
    worker, here = Coordinated(task("random")), InProcess(task("random"))
    try:
        theirs = worker._coordinator.get(timeout_s=120)
        ours = here._collector.collect()
    finally:
        worker.close()
        here.close()
    # the first batch of actions is the same, and so are the environments
    np.testing.assert_array_equal(theirs.obs, ours.obs)
    np.testing.assert_array_equal(theirs.action, ours.action)


@pytest.mark.parametrize("policy", ["network", "random"])
def test_the_command_measures_worker_collector_and_actors(
    policy: str, ray_session: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = ["--num-envs", "4", "--rollout-length", "8", "--peer-num-envs", "2"]
    quick = ["--duration-s", "0.01", "--repeats", "2", "--policy", policy, "--json"]
    peer = ["--peer", "env-actors"]
    assert cli.main(["bench-collect", "--env-id", "CartPole-v1", *sizes, *quick, *peer]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["counting"] == collect.COUNTING
    worker, here, actors = found["results"][0]["measurements"]
    assert [each["api"] for each in (worker, here, actors)] == ["get", "collect", "ray.get"]
    assert [each["batch_size"] for each in (worker, here, actors)] == [4, 4, 2]
    assert worker["options"] == {"rollout_length": 8, "policy": policy}
    assert here["rollouts_ratio"] > 0


@pytest.mark.skipif(importlib.util.find_spec("lz4") is None, reason="RLlib is missing (lz4)")
def test_rllib_is_measured(ray_session: Any) -> None:
    found = compare_collecting(
        settings(), rollout_length=8, peers=["rllib", "rllib-actors"], peer_num_envs=2
    )
    assert [each.api for each in found.measurements[2:]] == ["sample", "ray.get"]
    assert all(each.median > 0 for each in found.measurements)


def test_a_missing_rllib_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from rollouts.bench import ray_peers

    def refuse(name: str) -> None:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(ray_peers.importlib, "import_module", refuse)
    with pytest.raises(EngineError, match=r"peer 'rllib' needs RLlib.*pip install 'ray\[rllib\]'"):
        ray_peers.RLlibRunner(task(), 2)


@pytest.mark.skipif(importlib.util.find_spec("tianshou") is None, reason="Tianshou is missing")
def test_tianshou_s_vector_env_is_measured_and_reset_at_ends(ray_session: Any) -> None:
    from rollouts.bench.ray_peers import TianshouEnvs

    stream = TianshouEnvs(task("random"), 2)
    try:
        # CartPole falls within 50 random steps now and then, and is never stepped after its end
        assert [stream.collect() for _ in range(20)] == [16] * 20
    finally:
        stream.close()


def test_a_peer_whose_library_is_missing_is_left_out_with_a_warning(
    ray_session: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # what the import system does with a module that is None
    monkeypatch.setitem(sys.modules, "tianshou.env", None)
    found = compare_collecting(settings(), rollout_length=8, peers=["tianshou"])
    assert [each.api for each in found.measurements] == ["get", "collect"]
    assert "not measured: peer 'tianshou' needs Tianshou" in caplog.text
    assert "pip install tianshou" in caplog.text


def test_the_rllib_peer_refuses_images() -> None:
    from rollouts.bench import ray_peers

    spec = env_spec("ALE/Pong-v5")
    images = Task(Settings("ALE/Pong-v5", 2, 2, 1), spec, 8, "network")
    with pytest.raises(SpecError, match="vector observations, got env_id 'ALE/Pong-v5'"):
        ray_peers.RLlibRunner(images, 2)
