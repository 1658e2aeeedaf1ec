# SPDX-License-Identifier: Apache-2.0
"""One policy in an actor of its own, asked by all workers: inference as in SEED RL.

`InferenceServer` starts the actor; `RemotePolicy` is the policy of a worker that asks it, once per
batch of observations. In an asynchronous pool the other environments step while a worker waits.

It is for models that want a GPU which the workers do not have. Small models are much faster in the
workers, as here every batch of observations waits for a call through Ray.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import ray as _typed_ray
from numpy.typing import NDArray

from rollouts.distributed.fragment import WorkerFailure
from rollouts.distributed.policy_server import BatchRule, PolicyServer, Reply, Request
from rollouts.distributed.ray_session import check_connected
from rollouts.distributed.weights import LocalWeights, WeightOffer
from rollouts.distributed.worker import MakePolicy, PolicySpec
from rollouts.errors import WorkerError

if TYPE_CHECKING:
    from rollouts.policy import Policy, PolicyOutput

Array = NDArray[Any]

# ray annotates only half of what it exports
ray: Any = _typed_ray

# between two attempts to reach a server that Ray is starting again
_RETRY_S = 0.1


class InferenceServer:
    """The driver's end of the actor. Needs a Ray that is connected; any thread.

    The server samples: its policy is seeded once, with `spec.seed`, and draws for each batch in the
    order of its rows. With a single client that is exactly what a policy in the worker would do;
    with several, who gets which random numbers depends on who asks first.

    When the process dies, Ray starts it again, at most `max_restarts` times. Requests in flight are
    asked again, for a policy's answer changes no environment; the first one brings the newest
    weights that its worker was offered. The new life samples with another seed.
    """

    def __init__(
        self,
        make_policy: MakePolicy,
        spec: PolicySpec,
        *,
        rule: BatchRule | None = None,
        num_cpus: float = 1,
        num_gpus: float = 0,
        max_restarts: int = 3,
        request_timeout_s: float = 60.0,
    ) -> None:
        """Starts the actor; does not wait for it.

        Args:
          make_policy: Called with `spec` in the actor; must pickle. It chooses the device, and may
            call `module.compile()`, which keeps the names of the weights.
          spec: Of all environments together; worker_id says nothing here.
          rule: When requests become a batch; None for BatchRule().
          num_cpus: What Ray reserves, and threads of torch (at least 1).
          num_gpus: What Ray reserves; CUDA_VISIBLE_DEVICES of the actor shows only these.
          max_restarts: Deaths of the process that are made good.
          request_timeout_s: Seconds a client waits for an answer, restarts included.
        """
        check_connected()
        recipe = ray.cloudpickle.dumps(
            (make_policy, spec, rule or BatchRule(), max(1, int(num_cpus)))
        )
        sys_path = [os.path.abspath(entry) for entry in sys.path]
        # answers are asked for again by the clients, who know the weights, and not by Ray
        actor_class = ray.remote(
            num_cpus=num_cpus, num_gpus=num_gpus, max_restarts=max_restarts, max_task_retries=0
        )(_make_host_class())
        self._actor = actor_class.remote(sys_path, recipe)
        self._timeout_s = request_timeout_s

    @property
    def make_remote_policy(self) -> RemotePolicyMaker:
        """What workers take as make_policy; it pickles."""
        return RemotePolicyMaker(self._actor, self._timeout_s)

    def offer(self, offer: WeightOffer) -> None:
        """Sends the server newer weights, which it takes over between batches. Does not wait.

        A request that is made after this call may still arrive before the offer. Without any offer
        the server learns of new weights when the first worker that was offered them asks.
        """
        check_connected()
        self._actor.offer.remote(offer)

    def stats(self, timeout_s: float = 10.0) -> dict[str, int]:
        """Returns what PolicyServer.stats does, of the present life of the actor.

        Raises:
          WorkerError: the policy could not be made, the server died or does not answer.
        """
        stats: dict[str, int] = _Asking(self._actor, timeout_s).call("stats")
        return stats

    def close(self) -> None:
        """Ends the actor; whoever waits for an answer gets a WorkerError. Idempotent."""
        with contextlib.suppress(Exception):
            check_connected()
            ray.kill(self._actor, no_restart=True)


@dataclass(frozen=True, slots=True)
class RemotePolicyMaker:
    """Makes a RemotePolicy in a worker."""

    actor: Any
    timeout_s: float

    def __call__(self, spec: PolicySpec) -> RemotePolicy:
        return RemotePolicy(self.actor, self.timeout_s)


class RemotePolicy:
    """A `Policy` whose answers come from an InferenceServer.

    `policy_version` is the one the server used for the last answer, at least that of the newest
    offer this policy was given. Arrays may be read-only. Each method raises WorkerError when the
    policy in the server raised, when the server is dead for good, or after `timeout_s`.
    """

    def __init__(self, actor: Any, timeout_s: float = 60.0) -> None:
        self.policy_version = 0
        self._asking = _Asking(actor, timeout_s)
        self._offer: WeightOffer | None = None

    def act(self, obs: Array) -> PolicyOutput:
        """Asks for an action for each row of `obs` (B, *obs_shape)."""
        from rollouts.policy import PolicyOutput

        arrays = self._ask("act", obs)
        action, log_prob, value = (arrays.pop(name) for name in ("action", "log_prob", "value"))
        extras = {name.removeprefix("extras."): array for name, array in arrays.items()}
        return PolicyOutput(action, log_prob, value, extras)

    def value(self, obs: Array) -> NDArray[np.float32]:
        """Asks for the value (B,) of each row of `obs` (B, *obs_shape)."""
        return self._ask("value", obs)["value"]

    def weights(self) -> dict[str, Array]:
        """Returns a copy of the server's weights, which may be older than those offered."""
        return self._ask("weights", np.empty(0))

    def load_weights(self, weights: Mapping[str, Array], version: int) -> None:
        """Sends the weights with the next request, unless the server has newer ones."""
        self.load_offer(LocalWeights(version, weights))

    def load_offer(self, offer: WeightOffer) -> None:
        """Sees to it that later answers come from these weights or newer ones.

        The arrays are not fetched here: the server fetches them, if it does not have them yet.
        """
        self._offer = offer

    def _ask(self, kind: str, obs: Array) -> dict[str, Array]:
        version = 0 if self._offer is None else self._offer.version
        reply: Reply = self._asking.call("ask", kind, obs, version, None)
        if reply.needs_offer:
            reply = self._asking.call("ask", kind, obs, version, self._offer)
        self.policy_version = reply.policy_version
        return dict(reply.arrays)


