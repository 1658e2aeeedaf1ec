# SPDX-License-Identifier: Apache-2.0
"""Answers the policy requests of many workers in common forward passes. Knows threads, not Ray."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rollouts.distributed.fragment import WorkerFailure
from rollouts.distributed.weights import WeightOffer, take_over
from rollouts.distributed.worker import guarded
from rollouts.errors import SpecError

if TYPE_CHECKING:
    from rollouts.policy import Policy

Array = NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRule:
    """When waiting requests become a batch. A request is never split.

    Attributes:
      min_rows   a batch starts once so many rows wait, or
      timeout_s  once the oldest request waited so long; 0 never waits
      max_rows   rows of a batch, unless a single request has more
    """

    min_rows: int = 1
    max_rows: int = 4096
    timeout_s: float = 0.005

    def __post_init__(self) -> None:
        """Checks that batches can start and end."""
        if not 1 <= self.min_rows <= self.max_rows:
            raise SpecError(
                f"min_rows is {self.min_rows} and max_rows {self.max_rows}, expected "
                "1 <= min_rows <= max_rows"
            )
        if not self.timeout_s >= 0:
            raise SpecError(f"timeout_s is {self.timeout_s}, expected 0 or more seconds")


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """What a policy asks: "act" or "value" for obs (B, *obs_shape), or "weights" with no rows."""

    kind: str
    obs: Array


@dataclass(frozen=True, slots=True, eq=False)
class Reply:
    """What was found.

    Attributes:
      arrays          "act": {"action", "log_prob", "value", and the extras as "extras.<name>"};
                      "value": {"value"}; all (B, ...), for the rows of the request;
                      "weights": a copy of the weights
      policy_version  version of the weights that found it
      needs_offer     nothing was found: the server does not know the version that was asked for
      failure         nothing was found: the policy raised
    """

    arrays: dict[str, Array]
    policy_version: int
    needs_offer: bool = False
    failure: WorkerFailure | None = None


class RequestQueue:
    """Requests in order of arrival and the moment at which they are due. Not thread-safe."""

    def __init__(self, rule: BatchRule) -> None:
        self._rule = rule
        self._waiting: deque[tuple[float, Request, Future[Reply]]] = deque()
        self._rows = 0

    def add(self, request: Request, future: Future[Reply], now_s: float) -> None:
        """Appends a request that came at `now_s`."""
        self._waiting.append((now_s, request, future))
        self._rows += len(request.obs)

    def wait_s(self, now_s: float) -> float | None:
        """Returns seconds until a batch is due, 0 if one is; None if nothing waits."""
        if not self._waiting:
            return None
        if self._rows >= self._rule.min_rows:
            return 0.0
        return max(0.0, self._waiting[0][0] + self._rule.timeout_s - now_s)

    def take(self) -> list[tuple[Request, Future[Reply]]]:
        """Takes the oldest requests, at most `max_rows` rows but at least one request."""
        taken: list[tuple[Request, Future[Reply]]] = []
        rows = 0
        while self._waiting:
            _, request, future = self._waiting[0]
            if taken and rows + len(request.obs) > self._rule.max_rows:
                break
            self._waiting.popleft()
            rows += len(request.obs)
            taken.append((request, future))
        self._rows -= rows
        return taken


class PolicyServer:
    """Runs a policy on a thread of its own for whoever submits requests.

    While a batch runs, further requests gather for the next. Weights that were offered are taken
    over between batches, so each batch has one version. A request whose policy raises gets the
    failure; the server goes on.

    `_changed` guards everything but the policy, which only the server's thread touches.
    """

    def __init__(self, policy: Policy, rule: BatchRule) -> None:
        self._policy = policy
        self._changed = threading.Condition(threading.Lock())
        self._queue = RequestQueue(rule)
        self._offer: WeightOffer | None = None
        self._version = policy.policy_version
        self._layout: tuple[Any, ...] | None = None
        self._closed = False
        self._counts = dict.fromkeys(("requests", "batches", "forward_passes", "rows"), 0)
        self._thread = threading.Thread(target=self._run, name="rollouts-inference", daemon=True)
        self._thread.start()

    def submit(self, request: Request, min_version: int = 0) -> Future[Reply]:
        """Asks for an answer with weights of `min_version` or newer. Never blocks; any thread."""
        future: Future[Reply] = Future()
        future.set_running_or_notify_cancel()  # from here on nobody can cancel it
        with self._changed:
            if self._closed:
                future.set_result(self._refusal("the inference server is closed"))
            elif min_version > self._newest:
                future.set_result(Reply({}, self._version, needs_offer=True))
            elif (problem := self._check(request)) is not None:
                future.set_result(self._refusal(problem))
            else:
                self._queue.add(request, future, time.monotonic())
                self._counts["requests"] += 1
                self._changed.notify()
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
            self._closed = True
            self._changed.notify()
        self._thread.join()

    @property
    def _newest(self) -> int:
        return self._version if self._offer is None else self._offer.version

    def _refusal(self, message: str) -> Reply:
        return Reply({}, self._version, failure=WorkerFailure(message=message, traceback=message))

    def _check(self, request: Request) -> str | None:
        """Says what is wrong with observations that cannot share a batch with the earlier ones."""
        if request.kind == "weights":
            return None
        layout = (request.obs.shape[1:], request.obs.dtype)
        self._layout = self._layout or layout
        if layout == self._layout:
            return None
        return (
            f"obs has rows of {layout[1]} {layout[0]}, expected {self._layout[1]} "
            f"{self._layout[0]} as in the first request: one server serves one kind of environment"
        )

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._closed and (wait_s := self._queue.wait_s(time.monotonic())) != 0:
                    self._changed.wait(wait_s)
                batch, offer, self._offer = self._queue.take(), self._offer, None
                if self._closed:
                    for _, future in batch:
                        future.set_result(self._refusal("the inference server is closed"))
                    if self._queue.wait_s(0) is None:
                        return
                    continue
                if offer is not None:
                    self._version = offer.version
            self._serve(batch, offer)

    def _serve(
        self, batch: Sequence[tuple[Request, Future[Reply]]], offer: WeightOffer | None
    ) -> None:
        if offer is not None:
            loading = guarded(lambda: take_over(self._policy, offer))
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
        for kind in ("act", "value"):
            same = [(request, future) for request, future in batch if request.kind == kind]
            if same:
                num_forwards += 1
                replies += self._answer(kind, same)
        # counted first: whoever has an answer also sees it counted
        with self._changed:
            self._counts["batches"] += 1
            self._counts["forward_passes"] += num_forwards
            self._counts["rows"] += sum(len(request.obs) for request, _ in batch)
        for future, reply in replies:
            future.set_result(reply)

    def _answer(
        self, kind: str, same: Sequence[tuple[Request, Future[Reply]]]
    ) -> list[tuple[Future[Reply], Reply]]:
        """Runs the policy once for requests of one kind and cuts the outcome into replies."""
        rows = [request.obs for request, _ in same]
        obs = rows[0] if len(rows) == 1 else np.concatenate(rows)
        found = guarded(lambda: _run_policy(self._policy, kind, obs))
        version = self._policy.policy_version
        if isinstance(found, WorkerFailure):
            return [(future, Reply({}, version, failure=found)) for _, future in same]
        replies, start = [], 0
        for request, future in same:
            end = start + len(request.obs)
            arrays = {name: array[start:end] for name, array in found.items()}
            replies.append((future, Reply(arrays, version)))
            start = end
        return replies


def _run_policy(policy: Policy, kind: str, obs: Array) -> dict[str, Array]:
    if kind == "value":
        arrays = {"value": policy.value(obs)}
    else:
        output = policy.act(obs)
        arrays = {
            "action": output.action,
            "log_prob": output.log_prob,
            "value": output.value,
            **{f"extras.{name}": array for name, array in output.extras.items()},
        }
    for name, array in arrays.items():
        if len(array) != len(obs):
            raise SpecError(f"the policy returned {len(array)} rows of {name} for {len(obs)}")
    return arrays
