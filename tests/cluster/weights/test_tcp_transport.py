# SPDX-License-Identifier: Apache-2.0
"""Tensors over TCP: all arrive as they were, and an end that fails holds up nobody else."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest
import torch

ray = pytest.importorskip("ray")
pytest.importorskip("ray.experimental.rdt", reason="a Ray without direct transports")

from rollouts.cluster import tcp_transport  # noqa: E402
from rollouts.cluster.tcp_transport import OfferedTensors, TcpTransport  # noqa: E402

# what a hang is told from
LIMIT_S = 300.0


@pytest.fixture(autouse=True)
def no_wait_ends_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp_transport, "_timeout_s", lambda: LIMIT_S)
    monkeypatch.setattr(ray.util, "get_node_ip_address", lambda: "127.0.0.1")


@pytest.fixture
def sender() -> Iterator[TcpTransport]:
    transport = TcpTransport()
    yield transport
    stop(transport)


def stop(transport: TcpTransport) -> None:
    """Ends what listens, as the death of its process does."""
    if transport._server is not None:
        transport._server.shutdown()
        transport._server.server_close()


def receive(meta: OfferedTensors, buffers: list[torch.Tensor] | None = None) -> list[torch.Tensor]:
    receiver = TcpTransport()
    meeting = receiver.get_communicator_metadata(None, None)
    return receiver.recv_multiple_tensors("ab", meta, meeting, buffers)


def make_tensors() -> list[torch.Tensor]:
    return [
        torch.arange(1_000_000),
        torch.empty(0, 3),
        torch.tensor(7, dtype=torch.int16),
        torch.tensor([True, False]),
        torch.randn(5, 3).t(),
        torch.randn(9).to(torch.bfloat16),
        torch.randn(4, dtype=torch.complex64),
        torch.nn.Parameter(torch.tensor([float("nan"), -0.0])),
    ]


def bits(tensors: list[torch.Tensor]) -> list[tuple[Any, ...]]:
    return [
        (one.dtype, one.shape, one.detach().reshape(-1).view(torch.uint8).tolist())
        for one in tensors
    ]


def test_tensors_of_any_kind_arrive_as_they_were(sender: TcpTransport) -> None:
    tensors = make_tensors()
    meta = sender.extract_tensor_transport_metadata("ab", tensors)
    assert bits(receive(meta)) == bits(tensors)
    buffers = [torch.zeros(one.shape, dtype=one.dtype) for one in tensors]
    got = receive(meta, buffers)
    assert all(a is b for a, b in zip(got, buffers, strict=True))
    assert bits(buffers) == bits(tensors)
    none = sender.extract_tensor_transport_metadata("cd", [])
    assert receive(none) == []


def test_a_receiver_that_does_not_read_holds_up_no_other(sender: TcpTransport) -> None:
    # more than sockets take without a reader
    tensors = [torch.arange(8_000_000)]
    meta = sender.extract_tensor_transport_metadata("ab", tensors)
    address = (meta.host, meta.port)
    with socket.create_connection(address) as silent, socket.create_connection(address) as stopped:
        stopped.sendall(meta.key)
        assert torch.equal(receive(meta)[0], tensors[0])
        silent.sendall(meta.key)
        assert silent.recv(8, socket.MSG_WAITALL) == bytes(8)


def test_a_sender_that_died_is_an_error_at_once(sender: TcpTransport) -> None:
    meta = sender.extract_tensor_transport_metadata("ab", [torch.ones(1)])
    stop(sender)
    with pytest.raises(OSError, match="refused"):
        receive(meta)


def test_what_is_offered_no_longer_is_an_error_at_once(sender: TcpTransport) -> None:
    tensors = [torch.ones(3)]
    kept = sender.extract_tensor_transport_metadata("ab", tensors)
    freed = sender.extract_tensor_transport_metadata("cd", tensors)
    # Ray describes an object anew where it ran its task again
    assert sender.extract_tensor_transport_metadata("cd", tensors).key == freed.key != kept.key
    sender.garbage_collect("cd", freed, tensors)
    with pytest.raises(ConnectionError, match="closed with 12 bytes to come"):
        receive(freed)
    # nor does anybody get it who was not told of the key
    with socket.create_connection((kept.host, kept.port)) as stranger:
        stranger.sendall(bytes(len(kept.key)))
        assert stranger.recv(1) == b""
    assert bits(receive(kept)) == bits(tensors)
