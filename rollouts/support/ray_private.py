# SPDX-License-Identifier: Apache-2.0
"""The only place for names that Ray (2.60) does not make public.

Nothing here imports Ray unless it is imported already.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any

# makes `ray.get` copy tensors of another process through the object store
BY_OBJECT_STORE = {"_use_object_store": True}


def import_transports() -> None:
    """Imports Ray's modules for direct transports.

    Ray's shutdown also imports the first of them, perhaps while a thread of the transports does.

    Raises:
      ImportError: This Ray has no direct transports, or torch is missing.
    """
    importlib.import_module("ray.dag.compiled_dag_node")
    importlib.import_module("ray.experimental.rdt.util")


def make_tensor_store() -> None:
    """Makes Ray's store of a process's tensors, which direct transports fill, if there is none.

    Call it while Ray has one thread here. Ray makes the store at the first use and without a lock:
    two threads may make one each, and wait in the second for 60 s for tensors that arrive in the
    first. Does nothing where Ray is missing or has no such store.
    """
    worker = sys.modules.get("ray._private.worker")
    if worker is not None:
        getattr(worker.global_worker, "rdt_manager", None)


def can_send(ref: Any, timeout_s: float) -> bool:
    """Waits until Ray knows how an actor sends its tensors; False if it never does."""
    manager = sys.modules["ray._private.worker"].global_worker.rdt_manager
    return manager.wait_for_tensor_transport_metadata(ref.hex(), timeout_s) is not None


def open_transport(name: str) -> None:
    """Creates the objects that Ray makes in this process at the first use of a direct transport.

    Raises:
      Exception: The transport cannot be used here.
    """
    util = importlib.import_module("ray.experimental.rdt.util")
    manager = util.get_tensor_transport_manager(name.upper())
    # NIXL's agent; Ray creates it later on another thread, without a message if it fails
    getattr(manager, "get_nixl_agent", lambda: None)()


def trust_actors(name: str) -> None:
    """Stops this process's Ray from asking actors whether they have a transport.

    For NIXL, Ray asks at each call that returns tensors and waits for the answer, for ever if the
    actor hangs. Our workers check it when they start, with `open_transport`.
    """
    util = importlib.import_module("ray.experimental.rdt.util")
    util.get_tensor_transport_manager(name.upper()).actor_has_tensor_transport = lambda actor: True


def actor_id(actor: Any) -> Any:
    """The actor's id, the same for all handles of it; its `hex()` is the public one."""
    return actor._actor_id


def has_transports(actor: Any) -> bool:
    """Tells if the actor's class was made with enable_tensor_transport."""
    return bool(actor._ray_enable_tensor_transport)


def calling(actor: Any, *, beside_its_calls: bool = False, **options: Any) -> Any:
    """Returns a caller of functions in an actor, with the actor first: `.remote(function, ...)`.

    Args:
      actor: Handle.
      beside_its_calls: Runs on a thread of Ray's instead of the actor's own, if the actor
        `has_transports`.
      options: Options of the call, as of `ray.method`.
    """
    if beside_its_calls:
        options["concurrency_group"] = "_ray_system"
    return actor.__ray_call__.options(**options)


def shutdown_lock() -> contextlib.AbstractContextManager[Any]:
    """The lock of Ray's own init and shutdown; not in all releases."""
    worker = sys.modules["ray._private.worker"]
    found: contextlib.AbstractContextManager[Any]
    found = getattr(worker, "_connect_or_shutdown_lock", contextlib.nullcontext())
    return found


def is_head_here() -> bool:
    """Tells if this process started the Ray that it is connected to."""
    node = sys.modules["ray._private.worker"]._global_node
    return node is not None and bool(node.head)


@contextlib.contextmanager
def loopback_only() -> Iterator[dict[str, str]]:
    """Keeps a Ray that is started in the block on loopback; yields variables for its processes.

    It sets Ray's switch for Windows and macOS. Ray's processes read the variable. This process
    reads a constant of Ray's, which was made from the variable perhaps long ago.
    """
    constants = sys.modules["ray._private.ray_constants"]
    was_enabled = getattr(constants, "ENABLE_RAY_CLUSTER", True)
    constants.ENABLE_RAY_CLUSTER = False  # type: ignore[attr-defined]
    try:
        yield {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    finally:
        constants.ENABLE_RAY_CLUSTER = was_enabled  # type: ignore[attr-defined]


def is_slow_start(error: BaseException) -> bool:
    """Tells if `ray.init` raised this because its processes were not there within its 30 s."""
    return "timed out during startup" in str(error)


@contextlib.contextmanager
def nothing_left_of_a_failed_start() -> Iterator[None]:
    """Kills the processes of a Ray whose start in the block fails, which Ray leaves running."""
    worker, node = (sys.modules[f"ray._private.{name}"] for name in ("worker", "node"))
    start = getattr(node.Node, "start_ray_processes", None)
    if start is None:  # this Ray starts them in another way
        yield
        return
    begun: list[Any] = []

    def remember(this: Any) -> None:
        begun.append(this)
        start(this)

    node.Node.start_ray_processes = remember
    try:
        yield
    except BaseException:
        # a Ray that was there before the error is ended by `ray.shutdown`
        if worker._global_node is None:
            for each in begun:
                each.kill_all_processes(check_alive=False, wait=True)
        raise
    finally:
        node.Node.start_ray_processes = start


@contextlib.contextmanager
def without_monitors() -> Iterator[None]:
    """Keeps a Ray that is started inside from starting three processes that it does not need.

    The log monitor lists the session's files ten times a second, to show them to drivers; ours asks
    for none. The autoscaler's monitor adds nodes to a cluster and removes them. `ray.init` has no
    argument for either; `ray.cluster_utils.Cluster` takes the same two. The dashboard's process is
    started, and waited for, even with `include_dashboard=False`: it would then report usage alone.
    """
    parameter, node = (sys.modules[f"ray._private.{name}"] for name in ("parameter", "node"))
    of_nodes = parameter.RayParams
    # a Ray without one of these has another way to decide: it starts the process
    known = inspect.signature(of_nodes).parameters
    wanted = {"include_log_monitor": False, "no_monitor": True}
    fewer = {name: value for name, value in wanted.items() if name in known}
    start_api_server: Callable[..., None] | None = getattr(node.Node, "start_api_server", None)

    def start_if_asked(this: Any, **how: Any) -> None:
        if start_api_server is not None and how.get("include_dashboard") is not False:
            start_api_server(this, **how)

    parameter.RayParams = functools.partial(of_nodes, **fewer)  # type: ignore[attr-defined]
    if start_api_server is not None:
        node.Node.start_api_server = start_if_asked
    try:
        yield
    finally:
        parameter.RayParams = of_nodes  # type: ignore[attr-defined]
        if start_api_server is not None:
            node.Node.start_api_server = start_api_server
