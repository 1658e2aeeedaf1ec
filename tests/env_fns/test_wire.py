# SPDX-License-Identifier: Apache-2.0
"""Messages between a host and a process, over a pair of sockets in this process."""

from __future__ import annotations

import os
import pickle
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollouts.envs.hosted.leaves import leaves_of
from rollouts.envs.hosted.processes.shared_memory import BlockLayout, SharedMemory, batch_shapes
from rollouts.envs.hosted.processes.wire import (
    HostLink,
    Kind,
    Parser,
    WorkerLink,
    deadline_of,
    frame,
    make_orphan_test,
)

TIMEOUT_S = 300.0
Message = tuple[int, bytes]
messages_strategy = st.lists(
    st.tuples(st.sampled_from(list(Kind)), st.binary(max_size=20)), max_size=6
)


@pytest.fixture
def links() -> Iterator[tuple[HostLink, WorkerLink]]:
    ours, theirs = socket.socketpair()
    ours.settimeout(TIMEOUT_S)
    theirs.settimeout(TIMEOUT_S)
    host = HostLink(ours)
    yield host, WorkerLink(theirs, lambda: False)
    host.close()
    theirs.close()


def nothing() -> None:
    """Stands for a host's work while it waits for room."""


@given(messages_strategy, st.lists(st.integers(1, 15), max_size=40))
def test_messages_survive_any_cut_of_the_stream(messages: list[Message], cuts: list[int]) -> None:
    stream = b"".join(frame(Kind(kind), payload) for kind, payload in messages)
    parser, found, start = Parser(), list[Message](), 0
    for size in [*cuts, len(stream)]:
        found += parser.feed(stream[start : start + size])
        start += size
    assert found == messages


def test_a_message_without_a_payload_is_complete_with_its_header() -> None:
    data = frame(Kind.STEP_ALL)
    parser = Parser()
    assert list(parser.feed(data[:-1])) == []
    assert list(parser.feed(data[-1:])) == [(Kind.STEP_ALL, b"")]


def test_payloads_of_a_parser_are_bytes_of_their_own() -> None:
    parser = Parser()
    ((_, payload),) = parser.feed(frame(Kind.STEP, b"abcd"))
    list(parser.feed(frame(Kind.STEP, b"wxyz")))
    assert payload == b"abcd"


def test_a_payload_may_be_longer_than_one_byte_can_count() -> None:
    payload = bytes(70_000)
    assert list(Parser().feed(frame(Kind.ANSWER, payload))) == [(Kind.ANSWER, payload)]


def test_messages_reach_the_other_side_in_order(links: tuple[HostLink, WorkerLink]) -> None:
    host, worker = links
    for number in range(5):
        host.send(frame(Kind.CALL, bytes([number])), nothing)
    assert [worker.receive() for _ in range(5)] == [(Kind.CALL, bytes([n])) for n in range(5)]
    worker.send(frame(Kind.DONE_ALL) + frame(Kind.ANSWER, b"x"))
    assert host.receive() == [(Kind.DONE_ALL, b""), (Kind.ANSWER, b"x")]


def test_a_host_with_nothing_to_receive_does_not_wait(links: tuple[HostLink, WorkerLink]) -> None:
    host, worker = links
    assert host.receive() == []
    worker.send(frame(Kind.DONE, b"half")[:-2])
    assert host.receive() == []
    worker.send(b"lf")
    assert host.receive() == [(Kind.DONE, b"half")]


def test_what_a_process_said_before_it_went_still_counts() -> None:
    ours, theirs = socket.socketpair()
    host = HostLink(ours)
    theirs.sendall(frame(Kind.DONE_ALL))
    theirs.close()
    assert host.receive() == [(Kind.DONE_ALL, b"")]
    # and only then it is gone
    assert host.receive() is None
    with pytest.raises(OSError):
        host.send(frame(Kind.STEP_ALL), nothing)
    host.close()


def test_a_worker_whose_host_closed_is_told_so(links: tuple[HostLink, WorkerLink]) -> None:
    host, worker = links
    host.send(frame(Kind.STEP_ALL), nothing)
    host.close()
    assert worker.receive() == (Kind.STEP_ALL, b"")
    assert worker.receive() is None
    with pytest.raises(OSError):
        # the first bytes may still find a buffer
        for _ in range(100):
            worker.send(bytes(1 << 16))


def test_an_orphan_stops_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollouts.envs.hosted.processes.wire._PARENT_CHECK_MS", 1)
    ours, theirs = socket.socketpair()
    answers = iter([False, False, True])
    worker = WorkerLink(theirs, lambda: next(answers))
    # the socket stays open: some other child of the host may hold it
    assert worker.receive() is None
    assert next(answers, None) is None
    ours.close()
    theirs.close()


def test_an_orphan_gets_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollouts.envs.hosted.processes.wire._PARENT_CHECK_MS", 1)
    ours, theirs = socket.socketpair()
    assert WorkerLink(theirs, lambda: True).receive_memory() is None
    ours.close()
    theirs.close()


def test_a_host_that_closes_before_the_memory_is_gone() -> None:
    ours, theirs = socket.socketpair()
    ours.close()
    assert WorkerLink(theirs, lambda: False).receive_memory() is None
    theirs.close()


