# SPDX-License-Identifier: Apache-2.0
"""The dataclasses that RolloutCoordinator takes: their checks, and what is said of others."""

from __future__ import annotations

import dataclasses
import inspect
import pickle
import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import rollouts
from rollouts import Collector, RolloutCoordinator
from rollouts.collecting.asked import CollectorOptions
from rollouts.errors import RolloutsError, SpecError
from rollouts.workers import (
    BatchRule,
    CollectOptions,
    FaultPolicy,
    Inference,
    Placement,
    QueueLimits,
    WeightTransport,
)

KINDS = [
    *(BatchRule, CollectOptions, FaultPolicy, Inference, Placement, QueueLimits, WeightTransport)
]
WRONG = [
    (Placement, {"num_cpus": -1}, r"placement\.num_cpus is -1, expected at least 0"),
    (Placement, {"num_cpus": "two"}, r"placement\.num_cpus is 'two'"),
    (Placement, {"num_gpus": 1.5}, r"placement\.num_gpus is 1\.5, expected a fraction"),
    (Placement, {"num_gpus": -0.5}, r"placement\.num_gpus is -0\.5"),
    (
        Placement,
        {"max_workers": -1},
        r"placement\.max_workers is -1, expected a whole number of at least 0",
    ),
    (Placement, {"max_workers": 1.5}, r"placement\.max_workers is 1\.5, .*whole number"),
    (Placement, {"strategy": "NEAR"}, r"placement\.strategy is 'NEAR', .*'STRICT_SPREAD'"),
    (Placement, {"strategy": ["PACK"]}, r"placement\.strategy is \['PACK'\]"),
    (Placement, {"node_labels": None}, r"placement\.node_labels is None, expected a dict"),
    (
        Placement,
        {"numa_nodes": 0},
        r"placement\.numa_nodes is 0, expected a whole number of at least 1",
    ),
    (Placement, {"numa_nodes": 2, "strategy": "SPREAD"}, r'would share .*strategy="PACK"'),
    (
        Placement,
        {"numa_nodes": 2, "strategy": "STRICT_SPREAD"},
        r"placement\.numa_nodes is 2 with strategy='STRICT",
    ),
    (
        FaultPolicy,
        {"max_restarts": -1},
        r"faults\.max_restarts is -1, expected a whole number of at least 0",
    ),
    (FaultPolicy, {"restart_window_s": -1.0}, r"faults\.restart_window_s is -1\.0 s"),
    (FaultPolicy, {"restart_window_s": np.nan}, r"faults\.restart_window_s is nan s"),
    (FaultPolicy, {"start_timeout_s": None}, r"faults\.start_timeout_s is None s"),
    (FaultPolicy, {"hang_timeout_s": 0.0}, r"faults\.hang_timeout_s is 0\.0 s, .* 0\.001 s"),
    (CollectOptions, {"outputs": 3}, r"collect\.outputs is 3, expected names"),
    (CollectOptions, {"outputs": (3,)}, r"collect\.outputs is \(3,\), expected names"),
    (CollectOptions, {"returns": 0.99}, r"collect\.returns is 0\.99, expected .*Gae or Nstep"),
    (QueueLimits, {"max_queued_fragments": 0}, r"queue\.max_queued_fragments is 0"),
    (QueueLimits, {"credits_per_worker": 0}, r"queue\.credits_per_worker is 0"),
    (QueueLimits, {"credits_per_worker": True}, r"queue\.credits_per_worker is True"),
    (QueueLimits, {"max_policy_lag": -1}, r"queue\.max_policy_lag is -1"),
    (QueueLimits, {"merge": "random"}, r"queue\.merge is 'random', .*'ordered'"),
    (QueueLimits, {"lag_policy": "wait"}, r"queue\.lag_policy is 'wait', .*'block'"),
    (WeightTransport, {"dtype": "int8"}, r"weights\.dtype is 'int8', .*'bfloat16'"),
    (
        WeightTransport,
        {"first_version": 0},
        r"weights\.first_version is 0, expected a whole number of at least 1",
    ),
    (WeightTransport, {"tensor_transport": "mpi"}, r"weights\.tensor_transport is 'mpi', .*'nixl'"),
    (WeightTransport, {"tensor_transport": "nccl"}, r"weights\.tensor_transport is 'nccl', whose"),
    (WeightTransport, {"delta": "yes"}, r"weights\.delta must be True or False, got 'yes'"),
    (CollectOptions, {"batch_size": 0}, r"collect\.batch_size is 0"),
    (CollectOptions, {"num_torch_threads": 0}, r"collect\.num_torch_threads is 0"),
    (CollectOptions, {"pack_frame_stacks": 1}, r"collect\.pack_frame_stacks must be True"),
    (CollectOptions, {"keep_final_obs": None}, r"collect\.keep_final_obs must be True"),
    (CollectOptions, {"make_env": 3}, r"collect\.make_env must be a function .*got 3"),
    (CollectOptions, {"make_collector": "x"}, r"collect\.make_collector must be a function"),
    (Inference, {"rule": "seed"}, r"inference\.rule is 'seed', expected a BatchRule"),
    (Inference, {"num_cpus": -1}, r"inference\.num_cpus is -1"),
    (Inference, {"num_gpus": -0.5}, r"inference\.num_gpus is -0\.5"),
]


