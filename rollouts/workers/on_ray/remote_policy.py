# SPDX-License-Identifier: Apache-2.0
"""The policy of a worker that asks an InferenceServer: the client's end of `inference`."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import ray as _typed_ray
from numpy.typing import NDArray

from rollouts.errors import ProtocolError, WorkerError
from rollouts.workers.offers import WeightOffer
from rollouts.workers.on_ray.ray_session import check_connected
from rollouts.workers.policy_requests import PolicyRequest, Reply, RowsOf
from rollouts.workers.worker_config import PolicySpec
from rollouts.workers.worker_failure import WorkerFailure

if TYPE_CHECKING:
    from rollouts.policy import PolicyOutput, Rows

Array = NDArray[Any]

# ray annotates only half of what it exports
ray: Any = _typed_ray

# s between two attempts to reach a server that Ray is starting again
_RETRY_S = 0.1


@dataclass(frozen=True, slots=True)
class RemotePolicyMaker:
    """Makes a RemotePolicy in a worker; a recurrent one if the server's policy is recurrent."""

    actor: Any
    timeout_s: float

    def __call__(self, spec: PolicySpec) -> RemotePolicy:
        """Waits until the server is there; raises WorkerError as the policy's methods do."""
        if Asking(self.actor, self.timeout_s).call("is_recurrent"):
            return RemoteRecurrentPolicy(self.actor, spec, self.timeout_s)
        return RemotePolicy(self.actor, self.timeout_s)


class RemotePolicy:
    """A `Policy` whose answers come from an InferenceServer.

    `policy_version` is the one the server used for the last answer, at least that of the newest
    offer this policy was given. Arrays may be read-only. Each method raises WorkerError when the
    policy in the server raised, when the server is dead for good, or after `timeout_s`.
    """

    def __init__(self, actor: Any, timeout_s: float = 120.0) -> None:
        self.policy_version = 0
        self._asking = Asking(actor, timeout_s)
        self._offer: WeightOffer | None = None

    def act(self, obs: Array) -> PolicyOutput:
        """Asks for an action for each row of `obs` (B, *obs_shape)."""
        return _output(self._ask("act", obs))

    def value(self, obs: Array) -> NDArray[np.float32]:
        """Asks for the value (B,) of each row of `obs` (B, *obs_shape)."""
        return self._ask("value", obs)["value"]

    def weights(self) -> dict[str, Array]:
        """Returns a copy of the server's weights, which may be older than those offered."""
        return self._ask("weights", np.empty(0))

    def load_weights(self, weights: Mapping[str, Array], version: int) -> None:
        """Sends the weights with the next request, unless the server has newer ones."""
        self.load_offer(WeightOffer.of(version, weights))

    def load_offer(self, offer: WeightOffer) -> None:
        """Makes later answers come from these weights or newer ones.

        The arrays are not fetched here: the server fetches them, if it does not have them yet.
        """
        self._offer = offer

    def _ask(self, kind: str, obs: Array, of: RowsOf | None = None) -> dict[str, Array]:
        return dict(self._reply(PolicyRequest(kind, obs, of)).arrays)

    def _reply(self, request: PolicyRequest) -> Reply:
        version = 0 if self._offer is None else self._offer.version
        reply: Reply = self._asking.call("ask", request, version, None)
        if reply.needs_offer:
            reply = self._asking.call("ask", request, version, self._offer)
        self.policy_version = reply.policy_version
        return reply


class RemoteRecurrentPolicy(RemotePolicy):
    """A `RecurrentPolicy` whose states are in an InferenceServer, one per environment.

    Where the server was started again the states are gone, and each method raises WorkerError: the
    worker is then started again as well, with new episodes.
    """

    def __init__(self, actor: Any, spec: PolicySpec, timeout_s: float = 120.0) -> None:
        super().__init__(actor, timeout_s)
        self._spec = spec
        self._num_asked = 0
        self._server_incarnation = 0

    def act(self, obs: Array) -> PolicyOutput:
        """Refuses: a recurrent policy must know from which environments observations are."""
        raise ProtocolError("act() of a recurrent policy, expected act_rows(), as Collector calls")

    def value(self, obs: Array) -> NDArray[np.float32]:
        """Refuses, as `act` does."""
        raise ProtocolError("value() of a recurrent policy, expected value_rows()")

    def act_rows(self, obs: Array, rows: Rows, begins: NDArray[np.bool_]) -> PolicyOutput:
        """See `RecurrentPolicy.act_rows`."""
        return _output(self._ask_rows("act", obs, rows, begins))

    def value_rows(self, obs: Array, rows: Rows, begins: NDArray[np.bool_]) -> NDArray[np.float32]:
        """See `RecurrentPolicy.value_rows`."""
        return self._ask_rows("value", obs, rows, begins)["value"]

    def states(self, rows: Rows, begins: NDArray[np.bool_]) -> tuple[Array, ...]:
        """See `RecurrentPolicy.states`."""
        arrays = self._ask_rows("states", np.empty((len(begins), 0), np.uint8), rows, begins)
        return tuple(arrays[str(i)] for i in range(len(arrays)))

    def _ask_rows(
        self, kind: str, obs: Array, rows: Rows, begins: NDArray[np.bool_]
    ) -> dict[str, Array]:
        index = np.arange(len(begins)) if rows is None else rows
        self._num_asked += 1
        of = RowsOf(
            rows=index + self._spec.env_id_offset,
            begins=begins,
            worker_id=self._spec.worker_id,
            incarnation=self._spec.incarnation,
            number=self._num_asked,
            server_incarnation=self._server_incarnation,
        )
        reply = self._reply(PolicyRequest(kind, obs, of))
        self._server_incarnation = reply.server_incarnation
        return dict(reply.arrays)


def _output(arrays: dict[str, Array]) -> PolicyOutput:
    from rollouts.policies.protocol import PolicyOutput

    action, log_prob, value = (arrays.pop(name) for name in ("action", "log_prob", "value"))
    extras = {name.removeprefix("extras."): array for name, array in arrays.items()}
    return PolicyOutput(action, log_prob, value, extras)


class Asking:
    """Calls of the server's actor, within a time limit; what goes wrong becomes a WorkerError."""

    def __init__(self, actor: Any, timeout_s: float) -> None:
        self._actor = actor
        self._timeout_s = timeout_s

    def call(self, method: str, *args: Any) -> Any:
        """Returns the answer, asking again while Ray starts the actor again."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            check_connected()
            ref = getattr(self._actor, method).remote(*args)
            try:
                answer = ray.get(ref, timeout=max(_RETRY_S, deadline - time.monotonic()))
                break
            except ray.exceptions.GetTimeoutError:
                raise self._late("busy or unreachable") from None
            except ray.exceptions.ActorUnavailableError as error:
                if time.monotonic() > deadline:
                    raise self._late(f"unavailable: {error}") from error
                threading.Event().wait(_RETRY_S)
            except ray.exceptions.RayError as error:
                raise WorkerError(f"the inference server died: {error}") from error
        if isinstance(answer, str):
            # the server runs another release of rollouts
            raise WorkerError(answer)
        failure = answer if isinstance(answer, WorkerFailure) else getattr(answer, "failure", None)
        if failure is not None:
            raise WorkerError(f"inference failed in the server:\n{failure.traceback}")
        return answer

    def _late(self, state: str) -> WorkerError:
        return WorkerError(
            f"the inference server did not answer within {self._timeout_s} s: it is {state}; "
            "were its CPUs and GPUs ever free?"
        )
