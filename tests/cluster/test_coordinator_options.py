# SPDX-License-Identifier: Apache-2.0
"""Options of RolloutCoordinator that change how weights travel and where the policy acts."""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from acted_worker import worker_config
from counter_world import CounterCollector, make_policy, weights
from inference_world import ActorCritic, make_torch_policy, spec

from rollouts import RolloutCoordinator
from rollouts.errors import SpecError, WorkerError
from rollouts.machine.numa import SYSFS, node_cpus
from rollouts.policy import TorchPolicy
from rollouts.workers import (
    BatchRule,
    CollectOptions,
    FaultPolicy,
    Inference,
    Placement,
    WeightTransport,
)
from rollouts.workers.on_ray.ray_runner import _shared_spec

pytestmark = pytest.mark.system

TIMEOUT_S = 300.0


def cartpoles(**kwargs: Any) -> RolloutCoordinator:
    sizes = {"num_workers": 2, "num_envs_per_worker": 8, "rollout_length": 16}
    return RolloutCoordinator("CartPole-v1", make_torch_policy, **sizes | kwargs)


def collect(**kwargs: Any) -> tuple[RolloutCoordinator, TorchPolicy]:
    """Runs two workers; checks that they value their observations as the returned policy does."""
    policy = TorchPolicy(ActorCritic(), spec().single_action_space)
    with cartpoles(**kwargs) as coordinator:
        for _ in range(2):
            version = coordinator.publish_weights(policy.module.state_dict())
        seen: set[int] = set()
        while seen != set(range(16)):
            batch = coordinator.get(1, TIMEOUT_S)
            assert (batch.policy_version <= version).all()
            seen |= set(batch.env_id.tolist() if batch.env_id.ndim == 1 else batch.env_id[0])
            value = policy.value(batch.obs.reshape(-1, 4)).reshape(batch.value.shape)
            # bfloat16 has 8 significant bits
            rtol = 2e-2 if "weights" in kwargs else 1e-5
            np.testing.assert_allclose(batch.value, value, rtol=rtol, atol=rtol)
    return coordinator, policy


@pytest.mark.usefixtures("ray_session")
def test_workers_act_through_an_inference_server() -> None:
    coordinator, _ = collect(inference=Inference(num_cpus=1))
    assert coordinator.stats()["restarts"] == 0


@pytest.mark.usefixtures("ray_session")
def test_weights_travel_in_16_bits_and_unchanged_ones_not_again() -> None:
    coordinator, policy = collect(weights=WeightTransport(dtype="bfloat16", delta=True))
    # two bytes a number, and the second version has nothing new
    num_numbers = sum(array.size for array in policy.weights().values())
    assert coordinator.stats()["weights_bytes"] == 2 * num_numbers


def test_a_ray_of_its_own_has_cpus_for_the_server_too(tmp_path: Any) -> None:
    from test_own_ray import run_script

    script = """
import ray
from inference_world import ActorCritic, make_torch_policy, spec
from rollouts.workers import Inference, Placement
from rollouts.policy import TorchPolicy
with RolloutCoordinator("CartPole-v1", make_torch_policy, num_workers=1, num_envs_per_worker=2,
                        rollout_length=4, placement=Placement(max_workers=2),
                        inference=Inference(num_cpus=2)) as c:
    assert ray.cluster_resources()["CPU"] == 4
    c.publish_weights(TorchPolicy(ActorCritic(), spec().single_action_space).weights())
    c.get(1, 300)
assert not ray.is_initialized()
"""
    run_script(script, tmp_path)


def test_the_server_s_seed_is_that_of_no_worker_there_can_be() -> None:
    config = replace(worker_config(), id="CartPole-v1", num_envs=8, rollout_length=16, seed=5)
    shared = _shared_spec(config, max_workers=3)
    assert (shared.worker_id, shared.num_envs, shared.env_id_offset) == (3, 24, 0)
    workers = [replace(config, worker_id=i) for i in range(3)]
    assert shared.seed not in {worker.policy_seed for worker in workers}


