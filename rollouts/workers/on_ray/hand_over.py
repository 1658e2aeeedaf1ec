# SPDX-License-Identifier: Apache-2.0
"""Hands fragments from a worker's actor to a learner's, not through the driver's process."""

from __future__ import annotations

import uuid
from typing import Any

import ray as _typed_ray

from rollouts.errors import LearnerError, ProtocolError, SpecError, WorkerError
from rollouts.learner.fragment import FragmentHandle
from rollouts.support.ray_private import actor_id, calling, has_transports
from rollouts.support.same_release import make_check
from rollouts.workers.on_ray.parcels import InRay
from rollouts.workers.on_ray.ray_session import check_connected, connected
from rollouts.workers.tensor_transport import TensorTransport

# ray annotates only half of what it exports
ray: Any = _typed_ray

# s; with a timeout of 0 Ray does not check at all
_MIN_WAIT_S = 0.001

# s that a living worker may take to answer; the coordinator gives up one that hangs
_ANSWER_S = 10.0


def check_learner(learner: Any, tensor_transport: TensorTransport) -> None:
    """Raises SpecError where an actor cannot be handed fragments."""
    if not (hasattr(learner, "receive") and hasattr(learner, "settle")):
        raise SpecError(
            f"learner is {learner!r}, expected a handle of an actor whose class inherits from "
            "rollouts.FragmentInbox"
        )
    if tensor_transport != "object_store" and not has_transports(learner):
        raise SpecError(
            f"collect.tensor_transport is {tensor_transport!r}, and the learner's class was made "
            "without it: decorate it with @ray.remote(enable_tensor_transport=True)"
        )


# ids of actors that have our release of rollouts
_of_our_release: set[Any] = set()


def check_release(learner: Any, timeout_s: float | None) -> None:
    """Waits until a learner's actor has compared its release with ours; once for each actor.

    Raises:
      TimeoutError: It did not answer in time.
      LearnerError: It has another release, or has died.
    """
    if actor_id(learner) in _of_our_release:
        return
    check = make_check()
    with connected():
        # the lambda is sent as code, because the actor may have another release of rollouts
        ref = calling(learner).remote(lambda _: check())
    try:
        refusal = ray.get(ref, timeout=timeout_s)
    except ray.exceptions.GetTimeoutError:
        raise TimeoutError(
            f"the learner's actor {learner!r} did not answer within {timeout_s:g} s: it answers "
            "after the calls that it was given before"
        ) from None
    except ray.exceptions.RayActorError as error:
        raise _has_died(learner, error) from error
    if refusal is not None:
        raise LearnerError(f"the learner's actor {learner!r}: {refusal}")
    _of_our_release.add(actor_id(learner))


class HandOver:
    """One attempt to hand a fragment over to a learner's actor; see `FragmentInbox`."""

    def __init__(self, handle: FragmentHandle, learner: Any, *, copies: bool) -> None:
        """Starts the attempt; waits for nothing, except for the parcel that the fragment may be in.

        Args:
          handle: The fragment, whose arrays are in a worker or in Ray's object store.
          learner: The actor.
          copies: See `FragmentInbox.receive`.
        Raises:
          LearnerError: The learner died. TimeoutError, WorkerError: See `ParcelPayload.argument`.
        """
        if not isinstance(handle.fetch, InRay):
            raise ProtocolError("the arrays of this fragment are not in Ray: take it with get()")
        self._learner, self._payload = learner, handle.fetch
        self._ticket = uuid.uuid4().hex
        # the handle keeps the arrays alive until the attempt is over
        self.handle = handle
        arrays = handle.fetch.argument()
        with connected():
            try:
                self._done = learner.receive.remote(self._ticket, handle.info, arrays, copies)
            except ray.exceptions.RayActorError as error:
                raise _has_died(learner, error) from error

    def wait(self, timeout_s: float) -> None:
        """Waits until the learner has the arrays.

        Raises:
          TimeoutError: Not yet; call again, or `take_back`.
          WorkerError: The arrays are lost: the worker or the node that held them died.
          LearnerError: The learner died, or cannot take fragments; the worker still has the arrays.
        """
        check_connected()
        try:
            error = ray.get(self._done, timeout=max(_MIN_WAIT_S, timeout_s))
        except ray.exceptions.GetTimeoutError:
            raise TimeoutError(f"the learner had no fragment within {timeout_s} s") from None
        except ray.exceptions.RayActorError as error:
            if error.actor_id == actor_id(self._learner).hex():
                raise _has_died(self._learner, error) from error
            raise WorkerError(f"the arrays of a fragment are lost: {error}") from error
        except ray.exceptions.RayError as error:
            if self._payload.has_holder(_ANSWER_S):
                # the next fragment would not arrive either, so this one stays where it is
                raise LearnerError(
                    f"the learner's actor {self._learner!r} cannot receive a fragment that worker "
                    f"{self.handle.info.worker_id} still has: {_reason(error)}; can its process "
                    "use the transport, and its machine reach the worker's? "
                    "tensor_transport='object_store' needs neither"
                ) from error
            raise WorkerError(f"the arrays of a fragment are lost: {error}") from error
        if error is not None:
            raise LearnerError(
                f"the learner could not keep a fragment: {error}; if its class has an __init__, "
                "that must call super().__init__()"
            )

    def keep(self) -> None:
        """Tells the learner that the fragment is its own."""
        self._settle(True)

    def take_back(self) -> None:
        """Tells the learner that it does not get the fragment, even if it arrives later."""
        self._settle(False)

    def _settle(self, is_delivered: bool) -> None:
        with connected():
            self._learner.settle.remote(self._ticket, is_delivered)


def _reason(error: Exception) -> str:
    """Returns the line of Ray's error that says what went wrong in the actor."""
    lines = str(getattr(error, "cause", None) or error).strip().splitlines()
    return lines[-1] if lines else type(error).__name__


def _has_died(learner: Any, error: Exception) -> LearnerError:
    return LearnerError(f"the learner's actor {learner!r} has died: {error}")
