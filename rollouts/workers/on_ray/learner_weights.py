# SPDX-License-Identifier: Apache-2.0
"""Weights that go from learners' actors to the workers without the driver: the driver's end.

A learner takes snapshots of one or several policies, after the calls that it was given before. A
snapshot is a return value of the actor, so that it outlives the actor in the object store of its
node; the driver has only a reference. With a direct transport its bytes are also a tensor in the
learner's process, and Ray sends them to each worker before its next fragment. If that fails, the
worker fetches them from the object store.
"""

from __future__ import annotations

import contextlib
import logging
import pickle
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Any

import ray as _typed_ray

from rollouts.errors import ClosedError, EngineError, LearnerError, SpecError
from rollouts.support.ray_private import actor_id, calling, can_send, has_transports
from rollouts.support.same_release import make_check
from rollouts.workers.on_ray import weight_snapshot
from rollouts.workers.on_ray.direct_transports import ray_transport
from rollouts.workers.on_ray.flat_weights import Layout
from rollouts.workers.on_ray.ray_session import check_connected, connected
from rollouts.workers.on_ray.ray_weights import RayWeights, WeightTransfer
from rollouts.workers.tensor_transport import TensorTransport
from rollouts.workers.weight_store import PlansOf, Snapshot, WeightStore
from rollouts.workers.weight_transport import ONLY, WeightTransport

# ray annotates only half of what it exports
ray: Any = _typed_ray

_log = logging.getLogger(__name__)

# policy -> handle of the actor that has its weights; None -> handle of one that has all policies'
Learners = Mapping[str | None, Any]

# s between two checks whether the coordinator was closed
_LOOK_S = 0.5

# s, at most, between the end of a call and Ray's description of its tensors
_DESCRIBED_S = 5.0

# most policies of a learner where their names are not known here
_MOST_POLICIES = 32


@dataclass(frozen=True, slots=True)
class _Call:
    """A learner that was asked; `way` is Ray's name of the transport, `arrays` refer to results."""

    learner: Any
    method: str
    way: str | None
    taken: Any
    arrays: list[Any]


