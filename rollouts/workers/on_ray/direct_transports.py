# SPDX-License-Identifier: Apache-2.0
"""Ray's direct transports of tensors: which of them is used, and what they need."""

from __future__ import annotations

import importlib
import socket
from collections.abc import Collection
from typing import Any

import ray as _typed_ray

from rollouts.errors import EngineError
from rollouts.support.ray_private import (
    import_transports,
    make_tensor_store,
    open_transport,
    trust_actors,
)
from rollouts.workers.tensor_transport import TensorTransport, is_installed

# ray annotates only half of what it exports
ray: Any = _typed_ray


def ray_transport(tensor_transport: TensorTransport) -> str | None:
    """Makes a transport ready and returns Ray's name of it; None for Ray's object store.

    Raises:
      EngineError: This Ray has no such transport, or what it needs is not installed.
    """
    if tensor_transport == "object_store":
        return None
    try:
        import_transports()
    except ImportError as error:
        raise EngineError(
            f"collect.tensor_transport={tensor_transport!r} needs torch and a Ray with "
            f"direct transports, and Ray {ray.__version__} is installed ({error}): "
            "pip install -U ray, or use 'object_store'"
        ) from error
    if not is_installed(tensor_transport):
        raise EngineError(
            f"collect.tensor_transport={tensor_transport!r} needs a package of that name: pip "
            f"install {tensor_transport}, or use 'object_store'"
        )
    trust_actors(tensor_transport)
    return tensor_transport


def make_ready(names: Collection[str]) -> str | None:
    """Prepares a worker's process for transports; to be called before anything else there.

    Ray starts a second thread in the process later, and if two threads import the same module at
    once, one of them fails.

    Args:
      names: Ray's names of the transports.
    Returns:
      None, or a sentence on the transport that cannot be used here.
    """
    importlib.import_module("torch")
    importlib.import_module("rollouts.workers.worker")
    make_tensor_store()
    for name in names:
        try:
            open_transport(name)
        except Exception as error:
            return (
                f"{socket.gethostname()} cannot send tensors by {name!r} ({error!r}): install what "
                "it needs on all machines, or use tensor_transport='object_store'"
            )
    return None
