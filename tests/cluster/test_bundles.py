# SPDX-License-Identifier: Apache-2.0
"""Resources that equal actors take of a cluster, and checks of addresses before Ray is asked."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from rollouts.errors import SpecError
from rollouts.workers import Placement
from rollouts.workers.on_ray.bundles import Bundles
from rollouts.workers.on_ray.ray_address import check_address

TIMEOUT_S = 60.0
SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # a frame of HTTP/2


def of_workers(**placement: Any) -> Bundles:
    return Bundles.of_workers(Placement(**placement), num_workers=3, num_threads=2)


def test_what_is_not_said_follows_from_workers_and_threads() -> None:
    assert of_workers() == Bundles(count=3, num_cpus=2)


def test_what_is_said_counts_even_if_it_is_nothing() -> None:
    made = of_workers(
        num_cpus=0, num_gpus=0.5, max_workers=7, strategy="SPREAD", node_labels={"zone": "b"}
    )
    assert made == Bundles(
        count=7, num_cpus=0, num_gpus=0.5, strategy="SPREAD", node_labels={"zone": "b"}
    )
    assert of_workers(max_workers=0).count == 0


def test_labels_are_a_copy() -> None:
    labels = {"zone": "b"}
    made = of_workers(node_labels=labels)
    labels["zone"] = "c"
    assert made.node_labels == {"zone": "b"}
    made.actor_options()["label_selector"]["zone"] = "d"
    assert made.node_labels == {"zone": "b"}


def test_a_bundle_has_gpus_only_where_some_are_asked_for() -> None:
    assert Bundles(count=1, num_cpus=2).resources() == {"CPU": 2}
    assert Bundles(count=1, num_cpus=0.5, num_gpus=1).resources() == {"CPU": 0.5, "GPU": 1}


def test_labels_are_the_actor_s_or_those_of_its_place_in_a_group() -> None:
    alone = Bundles(count=1, num_cpus=2, node_labels={"zone": "b"})
    assert alone.actor_options() == {
        "num_cpus": 2,
        "num_gpus": 0.0,
        "label_selector": {"zone": "b"},
    }
    grouped = Bundles(count=1, num_cpus=2, strategy="PACK", node_labels={"zone": "b"})
    assert grouped.actor_options() == {"num_cpus": 2, "num_gpus": 0.0}


@contextmanager
def listener(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that treats one connection as the test says; yields host:port."""

    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            answer(connection)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join(TIMEOUT_S)


def byte_by_byte(connection: socket.socket) -> None:
    for byte in SETTINGS:
        connection.sendall(bytes([byte]))
    connection.recv(1000)


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_who_answers_with_settings_may_be_a_ray_however_slowly(scheme: str) -> None:
    with listener(byte_by_byte) as address:
        check_address(f"{scheme}{address}", TIMEOUT_S)


def test_what_is_sent_opens_a_connection_and_asks_for_nothing() -> None:
    heard: list[bytes] = []

    def answer(connection: socket.socket) -> None:
        heard.append(connection.recv(1000))
        connection.sendall(SETTINGS)

    with listener(answer) as address:
        check_address(address, TIMEOUT_S)
    (preface,) = heard
    assert preface.startswith(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") and preface.endswith(SETTINGS)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "does not speak gRPC"),
        (bytes([0, 0, 0, 6, 0, 0, 0, 0, 0]), "does not speak gRPC"),
        (SETTINGS[:5], "closed the connection"),
        (b"", "closed the connection"),
    ],
)
def test_who_answers_otherwise_is_no_ray(answer: bytes, message: str) -> None:
    def reply(connection: socket.socket) -> None:
        connection.recv(1000)
        connection.sendall(answer)

    with listener(reply) as address, pytest.raises(SpecError, match=message) as caught:
        check_address(address, TIMEOUT_S)
    assert f"no Ray answers at ray_address '{address}'" in str(caught.value)
    assert "not the dashboard's?" in str(caught.value)


@pytest.mark.parametrize("value", ["1", "true", "TRUE"])
def test_behind_tls_a_connection_is_enough(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("RAY_USE_TLS", value)
    with listener(lambda connection: None) as address:
        check_address(address, TIMEOUT_S)


@pytest.mark.parametrize("address", ["auto", "local", "anyscale://somewhere", "http://host:1"])
def test_other_addresses_are_ray_s_to_look_at(address: str) -> None:
    check_address(address, TIMEOUT_S)


@pytest.mark.parametrize(
    "address", ["", "host", "host:", ":6379", "host:port", "ray://host", "host:63 79", "10.0.0.1"]
)
def test_what_is_no_address_is_told_what_one_is(address: str) -> None:
    with pytest.raises(SpecError, match='expected "auto", "local" or host:port such as'):
        check_address(address, TIMEOUT_S)


@pytest.mark.parametrize("port", ["99999", "4294967296"])
def test_a_port_that_there_is_not_is_no_ray(port: str) -> None:
    with pytest.raises(SpecError, match=f"no Ray answers at ray_address '127.0.0.1:{port}'"):
        check_address(f"127.0.0.1:{port}", TIMEOUT_S)