class LearnerWeights:
    """Takes snapshots in learners' actors. `take` is called by one thread at a time."""

    def __init__(
        self, options: WeightTransport, tensor_transport: TensorTransport, store: WeightStore
    ) -> None:
        """Makes the direct transport ready, if there is one; a failure is only warned of.

        Args:
          options: The form in which weights are stored.
          tensor_transport: How they go to the workers; not "auto".
          store: The store that has the names and shapes of the policies.
        """
        self._options, self._store = options, store
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
        # learners that may keep snapshots; policy -> id of the learner of its newest weights
        self._learners: dict[Any, Any] = {}
        self._givers: dict[str, Any] = {}
        # ids of learners that have our release of rollouts
        self._of_our_release: set[Any] = set()
        self._is_in_take = threading.Lock()

    @property
    def transport(self) -> str | None:
        """Ray's name of the tensors' transport; None for the object store."""
        return self._name

    def take(
        self, learners: Learners, method: str, timeout_s: float | None, plans_of: PlansOf
    ) -> dict[str, Snapshot]:
        """Makes learners take snapshots, all at once, and waits for them.

        See `RolloutCoordinator.publish_from`. Returns policy -> snapshot.

        Raises:
          TimeoutError, LearnerError, SpecError: See `publish_from`; nothing was published then.
        """
        with self._is_in_take:
            if self._is_closed:
                raise ClosedError("the coordinator is closed")
            end = None if timeout_s is None else time.monotonic() + timeout_s
            self._attempt += 1
            calls = [
                self._ask(learner, method, policy, plans_of) for policy, learner in learners.items()
            ]
            taken = self._wait(calls, end, timeout_s)
            self._of_our_release |= {actor_id(call.learner) for call in calls}
            snapshots: dict[str, Snapshot] = {}
            for call, own in zip(calls, taken, strict=True):
                snapshots |= self._snapshots(call, own, end)
                self._givers |= dict.fromkeys(own, actor_id(call.learner))
            self._forget(self._learners.keys() - set(self._givers.values()))
            return snapshots

    def close(self) -> None:
        """Wakes a thread that waits in `take`, and lets learners free what they keep."""
        self._is_closed = True
        # Ray may be shut down next, and no thread may be waiting in it then
        if self._is_in_take.acquire(timeout=2 * _LOOK_S):
            self._is_in_take.release()
        if ray.is_initialized():
            self._forget(set(self._learners))

    def _ask(self, learner: Any, method: str, policy: str | None, plans_of: PlansOf) -> _Call:
        """Asks a learner for the weights of a policy, or of all that it has; does not wait."""
        way = self._way_from(learner)
        if way is not None or self._options.delta:
            self._learners[actor_id(learner)] = learner
        policies = self._store.policies
        num_results = 1
        if policy is None:
            num_results = _MOST_POLICIES if policies is None else len(policies)
        plans = plans_of(_source(learner, method)) if self._options.delta else None
        order = weight_snapshot.Order(
            coordinator=self._coordinator,
            attempt=self._attempt,
            method=method,
            policy=policy,
            policies=policies,
            shapes=self._store.shapes,
            num_results=num_results,
            dtype=self._options.dtype,
            plans=plans,
            transport="object_store" if way is None else self._transport,
        )
        with connected():
            call = calling(learner, num_returns=1 + num_results)
            if actor_id(learner) in self._of_our_release:
                taken, *arrays = call.remote(weight_snapshot.take, order)
            else:
                taken, *arrays = call.remote(_make_first_take(), pickle.dumps(order))
        return _Call(learner, method, way, taken, arrays)

    def _snapshots(
        self, call: _Call, taken: Mapping[str, weight_snapshot.TakenSnapshot], end: float | None
    ) -> dict[str, Snapshot]:
        tensors: dict[str, Any] = {}
        if call.way is not None:
            policies = [policy for policy, own in taken.items() if own.layout]
            tensors = self._give(call.learner, call.way, policies, end)
        snapshots = {}
        # a learner may have fewer policies than there is room for
        for (policy, own), arrays in zip(taken.items(), call.arrays, strict=False):
            snapshots[policy] = Snapshot(
                sizes=own.sizes,
                names=own.names,
                make_part=partial(_make_part, arrays, own.layout, tensors.get(policy)),
                source=_source(call.learner, call.method),
                number=self._attempt,
                origin=f"{call.method}() of {call.learner!r}",
            )
        return snapshots

    def _forget(self, actor_ids: Set[Any]) -> None:
        """Lets learners free what they keep."""
        with connected():
            for actor_id in actor_ids:
                learner = self._learners.pop(actor_id)
                ref = calling(learner).remote(weight_snapshot.forget, self._coordinator)
                # reads the error of a learner that has died, which Ray prints otherwise
                ref.future().add_done_callback(lambda future: future.exception())

    def _way_from(self, learner: Any) -> str | None:
        """Returns Ray's name of the transport if this learner can send by it."""
        if self._name is None:
            return None
        if not has_transports(learner):
            self._warn(
                f"the class of {learner!r} was made without it: decorate it with "
                "@ray.remote(enable_tensor_transport=True)"
            )
            return None
        return self._name

    def _wait(
        self, calls: Sequence[_Call], end: float | None, timeout_s: float | None
    ) -> list[dict[str, weight_snapshot.TakenSnapshot]]:
        """Waits for all; an error of any is raised at once."""
        waiting = {call.taken: call for call in calls}
        taken = {}
        while waiting:
            look_s = min(_LOOK_S, _left(end) or _LOOK_S)
            ready, _ = ray.wait(list(waiting), timeout=look_s)
            check_connected()
            if self._is_closed:
                raise ClosedError("the coordinator is closed")
            for ref in ready:
                taken[ref] = _result(waiting.pop(ref))
            if waiting and not ready and end is not None and time.monotonic() > end:
                late = next(iter(waiting.values())).learner
                raise TimeoutError(
                    f"{late!r} gave no weights within {timeout_s} s: it answers after the calls "
                    "that it was given before"
                )
        return [taken[call.taken] for call in calls]

    def _give(
        self, learner: Any, way: str, policies: Sequence[str], end: float | None
    ) -> dict[str, Any]:
        """Makes the snapshots' bytes tensors that Ray can send; returns the references."""
        refs: dict[str, Any] = {}
        with connected():
            # this call runs beside the learner's own
            call = calling(learner, beside_its_calls=True, tensor_transport=way)
            try:
                for policy in policies:
                    refs[policy] = call.remote(
                        weight_snapshot.give, self._coordinator, policy, self._attempt
                    )
            except (ValueError, ray.exceptions.RayActorError) as error:
                # Ray checks at this point whether the actor has what the transport needs
                self._warn(str(error))
        if refs:
            ray.wait(
                list(refs.values()), num_returns=len(refs), timeout=_left(end), fetch_local=False
            )
        # one deadline for all policies: a learner that has died sends nothing for any of them
        described = time.monotonic() + _DESCRIBED_S
        for policy, ref in list(refs.items()):
            left_s = max(0.0, described - time.monotonic())
            if not can_send(ref, left_s):
                self._warn(f"{learner!r} cannot send its weights by it")
                del refs[policy]
        return refs

    def _warn(self, reason: str) -> None:
        """Warns once, with the reason why weights do not go directly."""
        if not self._has_warned:
            _log.warning(
                "weights.tensor_transport is %r, and weights go through the object store: %s",
                self._transport,
                reason,
            )
        self._has_warned = True


