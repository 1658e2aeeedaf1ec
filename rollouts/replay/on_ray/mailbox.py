# SPDX-License-Identifier: Apache-2.0
"""The mailbox of a ReplayService: an actor that passes on clients' questions and the answers.

Ray cannot call a driver, so the driver asks: the mailbox keeps clients' questions until the
service's process takes them. Only numbers pass here; items come from the shards, which clients find
by name.
"""

from __future__ import annotations

import contextlib
import pickle
import uuid
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import ray as _typed_ray

from rollouts.errors import ClosedError, RolloutsError, WorkerError
from rollouts.replay.clients.asking import Ask, UnreachableError
from rollouts.replay.shards.shard import FragmentLostError, ShardLostError
from rollouts.workers.on_ray.futures import as_future

ray: Any = _typed_ray

# Ray's namespace of the mailbox and of the shards; names are unique in it
NAMESPACE = "rollouts"
_MOST_CALLS = 10_000  # calls that may wait in the mailbox, one per client


class RayMailbox:
    """The service's end, see Mailbox. The actor is on this machine, if Ray has room here."""

    def __init__(self) -> None:
        """Starts the actor; does not wait for it."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        _check_connected()
        self._name = f"replay-desk-{uuid.uuid4().hex}"
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
        self._actor = (
            ray.remote(_make_mailbox_class())
            .options(
                name=self._name,
                namespace=NAMESPACE,
                num_cpus=0,
                max_concurrency=_MOST_CALLS,
                max_restarts=-1,
                max_task_retries=0,
                scheduling_strategy=here,
            )
            .remote()
        )

    def take(self) -> Future[Sequence[tuple[Any, Ask]]]:
        """See Mailbox."""

        def opened(asks: Any) -> Any:
            return [(number, pickle.loads(ask)) for number, ask in asks]

        _check_connected()
        return as_future(self._actor.take.remote(), _unreachable, opened)

    def answer(self, answers: Sequence[tuple[Any, Any]]) -> None:
        """See Mailbox."""
        _check_connected()
        self._actor.answer.remote([(number, _pickled(answer)) for number, answer in answers])

    def link(self) -> RayLink:
        """See Mailbox."""
        return RayLink(self._name)

    def close(self) -> None:
        """See Mailbox."""
        with contextlib.suppress(Exception):
            _check_connected()
            ray.kill(self._actor, no_restart=True)


class RayLink:
    """A client's end, see Link, in any process of the same Ray."""

    def __init__(self, name: str) -> None:
        """Takes the mailbox's name; connects at the first question."""
        self._name = name
        self._actors: dict[str, Any] = {}

    def __reduce__(self) -> Any:
        return RayLink, (self._name,)

    def ask(self, ask: Ask) -> Future[Any]:
        """See Link."""
        try:
            desk = self._find(self._name)
        except ValueError:
            raise ClosedError("the replay service is closed, or its process ended") from None

        def failed(error: BaseException) -> BaseException:
            # it was started again or is gone; the next attempt finds out which
            self._actors.pop(self._name, None)
            return _unreachable(error)

        return as_future(desk.ask.remote(pickle.dumps(ask)), failed, pickle.loads)

    def call(self, actor: str, method: str, *args: Any) -> Future[Any]:
        """See Link."""
        try:
            shard = self._find(actor)
        except ValueError as error:
            lost: Future[Any] = Future()
            lost.set_exception(ShardLostError(str(error)))
            return lost

        def failed(error: BaseException) -> BaseException:
            self._actors.pop(actor, None)
            return shard_error(error)

        return as_future(shard.call.remote(method, *args), failed)

    def _find(self, name: str) -> Any:
        """Returns an actor's handle; ValueError where it is dead."""
        _check_connected()
        if name not in self._actors:
            self._actors[name] = ray.get_actor(name, namespace=NAMESPACE)
        return self._actors[name]


def shard_error(error: BaseException) -> BaseException:
    """Turns the error of a failed call into one for callers, with the shard's own traceback."""
    if isinstance(error, ray.exceptions.ObjectLostError):
        # an argument or the result was lost with its node
        return FragmentLostError(str(error))
    if isinstance(error, ray.exceptions.RayActorError):
        return ShardLostError(str(error))
    if isinstance(error, ray.exceptions.RayTaskError):
        # the shard's method raised it
        cause = error.cause
        if isinstance(cause, RolloutsError | MemoryError | OSError):
            cause.add_note(str(error))
            return cause
        failure = WorkerError(f"a shard failed with {type(cause).__name__}: {cause}")
        failure.__cause__ = error
        return failure
    return error


def _unreachable(error: BaseException) -> BaseException:
    return UnreachableError(f"the replay service cannot be reached at present: {error}")


def _pickled(answer: Any) -> bytes:
    try:
        return pickle.dumps(answer)
    except Exception:
        # exceptions of some libraries cannot be pickled
        return pickle.dumps(WorkerError(f"{type(answer).__name__}: {answer}"))


def _check_connected() -> None:
    if not ray.is_initialized():
        raise WorkerError(
            "this process is not connected to Ray: call ray.init(address=...) with the address of "
            "the service's Ray before sampling"
        )


def _make_mailbox_class() -> type:
    """Makes the actor class, which needs only Python; local for the reason given in ray_session."""

    class ReplayMailbox:
        def __init__(self) -> None:
            import asyncio
            import uuid

            # a new one after a restart: answers to the former incarnation are dropped
            self._incarnation = uuid.uuid4().hex
            self._count = 0
            self._asks: list[Any] = []
            self._waiting: dict[Any, Any] = {}
            self._has_asks = asyncio.Event()

        async def ask(self, ask: bytes) -> Any:
            import asyncio

            self._count += 1
            number = (self._incarnation, self._count)
            self._waiting[number] = answer = asyncio.get_running_loop().create_future()
            self._asks.append((number, ask))
            self._has_asks.set()
            return await answer

        async def take(self) -> Any:
            await self._has_asks.wait()
            self._has_asks.clear()
            asks, self._asks = self._asks, []
            return asks

        async def answer(self, answers: Any) -> None:
            for number, answer in answers:
                waiting = self._waiting.pop(number, None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(answer)

    return ReplayMailbox
