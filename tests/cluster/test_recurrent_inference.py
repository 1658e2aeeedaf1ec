# SPDX-License-Identifier: Apache-2.0
"""A policy with memory in the shared inference actor of a real Ray."""

from __future__ import annotations

import os
import signal
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from counter_world import assert_balanced
from inference_world import spec
from recurrent_world import assert_unrolls, is_initial, make_lstm_policy

from rollouts import RolloutCoordinator
from rollouts.batch import RolloutBatch
from rollouts.errors import ProtocolError
from rollouts.workers import CollectOptions, FaultPolicy, Fragment, Inference, QueueLimits

pytestmark = pytest.mark.system

TIMEOUT_S = 300.0


def start(**changes: Any) -> RolloutCoordinator:
    settings = {
        "num_workers": 2,
        "num_envs_per_worker": 4,
        "rollout_length": 16,
        "queue": QueueLimits(credits_per_worker=1),
        # so short that episodes are also cut, and valued with the state they end with
        "env_options": {"max_episode_steps": 11},
        "faults": FaultPolicy(start_timeout_s=TIMEOUT_S),
        "seed": 5,
    } | changes
    coordinator = RolloutCoordinator("CartPole-v1", make_lstm_policy, **settings)
    coordinator.publish_weights(make_lstm_policy(spec()).weights())
    return coordinator


def test_the_server_acts_as_the_same_policy_in_the_worker(ray_session: object) -> None:
    def collect(**changes: Any) -> list[RolloutBatch]:
        with start(**{"num_workers": 1} | changes) as coordinator:
            return [coordinator.get(timeout_s=TIMEOUT_S) for _ in range(4)]

    for got, expected in zip(collect(inference=Inference()), collect(num_workers=0), strict=True):
        assert got.truncated.any()
        assert got.bootstrap_value.any()
        assert len(got.policy_state) == len(expected.policy_state) == 2
        for a, b in zip(got.policy_state, expected.policy_state, strict=True):
            np.testing.assert_array_equal(a, b)
        for name in (field.name for field in fields(RolloutBatch)):
            if name not in ("extras", "policy_state", "counted"):
                np.testing.assert_array_equal(
                    getattr(got, name), getattr(expected, name), err_msg=name
                )


def take_until_each_has(
    num: int, coordinator: RolloutCoordinator, lives: set[tuple[int, int]]
) -> dict[tuple[int, int], list[Fragment]]:
    taken: dict[tuple[int, int], list[Fragment]] = {life: [] for life in lives}
    while any(len(taken[life]) < num for life in lives):
        (fragment,) = coordinator.get_fragments(1, TIMEOUT_S)
        assert_unrolls(fragment.batch)
        life = (fragment.worker_id, fragment.incarnation)
        # a life that is over brings nothing more
        assert fragment.incarnation <= max(lives)[1], (life, coordinator.stats()["workers"])
        taken.setdefault(life, []).append(fragment)
    return {life: taken[life] for life in lives}


# batches of some rows go to the server as all do
@pytest.mark.parametrize("batch_size", [None, pytest.param(2, marks=pytest.mark.slow)])
def test_states_begin_anew_with_a_worker_s_next_life(
    ray_session: object, batch_size: int | None
) -> None:
    with start(inference=Inference(), collect=CollectOptions(batch_size=batch_size)) as coordinator:
        firsts = take_until_each_has(3, coordinator, {(0, 0), (1, 0)})
        os.kill(coordinator.stats()["workers"][0]["pid"], signal.SIGKILL)
        seconds = take_until_each_has(2, coordinator, {(0, 1)})
        for life in (*firsts.values(), *seconds.values()):
            assert is_initial(life[0].batch).all()
        # later fragments go on with episodes
        assert not is_initial(firsts[1, 0][1].batch).all()
        assert_balanced(coordinator.stats())


def test_workers_begin_new_episodes_where_the_server_lost_their_states(
    ray_session: object,
) -> None:
    import ray

    with start(inference=Inference()) as coordinator:
        take_until_each_has(2, coordinator, {(0, 0), (1, 0)})
        server = coordinator._runner._server  # type: ignore[attr-defined]
        ray.kill(server._actor, no_restart=False)
        seconds = take_until_each_has(2, coordinator, {(0, 1), (1, 1)})
        for life in seconds.values():
            assert is_initial(life[0].batch).all()
        stats = coordinator.stats()
        assert_balanced(stats)
        assert stats["failures"] == {"worker_error": 2}
        errors = [worker["last_error"] for worker in stats["workers"]]
        assert all("lost the states" in error for error in errors)


def test_act_without_rows_is_refused_where_it_is_called(ray_session: object) -> None:
    from rollouts.workers.on_ray.inference import InferenceServer

    server = InferenceServer(make_lstm_policy, spec(), request_timeout_s=TIMEOUT_S)
    try:
        remote = server.make_remote_policy(spec())
        with pytest.raises(ProtocolError, match="expected act_rows"):
            remote.act(np.zeros((1, 4), np.float32))
        with pytest.raises(ProtocolError, match="expected value_rows"):
            remote.value(np.zeros((1, 4), np.float32))
    finally:
        server.close()