def read_learners(learner: Any, method: str, policies: Sequence[str] | None) -> Learners:
    """Returns policy -> actor to ask, from the `learner` of `RolloutCoordinator.publish_from`.

    Args:
      learner: A handle, or policy -> handle.
      method: The method of each actor that returns its weights.
      policies: Names of the policies; None where they are not known.
    Raises:
      SpecError: `learner` is no such actor, or has an unknown policy.
    """
    learners: dict[str | None, Any] = {None: learner}
    if policies == (ONLY,):
        learners = {ONLY: learner}
    elif isinstance(learner, Mapping):
        learners = dict(learner)
        for policy in learner:
            if policies is not None and policy not in policies:
                raise SpecError(
                    f"learner has the unknown policy {policy!r}, expected a dict of one of "
                    f"{list(policies)} -> handle of a Ray actor"
                )
        if not learners:
            raise SpecError("learner is empty, expected a dict of policy -> handle of a Ray actor")
    for policy, one in learners.items():
        _check_source(one, method, f"learner[{policy!r}]" if policy else "learner")
    return learners


def _check_source(learner: Any, method: str, what: str) -> None:
    """Raises SpecError where `learner` is no actor, or has no such method."""
    if not isinstance(learner, ray.actor.ActorHandle):
        raise SpecError(
            f"{what} is {learner!r}, expected a handle of a Ray actor; weights of this process "
            "are published with publish_weights()"
        )
    if not hasattr(learner, method):
        raise SpecError(
            f"{learner!r} has no method {method!r}, expected one without arguments that returns "
            "what publish_weights() takes"
        )


def _make_first_take() -> Callable[[Any, bytes], Any]:
    """Makes a `take` for a learner's first call: sent as code, it compares the releases first."""
    check = make_check()

    def take(learner: Any, order: bytes) -> Any:
        import pickle

        refusal = check()
        if refusal is not None:
            raise RuntimeError(refusal)
        from rollouts.workers.on_ray import weight_snapshot

        return weight_snapshot.take(learner, pickle.loads(order))

    return take


def _source(learner: Any, method: str) -> object:
    return actor_id(learner), method


def _result(call: _Call) -> dict[str, weight_snapshot.TakenSnapshot]:
    """Returns the answer of a learner that has answered, or raises."""
    learner = call.learner
    try:
        taken: dict[str, weight_snapshot.TakenSnapshot] = ray.get(call.taken)
    except ray.exceptions.RayActorError as error:
        raise LearnerError(f"the learner's actor {learner!r} has died: {error}") from error
    except ray.exceptions.RayTaskError as error:
        # the arrays have the same error, which Ray prints unless it is read
        for ref in call.arrays:
            with contextlib.suppress(ray.exceptions.RayError):
                ray.get(ref)
        cause = error.cause
        if isinstance(cause, SpecError):
            raise SpecError(f"{learner!r}: {cause}") from error
        raise LearnerError(f"{call.method}() of {learner!r} raised {cause!r}") from error
    return taken


def _make_part(arrays: Any, layout: Layout, tensors: Any, version: int) -> RayWeights:
    if tensors is None:
        return RayWeights(version, arrays)
    return RayWeights(version, arrays, WeightTransfer(uuid.uuid4().hex, layout, tensors))


def _left(end: float | None) -> float | None:
    return None if end is None else max(0.001, end - time.monotonic())
