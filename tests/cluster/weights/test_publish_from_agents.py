# SPDX-License-Identifier: Apache-2.0
"""Weights of several policies, published from learners' actors: what arrives, what is refused."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from agents_world import (
    ENV_ID,
    LIMIT_S,
    POLICIES,
    AgentsWorld,
    make_learner,
    make_state,
    policy_maker,
)
from counter_world import assert_balanced
from fragments import BY_NIXL, HAS_NIXL, WAYS, needs_nixl
from learner_actors import opened_worlds

import rollouts
from rollouts import (
    CollectOptions,
    FaultPolicy,
    MultiAgentRollout,
    QueueLimits,
    RolloutCoordinator,
    WeightTransport,
)
from rollouts.errors import LearnerError, ProtocolError, SpecError, WorkerError

ray = pytest.importorskip("ray")
pytest.importorskip("ray.experimental.rdt", reason="a Ray without direct transports")

pytestmark = pytest.mark.system

Make = Callable[..., AgentsWorld]
NUM_ENVS = 4


def open_world(learner: Any = None, **kwargs: Any) -> AgentsWorld:
    return AgentsWorld(learner or make_learner(), **kwargs)


@pytest.fixture
def world(ray_session: Any) -> Iterator[Make]:
    with opened_worlds(open_world) as make:
        yield make


def arrays_by_env(batches: rollouts.MultiAgentRollout) -> dict[tuple[str, str], np.ndarray]:
    """Everything that was collected, columns in the order of env_ids."""
    found = {}
    for group, batch in batches.items():
        order = np.argsort(batch.env_id, kind="stable")
        for name in ("obs", "action", "reward", "log_prob", "value", "policy_version"):
            found[group, name] = getattr(batch, name)[:, order]
    return found


@pytest.mark.parametrize(("transport", "options"), WAYS)
def test_workers_act_as_this_process_does_with_these_weights(
    world: Make, transport: str, options: dict[str, Any]
) -> None:
    kwargs: Any = {"rollout_length": 8, "seed": 5, "sync_mode": "synchronous"}
    here = world(
        transport,
        options=options,
        num_envs_per_worker=NUM_ENVS // 2,
        queue=QueueLimits(merge="ordered", credits_per_worker=1),
        **kwargs,
    )
    alone = RolloutCoordinator[MultiAgentRollout](
        ENV_ID,
        policy_maker(),
        num_workers=0,
        num_envs_per_worker=NUM_ENVS,
        weights=WeightTransport(**options),
        **kwargs,
    )
    with alone:
        # a policy that was never published is the one that was made
        for published in (("agent",), POLICIES, ("adversary",), ("agent",), ("agent",), POLICIES):
            version = here.publish(published)
            states = {policy: make_state(policy, here.steps[policy]) for policy in published}
            assert version == alone.publish_weights(states)
            expected = arrays_by_env(alone.get(1, LIMIT_S))
            for key, array in arrays_by_env(here.coordinator.get(2, LIMIT_S)).items():
                np.testing.assert_array_equal(array, expected[key], err_msg=f"{version} {key}")
        assert here.coordinator.stats()["weights_bytes"] == alone.stats()["weights_bytes"]
    stats = here.coordinator.stats()
    assert_balanced(stats)
    assert stats["policy_lag_histogram"].keys() == {0} and stats["failures"] == {}
    pulls = stats["weight_pulls"]
    # one pull for each worker and policy that was published
    way = transport if transport == "object_store" else "direct"
    assert pulls[way] >= 2 * 8
    if not options.get("delta"):
        assert pulls == {way: 2 * 8}


def test_only_what_changed_of_a_policy_is_stored_again(world: Make) -> None:
    size = 10_000
    learner = make_learner(size=size)
    here = world(learner=learner, size=size, options={"delta": True})

    def stored_by(policies: tuple[str, ...], *, trains: bool = True) -> int:
        before = here.coordinator.stats()["weights_bytes"]
        version = here.publish(policies) if trains else here.publish_from(here.learner)
        here.take_until(version, {0, 1})
        return int(here.coordinator.stats()["weights_bytes"] - before)

    small = {
        policy: sum(tensor.nbytes for tensor in make_state(policy, 0).values())
        for policy in POLICIES
    }
    assert stored_by(POLICIES) == sum(small.values()) + 2 * 4 * size
    # each policy is compared with its own newest
    assert stored_by(("agent",)) == small["agent"]
    assert stored_by(("adversary",)) == small["adversary"]
    assert stored_by(POLICIES) == sum(small.values())
    assert stored_by(POLICIES, trains=False) == 0


@pytest.mark.parametrize("transport", BY_NIXL)
def test_learners_of_a_policy_each_make_one_version(world: Make, transport: str) -> None:
    here = world(transport, options={"delta": True, "first_version": 7})
    learners = {policy: make_learner(alone=policy) for policy in POLICIES}

    def publish(*policies: str) -> int:
        for policy, step in here.train(policies).items():
            learners[policy].train.remote({policy: step}, ())
        return here.publish_from({policy: learners[policy] for policy in policies})

    assert publish(*POLICIES) == 7
    here.take_until(7, {0, 1})
    assert publish("agent") == 8
    here.take_until(8, {0, 1})
    # the next versions are another learner's, and this process's
    assert here.publish() == 9
    here.take_until(9, {0, 1})
    assert publish(*POLICIES) == 10
    here.take_until(10, {0, 1})
    assert here.coordinator.stats()["failures"] == {}
    for learner in learners.values():
        ray.kill(learner)


def test_what_is_no_weights_of_policies_is_refused_and_all_stay(world: Make) -> None:
    here = world()
    here.publish()
    one_of = r"expected a dict of one of \['adversary', 'agent'\] -> that policy's weights"
    for method, error, message in (
        ("listed", SpecError, rf"weights that listed\(\) returned are of type list, {one_of}"),
        ("empty", SpecError, rf"weights that empty\(\) returned are empty, {one_of}"),
        ("flat", SpecError, rf"flat\(\) returned have the unknown policy 'frozen', {one_of}"),
        ("unknown", SpecError, rf"unknown\(\) returned have the unknown policy 'prey', {one_of}"),
        ("lacking", SpecError, r"of policy 'agent': weights lack 'body.weight' and 1 more, expec"),
        ("swollen", SpecError, r"of policy 'agent': weights have the unknown 'body.scale', expec"),
        (
            "swapped",
            SpecError,
            r"'adversary': weights\['body.weight'\] has shape \(8, 14\), exp.*16",
        ),
        ("words", SpecError, r"of policy 'agent': weights\['body.bias'\] is str, expected a numer"),
        ("failing", LearnerError, r"failing\(\) of .*Learner.*optimiser broke"),
        ("missing", SpecError, r"has no method 'missing'"),
    ):
        with pytest.raises(error, match=message) as raised:
            here.coordinator.publish_from(here.learner, method, timeout_s=LIMIT_S)
        assert "Learner" in str(raised.value)
    for learner, message in (
        (None, "learner is None, expected a handle of a Ray actor"),
        ({}, "learner is empty, expected a dict of policy -> handle"),
        ({"prey": here.learner}, "learner has the unknown policy 'prey', expected .*'adversary'"),
        ({"agent": None}, r"learner\['agent'\] is None, expected a handle of a Ray actor"),
    ):
        with pytest.raises(SpecError, match=message):
            here.coordinator.publish_from(learner, timeout_s=LIMIT_S)
    # by policy, where one policy's were asked for
    with pytest.raises(
        SpecError, match=r"Learner.* of policy 'agent': weights lack 'frozen' and 6"
    ):
        here.coordinator.publish_from({"agent": here.learner}, timeout_s=LIMIT_S)
    with pytest.raises(SpecError, match=r"'agent': listed\(\) returned a list, expected a dict of"):
        here.coordinator.publish_from({"agent": here.learner}, "listed", timeout_s=LIMIT_S)
    assert here.coordinator.stats()["policy_version"] == 1
    here.take_until(1, {0, 1})
    here.take_until(here.publish(), {0, 1})
    assert here.coordinator.stats()["failures"] == {}


def test_one_learner_that_is_busy_or_wrong_leaves_all_policies_as_they_were(
    world: Make, tmp_path: Path
) -> None:
    here = world(options={"delta": True})
    learners = {policy: make_learner(alone=policy) for policy in POLICIES}

    def publish() -> int:
        for policy, step in here.train().items():
            learners[policy].train.remote({policy: step}, ())
        return here.publish_from(learners)

    publish()
    trained = tmp_path / "trained"
    learners["agent"].train_until.remote(str(trained))
    name = rf"Learner, {learners['agent']._actor_id.hex()}\)"
    # the first one that is late is named; on a busy machine the other one may be late, too
    in_turn = {policy: learners[policy] for policy in ("agent", "adversary")}
    with pytest.raises(TimeoutError, match=rf"{name} gave no weights within 0.2 s"):
        here.coordinator.publish_from(in_turn, timeout_s=0.2)
    trained.touch()
    with pytest.raises(LearnerError, match="optimiser broke"):
        here.coordinator.publish_from(learners, "failing", timeout_s=LIMIT_S)
    assert here.coordinator.stats()["policy_version"] == 1
    # what came too late is no version to differ from
    for version in (2, 3):
        assert publish() == version
        here.take_until(version, {0, 1})
    for learner in learners.values():
        ray.kill(learner)


@needs_nixl
def test_class_without_a_transport_goes_through_the_object_store(
    world: Make, caplog: pytest.LogCaptureFixture
) -> None:
    here = world(learner=make_learner(has_transport=False))
    with caplog.at_level(logging.WARNING):
        here.take_until(here.publish(), {0, 1})
    assert here.coordinator.stats()["weight_pulls"] == {"object_store": 4}
    assert [r for r in caplog.records if "enable_tensor_transport=True" in r.getMessage()]


def make_env(config: Any) -> Any:
    return rollouts.make_multi_agent_vec(
        ENV_ID,
        config.num_envs,
        seed=config.env_seed,
        autoreset_mode="same_step",
        env_id_offset=config.env_id_offset,
    )


def test_policies_that_only_workers_know_are_published_too(world: Make) -> None:
    here = world(collect=CollectOptions(make_env=make_env), faults=FaultPolicy(max_restarts=0))
    here.take_until(here.publish(), {0, 1})
    here.take_until(here.publish(("agent",)), {0, 1})
    way = "direct" if HAS_NIXL else "object_store"
    assert here.coordinator.stats()["weight_pulls"] == {way: 2 * 3}
    # the first worker that was there has said which policies there are
    with pytest.raises(SpecError, match="unknown policy 'nobody'"):
        here.coordinator.publish_from({"nobody": here.learner}, timeout_s=LIMIT_S)
    with pytest.raises(SpecError, match="weights have the unknown policy 'w', expected"):
        here.coordinator.publish_weights({"w": np.zeros(1)})
    # workers then find out what is wrong
    assert here.coordinator.publish_from(here.learner, "lacking", timeout_s=LIMIT_S) == 3
    message = r"of policy 'agent': the policy does not take .* lacking\(\) of Actor\(.*Learner"
    with pytest.raises(WorkerError, match=message):
        while True:
            here.coordinator.get_fragments(1, LIMIT_S)


def test_coordinator_without_workers_is_refused() -> None:
    with (
        RolloutCoordinator[MultiAgentRollout](
            ENV_ID, policy_maker(), num_workers=0, num_envs_per_worker=2, rollout_length=4
        ) as coordinator,
        pytest.raises(ProtocolError, match=r"publish_from\(\) with num_workers=0"),
    ):
        coordinator.publish_from(None)
