# SPDX-License-Identifier: Apache-2.0
"""Requests to a PolicyServer, its replies, and the rule by which requests become a batch."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollouts.errors import SpecError
from rollouts.support.keywords import explains_fields
from rollouts.workers.worker_failure import WorkerFailure

Array = NDArray[Any]


@explains_fields
@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRule:
    """The rule by which waiting requests become a batch. A request is never split.

    Attributes:
      min_rows   a batch starts once this many rows wait, or
      timeout_s  once the oldest request has waited this long; 0 never waits
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
        if not 0 <= self.timeout_s <= threading.TIMEOUT_MAX:
            raise SpecError(
                f"timeout_s is {self.timeout_s}, expected 0 to {threading.TIMEOUT_MAX:.0f} "
                "seconds: where fewer than min_rows ever wait, only the timeout starts a batch"
            )


@dataclass(frozen=True, slots=True, eq=False)
class RowsOf:
    """The environments of a request to a recurrent policy, and the worker's incarnation that asks.

    Attributes:
      rows         (B,) intp   global env_ids, none twice
      begins       (B,) bool   the observation is the first of an episode
      worker_id, incarnation   see `FragmentInfo`
      number       counts the incarnation's requests; a request that comes twice is answered once
      server_incarnation   of the server that has the states of these episodes; 0 for none yet
    """

    rows: NDArray[np.intp]
    begins: NDArray[np.bool_]
    worker_id: int
    incarnation: int
    number: int
    server_incarnation: int


@dataclass(frozen=True, slots=True, eq=False)
class PolicyRequest:
    """One request of a worker's policy.

    Attributes:
      kind  "act" or "value" for obs (B, *obs_shape), "weights" with no rows; of a recurrent policy
            also "states", where obs is (B, 0)
      obs   the observations
      of    the environments that they come from, if the policy is recurrent
    """

    kind: str
    obs: Array
    of: RowsOf | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Reply:
    """The answer to a request.

    Attributes:
      arrays          "act": {"action", "log_prob", "value", and the extras as "extras.<name>"};
                      "value": {"value"}; all (B, ...), for the rows of the request;
                      "states": {"0": ..., "1": ...} (B, ...)
                      "weights": a copy of the weights
      policy_version  version of the weights that computed it
      needs_offer     there is no answer: the server does not have the version that was asked for
      failure         there is no answer: the policy raised, or the request was refused
      server_incarnation   incarnation of the server, which has the states
    """

    arrays: dict[str, Array]
    policy_version: int
    needs_offer: bool = False
    failure: WorkerFailure | None = None
    server_incarnation: int = 0


class RequestQueue:
    """A queue of requests, which computes when the next batch is due. Not thread-safe."""

    def __init__(self, rule: BatchRule) -> None:
        self._rule = rule
        self._waiting: deque[tuple[float, PolicyRequest, Future[Reply]]] = deque()
        self._rows = 0

    def add(self, request: PolicyRequest, future: Future[Reply], now_s: float) -> None:
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

    def take(self) -> list[tuple[PolicyRequest, Future[Reply]]]:
        """Takes the oldest requests, at most `max_rows` rows but at least one request."""
        taken: list[tuple[PolicyRequest, Future[Reply]]] = []
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