def test_two_sides_that_both_send_much_do_not_wait_for_each_other(
    links: tuple[HostLink, WorkerLink],
) -> None:
    host, worker = links
    payload = os.urandom(1 << 21)  # more than both sockets hold
    got: list[Message] = []

    def answer() -> None:
        worker.send(frame(Kind.ANSWER, payload))
        message = worker.receive()
        assert message is not None
        worker.send(frame(Kind.ANSWER, message[1][::-1]))

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()

    def receive() -> None:
        got.extend(host.receive() or [])

    host.send(frame(Kind.CALL, payload), receive)
    deadline = time.monotonic() + TIMEOUT_S
    while len(got) < 2:
        assert time.monotonic() < deadline
        receive()
    thread.join(TIMEOUT_S)
    assert got == [(Kind.ANSWER, payload), (Kind.ANSWER, payload[::-1])]


def test_the_descriptor_of_the_memory_comes_with_its_layout(
    links: tuple[HostLink, WorkerLink],
) -> None:
    host, worker = links
    layout = BlockLayout.of([("a", (3,), np.int16), ("b", (2, 2), np.float64)])
    mine = SharedMemory(layout)
    host.send_memory(pickle.dumps(layout), mine.fd)
    host.send(frame(Kind.STEP_ALL), nothing)  # right behind it
    received = worker.receive_memory()
    assert received is not None
    their_layout, fd = received
    assert their_layout == layout and fd != mine.fd
    theirs = SharedMemory(their_layout, fd)
    mine.arrays["a"][...] = (1, 2, 3)
    theirs.arrays["b"][1, 0] = 0.5
    assert theirs.arrays["a"].tolist() == [1, 2, 3] and mine.arrays["b"][1, 0] == 0.5
    assert worker.receive() == (Kind.STEP_ALL, b"")
    mine.close()
    theirs.close()


def test_arrays_outlive_the_descriptor_and_closing_twice_is_fine() -> None:
    memory = SharedMemory(BlockLayout.of([("a", (2,), np.int64)]))
    fd = memory.fd
    array = memory.arrays["a"]
    memory.close()
    memory.close()
    with pytest.raises(OSError):
        os.fstat(fd)
    array[...] = 7
    assert array.tolist() == [7, 7]


shapes_strategy = st.lists(
    st.tuples(
        st.lists(st.integers(0, 5), max_size=3).map(tuple),
        st.sampled_from([np.bool_, np.uint8, np.float32, np.int64, np.float64]),
    ),
    min_size=1,
    max_size=6,
)


@given(shapes_strategy)
def test_arrays_begin_at_cache_lines_and_do_not_overlap(shapes: list[Any]) -> None:
    layout = BlockLayout.of((f"f{i}", shape, dtype) for i, (shape, dtype) in enumerate(shapes))
    fields = list(layout.fields.values())
    ends = [*(field.offset for field in fields[1:]), layout.nbytes]
    for i, (field, end) in enumerate(zip(fields, ends, strict=True)):
        assert field.offset % 64 == 0
        # no two fields share a line, even if one is empty
        assert field.offset + max(1, field.nbytes) <= end
        assert field.name == f"f{i}" and field.shape == shapes[i][0]
        assert field.nbytes == np.zeros(*shapes[i]).nbytes


def test_fields_hold_what_is_written_to_each() -> None:
    layout = BlockLayout.of(
        [("a", (3,), np.uint8), ("e", (0, 2), np.float32), ("b", (65,), np.uint8)]
    )
    memory = SharedMemory(layout)
    assert all(not array.any() for array in memory.arrays.values())
    memory.arrays["a"][...] = 1
    memory.arrays["b"][...] = 2
    assert memory.arrays["a"].tolist() == [1, 1, 1]
    assert memory.arrays["e"].shape == (0, 2)
    memory.close()


def test_rows_of_every_leaf_that_is_an_array_are_shared() -> None:
    from gymnasium import spaces

    obs = leaves_of(
        spaces.Tuple([spaces.Text(3), spaces.Box(0, 1, (2, 2), np.float32), spaces.Discrete(3)])
    )
    action = leaves_of(spaces.MultiBinary(4))
    shapes = {
        name: (shape, dtype)
        for name, shape, dtype in batch_shapes(5, obs, action, keeps_final=True)
    }
    assert shapes["reward"] == ((5,), np.float64)
    for name in ("terminated", "truncated", "was_reset"):
        assert shapes[name] == ((5,), np.bool_)
    # the place of the text in the observation is left out, the numbers of the others stay
    for group in ("obs", "final_obs"):
        assert f"{group}/0" not in shapes
        assert shapes[f"{group}/1"] == ((5, 2, 2), np.float32)
        assert shapes[f"{group}/2"] == ((5,), np.int64)
    assert shapes["action/0"] == ((5, 4), np.int8)
    names = [name for name, _, _ in batch_shapes(5, obs, action, keeps_final=False)]
    assert names == ["reward", "terminated", "truncated", "was_reset", "obs/1", "obs/2", "action/0"]


def test_this_process_is_nobody_s_orphan() -> None:
    # by either sign: the parent's id, or what multiprocessing knows of it
    assert not make_orphan_test(os.getppid())()
    assert not make_orphan_test(-1)()


def test_an_orphan_is_known_by_its_new_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    is_orphan = make_orphan_test(os.getppid())
    monkeypatch.setattr("os.getppid", lambda: 1_000_000)
    assert is_orphan()
    # one that a fork server started never was the host's child
    assert not make_orphan_test(7)()


def test_deadlines() -> None:
    assert deadline_of(None) == float("inf")
    before = time.monotonic()
    assert before + 5 <= deadline_of(5.0) <= time.monotonic() + 5
