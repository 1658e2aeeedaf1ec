# SPDX-License-Identifier: Apache-2.0
"""Gloo as a tensor transport of Ray that outlives the death of either end.

Ray's own Gloo transport (of 2.60) cannot serve workers that come and go: all actors of a group have
to be there when it is made, an actor is in one group at most, and where a sender dies Ray kills the
receiver too, as it cannot abort a transfer. Here each transfer has a group of its own, of its two
ends, and a thread of the sender's: one whose receiver died waits for it alone. The sender's process
hosts the store where they meet; a transfer that fails leaves nothing.

Imported only where somebody asked for it: needs torch and a Ray that has `ray.experimental.rdt`.
"""

from __future__ import annotations

import logging
import socket
import threading
import uuid
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import ray as _typed_ray
import torch
import torch.distributed as dist
from ray.experimental.rdt.tensor_transport_manager import (
    CommunicatorMetadata,
    TensorTransportManager,
    TensorTransportMetadata,
)
from torch import Tensor

# ray annotates only half of what it exports, torch's groups neither
ray: Any = _typed_ray
_dist: Any = dist

_log = logging.getLogger(__name__)

# under which Ray knows it
NAME = "ROLLOUTS_GLOO"
# of the threads that send
THREAD = "rollouts-gloo-send"

_SENDER, _RECEIVER = 0, 1  # ranks
_TAG = 0


@dataclass
class StoredTensors(TensorTransportMetadata):
    """Where the tensors are; `store_host` and `store_port`: of the sender's store."""

    store_host: str = ""
    store_port: int = 0


@dataclass
class Meeting(CommunicatorMetadata):
    """One transfer: both ends find each other under `name`."""

    name: str = ""


class PairwiseGloo(TensorTransportManager):
    """One per process; Ray asks for its transfers one after the other, on a thread of their own."""

    def __init__(self) -> None:
        """Opens nothing yet."""
        self._lock = threading.Lock()
        self._store: Any = None
        self._address = ("", 0)
        self._finished: Any = None

    def tensor_transport_backend(self) -> str:
        """The name under which Ray knows it."""
        return NAME

    @staticmethod
    def is_one_sided() -> bool:
        """Both ends take part."""
        return False

    @staticmethod
    def can_abort_transport() -> bool:
        """Says that neither end stays blocked; where it may, Ray kills both."""
        return True

    def actor_has_tensor_transport(self, actor: Any) -> bool:
        """Every actor has it: nothing has to be made before."""
        return True

    def extract_tensor_transport_metadata(
        self, obj_id: str, rdt_object: list[Tensor]
    ) -> StoredTensors:
        """Describes the tensors, in the sender's process."""
        host, port = self._open_store()
        return StoredTensors(
            tensor_meta=[(one.shape, one.dtype) for one in rdt_object],
            tensor_device="cpu",
            store_host=host,
            store_port=port,
        )

    def get_communicator_metadata(
        self, src_actor: Any, dst_actor: Any, backend: str | None = None
    ) -> Meeting:
        """Names one transfer, in the process that asks for it."""
        return Meeting(uuid.uuid4().hex)

    def send_multiple_tensors(
        self, tensors: list[Tensor], tensor_transport_metadata: Any, communicator_metadata: Any
    ) -> None:
        """Begins to send; returns at once.

        The thread of Ray's that calls must not wait: other receivers' transfers are behind this.
        """
        host, port = self._open_store()
        threading.Thread(
            target=_send,
            args=(list(tensors), communicator_metadata.name, host, port),
            name=THREAD,
            daemon=True,
        ).start()

    def recv_multiple_tensors(
        self,
        obj_id: str,
        tensor_transport_metadata: Any,
        communicator_metadata: Any,
        target_buffers: list[Tensor] | None = None,
    ) -> list[Tensor]:
        """Receives into new tensors, or into `target_buffers`.

        Raises:
          OSError, RuntimeError: The sender died or took too long.
        """
        meta, name = tensor_transport_metadata, communicator_metadata.name  # StoredTensors, Meeting
        # torch tries a store that is gone for twice its timeout
        socket.create_connection((meta.store_host, meta.store_port), _timeout_s()).close()
        store = _enter_store(meta.store_host, meta.store_port)
        group = _meet(name, store, _RECEIVER, ray.util.get_node_ip_address())
        tensors = target_buffers or [
            torch.empty(shape, dtype=dtype) for shape, dtype in meta.tensor_meta
        ]
        for one in tensors:
            if one.numel():
                group.recv([one], _SENDER, _TAG).wait()
        group.send([torch.ones(1, dtype=torch.uint8)], _SENDER, _TAG).wait()
        # until the next transfer, so that the sender can read that last byte
        self._finished = group
        return tensors

    def garbage_collect(
        self, obj_id: str, tensor_transport_meta: Any, tensors: list[Tensor]
    ) -> None:
        """Nothing but the tensors themselves was kept."""

    def abort_transport(self, obj_id: str, communicator_metadata: Any) -> None:
        """Does nothing: each wait of a transfer ends by itself before Ray gives it up."""

    def _open_store(self) -> tuple[str, int]:
        with self._lock:
            if self._store is None:
                host = ray.util.get_node_ip_address()
                # torch's own would listen on all addresses of the machine
                listener = socket.create_server((host, 0))
                port = listener.getsockname()[1]
                self._store = _dist.TCPStore(
                    host_name=host,
                    port=port,
                    is_master=True,
                    wait_for_workers=False,
                    timeout=timedelta(seconds=_timeout_s()),
                    master_listen_fd=listener.detach(),
                )
                self._address = (host, port)
            return self._address


