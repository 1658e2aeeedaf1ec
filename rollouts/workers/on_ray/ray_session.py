# SPDX-License-Identifier: Apache-2.0
"""Everything the coordinator asks of Ray: a session, actors in it, and their results as futures.

Imported only when there are workers to start, so that `num_workers=0` needs no Ray.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ray as _typed_ray

from rollouts.errors import WorkerError
from rollouts.support.ray_private import (
    BY_OBJECT_STORE,
    calling,
    make_tensor_store,
    shutdown_lock,
)
from rollouts.support.same_release import make_check
from rollouts.workers.offers import WeightOffer
from rollouts.workers.on_ray.arrivals import Destination, with_arrays
from rollouts.workers.on_ray.bundles import Bundles, PlacementGroup
from rollouts.workers.on_ray.futures import as_future
from rollouts.workers.on_ray.ray_weights import Sender
from rollouts.workers.on_ray.room import check_cpus, check_gpus
from rollouts.workers.on_ray.shared_ray import SharedRay, enter
from rollouts.workers.slot import Answers
from rollouts.workers.worker import WorkerInfo
from rollouts.workers.worker_config import MakePolicy, WorkerConfig
from rollouts.workers.worker_failure import WorkerFailure

if TYPE_CHECKING:
    from rollouts.collecting.frame_stacks import Payload

_log = logging.getLogger(__name__)

# ray annotates only half of what it exports
ray: Any = _typed_ray

# s that a cluster's head may take to answer
_JOIN_TIMEOUT_S = 10.0

# s; with a timeout of 0 Ray gives up at once, and never starts to pull from another node
_MIN_FETCH_S = 0.01


class RaySession:
    """Ray, started or joined by this process, or already there.

    The last session to be closed calls `ray.shutdown()` if a session started or joined the Ray; a
    Ray that other code initialised is used as it is and goes on running.
    """

    def __init__(
        self,
        address: str | None,
        bundles: Bundles,
        *,
        extra_cpus: float = 0.0,
        inference_num_gpus: float = 0.0,
        timeout_s: float = _JOIN_TIMEOUT_S,
    ) -> None:
        """Connects.

        Args:
          address: Cluster to join; None takes RAY_ADDRESS, and without it starts Ray on this
            machine, listening on loopback only.
          bundles: Resources of the workers. A Ray started here has the CPUs for them and
            extra_cpus, and no more.
          extra_cpus: CPUs of other actors.
          inference_num_gpus: GPUs of the inference server.
          timeout_s: Seconds that the cluster may take to answer.
        Raises:
          SpecError: there is no cluster at the address, too few GPUs in a Ray that cannot grow, or
            other sessions of this process have the CPUs of a Ray that was started for them.
        """
        self._bundles = bundles
        self.destination = Destination()
        self._group: PlacementGroup | None = None
        self._num_cpus = 0.0  # CPUs that were asked for
        num_cpus = bundles.num_cpus * bundles.count + extra_cpus
        self._ray: SharedRay | None = enter(address, num_cpus, min(timeout_s, _JOIN_TIMEOUT_S))
        # before a coordinator starts threads
        make_tensor_store()
        try:
            check_cpus(bundles, extra_cpus, self._ray)
            check_gpus(bundles, inference_num_gpus)
            self._ray.ask(num_cpus)
            self._num_cpus = num_cpus
            self.destination.node_id = ray.get_runtime_context().get_node_id()
            if bundles.strategy is not None:
                self._group = PlacementGroup(bundles)
        except BaseException:
            self.close()
            raise

    def launcher(
        self,
        make_policy: MakePolicy,
        transport: str | None = None,
        weights_transport: str | None = None,
    ) -> WorkerLauncher:
        """Returns a function that starts one actor and does not wait for it.

        Args:
          make_policy: See `RolloutWorker`.
          transport: Ray's name of the transport of tensors to a learner; None: the object store.
          weights_transport: Ray's name of the transport of weights from a learner's actor.
        Raises:
          Exception: make_policy cannot be pickled.
        """
        return WorkerLauncher(
            options=self._bundles.actor_options(),
            group=self._group,
            recipe=ray.cloudpickle.dumps({"make_policy": make_policy, "owns_process": True}),
            sys_path=own_path(),
            transport=transport,
            has_transport=not (transport is None and weights_transport is None),
            destination=self.destination,
        )

    def place(self, index: int) -> dict[str, Any]:
        """Returns the options of one actor: its bundle, where there is a placement group."""
        return {} if self._group is None else self._group.options(index)

    def close(self) -> None:
        """Leaves Ray if this session started or joined it. Idempotent."""
        if self._group is not None and ray.is_initialized():
            with contextlib.suppress(Exception):
                self._group.remove()
        self._group = None
        shared, self._ray = self._ray, None
        if shared is not None:
            shared.ask(-self._num_cpus)
            shared.leave()


@dataclass(frozen=True, kw_only=True)
class WorkerLauncher:
    """Starts workers, from any process of the job; pickles.

    Attributes:
      options: Ray's options of every actor.
      group: Placement group of the workers, one bundle each; None where there is none.
      recipe: Pickled arguments of `RolloutWorker`.
      sys_path: The path of the driver's process.
      transport: Ray's name of the transport of tensors to a learner; None: the object store.
      has_transport: Whether the actor sends or receives tensors by a direct transport.
      destination: Place where the fragments' arrays are taken.
      as_bytes: Whether workers return small fragments as bytes, see `small_arrays.py`.
    """

    options: Mapping[str, Any]
    group: PlacementGroup | None
    recipe: bytes
    sys_path: Sequence[str]
    transport: str | None
    has_transport: bool
    destination: Destination
    as_bytes: bool = False

    def __call__(self, config: WorkerConfig) -> ActorHandle:
        """Starts a worker; does not wait for it."""
        pickled = ray.cloudpickle.dumps(config)
        with connected():
            place = {} if self.group is None else self.group.options(config.worker_id)
            actor = self._actor_class.options(**place)
            started = actor.remote([*self.sys_path], make_check(), self.recipe, pickled)
            if self.transport is None:
                return ActorHandle(started, self.destination)
            return DirectHandle(started, self.transport)

    def __getstate__(self) -> dict[str, Any]:
        # each process makes the class anew, and has a destination of its own, which takes no arrays
        # yet
        kept = {name: value for name, value in vars(self).items() if name != "_actor_class"}
        return kept | {"destination": Destination()}

    @functools.cached_property
    def _actor_class(self) -> Any:
        options = dict(self.options)
        if self.has_transport:
            options["enable_tensor_transport"] = True
        # Ray repeats nothing by itself: a repeated call would repeat or stitch trajectories
        return ray.remote(**options, max_restarts=0, max_task_retries=0)(
            _make_host_class(
                (self.transport,) if self.transport else (), self.has_transport, self.as_bytes
            )
        )


def own_path() -> list[str]:
    """Returns this process's sys.path, which actors take over."""
    return [os.path.abspath(entry) for entry in sys.path]


