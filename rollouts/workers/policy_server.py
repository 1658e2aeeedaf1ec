# SPDX-License-Identifier: Apache-2.0
"""Answers the policy requests of many workers in common forward passes. Uses threads, not Ray."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from rollouts.errors import SpecError
from rollouts.support.no_room import start_thread
from rollouts.workers.offers import Loader, WeightOffer
from rollouts.workers.policy_requests import BatchRule, PolicyRequest, Reply, RequestQueue
from rollouts.workers.state_clients import StateClients
from rollouts.workers.weight_transport import ONLY
from rollouts.workers.worker_failure import WorkerFailure, guarded

if TYPE_CHECKING:
    from rollouts.policy import Policy, PolicyOutput, RecurrentPolicy

Array = NDArray[Any]
Batch = Sequence[tuple[PolicyRequest, Future[Reply]]]


class PolicyServer:
    """Runs a policy on a thread of its own, for callers that submit requests.

    While a batch runs, further requests gather for the next. Weights that were offered are taken
    over between batches, so each batch has one version. A request whose policy raises gets the
    failure; the server goes on. If its thread ends, every later request gets the reason.

    `_changed` guards everything but the policy, which only the server's thread touches.
    """

    def __init__(self, policy: Policy, rule: BatchRule, *, incarnation: int = 1) -> None:
        """Starts the thread.

        Args:
          policy: The policy of all environments; one with `act_rows` is a RecurrentPolicy.
          rule: The rule by which requests become a batch.
          incarnation: Differs from that of any other server that the same workers may ask.
        """
        self._policy, self._loader = policy, Loader({ONLY: policy})
        self._clients = StateClients(incarnation) if hasattr(policy, "act_rows") else None
        self._changed = threading.Condition(threading.Lock())
        self._queue = RequestQueue(rule)
        self._offer: WeightOffer | None = None
        self._version = policy.policy_version
        self._layout: tuple[Any, ...] | None = None
        # why nothing is answered any more
        self._end: str | None = None
        self._counts = dict.fromkeys(("requests", "batches", "forward_passes", "rows"), 0)
        self._thread = threading.Thread(target=self._run, name="rollouts-inference", daemon=True)
        start_thread(self._thread)

    def submit(self, request: PolicyRequest, min_version: int = 0) -> Future[Reply]:
        """Asks for an answer with weights of `min_version` or newer. Never blocks; any thread."""
        future: Future[Reply] = Future()
        future.set_running_or_notify_cancel()  # from here on nobody can cancel it
        with self._changed:
            if self._end is not None:
                future.set_result(self._refusal(self._end))
            elif min_version > self._newest:
                future.set_result(Reply({}, self._version, needs_offer=True))
            elif (problem := self._check(request)) is not None:
                future.set_result(self._refusal(problem))
            else:
                return self._enqueue(request, future)
        return future

    def offer(self, offer: WeightOffer) -> None:
        """Takes weights over before the next batch, if they are newer. Never blocks; any thread."""
        with self._changed:
            if offer.version > self._newest:
                self._offer = offer

    def stats(self) -> dict[str, int]:
        """Returns requests, batches, forward_passes, rows served and the policy_version in use."""
        with self._changed:
            return {**self._counts, "policy_version": self._version}

    def close(self) -> None:
        """Ends the thread after the batch that runs; refuses what waits. Idempotent."""
        with self._changed:
            self._end = self._end or "the inference server is closed"
            self._changed.notify()
        self._thread.join()

    @property
    def is_recurrent(self) -> bool:
        """Tells if requests must name the environments of their observations."""
        return self._clients is not None

    def _enqueue(self, request: PolicyRequest, future: Future[Reply]) -> Future[Reply]:
        """Queues a request; returns the earlier future if the same request came before."""
        if self._clients is not None and request.of is not None:
            known = self._clients.enter(request.of, future)
            if known is not None:
                return known
        self._queue.add(request, future, time.monotonic())
        self._counts["requests"] += 1
        self._changed.notify()
        return future

    @property
    def _newest(self) -> int:
        return self._version if self._offer is None else self._offer.version

    def _refusal(self, message: str) -> Reply:
        return Reply({}, self._version, failure=WorkerFailure(message=message, traceback=message))

    def _check(self, request: PolicyRequest) -> str | None:
        """Returns why a request cannot share a batch with the earlier ones; None if it can."""
        if request.kind == "weights":
            return None
        if self._clients is None and request.of is not None:
            return "the policy has no memory: ask without rows"
        if self._clients is not None:
            problem = self._clients.problem_of(request.of)
            if problem is not None or request.kind == "states":
                return problem
        layout = (request.obs.shape[1:], request.obs.dtype)
        self._layout = self._layout or layout
        if layout == self._layout:
            return None
        return (
            f"obs has rows of {layout[1]} {layout[0]}, expected {self._layout[1]} "
            f"{self._layout[0]} as in the first request: one server serves one kind of environment"
        )

    def _run(self) -> None:
        batch: Batch = ()
        try:
            while (taken := self._take()) is not None:
                batch, offer = taken
                self._serve(batch, offer)
        except BaseException:
            # callers must not wait for ever, even after an error that is no Exception
            with self._changed:
                self._end = f"the inference server's thread stopped:\n{traceback.format_exc()}"
        self._refuse_rest(batch)

    def _take(self) -> tuple[Batch, WeightOffer | None] | None:
        """Waits for the next batch and the weights to load before it; None at the end."""
        with self._changed:
            while self._end is None and (wait_s := self._queue.wait_s(time.monotonic())) != 0:
                self._changed.wait(wait_s)
            if self._end is not None:
                return None
            batch, offer, self._offer = self._queue.take(), self._offer, None
            if offer is not None:
                self._version = offer.version
            return batch, offer

    def _refuse_rest(self, batch: Batch) -> None:
        """Refuses requests that will not be served: the rest of a batch, and waiting ones."""
        with self._changed:
            refusal = self._refusal(self._end or "")
            left = [*batch]
            while self._queue.wait_s(0) is not None:
                left += self._queue.take()
        for _, future in left:
            if not future.done():
                future.set_result(refusal)

    def _serve(self, batch: Batch, offer: WeightOffer | None) -> None:
        if offer is not None:
            loading = guarded(lambda: self._loader.load(offer))
            if isinstance(loading, WorkerFailure):
                with self._changed:
                    self._version = self._policy.policy_version
                for _, future in batch:
                    future.set_result(Reply({}, self._policy.policy_version, failure=loading))
                return
        num_forwards = 0
        replies: list[tuple[Future[Reply], Reply]] = []
        for request, future in batch:
            if request.kind == "weights":
                found = guarded(self._policy.weights)
                failure = found if isinstance(found, WorkerFailure) else None
                arrays = {} if isinstance(found, WorkerFailure) else found
                version = self._policy.policy_version
                replies.append((future, Reply(arrays, version, failure=failure)))
        batch = self._without_the_dead(batch, replies)
        for kind in ("states", "act", "value"):
            same = [(request, future) for request, future in batch if request.kind == kind]
            if same:
                num_forwards += 1
                replies += self._answer(kind, same)
        # counted first, so that a caller with an answer also sees it counted
        with self._changed:
            self._counts["batches"] += 1
            self._counts["forward_passes"] += num_forwards
            self._counts["rows"] += sum(len(request.obs) for request, _ in batch)
        for future, reply in replies:
            future.set_result(reply)

    def _without_the_dead(self, batch: Batch, replies: list[tuple[Future[Reply], Reply]]) -> Batch:
        """Refuses the requests of workers that were started again while the requests waited."""
        if self._clients is None:
            return batch
        living = []
        for request, future in batch:
            with self._changed:
                problem = request.of and self._clients.problem_of(request.of)
            if problem:
                replies.append((future, self._refusal(problem)))
            else:
                living.append((request, future))
        return living

    def _answer(self, kind: str, same: Batch) -> list[tuple[Future[Reply], Reply]]:
        """Runs the policy once for requests of one kind and cuts the outcome into replies."""
        requests = [request for request, _ in same]
        found = guarded(lambda: self._run_policy(kind, requests))
        version = self._policy.policy_version
        if isinstance(found, WorkerFailure):
            return [(future, Reply({}, version, failure=found)) for _, future in same]
        incarnation = 0 if self._clients is None else self._clients.incarnation
        replies, start = [], 0
        for request, future in same:
            end = start + len(request.obs)
            arrays = {name: array[start:end] for name, array in found.items()}
            replies.append((future, Reply(arrays, version, server_incarnation=incarnation)))
            start = end
        return replies

    def _run_policy(self, kind: str, requests: Sequence[PolicyRequest]) -> dict[str, Array]:
        obs = _joined([request.obs for request in requests])
        if self._clients is None:
            return run_policy(self._policy, kind, obs)
        of = [request.of for request in requests if request.of is not None]
        rows = _joined([each.rows for each in of])
        moves_on = kind == "act"
        begins = _joined([self._clients.begins_of(each, moves_on=moves_on) for each in of])
        return run_recurrent_policy(cast("RecurrentPolicy", self._policy), kind, obs, rows, begins)


def run_policy(policy: Policy, kind: str, obs: Array) -> dict[str, Array]:
    """Returns the arrays of a Reply to "act" or "value"."""
    return _checked(_named(policy.value(obs) if kind == "value" else policy.act(obs)), len(obs))


def run_recurrent_policy(
    policy: RecurrentPolicy,
    kind: str,
    obs: Array,
    rows: NDArray[np.intp],
    begins: NDArray[np.bool_],
) -> dict[str, Array]:
    """Returns the arrays of a Reply to "act", "value" or "states"."""
    if kind == "states":
        states = policy.states(rows, begins)
        return _checked({str(i): state for i, state in enumerate(states)}, len(rows))
    if kind == "value":
        return _checked(_named(policy.value_rows(obs, rows, begins)), len(obs))
    return _checked(_named(policy.act_rows(obs, rows, begins)), len(obs))


def _named(found: PolicyOutput | Array) -> dict[str, Array]:
    if isinstance(found, np.ndarray):
        return {"value": found}
    return {
        "action": found.action,
        "log_prob": found.log_prob,
        "value": found.value,
        **{f"extras.{name}": array for name, array in found.extras.items()},
    }


def _checked(arrays: dict[str, Array], num_rows: int) -> dict[str, Array]:
    for name, array in arrays.items():
        if len(array) != num_rows:
            raise SpecError(f"the policy returned {len(array)} rows of {name} for {num_rows}")
    return arrays


def _joined(arrays: Sequence[Array]) -> Array:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
