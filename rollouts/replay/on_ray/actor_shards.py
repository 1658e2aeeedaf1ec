# SPDX-License-Identifier: Apache-2.0
"""Shards of a replay as Ray actors. Imported only where shards are started as actors."""

from __future__ import annotations

import contextlib
import os
import sys
import uuid
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import ray as _typed_ray

from rollouts.errors import WorkerError
from rollouts.replay.on_ray.mailbox import NAMESPACE, shard_error
from rollouts.replay.shards.shard import FragmentLostError, ShardConfig, ShardHandle
from rollouts.support.same_release import make_check
from rollouts.workers.on_ray.bundles import Bundles
from rollouts.workers.on_ray.futures import as_future
from rollouts.workers.on_ray.parcels import InRay
from rollouts.workers.on_ray.ray_session import RaySession, check_connected

ray: Any = _typed_ray


class RayShards:
    """Starts shards in the Ray of this process, or in a Ray that it starts."""

    def __init__(self, config: ShardConfig, bundles: Bundles, ray_address: str | None) -> None:
        """Connects; starts no shard yet.

        Args:
          config: Options of every shard, except shard_id.
          bundles: Reserved room of the shards, one each.
          ray_address: See RaySession.
        """
        self._config = config
        self._session = RaySession(ray_address, bundles)
        # Ray must not repeat a call, which would insert twice: the service repeats calls where
        # necessary
        self._actor_class = ray.remote(
            **bundles.actor_options(), max_restarts=0, max_task_retries=0
        )(_make_host_class())
        self._sys_path = [os.path.abspath(entry) for entry in sys.path]

    def launch(self, shard_id: int) -> ShardHandle:
        """Starts one incarnation of a shard; does not wait for it."""
        check_connected()
        name = f"replay-shard-{uuid.uuid4().hex}"
        options = self._session.place(shard_id) | {"name": name, "namespace": NAMESPACE}
        actor = self._actor_class.options(**options)
        config = replace(self._config, shard_id=shard_id)
        pickled = ray.cloudpickle.dumps(config)
        return RayShard(name, actor.remote(self._sys_path, make_check(), pickled))

    def close(self) -> None:
        """Disconnects from Ray, if this object has started it."""
        self._session.close()


class RayShard:
    """A ShardHandle. Arrays in the object store do not pass through this process."""

    def __init__(self, name: str, actor: Any) -> None:
        self.name = name
        self._actor = actor

    def call(self, method: str, *args: Any) -> Future[Any]:
        """Calls a method of the shard; fragments are passed as references, or as arrays."""
        check_connected()
        try:
            travelling = [_travelling(argument) for argument in args]
        except (TimeoutError, WorkerError) as error:
            lost: Future[Any] = Future()
            lost.set_exception(FragmentLostError(str(error)))
            return lost
        return as_future(self._actor.call.remote(method, *travelling), shard_error)

    def close(self) -> None:
        """Ends the shard's process."""
        with contextlib.suppress(Exception):
            check_connected()
            ray.kill(self._actor, no_restart=True)


def _travelling(argument: Any) -> Any:
    if isinstance(argument, InRay):
        return argument.argument()
    # the payload of a coordinator without workers is in this process
    return argument(0.0) if callable(argument) else argument


def _make_host_class() -> type:
    """Makes the actor class around ReplayShard; local for the reason given in ray_session."""

    class ReplayShardHost:
        def __init__(self, sys_path: list[str], check: Any, config: bytes) -> None:
            import pickle
            import sys

            sys.path[:] = sys_path + [entry for entry in sys.path if entry not in sys_path]
            self._refusal = check()
            if self._refusal is not None:
                return
            from rollouts.replay.shards.shard import ReplayShard

            self._shard = ReplayShard(pickle.loads(config))

        def call(self, method: str, *args: Any) -> Any:
            if self._refusal is not None:
                raise RuntimeError(self._refusal)
            return getattr(self._shard, method)(*args)

    return ReplayShardHost