class RemotePayload:
    """A fragment's arrays in Ray's object store, or its tensors in the worker that made them.

    A call fetches them; other actors are given `argument`.
    """

    def __init__(self, ref: Any, worker: Any = None) -> None:
        """Refers to the arrays.

        Args:
          ref: Ray's reference to them.
          worker: The actor that has them, if they are tensors that did not leave it.
        """
        self._ref, self._worker = ref, worker
        self._brought: Future[Payload] | None = None
        # this process does not use the direct transport; it takes tensors through the object store
        self._options = {} if worker is None else BY_OBJECT_STORE

    def argument(self) -> Any:
        """Returns an argument for a call of another actor, which then gets the arrays."""
        return self._ref

    def has_holder(self, timeout_s: float) -> bool:
        """Tells whether the worker answers in time, and so still has the tensors."""
        if self._worker is None:
            return False
        with connected():
            call = calling(self._worker, beside_its_calls=True)
            answer = call.remote(lambda _: None)
        try:
            ray.get(answer, timeout=timeout_s)
        except ray.exceptions.RayError:
            return False
        return True

    def bring(self) -> Future[Payload]:
        """Begins to bring the arrays to this process.

        To be called inside `connected`, or by Ray while it delivers a result: `ray.shutdown()`
        waits for both.
        """
        self._brought = self._ref.future()
        return self._brought

    def __call__(self, timeout_s: float) -> Payload:
        """Fetches the arrays; see `FragmentHandle.fetch`."""
        brought = self._brought
        if brought is not None and brought.done() and brought.exception() is None:
            check_connected()
            return brought.result()
        payload: Payload = fetch(self._ref, timeout_s, **self._options)
        return payload


