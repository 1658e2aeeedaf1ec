# SPDX-License-Identifier: Apache-2.0
"""StateClients alone: which requests go on with an episode, and whose a row's state is."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollouts.workers.policy_requests import RowsOf
from rollouts.workers.state_clients import StateClients

SERVER = 5


def of(
    *rows: int,
    worker: int = 0,
    life: int = 0,
    number: int = 0,
    server: int = 0,
    begins: Any = False,
) -> RowsOf:
    return RowsOf(
        rows=np.array(rows, np.intp),
        begins=np.broadcast_to(np.asarray(begins, np.bool_), len(rows)).copy(),
        worker_id=worker,
        incarnation=life,
        number=number,
        server_incarnation=server,
    )


def begins(clients: StateClients, request: RowsOf, *, moves_on: bool = True) -> list[bool]:
    found: list[bool] = clients.begins_of(request, moves_on=moves_on).tolist()
    return found


def test_a_request_without_rows_is_told_how_to_ask() -> None:
    assert StateClients(SERVER).problem_of(None) == (
        "the policy remembers episodes: ask with rows, as RemoteRecurrentPolicy does"
    )


@pytest.mark.parametrize("server", [0, SERVER])
def test_who_has_no_states_yet_or_has_them_here_may_ask(server: int) -> None:
    assert StateClients(SERVER).problem_of(of(0, server=server)) is None


@pytest.mark.parametrize("server", [SERVER - 1, SERVER + 1])
def test_states_of_another_server_are_lost(server: int) -> None:
    problem = StateClients(SERVER).problem_of(of(0, worker=3, server=server))
    assert problem == (
        "the inference server was started again and lost the states of the episodes that "
        "worker 3 is in: the worker must begin new ones"
    )


def test_a_former_incarnation_is_refused_once_the_next_has_entered() -> None:
    clients = StateClients(SERVER)
    clients.enter(of(0, worker=2, life=1), Future())
    assert clients.problem_of(of(0, worker=2, life=1)) is None
    assert clients.problem_of(of(0, worker=2, life=2)) is None
    clients.enter(of(0, worker=2, life=4), Future())
    assert clients.problem_of(of(0, worker=2, life=3)) == (
        "worker 2 asks as incarnation 3, and incarnation 4 has taken its place"
    )
    # lives of other workers are their own
    assert clients.problem_of(of(0, worker=1, life=0)) is None


def test_asking_about_a_problem_notes_nothing() -> None:
    clients = StateClients(SERVER)
    assert clients.problem_of(of(0, life=9)) is None
    assert clients.problem_of(of(0, life=1)) is None


def test_a_request_that_comes_again_gets_the_future_of_the_first() -> None:
    clients = StateClients(SERVER)
    first: Future[Any] = Future()
    assert clients.enter(of(0, number=1), first) is None
    assert clients.enter(of(0, number=1), Future()) is first
    assert clients.enter(of(0, number=2), Future()) is None
    # number 1 again would be older than the newest: it is one that nobody remembers
    assert clients.enter(of(0, number=1), Future()) is None


def test_numbers_are_counted_by_worker_and_by_incarnation() -> None:
    clients = StateClients(SERVER)
    mine: Future[Any] = Future()
    assert clients.enter(of(0, worker=0, number=1), mine) is None
    assert clients.enter(of(1, worker=1, number=1), Future()) is None
    assert clients.enter(of(0, worker=0, number=1), Future()) is mine
    # the next life begins to count anew, and the number does not mean the same request
    assert clients.enter(of(0, worker=0, life=1, number=1), Future()) is None


def test_number_zero_is_a_request_too() -> None:
    clients = StateClients(SERVER)
    first: Future[Any] = Future()
    assert clients.enter(of(0, number=0), first) is None
    assert clients.enter(of(0, number=0), Future()) is first


def test_a_row_that_nobody_had_begins_an_episode() -> None:
    clients = StateClients(SERVER)
    assert begins(clients, of(2, 0)) == [True, True]
    assert begins(clients, of(2, 0)) == [False, False]
    # row 1 lies between the two and was never asked about
    assert begins(clients, of(0, 1, 2)) == [False, True, False]


def test_a_row_of_another_incarnation_begins_an_episode() -> None:
    clients = StateClients(SERVER)
    begins(clients, of(0, 1, life=0))
    assert begins(clients, of(1, life=1)) == [True]
    assert begins(clients, of(0, 1, life=1)) == [True, False]


def test_the_client_s_own_begins_are_kept_and_not_written_to() -> None:
    clients = StateClients(SERVER)
    begins(clients, of(0, 1))
    request = of(0, 1, begins=[False, True])
    assert begins(clients, request) == [False, True]
    request = of(0, 1, life=3)
    assert begins(clients, request) == [True, True]
    assert not request.begins.any()


def test_a_look_leaves_no_state_behind() -> None:
    clients = StateClients(SERVER)
    for _ in range(2):
        assert begins(clients, of(4), moves_on=False) == [True]
    assert begins(clients, of(4)) == [True]
    assert begins(clients, of(4), moves_on=False) == [False]


def test_no_rows_begin_nothing() -> None:
    assert begins(StateClients(SERVER), of()) == []


@given(
    st.lists(
        st.tuples(
            st.sets(st.integers(0, 12), min_size=1, max_size=5), st.integers(0, 2), st.booleans()
        ),
        max_size=30,
    )
)
def test_owners_are_those_of_a_dict(requests: list[tuple[set[int], int, bool]]) -> None:
    clients, owners = StateClients(SERVER), dict[int, int]()
    for rows, life, moves_on in requests:
        asked = of(*sorted(rows, reverse=True), life=life)
        expected = [owners.get(row) != life for row in sorted(rows, reverse=True)]
        assert begins(clients, asked, moves_on=moves_on) == expected
        if moves_on:
            owners.update(dict.fromkeys(rows, life))