class _Asking:
    """Calls of the actor that end in time and say what went wrong."""

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
        failure = answer if isinstance(answer, WorkerFailure) else getattr(answer, "failure", None)
        if failure is not None:
            raise WorkerError(f"inference failed in the server:\n{failure.traceback}")
        return answer

    def _late(self, state: str) -> WorkerError:
        return WorkerError(
            f"the inference server did not answer within {self._timeout_s} s: it is {state}; "
            "were its CPUs and GPUs ever free?"
        )


def build_server(recipe: bytes, incarnation: int) -> PolicyServer:
    """Makes the server inside the actor from the pickled arguments of InferenceServer."""
    make_policy, spec, rule, torch_threads = pickle.loads(recipe)
    if incarnation:
        seed = np.random.SeedSequence([spec.seed, incarnation]).generate_state(1, np.uint64)[0]
        spec = replace(spec, incarnation=incarnation, seed=int(seed >> np.uint64(1)))
    policy: Policy = make_policy(spec)
    reseed = getattr(policy, "seed", None)
    if callable(reseed):
        reseed(spec.seed)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(torch_threads)
    return PolicyServer(policy, rule)


async def ask(
    server: PolicyServer | WorkerFailure,
    kind: str,
    obs: Array,
    min_version: int,
    offer: WeightOffer | None,
) -> Reply:
    """Answers one request inside the actor; other requests come in meanwhile."""
    if isinstance(server, WorkerFailure):
        return Reply({}, 0, failure=server)
    if offer is not None:
        server.offer(offer)
    return await asyncio.wrap_future(server.submit(Request(kind, obs), min_version))


def _make_host_class() -> type:
    """Makes the actor class around PolicyServer, local for the reason given in ray_session."""

    class InferenceHost:
        def __init__(self, sys_path: list[str], recipe: bytes) -> None:
            import sys

            sys.path[:] = sys_path + [entry for entry in sys.path if entry not in sys_path]
            import os

            import ray

            from rollouts.distributed.inference import build_server
            from rollouts.distributed.worker import guarded

            context: Any = ray.get_runtime_context()
            is_restart = context.was_current_actor_reconstructed
            incarnation = 1 + int.from_bytes(os.urandom(4), "big") if is_restart else 0
            self._server: Any = guarded(lambda: build_server(recipe, incarnation))

        async def ask(self, *request: Any) -> Any:
            from rollouts.distributed.inference import ask

            return await ask(self._server, *request)

        async def offer(self, offer: Any) -> None:
            # a policy that could not be made says so to whoever asks it
            if hasattr(self._server, "offer"):
                self._server.offer(offer)

        async def stats(self) -> Any:
            return self._server.stats() if hasattr(self._server, "stats") else self._server

    return InferenceHost
