# SPDX-License-Identifier: Apache-2.0
"""Reports of nodes, and the sentences that say what is wrong with them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rollouts.workers.node_checks import NodeReport, NodeState, notes, troubles

DRIVER = NodeReport(
    python="3.11.7",
    affinity_cpus=8,
    usable_cpus=4,
    shm_bytes=8 << 30,
    gpus=2,
    versions={"ray": "2.60.0", "torch": "2.13.0", "mujoco": "4.0.0", "vizdoom": None},
    torch_cuda="13.0",
)
OFFERS = {"CPU": 4.0, "GPU": 2.0, "object_store_memory": 4e9}


def node(report: NodeReport | None = DRIVER, offers: Any = OFFERS, **found: Any) -> NodeState:
    return NodeState(
        node_id="a", address="10.0.0.1", host="a", offers=offers, report=report, **found
    )


def test_a_node_like_the_driver_is_fit() -> None:
    assert troubles(node(first_fragment_s=1.0), DRIVER) == []
    assert notes(node(), DRIVER) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"python": "3.12.1"}, "it has Python 3.12.1, and this process 3.11.7"),
        ({"release_error": "another release: install"}, "another release: install"),
        ({"versions": {**DRIVER.versions, "mujoco": "3.14.0"}}, "it has mujoco 3.14.0, and this"),
        ({"usable_cpus": 2}, "Ray offers 4 CPUs, and its processes may use 2 (8 in the affinity"),
        ({"shm_bytes": 64 << 20}, "/dev/shm has 64 MiB, and Ray's object store 3815 MiB"),
        ({"gpus": 1}, "Ray offers 2 GPUs, and 1 of NVIDIA are here"),
        ({"torch_cuda": None}, "torch 2.13.0 was built without CUDA"),
    ],
)
def test_each_trouble_is_one_sentence_with_what_to_do(change: dict[str, Any], said: str) -> None:
    (found,) = troubles(node(replace(DRIVER, **change)), DRIVER)
    assert said in found
    assert "install" in found or "give" in found or "make" in found


def test_patches_of_python_and_missing_packages_are_no_trouble() -> None:
    report = replace(DRIVER, python="3.11.9", versions={**DRIVER.versions, "mujoco": None})
    assert troubles(node(report), DRIVER) == []
    assert notes(node(report), DRIVER) == [
        "not installed here, but where this command runs: mujoco"
    ]


def test_a_clock_that_is_off_is_named_with_its_direction() -> None:
    assert "2.5 s ahead of" in troubles(node(clock_offset_s=2.5), DRIVER)[0]
    assert "2.5 s behind" in troubles(node(clock_offset_s=-2.5), DRIVER)[0]
    assert troubles(node(clock_offset_s=0.5), DRIVER) == []


def test_a_node_that_did_not_answer_or_deliver_says_why() -> None:
    assert troubles(node(None, error="no answer within 5 s"), DRIVER) == [
        "it does not answer: no answer within 5 s"
    ]
    assert troubles(node(fragment_error="SpecError: no ROM"), DRIVER) == [
        "no fragment came from a worker here: SpecError: no ROM"
    ]


def test_what_may_be_meant_so_is_only_noted() -> None:
    head = node(offers={"object_store_memory": 4e9})
    assert troubles(head, DRIVER) == []
    no_cpus, gpus = notes(head, DRIVER)
    assert "Ray offers no CPUs here" in no_cpus
    assert "2 GPUs are here and Ray offers 0" in gpus
