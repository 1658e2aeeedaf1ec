# SPDX-License-Identifier: Apache-2.0
"""Weights from a learner's actor to the workers, without the driver's hands: the driver's end.

The learner takes a snapshot in its turn. It is a return value of the actor, so that it outlives the
actor in its node's object store; the driver has references alone. With a direct transport its bytes
are a tensor in the learner's process as well, and each worker is sent them by Ray before its next
fragment. What goes wrong on that way costs a worker nothing but a look into the object store.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from typing import Any

import ray as _typed_ray

from rollouts.cluster import weight_snapshot
from rollouts.cluster.hand_over import ray_transport, wait_until_told
from rollouts.cluster.ray_session import check_connected, connected
from rollouts.cluster.ray_weights import RayWeights
from rollouts.cluster.weight_sender import SentWeights
from rollouts.distributed.device_options import TensorTransport
from rollouts.distributed.weight_transport import WeightTransport
from rollouts.distributed.weights import DeltaPlan, Snapshot
from rollouts.errors import ClosedError, EngineError, LearnerError, SpecError

# ray annotates only half of what it exports
ray: Any = _typed_ray

_log = logging.getLogger(__name__)

# between two looks whether the coordinator was closed
_LOOK_S = 0.5

# between the end of a call and the arrival of what Ray says of its tensors
_DESCRIBED_S = 5.0


class LearnerWeights:
    """Takes snapshots in learners' actors. `take` is called by one thread at a time."""

    def __init__(self, options: WeightTransport, tensor_transport: TensorTransport) -> None:
        """Opens nothing.

        Args:
          options: What is stored of the weights.
          tensor_transport: How they go to the workers; not "auto".
        """
        self._options = options
        self._transport: TensorTransport = tensor_transport
        self._has_warned = self._is_closed = False
        self._name: str | None = None  # Ray's
        if tensor_transport != "object_store":
            try:
                self._name = ray_transport(tensor_transport)
            except EngineError as error:
                self._warn(str(error))
        self._coordinator = uuid.uuid4().hex
        self._attempt = 0
        self._base = 0
        self._learner: Any = None  # that keeps something
        self._is_in_take = threading.Lock()

    @property
    def transport(self) -> str | None:
        """What Ray calls the way of the tensors; None for the object store."""
        return self._name

    def take(self, learner: Any, method: str, timeout_s: float | None, plan: DeltaPlan) -> Snapshot:
        """Has a learner take a snapshot, and waits for it; see `RolloutCoordinator.publish_from`.

        Raises:
          TimeoutError, LearnerError, SpecError: As there; nothing was published then.
        """
        with self._is_in_take:
            if self._is_closed:
                raise ClosedError("the coordinator is closed")
            return self._take(learner, method, timeout_s, plan)

    def _take(
        self, learner: Any, method: str, timeout_s: float | None, plan: DeltaPlan
    ) -> Snapshot:
        end = None if timeout_s is None else time.monotonic() + timeout_s
        name = self._way_from(learner, end)
        self._attempt += 1
        if name is not None or self._options.delta:
            self._learner = learner
        order = weight_snapshot.Order(
            coordinator=self._coordinator,
            attempt=self._attempt,
            method=method,
            dtype=self._options.dtype,
            plan=plan if self._options.delta else None,
            base=self._base,
            transport="object_store" if name is None else self._transport,
        )
        with connected():
            call = learner.__ray_call__.options(num_returns=2)
            taken_ref, arrays = call.remote(weight_snapshot.take, order)
        taken: weight_snapshot.Taken = self._wait(taken_ref, learner, method, end, timeout_s)
        has_buffer = name is not None and taken.layout
        tensors = self._give(learner, name, end) if has_buffer else None
        self._base = self._attempt

        def make_offer(version: int) -> RayWeights:
            if tensors is None:
                return RayWeights(version, arrays)
            return SentWeights(version, arrays, uuid.uuid4().hex, taken.layout, tensors)

        return Snapshot(sizes=taken.sizes, names=taken.names, make_offer=make_offer)

    def close(self) -> None:
        """Wakes who waits in `take`, and lets the last learner free what it keeps."""
        self._is_closed = True
        # Ray may be shut down next, which nobody must be waiting in
        if self._is_in_take.acquire(timeout=2 * _LOOK_S):
            self._is_in_take.release()
        learner, self._learner = self._learner, None
        if learner is not None and ray.is_initialized():
            with connected():
                learner.__ray_call__.remote(weight_snapshot.forget, self._coordinator)

    def _way_from(self, learner: Any, end: float | None) -> str | None:
        """Returns Ray's name of the transport if this learner can send by it."""
        if self._name is None:
            return None
        if not learner._ray_enable_tensor_transport:
            self._warn(
                f"the class of {learner!r} was made without it: decorate it with "
                "@ray.remote(enable_tensor_transport=True)"
            )
            return None
        wait_until_told(learner, _left(end))
        return self._name

    def _wait(
        self, ref: Any, learner: Any, method: str, end: float | None, timeout_s: float | None
    ) -> Any:
        while not ray.wait([ref], timeout=min(_LOOK_S, _left(end) or _LOOK_S))[0]:
            check_connected()
            if self._is_closed:
                raise ClosedError("the coordinator is closed")
            if end is not None and time.monotonic() > end:
                raise TimeoutError(
                    f"{learner!r} gave no weights within {timeout_s} s: it answers after the calls "
                    "that it was given before"
                )
        try:
            return ray.get(ref)
        except ray.exceptions.RayActorError as error:
            raise LearnerError(f"the learner's actor {learner!r} has died: {error}") from error
        except ray.exceptions.RayTaskError as error:
            cause = error.cause
            if isinstance(cause, SpecError):
                raise SpecError(f"{learner!r}: {cause}") from error
            raise LearnerError(f"{method}() of {learner!r} raised {cause!r}") from error

    def _give(self, learner: Any, name: str | None, end: float | None) -> Any:
        """Makes the snapshot's bytes a tensor that Ray can send; returns the reference."""
        with connected():
            # beside the learner's own calls
            call = learner.__ray_call__.options(
                tensor_transport=name, concurrency_group="_ray_system"
            )
            try:
                ref = call.remote(weight_snapshot.give, self._coordinator, self._attempt)
            except (ValueError, ray.exceptions.RayActorError) as error:
                # Ray looks here whether the actor has what the transport needs
                self._warn(str(error))
                return None
            manager = ray._private.worker.global_worker.rdt_manager
        ray.wait([ref], timeout=_left(end), fetch_local=False)
        if manager.wait_for_tensor_transport_metadata(ref.hex(), _DESCRIBED_S) is None:
            self._warn(f"{learner!r} cannot send its weights by it")
            return None
        return ref

    def _warn(self, reason: str) -> None:
        """Says once why weights do not go directly."""
        if not self._has_warned:
            _log.warning(
                "weights.tensor_transport is %r, and weights go through the object store: %s",
                self._transport,
                reason,
            )
        self._has_warned = True


def check_source(learner: Any, method: str) -> None:
    """Raises SpecError where weights cannot be had from it."""
    if not isinstance(learner, ray.actor.ActorHandle):
        raise SpecError(
            f"learner is {learner!r}, expected a handle of a Ray actor; weights of this process "
            "are published with publish_weights()"
        )
    if not hasattr(learner, method):
        raise SpecError(
            f"{learner!r} has no method {method!r}, expected one without arguments that returns a "
            "dict of name -> numpy array or torch tensor"
        )


def _left(end: float | None) -> float | None:
    return None if end is None else max(0.001, end - time.monotonic())
