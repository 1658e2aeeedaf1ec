# SPDX-License-Identifier: Apache-2.0
"""Ray's direct transports of tensors: which of them is used, and who is told of it."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import ray as _typed_ray

from rollouts.distributed.device_options import TensorTransport
from rollouts.errors import EngineError
from rollouts.support.tensor_store import make_tensor_store

# ray annotates only half of what it exports
ray: Any = _typed_ray


def ray_transport(tensor_transport: TensorTransport) -> str | None:
    """Returns what Ray calls a transport, ready to be used; None for its object store.

    Raises:
      EngineError: This Ray has no such transport, or what it needs is not installed.
    """
    if tensor_transport == "object_store":
        return None
    try:
        # which Ray's shutdown imports, perhaps while a thread of its transports does
        importlib.import_module("ray.dag.compiled_dag_node")
        if tensor_transport == "tcp":
            from rollouts.cluster import tcp_transport

            tcp_transport.register()
            return tcp_transport.NAME
        importlib.import_module("ray.experimental.rdt.util")
    except ImportError as error:
        raise EngineError(
            f"collect.tensor_transport={tensor_transport!r} needs torch and a Ray with "
            f"ray.experimental.rdt, and Ray {ray.__version__} is installed ({error}): "
            "pip install -U ray, or use 'object_store'"
        ) from error
    if tensor_transport == "nixl" and importlib.util.find_spec("nixl") is None:
        raise EngineError(
            "collect.tensor_transport='nixl' needs NIXL: pip install nixl, or use 'object_store'"
        )
    return tensor_transport


def make_ready() -> None:
    """Prepares a worker's process for all transports; to be called before anything else there.

    Later Ray has a second thread in it, and of two that import the same at once one fails.
    """
    importlib.import_module("torch")
    importlib.import_module("rollouts.distributed.worker")
    from rollouts.cluster import tcp_transport

    tcp_transport.register()
    make_tensor_store()


def need_not_tell(actor: Any) -> None:
    """Notes for Ray that an actor has the transports already, as it begins with `make_ready`."""
    manager = ray._private.worker.global_worker.rdt_manager
    manager.actor_id_to_transports_registered[actor._actor_id] = True


# actor -> Ray's names of the transports that it was told of
_told: dict[Any, frozenset[str]] = {}


def tell_of_transports(actor: Any) -> Any:
    """Has Ray tell an actor of transports that are not its own; waits for nothing.

    Returns:
      What `ray.get` waits for, or None where there is nothing to wait for.
    """
    from ray.experimental.rdt import util

    manager = ray._private.worker.global_worker.rdt_manager
    names = frozenset(util.transport_manager_info)
    # Ray tells an actor once, of those that there are when it is made
    if _told.get(actor._actor_id) != names:
        manager.register_custom_transports_on_actor(actor)
        _told[actor._actor_id] = names
    ref = manager.actor_id_to_transports_registered[actor._actor_id]
    return None if ref is True else ref


def tell_again(actor: Any) -> None:
    """Tells an actor once more, if it was told before: one that Ray started again knows nothing."""
    if _told.pop(actor._actor_id, None) is not None:
        tell_of_transports(actor)
