# SPDX-License-Identifier: Apache-2.0
"""TCP as a tensor transport of Ray that outlives the death of either end.

Ray's own transport between processes without a GPU, Gloo (of 2.60), cannot serve workers that come
and go: all actors of a group have to be there when it is made, an actor is in one group at most,
and where a sender dies Ray kills the receiver too, as it cannot abort a transfer. Here a process
that has tensors listens, and whoever was told of them connects and reads; no names are looked up.

Imported only where somebody asked for it: needs torch and a Ray that has `ray.experimental.rdt`.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
import socket
import socketserver
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ray as _typed_ray
import torch
from ray.experimental.rdt.tensor_transport_manager import (
    CommunicatorMetadata,
    TensorTransportManager,
    TensorTransportMetadata,
)
from torch import Tensor

from rollouts.support.threads import start_thread

# ray annotates only half of what it exports
ray: Any = _typed_ray

_log = logging.getLogger(__name__)

# under which Ray knows it
NAME = "ROLLOUTS_TCP"

_KEY_BYTES = 16
# bytes that are sent within one timeout
_CHUNK = 1 << 24


@dataclass
class OfferedTensors(TensorTransportMetadata):
    """Where the tensors are, and the key for which their process sends them."""

    host: str = ""
    port: int = 0
    key: bytes = b""


class TcpTransport(TensorTransportManager):
    """One per process; Ray asks for its transfers one after the other, on a thread of their own."""

    def __init__(self) -> None:
        """Opens nothing yet."""
        self._lock = threading.Lock()
        self._server: _Server | None = None

    def tensor_transport_backend(self) -> str:
        """The name under which Ray knows it."""
        return NAME

    @staticmethod
    def is_one_sided() -> bool:
        """The receiver alone is told by Ray."""
        return True

    @staticmethod
    def can_abort_transport() -> bool:
        """Says that neither end stays blocked; where it may, Ray kills both."""
        return True

    def actor_has_tensor_transport(self, actor: Any) -> bool:
        """Every actor has it: nothing has to be made before."""
        return True

    def extract_tensor_transport_metadata(
        self, obj_id: str, rdt_object: list[Tensor]
    ) -> OfferedTensors:
        """Offers tensors to those who are told; in the sender's process."""
        server = self._open_server()
        key = server.key_of(obj_id)
        server.offered[key] = list(rdt_object)
        host, port = server.server_address[:2]
        return OfferedTensors(
            tensor_meta=[(one.shape, one.dtype) for one in rdt_object],
            tensor_device="cpu",
            host=str(host),
            port=port,
            key=key,
        )

    def get_communicator_metadata(
        self, src_actor: Any, dst_actor: Any, backend: str | None = None
    ) -> CommunicatorMetadata:
        """Nothing more has to be known."""
        return CommunicatorMetadata()

    def send_multiple_tensors(
        self, tensors: list[Tensor], tensor_transport_metadata: Any, communicator_metadata: Any
    ) -> None:
        """Is not called: the transport is one-sided."""
        raise NotImplementedError

    def recv_multiple_tensors(
        self,
        obj_id: str,
        tensor_transport_metadata: Any,
        communicator_metadata: Any,
        target_buffers: list[Tensor] | None = None,
    ) -> list[Tensor]:
        """Receives into new tensors, or into `target_buffers`.

        Raises:
          OSError: The sender died, took too long, or no longer has them.
        """
        meta: Any = tensor_transport_metadata  # OfferedTensors
        tensors = target_buffers or [
            torch.empty(shape, dtype=dtype) for shape, dtype in meta.tensor_meta
        ]
        with socket.create_connection((meta.host, meta.port), _timeout_s()) as connection:
            connection.sendall(meta.key)
            for one in tensors:
                _receive(connection, _bytes_of(one))
        return tensors

    def garbage_collect(
        self, obj_id: str, tensor_transport_meta: Any, tensors: list[Tensor]
    ) -> None:
        """Offers them no longer."""
        if self._server is not None:
            self._server.offered.pop(tensor_transport_meta.key, None)

    def abort_transport(self, obj_id: str, communicator_metadata: Any) -> None:
        """Does nothing: each wait of a transfer ends by itself before Ray gives it up."""

    def _open_server(self) -> _Server:
        with self._lock:
            if self._server is None:
                server = _Server(ray.util.get_node_ip_address())
                start_thread(threading.Thread(target=server.serve_forever, daemon=True))
                self._server = server
            return self._server


def register() -> None:
    """Tells Ray of the transport; actors that are called with it learn of it from Ray. Idempotent.

    Raises:
      ImportError: A Ray without transports of one's own.
    """
    from ray.experimental import register_tensor_transport
    from ray.experimental.rdt import util

    if NAME not in util.transport_manager_info:
        register_tensor_transport(NAME, ["cpu"], TcpTransport, Tensor)


class _Server(socketserver.ThreadingTCPServer):
    """Sends what is offered, to each receiver on a thread of its own."""

    daemon_threads = True
    # workers may come all at once
    request_queue_size = 1024

    def __init__(self, host: str) -> None:
        self.offered: dict[bytes, Sequence[Tensor]] = {}
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._secret = secrets.token_bytes()
        # not on all addresses of the machine
        super().__init__((host, 0), _Connection)

    def key_of(self, obj_id: str) -> bytes:
        """Always the same for an object: Ray may run a task again, and describe it anew."""
        return hashlib.blake2b(obj_id.encode(), digest_size=_KEY_BYTES, key=self._secret).digest()


class _Connection(socketserver.BaseRequestHandler):
    """Of one receiver."""

    server: _Server
    request: socket.socket

    def handle(self) -> None:
        """Sends the tensors of the key that comes; a key that is not known gets none."""
        self.request.settimeout(_timeout_s())
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            key = bytearray(_KEY_BYTES)
            _receive(self.request, memoryview(key))
            for one in self.server.offered.get(bytes(key), ()):
                view = _bytes_of(one)
                for start in range(0, len(view), _CHUNK):
                    self.request.sendall(view[start : start + _CHUNK])
        except OSError as error:
            _log.info("the receiver of tensors died or took too long: %s", error)


def _receive(connection: socket.socket, view: memoryview) -> None:
    """Fills a view.

    Raises:
      OSError: The other end died, took too long, or ended before.
    """
    while view:
        num_bytes = connection.recv_into(view)
        if num_bytes == 0:
            raise ConnectionResetError(f"the other end closed with {len(view)} bytes to come")
        view = view[num_bytes:]


def _bytes_of(tensor: Tensor) -> memoryview:
    """Returns the memory of a tensor of the host, in the order of its elements."""
    return tensor.detach().reshape(-1).view(torch.uint8).numpy().data


def _timeout_s() -> float:
    """What one wait may take: Ray gives a transfer up after twice that, 60 s by default."""
    limit_s: float = ray._private.ray_constants.RDT_FETCH_FAIL_TIMEOUT_SECONDS
    return limit_s / 2