def fetch(ref: Any, timeout_s: float | None = None, **options: Any) -> Any:
    """Fetches arrays of a fragment, or a parcel of several.

    Args:
      ref: Ray's reference.
      timeout_s: Seconds to wait; None waits for ever.
      options: Further ones of `ray.get`.
    Raises:
      TimeoutError: They did not arrive in time.
      WorkerError: They are lost, or Ray was shut down.
    """
    check_connected()
    try:
        limit_s = None if timeout_s is None else max(_MIN_FETCH_S, timeout_s)
        return ray.get(ref, timeout=limit_s, **options)
    except ray.exceptions.GetTimeoutError:
        raise TimeoutError(f"the arrays did not arrive within {timeout_s} s") from None
    except ray.exceptions.RayError as error:
        raise WorkerError(f"the arrays of a fragment are lost: {error}") from error


class ActorHandle:
    """The driver's end of one worker. No method blocks."""

    def __init__(self, actor: Any, destination: Destination | None = None) -> None:
        self._actor, self._destination = actor, destination or Destination()
        self._node_id: str | None = None
        self._weights = Sender(actor)
        self._offered = 0  # the version that the actor was offered last
        # the driver reads the first return value and never pulls the others. The method is made
        # once, because Ray checks options each time that they are given
        self._collect = actor.collect.options(num_returns=2)
        self._collect_several: dict[int, Any] = {}  # the method, by the number of fragments

    def start(self) -> Future[WorkerInfo | WorkerFailure]:
        """Builds the worker; the future fails if the actor dies."""
        with connected():
            return as_future(self._actor.start.remote(), convert=self._started)

    def collect(
        self, offer: WeightOffer, num_fragments: int
    ) -> tuple[Future[Answers], Sequence[RemotePayload]]:
        """Asks for fragments; returns a future of their infos, and ways to fetch their arrays."""
        with connected():
            news = self._news(offer)
            if num_fragments == 1:
                answers, *arrays = self._collect.remote(*news)
            else:
                collect = self._several(num_fragments)
                answers, *arrays = collect.remote(num_fragments, *news)
            payloads = [RemotePayload(each) for each in arrays]
            answered = answers.future()
            if self._destination.is_apart(self._node_id):
                answered = with_arrays(answered, lambda _: [each.bring() for each in payloads])
            return answered, payloads

    def _started(self, answer: WorkerInfo | WorkerFailure | str) -> WorkerInfo | WorkerFailure:
        started = as_started(answer)
        if isinstance(started, WorkerInfo):
            self._node_id = started.node_id
        return started

    def _several(self, num_fragments: int) -> Any:
        """Returns the method for this many fragments, each a return value of its own."""
        if num_fragments not in self._collect_several:
            method = self._actor.collect_several.options(num_returns=1 + num_fragments)
            self._collect_several[num_fragments] = method
        return self._collect_several[num_fragments]

    def _news(self, offer: WeightOffer) -> tuple[WeightOffer, ...]:
        """Returns the arguments of a call: the offer, or none where an earlier call brought it.

        An earlier call has brought it, as calls run in order and a worker whose call failed gets no
        other. Pickling an offer costs the driver more than the rest of a call.
        """
        if offer.version <= self._offered:
            return ()
        self._weights.send(offer)
        self._offered = offer.version
        return (offer,)

    def kill(self) -> None:
        """Ends the actor's process; its completed fragments stay."""
        with contextlib.suppress(Exception), connected():
            ray.kill(self._actor, no_restart=True)


