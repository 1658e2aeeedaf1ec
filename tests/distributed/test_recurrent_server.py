# SPDX-License-Identifier: Apache-2.0
"""States of a recurrent policy in a PolicyServer: whose they are, and when they begin anew."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from inference_world import SumPolicy, spec
from recurrent_world import make_lstm_policy

from rollouts.workers.policy_requests import BatchRule, PolicyRequest, Reply, RowsOf
from rollouts.workers.policy_server import PolicyServer

TIMEOUT_S = 300.0
INCARNATION = 7


@pytest.fixture
def server() -> Iterator[PolicyServer]:
    server = PolicyServer(make_lstm_policy(spec()), BatchRule(), incarnation=INCARNATION)
    yield server
    server.close()


class Client:
    """One life of a worker with the environments `first` to `first + num_envs - 1`."""

    def __init__(
        self, server: PolicyServer, worker_id: int = 0, *, incarnation: int = 0, num_envs: int = 4
    ) -> None:
        self.server, self.worker_id, self.incarnation = server, worker_id, incarnation
        self.rows = worker_id * num_envs + np.arange(num_envs)
        self.number = 0
        self.server_incarnation = 0

    def submit(
        self, kind: str, obs: np.ndarray, *, begins: bool = False, number: int | None = None
    ) -> Any:
        self.number = self.number + 1 if number is None else number
        of = RowsOf(
            rows=self.rows,
            begins=np.full(len(self.rows), begins),
            worker_id=self.worker_id,
            incarnation=self.incarnation,
            number=self.number,
            server_incarnation=self.server_incarnation,
        )
        return self.server.submit(PolicyRequest(kind, obs, of))

    def ask(self, kind: str, obs: np.ndarray, **kwargs: Any) -> Reply:
        reply: Reply = self.submit(kind, obs, **kwargs).result(TIMEOUT_S)
        return reply

    def value(self, obs: np.ndarray, *, begins: bool = False) -> np.ndarray:
        reply = self.ask("value", obs, begins=begins)
        assert reply.failure is None, reply.failure
        return reply.arrays["value"]


def observations(seed: int, rows: int = 4) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, 4)).astype(np.float32)


def test_a_single_client_gets_what_a_policy_of_its_own_would_say(server: PolicyServer) -> None:
    client, local = Client(server), make_lstm_policy(spec())
    for t in range(6):
        obs, begins = observations(t), np.full(4, t in (0, 4))
        states = client.ask("states", np.empty((4, 0)), begins=bool(begins[0])).arrays
        for i, state in enumerate(local.states(None, begins)):
            np.testing.assert_array_equal(states[str(i)], state)
        got, expected = (
            client.ask("act", obs, begins=bool(begins[0])).arrays,
            local.act_rows(obs, None, begins),
        )
        for name in ("action", "log_prob", "value"):
            np.testing.assert_array_equal(got[name], getattr(expected, name))
        zeros = np.zeros(4, np.bool_)
        np.testing.assert_array_equal(client.value(obs), local.value_rows(obs, None, zeros))


def test_workers_in_one_batch_keep_their_own_states() -> None:
    server = PolicyServer(make_lstm_policy(spec()), BatchRule(min_rows=8, timeout_s=3600.0))
    clients, locals_ = [Client(server, w) for w in (0, 1)], [make_lstm_policy(spec()) for _ in "ab"]
    try:
        for t in range(5):
            begins = [t == 0, t in (0, 3)]
            obs = [observations(10 * t + w) for w in (0, 1)]
            futures = [
                client.submit("act", obs[w], begins=begins[w]) for w, client in enumerate(clients)
            ]
            for w, future in enumerate(futures):
                got = future.result(TIMEOUT_S).arrays["value"]
                expected = locals_[w].act_rows(obs[w], None, np.full(4, begins[w])).value
                # the same network on batches of another size
                np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
        assert server.stats()["forward_passes"] == 5
    finally:
        server.close()


def test_a_worker_s_next_life_begins_with_new_states(server: PolicyServer) -> None:
    obs = observations(0)
    first = Client(server)
    fresh = first.ask("act", obs, begins=True).arrays["value"]
    first.ask("act", obs)
    second = Client(server, incarnation=1)
    # it does not even say that episodes begin
    np.testing.assert_array_equal(second.value(obs), fresh)
    np.testing.assert_array_equal(second.ask("act", obs).arrays["value"], fresh)
    assert (second.ask("act", obs).arrays["value"] != fresh).all()


def test_what_a_former_life_still_asks_is_refused(server: PolicyServer) -> None:
    obs = observations(0)
    first, second = Client(server), Client(server, incarnation=1)
    first.ask("act", obs, begins=True)
    second.ask("act", obs, begins=True)
    before = second.value(obs)
    failure = first.ask("act", obs).failure
    assert failure is not None
    assert "incarnation 1 has taken its place" in failure.message
    np.testing.assert_array_equal(second.value(obs), before)


def test_a_former_life_s_request_that_waits_is_refused_when_its_turn_comes() -> None:
    server = PolicyServer(make_lstm_policy(spec()), BatchRule(min_rows=8, timeout_s=3600.0))
    obs = observations(0)
    try:
        late = Client(server).submit("act", obs, begins=True)
        found = Client(server, incarnation=1).ask("act", obs, begins=True)
        assert found.failure is None
        assert late.result(TIMEOUT_S).failure is not None
        assert server.stats()["forward_passes"] == 1
    finally:
        server.close()


def test_a_request_that_comes_twice_moves_the_states_once(server: PolicyServer) -> None:
    obs = observations(0)
    client, other = Client(server, 0), Client(server, 1)
    for each in (client, other):
        each.ask("act", obs, begins=True)
    replies = [client.ask("act", obs, number=2) for _ in range(3)]
    other.ask("act", obs)
    assert replies[0] is replies[1] is replies[2]
    np.testing.assert_array_equal(client.value(obs), other.value(obs))


def test_a_server_started_again_refuses_episodes_that_it_does_not_remember(
    server: PolicyServer,
) -> None:
    client = Client(server)
    client.server_incarnation = client.ask("act", observations(0), begins=True).server_incarnation
    assert client.server_incarnation == INCARNATION
    assert client.ask("act", observations(1)).failure is None
    client.server_incarnation = INCARNATION + 1
    failure = client.ask("act", observations(2)).failure
    assert failure is not None
    assert "lost the states" in failure.message


def test_rows_are_for_policies_with_memory_only(server: PolicyServer) -> None:
    failure = server.submit(PolicyRequest("act", observations(0))).result(TIMEOUT_S).failure
    assert failure is not None
    assert "ask with rows" in failure.message
    plain = PolicyServer(SumPolicy(), BatchRule())
    try:
        failure = Client(plain).ask("act", observations(0)).failure
        assert failure is not None
        assert "no memory" in failure.message
    finally:
        plain.close()
