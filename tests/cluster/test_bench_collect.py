# SPDX-License-Identifier: Apache-2.0
"""`rollouts bench collect`: the real Ray worker, and peers in actors."""

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
from counter_world import wait_until

import rollouts
from rollouts import workers
from rollouts.bench import Settings, collect
from rollouts.bench.collect import compare_collecting
from rollouts.bench.collect_streams import Coordinated, InProcess
from rollouts.bench.collect_task import Task
from rollouts.bench.policy_kinds import read_policy
from rollouts.cli import main as cli
from rollouts.envs.registry import env_spec
from rollouts.errors import EngineError, SpecError, WorkerError

pytestmark = pytest.mark.system


def settings(num_envs: int = 4, **changes: Any) -> Settings:
    given = {"duration_s": 0.01, "repeats": 2} | changes
    return Settings("CartPole-v1", num_envs, num_envs, 1, **given)


def task(policy: str = "64x64") -> Task:
    return Task(settings(), env_spec("CartPole-v1"), 8, read_policy(policy))


def test_all_processes_make_equal_networks() -> None:
    first, second = (task().local_policy(4).weights() for _ in range(2))
    assert first.keys() == second.keys()
    assert all(np.array_equal(first[name], second[name]) for name in first)


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
        # all that waited is taken, and one more, which took its time to come
        delivered = stream._coordinator.stats()["fragments"]["delivered"]
        assert delivered == fragments["delivered"] + fragments["queued"] + 1
    finally:
        stream.close()


def test_pause_says_why_no_worker_is_left(
    ray_session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # one life more and not three: each begins with the imports of a new process
    faults = workers.FaultPolicy(max_restarts=1)
    once = functools.partial(rollouts.RolloutCoordinator, faults=faults)
    monkeypatch.setattr(rollouts, "RolloutCoordinator", once)
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
    worker, here = Coordinated(task("random")), InProcess(task("random"), "torch")
    try:
        theirs = worker._coordinator.get(timeout_s=120)
        ours = here._collector.collect()
    finally:
        worker.close()
        here.close()
    # the first batch of actions is the same, and so are the environments
    np.testing.assert_array_equal(theirs.obs, ours.obs)
    np.testing.assert_array_equal(theirs.action, ours.action)


# the random policy has a contestant less
@pytest.mark.parametrize("policy", ["64x64", pytest.param("random", marks=pytest.mark.slow)])
def test_the_command_measures_worker_collector_and_actors(
    policy: str, ray_session: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = ["--num-envs", "4", "--rollout-length", "8", "--peer-num-envs", "2"]
    quick = ["--duration-s", "0.01", "--repeats", "2", "--policy", policy, "--json"]
    peer = ["--peer", "env-actors"]
    assert cli.main(["bench", "collect", "--env-id", "CartPole-v1", *sizes, *quick, *peer]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["counting"] == collect.COUNTING
    measured = found["results"][0]["measurements"]
    here = ["collect"] if policy == "random" else ["collect", "collect"]
    others = ["get", "send/recv", "step", "ray.get"]
    assert [each["api"] for each in measured] == here + others
    assert [each["batch_size"] for each in measured[-4:]] == [4, 4, 4, 2]
    assert all(e["options"] == {"rollout_length": 8, "policy": policy} for e in measured)
    assert all(each["rollouts_ratio"] > 0 for each in measured[1:])


@pytest.mark.skipif(importlib.util.find_spec("lz4") is None, reason="RLlib is missing (lz4)")
def test_rllib_is_measured(ray_session: Any) -> None:
    found = compare_collecting(
        settings(), rollout_length=8, peers=["rllib", "rllib-actors"], peer_num_envs=2
    )
    assert [each.api for each in found.measurements[-2:]] == ["sample", "ray.get"]
    assert all(each.median > 0 for each in found.measurements)


def test_a_missing_rllib_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from comparisons.collecting import on_ray as ray_peers

    def refuse(name: str) -> None:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(ray_peers.importlib, "import_module", refuse)
    with pytest.raises(EngineError, match=r"peer 'rllib' needs RLlib.*pip install 'ray\[rllib\]'"):
        ray_peers.RLlibRunner(task(), 2)


@pytest.mark.skipif(importlib.util.find_spec("tianshou") is None, reason="Tianshou is missing")
def test_tianshou_s_vector_env_is_measured_and_reset_at_ends(ray_session: Any) -> None:
    from comparisons.collecting.on_ray import TianshouEnvs

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
    assert found.measurements[-1].library == "plain C++ loop"
    assert "not measured: peer 'tianshou' needs Tianshou" in caplog.text
    assert "pip install tianshou" in caplog.text


def test_the_rllib_peer_refuses_images() -> None:
    from comparisons.collecting import on_ray as ray_peers

    spec = env_spec("ALE/Pong-v5")
    images = Task(Settings("ALE/Pong-v5", 2, 2, 1), spec, 8, read_policy("cnn"))
    with pytest.raises(SpecError, match="vector observations, got id 'ALE/Pong-v5'"):
        ray_peers.RLlibRunner(images, 2)
