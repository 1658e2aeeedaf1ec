# SPDX-License-Identifier: Apache-2.0
"""Weights of a learner's actor, published past the driver: what arrives, and what is refused."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from counter_world import assert_balanced
from fragments import ANY_TRANSPORT, BY_NIXL, BY_STORE, HAS_NIXL, needs_nixl
from learner_actors import make_net, opened_worlds
from publish_world import LIMIT_S, World, make_learner, make_weights

import rollouts
from rollouts import WeightTransport
from rollouts.errors import ClosedError, LearnerError, ProtocolError, SpecError

ray = pytest.importorskip("ray")
pytest.importorskip("ray.experimental.rdt", reason="a Ray without direct transports")

pytestmark = pytest.mark.system

Make = Callable[..., World]


def open_world(learner: Any = None, **kwargs: Any) -> World:
    return World(learner or make_learner(), **kwargs)


@pytest.fixture
def world(ray_session: Any) -> Iterator[Make]:
    with opened_worlds(open_world) as make:
        yield make


FORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "bfloat16": {"dtype": "bfloat16"},
    "delta": {"delta": True},
    "float16-delta": {"dtype": "float16", "delta": True},
}
# each form goes one way; which one, the form knows nothing of
FORMS_AND_WAYS = [
    pytest.param(
        *(way, options),
        id=f"{form}-{way}",
        marks=[needs_nixl] * (way == "nixl") + [pytest.mark.slow] * (at % 2 != by),
    )
    for at, (form, options) in enumerate(FORMS.items())
    for by, way in enumerate(("nixl", "object_store"))
]


@pytest.mark.parametrize(("transport", "options"), FORMS_AND_WAYS)
def test_weights_arrive_bit_for_bit(world: Make, transport: str, options: dict[str, Any]) -> None:
    here = world(transport, options=options)
    for expected in range(1, 4):
        assert here.publish() == expected
        here.take_until(here.has_acted(expected, {0, 1}))
    stats = here.coordinator.stats()
    assert_balanced(stats)
    assert stats["policy_version"] == 3 and stats["failures"] == {}
    pulls = stats["weight_pulls"]
    if options.get("delta"):
        # parts of former versions come from the object store
        pulls["object_store"] -= 4
    assert {way: n for way, n in pulls.items() if n} == {
        transport if transport == "object_store" else "direct": 6
    }


@pytest.mark.parametrize("transport", BY_STORE)
def test_only_what_changed_is_stored_again(world: Make, transport: str) -> None:
    here = world(transport, options={"delta": True}, learner=make_learner(size=100_000))
    here.coordinator.publish_from(here.learner, timeout_s=LIMIT_S)
    full = here.coordinator.stats()["weights_bytes"]
    here.coordinator.publish_from(here.learner, timeout_s=LIMIT_S)
    assert here.coordinator.stats()["weights_bytes"] == full
    here.learner.train.remote()
    here.coordinator.publish_from(here.learner, timeout_s=LIMIT_S)
    # "frozen" is a quarter of the numbers
    frozen = make_weights(0, 100_000)["frozen"].nbytes
    assert here.coordinator.stats()["weights_bytes"] <= 2 * full - frozen


def test_both_ways_of_publishing_count_one_row_of_versions(world: Make) -> None:
    here = world(options={"delta": True, "first_version": 5})
    assert here.publish() == 5
    own = make_weights(77, 10)
    assert here.coordinator.publish_weights(own) == 6
    here.expect(6, own)
    here.take_until(here.has_acted(6, {0, 1}))
    assert here.publish() == 7
    here.take_until(here.has_acted(7, {0, 1}))


def test_lag_is_that_of_other_weights(world: Make) -> None:
    here = world(sync_mode="synchronous")
    for version in range(1, 4):
        assert here.publish() == version
        assert {f.min_policy_version for f in here.take(2)} == {version}
    assert here.coordinator.stats()["policy_lag_histogram"].keys() == {0}


def make_net_policy(spec: Any) -> rollouts.TorchPolicy:
    return rollouts.TorchPolicy(make_net(), spec.single_action_space)


@pytest.mark.parametrize("inference", [None, rollouts.Inference()], ids=["workers", "server"])
def test_policies_of_torch_take_them_over(ray_session: Any, inference: Any) -> None:
    @ray.remote(num_cpus=0, enable_tensor_transport=True)
    class Learner:
        def weights(self) -> Any:

            bias = {"actor.bias": torch.tensor([-1e3, 1e3]), "critic.bias": torch.tensor([7.0])}
            matrices = {"actor.weight": torch.zeros(2, 4), "critic.weight": torch.zeros(1, 4)}
            return {**bias, **matrices}

    learner = Learner.remote()
    with rollouts.RolloutCoordinator(
        "CartPole-v1",
        make_net_policy,
        num_workers=1,
        num_envs_per_worker=4,
        rollout_length=8,
        inference=inference,
        weights=WeightTransport(tensor_transport=ANY_TRANSPORT),
    ) as coordinator:
        coordinator.publish_from(learner, timeout_s=LIMIT_S)
        batch = coordinator.get(1, LIMIT_S)
        assert (batch.action == 1).all() and (batch.value == 7.0).all()
        # a server fetches them itself
        way = "direct" if HAS_NIXL else "object_store"
        expected = {way: 1} if inference is None else {}
        assert coordinator.stats()["weight_pulls"] == expected
    ray.kill(learner)


@needs_nixl
def test_class_without_a_transport_is_told_of_once(
    world: Make, caplog: pytest.LogCaptureFixture
) -> None:
    here = world(learner=make_learner(has_transport=False))
    with caplog.at_level(logging.WARNING):
        for version in (1, 2):
            here.publish()
            here.take_until(here.has_acted(version, {0, 1}))
    assert here.coordinator.stats()["weight_pulls"] == {"object_store": 4}
    (said,) = [r.getMessage() for r in caplog.records if "object store" in r.getMessage()]
    assert "enable_tensor_transport=True" in said and "Learner" in said


def test_what_gives_no_weights_is_refused_and_the_version_before_stays(world: Make) -> None:
    here = world()
    here.publish()
    # before a worker has started nobody knows that there is one policy, and errors say other words
    here.take_until(here.has_acted(1, {0, 1}))
    for given, method, error, message in (
        (None, "weights", SpecError, r"learner is None, expected a handle of a Ray actor"),
        (here.learner, "missing", SpecError, r"Actor\(.*Learner, .* has no method 'missing'"),
        (
            here.learner,
            "nothing",
            SpecError,
            r"Learner, .*nothing\(\) returned a list, expected a dict of name",
        ),
        (here.learner, "words", SpecError, r"Learner, .*weights\['w'\] is str, expected a numer"),
        (here.learner, "failing", LearnerError, r"failing\(\) of .*Learner.*optimiser broke"),
    ):
        with pytest.raises(error, match=message):
            here.coordinator.publish_from(given, method, timeout_s=LIMIT_S)
    assert here.coordinator.stats()["policy_version"] == 1
    here.take()
    assert here.publish() == 2
    here.take_until(here.has_acted(2, {0, 1}))


@pytest.mark.parametrize("transport", BY_NIXL)
def test_busy_learner_is_not_waited_for_longer_than_asked(
    world: Make, transport: str, tmp_path: Path
) -> None:
    here = world(transport, options={"delta": True})
    here.publish()
    trained = tmp_path / "trained"
    here.learner.train_until.remote(str(trained))
    with pytest.raises(TimeoutError, match=r"Learner.* gave no weights within 0.1 s"):
        here.coordinator.publish_from(here.learner, timeout_s=0.1)
    trained.touch()
    assert here.coordinator.stats()["policy_version"] == 1
    # the snapshot that came too late is no version to differ from
    assert here.publish() == 2
    here.take_until(here.has_acted(2, {0, 1}))


def test_close_wakes_who_waits_for_a_learner(world: Make) -> None:
    here = world()
    here.publish()
    here.learner.train_for.remote(LIMIT_S)
    found: list[type] = []

    def publish() -> None:
        try:
            here.coordinator.publish_from(here.learner, timeout_s=None)
        except ClosedError as error:
            found.append(type(error))

    thread = threading.Thread(target=publish)
    thread.start()
    here.coordinator.close()
    thread.join(LIMIT_S)
    assert found == [ClosedError]


def test_coordinator_without_workers_is_refused() -> None:
    with (
        rollouts.RolloutCoordinator(
            "CartPole-v1",
            make_net_policy,
            num_workers=0,
            num_envs_per_worker=2,
            rollout_length=4,
        ) as coordinator,
        pytest.raises(ProtocolError, match="publish_weights"),
    ):
        coordinator.publish_from(None)
