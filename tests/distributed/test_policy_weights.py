# SPDX-License-Identifier: Apache-2.0
"""Weights that a store takes, of one policy and of several, and what refused ones leave."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from acted_worker import worker_config

from rollouts.errors import SpecError
from rollouts.workers.policy_trial import try_policy
from rollouts.workers.weight_store import Snapshot, WeightStore
from rollouts.workers.weight_transport import ONLY, WeightTransport
from rollouts.workers.worker_config import WorkerConfig

torch = pytest.importorskip("torch")

from rollouts.policy import TorchPolicy  # noqa: E402


@pytest.fixture(autouse=True, scope="module")
def gpu_in_use() -> None:
    """Policies are tried where this process uses its GPU, if it has one."""
    if torch.cuda.is_available():
        torch.cuda.init()


def fetched(store: WeightStore) -> dict[str, dict[str, list[float]]]:
    offer = store.latest
    assert offer is not None
    return {
        policy: {name: array.tolist() for name, array in part.fetch().items()}
        for policy, part in offer.policies.items()
    }


def numbers(**values: float) -> dict[str, np.ndarray]:
    return {name: np.array([value]) for name, value in values.items()}


@pytest.mark.parametrize("delta", [False, True])
def test_refused_weights_leave_all_policies_as_they_were(delta: bool) -> None:
    store = WeightStore(transport=WeightTransport(delta=delta), policies=["a", "b"])
    assert store.publish({"a": numbers(v=1, w=2), "b": numbers(v=3)}) == 1
    before = fetched(store), store.published_bytes
    wrong: Any = {"a": numbers(v=5, w=6), "b": {"v": "text"}}
    with pytest.raises(SpecError, match=r"of policy 'b': weights\['v'\] is str"):
        store.publish(wrong)

    def make_no_part(version: int) -> Any:
        raise OSError("the object store is full")

    def take(plans_of: Any) -> Mapping[str, Snapshot]:
        sizes = {"v": 8, "w": 8}
        failing = Snapshot(sizes=sizes, names=frozenset(sizes), make_part=make_no_part)
        return {"a": failing}

    with pytest.raises(OSError, match="object store is full"):
        store.publish_from(take)
    assert (fetched(store), store.published_bytes) == before and store.version == 1
    # what was refused is nothing to differ from
    assert store.publish({"a": numbers(v=5, w=2)}) == 2
    assert fetched(store) == {"a": {"v": [5], "w": [2]}, "b": {"v": [3]}}
    assert store.published_bytes - before[1] == (8 if delta else 16)


def test_parts_are_shared_between_versions_of_one_source_alone() -> None:
    store = WeightStore(transport=WeightTransport(delta=True), policies=["a", "b"])
    store.publish({"a": numbers(v=1), "b": numbers(v=2)})
    seen = []

    def take(plans_of: Any) -> Mapping[str, Snapshot]:
        seen.append({policy: plan.base for policy, plan in plans_of("learner").items()})
        plain = WeightStore()
        plain.publish(numbers(v=7))
        offer: Any = plain.latest
        return {
            "a": Snapshot(
                sizes={"v": 8},
                names=frozenset({"v"}),
                make_part=lambda version: offer.policies[ONLY].parts[0],
                source="learner",
                number=len(seen),
            )
        }

    for _ in range(2):
        store.publish_from(take)
    store.publish({"a": numbers(v=1)})
    store.publish_from(take)
    assert seen == [{}, {"a": 1}, {}]
    assert fetched(store) == {"a": {"v": [7]}, "b": {"v": [2]}}


@pytest.mark.parametrize("delta", [False, True])
def test_weights_in_a_wrong_form_end_with_the_next_in_the_right_one(delta: bool) -> None:
    transport = WeightTransport(delta=delta)
    for wrong, right in (
        (numbers(v=1), {"a": numbers(v=2)}),
        ({"a": numbers(v=1)}, numbers(v=2)),
    ):
        store = WeightStore(transport=transport, policies=None)
        store.publish(wrong)
        store.publish(right)
        assert fetched(store) == ({"a": {"v": [2]}} if "a" in right else {ONLY: {"v": [2]}})
    store = WeightStore(transport=transport, policies=None)
    store.publish({"a": numbers(v=1), "misspelt": numbers(v=2)})
    store.publish({"b": numbers(v=3)})
    assert {*fetched(store)} == {"a", "misspelt", "b"}
    store.learn_policies(["a", "b"])
    store.publish({"b": numbers(v=4)})
    assert fetched(store) == {"a": {"v": [1]}, "b": {"v": [4]}}


def test_what_a_learner_gave_of_no_policy_is_refused_once_the_names_are_known() -> None:
    store = WeightStore(policies=None)
    store.publish({"a": numbers(v=1)})

    def take(plans_of: Any) -> Mapping[str, Snapshot]:
        # a worker that started while the learner answered
        store.learn_policies(["a"])
        plain = WeightStore()
        plain.publish(numbers(v=7))
        offer: Any = plain.latest
        part = offer.policies[ONLY].parts[0]
        return {"b": Snapshot(sizes={"v": 8}, names=frozenset("v"), make_part=lambda version: part)}

    with pytest.raises(SpecError, match=r"unknown policy 'b', expected some of \['a'\]"):
        store.publish_from(take)
    assert store.version == 1 and fetched(store) == {"a": {"v": [1]}}


def test_arrays_that_the_policy_does_not_take_are_refused() -> None:
    store = WeightStore()
    store.shapes = {ONLY: {"v": (1,), "w": (2, 3)}}
    store.publish({"v": np.zeros(1), "w": torch.zeros(2, 3)})
    for weights, message in (
        ({"v": np.zeros(1)}, "weights lack 'w', expected the arrays of the policy"),
        ({}, "weights lack 'v' and 1 more, expected"),
        ({"v": np.zeros(1), "w": np.zeros((2, 3)), "x": 0}, "weights have the unknown 'x', exp"),
        ({"v": np.zeros(1), "w": np.zeros((3, 2))}, r"\['w'\] has shape \(3, 2\), .* \(2, 3\) as"),
    ):
        with pytest.raises(SpecError, match=message):
            store.publish(weights)
    assert store.version == 1


class Net(torch.nn.Module):
    def __init__(self, width: int, num_actions: int) -> None:
        super().__init__()
        self.actor, self.critic = torch.nn.Linear(width, num_actions), torch.nn.Linear(width, 1)

    def forward(self, obs: Any) -> Any:
        return self.actor(obs), self.critic(obs)


class Lenient(TorchPolicy):
    """Takes a part of its weights."""

    def load_weights(self, weights: Any, version: int) -> None:
        self.module.load_state_dict(weights, strict=False)
        self.policy_version = version


@pytest.mark.parametrize("policy_class", [TorchPolicy, Lenient])
def test_a_tried_policy_says_which_weights_it_takes(policy_class: type[TorchPolicy]) -> None:
    def make_policy(spec: Any) -> TorchPolicy:
        net = Net(spec.single_observation_space.shape[0], int(spec.single_action_space.n))
        return policy_class(net, spec.single_action_space)

    def config(env_id: str) -> WorkerConfig:
        return replace(worker_config(), id=env_id)

    def shapes(width: int, num_actions: int) -> dict[str, tuple[int, ...]]:
        return {
            "actor.weight": (num_actions, width),
            "actor.bias": (num_actions,),
            "critic.weight": (1, width),
            "critic.bias": (1,),
        }

    expected: tuple[Any, Any] = (
        {ONLY: shapes(4, 2)},
        {"adversary": shapes(16, 5), "agent": shapes(14, 5)},
    )
    # one of its own load_weights takes what that takes
    if policy_class is Lenient:
        expected = {}, {}
    found = tuple(try_policy(make_policy, config(env)) for env in ("CartPole-v1", "simple_tag_v3"))
    assert found == expected
