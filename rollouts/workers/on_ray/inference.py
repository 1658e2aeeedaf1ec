# SPDX-License-Identifier: Apache-2.0
"""One policy in an actor of its own, asked by all workers: inference as in SEED RL.

`InferenceServer` starts the actor; `remote_policy` has the worker's policy, which asks it once for
each batch. In an asynchronous pool the other environments step while a worker waits.

It is for models that want a GPU which the workers do not have. Small models are much faster in the
workers, as here every batch of observations waits for a call through Ray.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import ray as _typed_ray

from rollouts.machine.torch_threads import threads_for
from rollouts.support.same_release import make_check
from rollouts.workers.offers import WeightOffer
from rollouts.workers.on_ray.ray_session import check_connected
from rollouts.workers.on_ray.remote_policy import Asking, RemotePolicyMaker
from rollouts.workers.policy_requests import BatchRule, PolicyRequest, Reply
from rollouts.workers.policy_server import PolicyServer
from rollouts.workers.worker_config import MakePolicy, PolicySpec
from rollouts.workers.worker_failure import WorkerFailure

if TYPE_CHECKING:
    from rollouts.policy import Policy

# ray annotates only half of what it exports
ray: Any = _typed_ray


class InferenceServer:
    """The driver's end of the actor. Needs a Ray that is connected; any thread.

    The server samples: its policy is seeded once, with `spec.seed`, and draws for each batch in the
    order of its rows. With a single client the samples are exactly those of a policy in the worker;
    with several, the random numbers of each client depend on the order of requests.

    When the process dies, Ray starts it again, at most `max_restarts` times. Requests in flight are
    sent again, as an answer changes no environment; the first one brings the newest weights that
    its worker was offered. The new incarnation samples with another seed.

    A RecurrentPolicy keeps its states here, one per environment, by its env_id. They begin anew
    with each episode and with each incarnation of a worker. With the server's process they are
    lost, so that the workers, too, are started again.
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
        request_timeout_s: float = 120.0,
    ) -> None:
        """Starts the actor; does not wait for it.

        Args:
          make_policy: Called with `spec` in the actor; must pickle. It chooses the device, and may
            call `module.compile()`, which keeps the names of the weights.
          spec: Spec of all environments together; its worker_id has no meaning.
          rule: The rule by which requests become a batch; None for BatchRule().
          num_cpus: CPUs that Ray reserves, and the most threads of torch, see `threads_for`.
          num_gpus: GPUs that Ray reserves; CUDA_VISIBLE_DEVICES of the actor shows only these.
          max_restarts: How often the process is started again after it died.
          request_timeout_s: Seconds a client waits for an answer, restarts included.
        """
        check_connected()
        recipe = ray.cloudpickle.dumps(
            (make_policy, spec, rule or BatchRule(), max(1, int(num_cpus)))
        )
        sys_path = [os.path.abspath(entry) for entry in sys.path]
        # no max_task_retries: clients send requests again themselves, with the weights that they
        # have
        actor_class = ray.remote(
            num_cpus=num_cpus, num_gpus=num_gpus, max_restarts=max_restarts, max_task_retries=0
        )(_make_host_class())
        self._actor = actor_class.remote(sys_path, make_check(), recipe)
        self._timeout_s = request_timeout_s

    @property
    def make_remote_policy(self) -> RemotePolicyMaker:
        """The function that workers take as make_policy; it pickles."""
        return RemotePolicyMaker(self._actor, self._timeout_s)

    def offer(self, offer: WeightOffer) -> None:
        """Sends the server newer weights, which it takes over between batches. Does not wait.

        A request that is made after this call may still arrive before the offer. Without any offer
        the server learns of new weights when the first worker that was offered them asks.
        """
        check_connected()
        self._actor.offer.remote(offer)

    def stats(self, timeout_s: float = 10.0) -> dict[str, int]:
        """Returns PolicyServer.stats of the actor's present incarnation.

        Raises:
          WorkerError: the policy could not be made, the server died or does not answer.
        """
        stats: dict[str, int] = Asking(self._actor, timeout_s).call("stats")
        return stats

    def close(self) -> None:
        """Ends the actor; callers that wait for an answer get a WorkerError. Idempotent."""
        with contextlib.suppress(Exception):
            check_connected()
            ray.kill(self._actor, no_restart=True)


def build_server(recipe: bytes, incarnation: int) -> PolicyServer:
    """Makes the server inside the actor from the pickled arguments of InferenceServer."""
    make_policy, spec, rule, most_threads = pickle.loads(recipe)
    if incarnation:
        seed = np.random.SeedSequence([spec.seed, incarnation]).generate_state(1, np.uint64)[0]
        spec = replace(spec, incarnation=incarnation, seed=int(seed >> np.uint64(1)))
    policy: Policy = make_policy(spec)
    reseed = getattr(policy, "seed", None)
    if callable(reseed):
        reseed(spec.seed)
    torch = sys.modules.get("torch")
    if torch is not None:
        rows = min(spec.num_envs, rule.max_rows)
        torch.set_num_threads(threads_for(policy, rows, most_threads))
    return PolicyServer(policy, rule, incarnation=1 + incarnation)


async def ask(
    server: PolicyServer | WorkerFailure,
    request: PolicyRequest,
    min_version: int,
    offer: WeightOffer | None,
) -> Reply:
    """Answers one request inside the actor; other requests come in meanwhile."""
    if isinstance(server, WorkerFailure):
        return Reply({}, 0, failure=server)
    if offer is not None:
        server.offer(offer)
    return await asyncio.wrap_future(server.submit(request, min_version))


def _make_host_class() -> type:
    """Makes the actor class around PolicyServer, local for the reason given in ray_session."""

    class InferenceHost:
        def __init__(self, sys_path: list[str], check: Any, recipe: bytes) -> None:
            import sys

            sys.path[:] = sys_path + [entry for entry in sys.path if entry not in sys_path]
            # a sentence if the release differs; it is then the answer to every call
            self._server: Any = check()
            if self._server is not None:
                return
            import os

            import ray

            from rollouts.workers.on_ray.inference import build_server
            from rollouts.workers.worker_failure import guarded

            context: Any = ray.get_runtime_context()
            is_restart = context.was_current_actor_reconstructed
            incarnation = 1 + int.from_bytes(os.urandom(4), "big") if is_restart else 0
            self._server = guarded(lambda: build_server(recipe, incarnation))

        async def ask(self, *request: Any) -> Any:
            if isinstance(self._server, str):
                return self._server
            from rollouts.workers.on_ray.inference import ask

            return await ask(self._server, *request)

        async def is_recurrent(self) -> Any:
            return getattr(self._server, "is_recurrent", self._server)

        async def offer(self, offer: Any) -> None:
            # a policy that could not be made answers every request with its error
            if hasattr(self._server, "offer"):
                self._server.offer(offer)

        async def stats(self) -> Any:
            return self._server.stats() if hasattr(self._server, "stats") else self._server

    return InferenceHost