class DirectHandle(ActorHandle):
    """The driver's end of a worker whose fragments stay in it until a learner's actor has them."""

    def __init__(self, actor: Any, transport: str) -> None:
        super().__init__(actor)
        self._collect = actor.collect_tensors.options(tensor_transport=transport)

    def collect(
        self, offer: WeightOffer, num_fragments: int
    ) -> tuple[Future[Answers], Sequence[RemotePayload]]:
        """Asks for a fragment, as `ActorHandle.collect`; there is never more than one in a call."""
        assert num_fragments == 1
        with connected():
            try:
                ref = self._collect.remote(*self._news(offer))
                # calls run in order: when this one ends, the tensors are there
                done = self._actor.last_info.remote().future()
            except ray.exceptions.RayActorError as error:
                # for calls that return tensors, Ray raises here if the actor has died
                ref, done = None, Future()
                done.set_exception(error)
            return done, [RemotePayload(ref, self._actor)]


def _make_host_class(needed: tuple[str, ...], has_transport: bool, as_bytes: bool = False) -> type:
    """Makes the actor class around RolloutWorker, with or without direct transports.

    A worker that cannot open the `needed` transports refuses to start. `as_bytes`: See
    `WorkerLauncher`.

    The class is local, so Ray ships its code instead of importing `rollouts`. That matters: Ray
    puts the driver's working directory first on a worker's sys.path, and a source tree lying there
    would shadow the installed package. The host first takes over the driver's path.
    """

    class RolloutWorkerHost:
        def __init__(self, sys_path: list[str], check: Any, recipe: bytes, config: bytes) -> None:
            import sys

            sys.path[:] = sys_path + [entry for entry in sys.path if entry not in sys_path]
            self._recipe, self._config = recipe, config
            self._worker: Any = None
            self._refusal = check()
            if has_transport and self._refusal is None:
                from rollouts.workers.on_ray.direct_transports import make_ready

                self._refusal = make_ready(needed)

        def start(self) -> Any:
            # with another release no pickle of the driver's is read, and none is sent to it
            if self._refusal is not None:
                return self._refusal

            import dataclasses

            import ray

            from rollouts.workers.small_arrays import as_bytes as small_as_bytes
            from rollouts.workers.worker import build_worker
            from rollouts.workers.worker_failure import guarded

            def start() -> Any:
                self._form = small_as_bytes if as_bytes else lambda payload: payload
                self._worker = build_worker(self._recipe, self._config)
                node_id = ray.get_runtime_context().get_node_id()
                return dataclasses.replace(self._worker.describe(), node_id=node_id)

            return guarded(start)

        def keep_weights(self, name: str, buffer: Any, live: list[str]) -> None:
            from rollouts.workers.on_ray.ray_weights import keep

            keep(name, buffer, live)

        def collect(self, offer: Any = None) -> Any:
            from rollouts.workers.worker_failure import WorkerFailure, guarded

            result = guarded(lambda: self._worker.collect(offer))
            if isinstance(result, WorkerFailure):
                return result, None
            return result.info, self._form(result.payload)

        def collect_several(self, num_fragments: int, offer: Any = None) -> Any:
            from rollouts.workers.worker_failure import WorkerFailure, guarded

            result = guarded(lambda: self._worker.collect_several(offer, num_fragments))
            answers, payloads = ((result,), []) if isinstance(result, WorkerFailure) else result
            # Ray expects as many values as the call announced
            return answers, *map(self._form, payloads), *[None] * (num_fragments - len(payloads))

        def collect_tensors(self, offer: Any = None) -> Any:
            self._info, payload = self.collect(offer)
            return payload

        def last_info(self) -> Any:
            return self._info

    return RolloutWorkerHost


def as_started(answer: WorkerInfo | WorkerFailure | str) -> WorkerInfo | WorkerFailure:
    """Reads a worker's first answer; a worker of another release answers with a sentence."""
    if isinstance(answer, str):
        return WorkerFailure(message=answer, traceback=answer)
    return answer


def check_connected() -> None:
    """Raises WorkerError if Ray was shut down, as the next call would start another Ray."""
    if not ray.is_initialized():
        raise WorkerError("Ray was shut down: close the coordinator before calling ray.shutdown()")


@contextlib.contextmanager
def connected() -> Iterator[None]:
    """Raises as `check_connected`; a `ray.shutdown()` waits until the block is left.

    Ray ends a process that calls it during a shutdown, and nothing can catch that. A call is likely
    then, as the fleet replaces the workers that the shutdown ends. So the check and the call are
    one step, under the lock that Ray's own init and shutdown take. The block must not wait long.
    """
    with shutdown_lock():
        check_connected()
        yield