def register() -> None:
    """Tells Ray of the transport; actors that are called with it learn of it from Ray. Idempotent.

    Raises:
      ImportError: A Ray without transports of one's own.
    """
    from ray.experimental import register_tensor_transport
    from ray.experimental.rdt import util

    if NAME not in util.transport_manager_info:
        register_tensor_transport(NAME, ["cpu"], PairwiseGloo, Tensor)


def _send(tensors: list[Tensor], name: str, host: str, port: int) -> None:
    """Sends, and waits until the receiver has all; it says of itself what went wrong."""
    # not the process's own: who waits in a store keeps others out of it
    store = _enter_store(host, port)
    try:
        group = _meet(name, store, _SENDER, host)
        for one in tensors:
            if one.numel():
                group.send([one.detach()], _RECEIVER, _TAG).wait()
        # a group that ends early would take with it what is still on its way
        group.recv([torch.zeros(1, dtype=torch.uint8)], _RECEIVER, _TAG).wait()
    except RuntimeError as error:
        _log.info("the receiver of tensors died or took too long: %s", error)
    finally:
        # what the ends wrote there
        for key in store.list_keys():
            if name in key:
                store.delete_key(key)


def _enter_store(host: str, port: int) -> Any:
    return _dist.TCPStore(
        host_name=host,
        port=port,
        is_master=False,
        wait_for_workers=False,
        timeout=timedelta(seconds=_timeout_s()),
    )


def _meet(name: str, store: Any, rank: int, host: str) -> Any:
    """Waits for the other end; returns the group of both."""
    options = _dist.ProcessGroupGloo._Options()
    options._devices = [_dist.ProcessGroupGloo.create_device(hostname=host)]
    options._timeout = timedelta(seconds=_timeout_s())
    options._threads = 1
    return _dist.ProcessGroupGloo(_dist.PrefixStore(name, store), rank, 2, options)


def _timeout_s() -> float:
    """What one wait may take: Ray gives a transfer up after twice that, 60 s by default."""
    limit_s: float = ray._private.ray_constants.RDT_FETCH_FAIL_TIMEOUT_SECONDS
    return limit_s / 2
