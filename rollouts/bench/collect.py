# SPDX-License-Identifier: Apache-2.0
"""Measures what a learner receives: through a Ray worker, in process, and from others' runners.

Behind `rollouts bench-collect`. The ratio of the first two is what the coordinator costs.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from rollouts.bench.measurement import Comparison, Measurement, Settings
from rollouts.bench.peers import Rollouts
from rollouts.errors import EngineError, SpecError
from rollouts.pool.registry import env_spec
from rollouts.specs import EnvSpec
from rollouts.support.extras import needs

if TYPE_CHECKING:
    from rollouts.bench.policies import PolicyKind
    from rollouts.cluster.coordinator import RolloutCoordinator
    from rollouts.distributed.worker import MakePolicy
    from rollouts.policy import Policy

_log = logging.getLogger(__name__)

COUNTING = (
    "One env-step is one action and its outcome, received by the calling process. us/call is the "
    "time of one step of all environments with its share of everything else. Each library works "
    "only in its own turns, from its steady state, with a policy network of the same size."
)

COLLECT_PEERS = ("env-actors", "tianshou", "rllib", "rllib-actors")

_PAUSE_TIMEOUT_S = 300.0
_POLL_S = 0.005


@dataclass(frozen=True, slots=True)
class Task:
    """What every stream collects.

    Attributes:
      settings: Environment, sizes and time; batch_size is num_envs.
      spec: Of the environment with its options.
      rollout_length: Steps T of each environment per rollout.
      policy: "network" or "random", see `policies.make_policy`.
    """

    settings: Settings
    spec: EnvSpec
    rollout_length: int
    policy: PolicyKind

    @property
    def make_policy(self) -> MakePolicy:
        """Makes the policy in whichever process it is called; pickles."""
        from rollouts.bench.policies import make_policy

        return functools.partial(make_policy, kind=self.policy)

    def local_policy(self, num_envs: int) -> Policy:
        """The policy of `num_envs` environments, in this process."""
        from rollouts.distributed.worker import PolicySpec

        return self.make_policy(
            PolicySpec(
                env_id=self.spec.id,
                single_observation_space=self.spec.single_observation_space,
                single_action_space=self.spec.single_action_space,
                num_envs=num_envs,
                env_id_offset=0,
                worker_id=0,
                incarnation=0,
                seed=self.settings.seed,
            )
        )


class Stream(Protocol):
    """A source of rollouts that runs only between `resume` and `pause`."""

    name: str
    api: str
    notes: tuple[str, ...]
    num_envs: int
    num_threads: int

    def version(self) -> str:
        """Of the library."""
        ...

    def resume(self) -> None:
        """Starts collecting, and returns in the steady state."""
        ...

    def collect(self) -> int:
        """Waits for the next rollout; returns its env-steps."""
        ...

    def pause(self) -> None:
        """Returns when nothing runs on."""
        ...

    def close(self) -> None:
        """Frees processes and environments."""
        ...


class Coordinated:
    """One Ray worker, its fragments taken by `RolloutCoordinator.get`."""

    name = "rollouts, Ray worker"
    api = "get"
    notes: tuple[str, ...] = (
        "The worker's pool and torch have `threads` threads; the caller only receives.",
        "Ray runs workers at niceness 15 unless RAY_worker_niceness says otherwise: on a busy "
        "machine they get less of a CPU than the calling process, and this ratio tells little.",
    )

    def __init__(self, task: Task) -> None:
        """Starts the worker, and Ray if there is none."""
        from rollouts.distributed import RolloutCoordinator

        settings = task.settings
        # first, because what is wrong with the policy must not leave a coordinator behind
        weights = task.local_policy(settings.num_envs).weights()
        self.num_envs, self.num_threads = settings.num_envs, settings.num_threads
        self._coordinator: RolloutCoordinator = RolloutCoordinator(
            settings.env_id,
            task.make_policy,
            num_workers=1,
            num_envs_per_worker=settings.num_envs,
            num_threads_per_worker=settings.num_threads,
            rollout_length=task.rollout_length,
            seed=settings.seed,
            env_options=settings.env_options,
        )
        self._coordinator.publish_weights(weights)

    def version(self) -> str:
        return Rollouts().version()

    def resume(self) -> None:
        # what waited in the queue took no time to come: it is not part of a steady stream
        for _ in range(self._coordinator.stats()["queue_depth"] + 1):
            self.collect()

    def collect(self) -> int:
        return self._coordinator.get(timeout_s=_PAUSE_TIMEOUT_S).num_steps

    def pause(self) -> None:
        # The worker stops by itself when all its credits lie in the queue. Nothing in flight is not
        # enough: between a fragment that was taken and the next request there is nothing either.
        deadline_s = time.monotonic() + _PAUSE_TIMEOUT_S
        while not self._is_full():
            while self._is_lost():
                self.collect()  # what is left, and then the error that says why
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"the worker did not finish within {_PAUSE_TIMEOUT_S} s")
            time.sleep(_POLL_S)

    def close(self) -> None:
        self._coordinator.close()

    def _is_full(self) -> bool:
        stats = self._coordinator.stats()
        fragments = stats["fragments"]
        return not fragments["in_flight"] and fragments["queued"] >= stats["outstanding_limit"]

    def _is_lost(self) -> bool:
        return all(w["state"] == "benched" for w in self._coordinator.stats()["workers"])


class InProcess:
    """The same Collector without Ray, on the calling thread."""

    name = "rollouts, in process"
    api = "collect"
    notes: tuple[str, ...] = ()

    def __init__(self, task: Task) -> None:
        """Makes the collector that the worker of `Coordinated` makes."""
        from rollouts.distributed.worker import WorkerConfig, build_collector

        settings = task.settings
        self.num_envs, self.num_threads = settings.num_envs, settings.num_threads
        config = WorkerConfig(
            env_id=settings.env_id,
            worker_id=0,
            incarnation=0,
            num_envs=settings.num_envs,
            rollout_length=task.rollout_length,
            batch_size=None,
            num_threads=settings.num_threads,
            seed=settings.seed,
            env_options=settings.env_options,
        )
        self._collector = build_collector(config, task.make_policy)

    def version(self) -> str:
        return Rollouts().version()

    def resume(self) -> None:
        self.collect()

    def collect(self) -> int:
        return self._collector.collect().num_steps

    def pause(self) -> None:
        """Nothing runs beside `collect`."""

    def close(self) -> None:
        self._collector.env.close()


def compare_collecting(
    settings: Settings,
    *,
    rollout_length: int,
    policy: PolicyKind = "network",
    peers: Sequence[str] = (),
    peer_num_envs: int | None = None,
    on_progress: Callable[[str], None] | None = None,
) -> Comparison:
    """Measures a Ray worker, the same Collector in process, and peers, taking turns.

    Args:
      settings: What to measure, and for how long; batch_size must be num_envs.
      rollout_length: Steps T of each environment per rollout.
      policy: "network" or "random", see `policies.make_policy`.
      peers: Names of `COLLECT_PEERS`: "env-actors", one Gymnasium environment per Ray actor, all
        stepped by one `ray.get`; "tianshou", its RayVectorEnv; "rllib", its SingleAgentEnvRunner
        with all environments in this process; "rllib-actors", one such runner per environment in
        Ray actors. One whose library is missing is left out, and a warning says so.
      peer_num_envs: Environments of each peer; None for num_envs.
      on_progress: Called with a short line before each turn.

    Returns:
      One measurement per stream, the Ray worker first, so that `ratio` of the second is 1 over
      the part of the speed that the coordinator leaves.

    Raises:
      SpecError: Unknown id or option, or a setting that a peer does not have.
      EngineError: The environment's engine is not installed.
    """
    _check(settings, rollout_length, peers, peer_num_envs)
    options: dict[str, Any] = dict(settings.env_options)
    spec = env_spec(settings.env_id, **options)
    task = Task(settings, spec, rollout_length, policy)
    with ExitStack() as stack:
        stack.enter_context(_torch_threads(settings.num_threads))

        def opened(make: Callable[[], Stream]) -> Stream:
            stream = make()
            stack.callback(stream.close)
            return stream

        streams = [opened(lambda: Coordinated(task)), opened(lambda: InProcess(task))]
        for name in dict.fromkeys(peers):
            try:
                streams.append(opened(functools.partial(_open_peer, name, task, peer_num_envs)))
            except EngineError as error:
                _log.warning("not measured: %s", error)
        measurements = measure_streams(
            streams,
            rollout_length=rollout_length,
            duration_s=settings.duration_s,
            repeats=settings.repeats,
            options={"rollout_length": rollout_length, "policy": policy},
            on_progress=on_progress and (lambda line: on_progress(f"{settings.env_id}, {line}")),
        )
    return Comparison(settings, spec.options, tuple(measurements))


def measure_streams(
    streams: Sequence[Stream],
    *,
    rollout_length: int,
    duration_s: float,
    repeats: int,
    options: dict[str, Any],
    on_progress: Callable[[str], None] | None = None,
) -> list[Measurement]:
    """Measures open streams, taking turns; leaves them paused.

    Args:
      streams: Streams that are paused.
      rollout_length: Steps T of each environment per `collect`.
      duration_s: About how long one repeat of one stream takes.
      repeats: Turns of each stream.
      options: What to note with each measurement.
      on_progress: Called with a short line before each turn.

    Returns:
      One measurement per stream.
    """
    report = on_progress or (lambda line: None)
    rollouts = []
    for stream in streams:
        report(f"{stream.name}: warm-up")
        stream.resume()
        rollouts.append(_rollouts_within(stream, duration_s))
        stream.pause()
    elapsed_s: list[list[float]] = [[] for _ in streams]
    for repeat in range(repeats):
        for index, stream in enumerate(streams):
            report(f"{stream.name}: repeat {repeat + 1} of {repeats}")
            stream.resume()
            elapsed_s[index].append(_timed(stream, rollouts[index], rollout_length))
            stream.pause()
    return [
        Measurement(
            library=stream.name,
            version=stream.version(),
            batch_size=stream.num_envs,
            num_threads=stream.num_threads,
            api=stream.api,
            calls=rollouts[index] * rollout_length,
            elapsed_s=tuple(elapsed_s[index]),
            options=options,
            notes=stream.notes,
        )
        for index, stream in enumerate(streams)
    ]


def _rollouts_within(stream: Stream, duration_s: float) -> int:
    """Rollouts that take about `duration_s`, at least one."""
    count, started = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - started) < duration_s / 2 or not count:
        stream.collect()
        count += 1
    return max(1, round(duration_s * count / elapsed))


def _timed(stream: Stream, rollouts: int, rollout_length: int) -> float:
    """Seconds that the env-steps of `rollouts` take, at the speed at which they came."""
    started = time.perf_counter()
    num_steps = sum(stream.collect() for _ in range(rollouts))
    elapsed = time.perf_counter() - started
    # RLlib rounds the number it was asked for up, and only what came is counted
    return elapsed * (rollouts * rollout_length * stream.num_envs) / num_steps


def _open_peer(name: str, task: Task, num_envs: int | None) -> Stream:
    # these import ray
    with needs("ray", f"peer {name!r}"):
        from rollouts.bench import ray_peers

    makers: dict[str, Callable[[Task, int], Stream]] = {
        "env-actors": ray_peers.EnvActors,
        "tianshou": ray_peers.TianshouEnvs,
        "rllib": ray_peers.RLlibRunner,
        "rllib-actors": ray_peers.RLlibActors,
    }
    return makers[name](task, num_envs or task.settings.num_envs)


def _check(
    settings: Settings, rollout_length: int, peers: Sequence[str], peer_num_envs: int | None
) -> None:
    if settings.is_async:
        raise SpecError(
            f"batch_size is {settings.batch_size} with num_envs {settings.num_envs}, expected "
            "equal numbers: collecting is measured with synchronous pools"
        )
    for name, value in (("rollout_length", rollout_length), ("peer_num_envs", peer_num_envs)):
        if value is not None and value < 1:
            raise SpecError(f"{name} is {value}, expected at least 1")
    for peer in peers:
        if peer not in COLLECT_PEERS:
            raise SpecError(f"peer is {peer!r}, expected one of {COLLECT_PEERS}")


@contextmanager
def _torch_threads(num_threads: int) -> Iterator[None]:
    """Gives torch in this process as many threads as the worker's may have."""
    with needs("torch", "`rollouts bench-collect`"):
        import torch

    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