@pytest.mark.skipif(not SYSFS.exists(), reason=f"this system has no {SYSFS}")
def test_workers_stay_on_the_cpus_of_their_numa_node(ray_session: object) -> None:
    with cartpoles(placement=Placement(numa_nodes=1)) as coordinator:
        coordinator.publish_weights(
            TorchPolicy(ActorCritic(), spec().single_action_space).weights()
        )
        pids = {}
        while len(pids) < 2:
            coordinator.get(1, TIMEOUT_S)
            workers = coordinator.stats()["workers"]
            pids = {w["worker_id"]: w["pid"] for w in workers if w["pid"]}
        node = set(node_cpus(0, 1, frozenset(range(2**16))))
        for pid in pids.values():
            threads = [int(thread.name) for thread in Path(f"/proc/{pid}/task").iterdir()]
            assert os.sched_getaffinity(pid) <= node
            for thread in threads:
                with contextlib.suppress(ProcessLookupError):  # it has ended since
                    assert os.sched_getaffinity(thread) <= node


@pytest.mark.skipif(not SYSFS.exists(), reason=f"this system has no {SYSFS}")
def test_worker_on_a_machine_with_fewer_numa_nodes_says_so(ray_session: object) -> None:
    placement, faults = Placement(numa_nodes=4096), FaultPolicy(max_restarts=0)
    with cartpoles(placement=placement, faults=faults) as coordinator:
        coordinator.publish_weights(ActorCritic().state_dict())
        with pytest.raises(WorkerError, match="numa_nodes is 4096, and this machine has"):
            coordinator.get(1, TIMEOUT_S)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_workers": 0, "inference": Inference()}, "num_workers=0, expected at least 1"),
        ({"inference": "seed"}, "inference is 'seed', expected an Inference"),
        ({"inference": BatchRule()}, r"such as inference=Inference\(rule=BatchRule\(\)\)"),
        (
            {"num_workers": 0, "placement": Placement(numa_nodes=1)},
            r"placement\.numa_nodes with num_workers=0",
        ),
    ],
)
def test_wrong_options_are_refused_before_anything_starts(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(SpecError, match=message):
        cartpoles(**options)


def test_observations_that_are_no_stacks_cannot_be_packed() -> None:
    with pytest.raises(
        SpecError, match=r"pack_frame_stacks=True, and FrozenLake-v1 has .*Discrete"
    ):
        RolloutCoordinator(
            "FrozenLake-v1",
            make_policy,
            num_workers=1,
            num_envs_per_worker=1,
            rollout_length=1,
            collect=CollectOptions(pack_frame_stacks=True),
        )


@pytest.mark.parametrize(
    ("options", "is_told"),
    [
        ({}, True),
        ({"num_workers": 1, "max_workers": 2}, True),
        ({"num_workers": 1}, False),
        ({"numa_nodes": 2}, False),
        ({"strategy": "STRICT_SPREAD"}, False),
        ({"pin_threads": [[0], [1]]}, False),
    ],
)
def test_workers_that_would_share_their_cpus_are_told_of(
    options: dict[str, Any], is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    fields = {"pin_threads": True} | options
    num_workers = fields.pop("num_workers", 2)
    # nothing starts: this is refused after the threads were looked at
    with pytest.raises(SpecError, match="sync_mode"):
        cartpoles(sync_mode="none", num_workers=num_workers, placement=Placement(**fields))
    assert ("pin_threads=True keeps the threads of every worker" in caplog.text) == is_told


def test_versions_go_on_where_a_former_run_stopped() -> None:
    with RolloutCoordinator(
        "Counter",
        make_policy,
        num_workers=0,
        num_envs_per_worker=2,
        rollout_length=4,
        weights=WeightTransport(first_version=41),
        collect=CollectOptions(make_collector=CounterCollector),
    ) as coordinator:
        assert [coordinator.publish_weights(weights()) for _ in range(2)] == [41, 42]
        assert (coordinator.get(1).policy_version == 42).all()
        assert coordinator.stats()["policy_version"] == 42