def make_nothing(spec: Any) -> Any:
    raise AssertionError("nothing may be started")


def cartpoles(**options: Any) -> RolloutCoordinator:
    counts = {"num_workers": 1, "num_envs_per_worker": 1, "rollout_length": 1}
    return RolloutCoordinator("CartPole-v1", make_nothing, **(counts | options))


@pytest.mark.parametrize("value", [2.5, "2", None, True, -1, np.nan])
@pytest.mark.parametrize(
    "name",
    [
        *("num_workers", "num_envs_per_worker", "rollout_length"),
        *("num_coordinators", "num_threads_per_worker", "seed"),
    ],
)
def test_a_count_that_is_no_whole_number_is_refused_at_once(name: str, value: Any) -> None:
    message = rf"^{name} is {re.escape(repr(value))}, expected a whole number of at least [01]$"
    with pytest.raises(SpecError, match=message):
        cartpoles(**{name: value})


@pytest.mark.parametrize(("kind", "fields", "message"), WRONG)
def test_a_value_out_of_range_names_its_field(
    kind: Any, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(RolloutsError, match=message):
        kind(**fields)


@pytest.mark.parametrize("kind", KINDS)
def test_options_are_frozen_and_pickle_and_have_a_door(kind: Any) -> None:
    options = kind()
    assert pickle.loads(pickle.dumps(options)) == options
    name = dataclasses.fields(kind)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(options, name, None)
    assert getattr(rollouts, kind.__name__) is kind


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_is_documented(kind: Any) -> None:
    # those of a Collector are explained there
    shared = dataclasses.fields(CollectorOptions) if kind is CollectOptions else ()
    for field in dataclasses.fields(kind):
        is_shared = field.name in {one.name for one in shared}
        text = Collector.__init__.__doc__ if is_shared else kind.__doc__
        assert f"      {field.name}" in text


def test_options_are_imported_without_ray_and_torch() -> None:
    names = [kind.__name__ for kind in KINDS]
    code = (
        "import sys, rollouts\n"
        f"[getattr(rollouts, name)() for name in {names}]\n"
        "assert not {'ray', 'torch'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_unknown_keyword_names_the_one_that_is_near() -> None:
    with pytest.raises(TypeError, match=r"no 'num_wrokers'.*did you mean num_workers=2\?"):
        cartpoles(num_wrokers=2)


def test_the_signature_is_the_documented_one() -> None:
    parameters = inspect.signature(RolloutCoordinator).parameters
    assert len(parameters) == 18
    assert inspect.getdoc(RolloutCoordinator) is not None
    for name in parameters:
        assert f"\n  {name}: " in str(inspect.getdoc(RolloutCoordinator))


@pytest.mark.parametrize(
    "options",
    [
        {"placement": "PACK"},
        {"faults": 3},
        {"queue": None},
        {"weights": {"w": 1}},
        {"collect": print},
        {"inference": BatchRule()},
    ],
)
def test_another_object_in_the_place_of_options_is_refused(options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(SpecError, match=rf"^{name} is .*, expected an? \w+ such as {name}="):
        cartpoles(**options)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"num_coordinators": 0}, "num_coordinators is 0"),
        ({"num_workers": 1}, "at least one worker for each"),
        ({"num_workers": 0}, "at least one worker for each"),
        ({"inference": Inference()}, "with inference"),
        ({"queue": QueueLimits(merge="ordered")}, 'with queue.merge="ordered"'),
        ({"weights": WeightTransport(tensor_transport="cuda_ipc")}, "weights.tensor_transport"),
        (
            {
                "collect": CollectOptions(device="cuda", tensor_transport="cuda_ipc"),
                "placement": Placement(num_gpus=0.5),
            },
            'give collect.tensor_transport="object_store"',
        ),
    ],
)
def test_what_several_coordinators_cannot_do_is_refused(
    settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(SpecError, match=said):
        cartpoles(**({"num_workers": 4, "num_coordinators": 2} | settings))
