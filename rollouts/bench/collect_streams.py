# SPDX-License-Identifier: Apache-2.0
"""Our own contestants of `rollouts bench collect`: collectors, and the pool without a policy."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from rollouts import _native
from rollouts.bench.collect_task import Task
from rollouts.bench.own_pools import OneEngine, Rollouts
from rollouts.collecting.collector import Collector
from rollouts.envs.make import make_vec
from rollouts.errors import SpecError

if TYPE_CHECKING:
    from rollouts.workers.on_ray.coordinator import RolloutCoordinator

Array = NDArray[Any]

_PAUSE_TIMEOUT_S = 300.0
_POLL_S = 0.005


class InProcess:
    """A Collector without Ray, on the calling thread."""

    api = "collect"

    def __init__(self, task: Task, engine: Literal["native", "torch"]) -> None:
        """Makes the collector that the worker of `Coordinated` makes, with this engine.

        Raises:
          SpecError: engine is "native", and native code does not compute such a policy.
        """
        from rollouts.workers.worker import build_collector
        from rollouts.workers.worker_config import WorkerConfig

        settings = task.settings
        self.num_envs, self.num_threads = settings.num_envs, settings.num_threads
        self.notes: tuple[str, ...] = ()
        config = WorkerConfig(
            id=settings.id,
            num_envs=settings.num_envs,
            rollout_length=task.rollout_length,
            num_threads=settings.num_threads,
            seed=settings.seed,
            env_options=settings.env_options,
        )
        made = build_collector(config, task.make_policy)
        kind = "native" if engine == "native" else type(made.policy).__name__
        self.name = f"rollouts, {kind}"
        try:
            self._collector = Collector(made.env, made.policy, task.rollout_length, engine=engine)
        except BaseException:
            made.env.close()
            raise

    def version(self) -> str:
        return Rollouts().version()

    def resume(self) -> None:
        self.collect()

    def collect(self) -> int:
        return self._collector.collect().num_steps

    def pause(self) -> None:
        """Does nothing: all work is done during `collect`."""

    def close(self) -> None:
        self._collector.close()


class WithEngine(InProcess):
    """A Collector over environments of another engine of ours."""

    def __init__(self, task: Task, num_envs: int, *, engine: str) -> None:
        """Makes it. Raises SpecError where the id has no such engine."""
        peer = OneEngine(engine)
        settings, spec = peer.instead(task.settings, task.spec)
        settings = dataclasses.replace(settings, num_envs=num_envs, batch_size=num_envs)
        other = dataclasses.replace(task, settings=settings, spec=spec)
        try:
            super().__init__(other, "native")
        except SpecError:  # every pool needs torch for such a policy
            super().__init__(other, "torch")
        self.name = self.name.replace("rollouts", peer.name, 1)


class EnvAlone:
    """The collectors' pool, stepped by `send` and `recv_batch`; the results are dropped."""

    name = "rollouts, env alone"
    api = "send/recv"
    notes: tuple[str, ...] = ("No policy: actions were drawn before, as an untrained one does.",)

    def __init__(self, task: Task) -> None:
        """Makes the pool and starts its episodes."""
        settings = task.settings
        self.num_envs, self.num_threads = settings.num_envs, settings.num_threads
        self._actions = drawn_actions(task)
        options: dict[str, Any] = dict(settings.env_options)
        self._env = make_vec(
            settings.id,
            settings.num_envs,
            num_threads=settings.num_threads,
            seed=settings.seed,
            autoreset_mode="same_step",
            **options,
        )
        self._env.async_reset()
        self._env.recv_batch()

    def version(self) -> str:
        return Rollouts().version()

    def resume(self) -> None:
        self.collect()

    def collect(self) -> int:
        send, recv = self._env.send, self._env.recv_batch
        for actions in self._actions:
            send(actions)
            recv()
        return len(self._actions) * self.num_envs

    def pause(self) -> None:
        """Does nothing: every step is over when `collect` returns."""

    def close(self) -> None:
        self._env.close()


class PlainStream:
    """A C++ loop over our own light environments: one thread, no pool, no policy."""

    name = "plain C++ loop"
    api = "step"
    notes: tuple[str, ...] = ("One thread; the row that begins an episode counts as a step.",)

    def __init__(self, task: Task) -> None:
        """Makes the environments.

        Raises:
          SpecError: There is no such loop over this environment.
        """
        settings, spec = task.settings, task.spec
        self.num_envs, self.num_threads = settings.num_envs, 1
        limit, seed = spec.max_episode_steps or 0, settings.seed % 2**64
        self._env = _native.PlainLoop(spec.id, spec.options, self.num_envs, limit, seed)
        self._actions = drawn_actions(task)
        self._env.reset()

    def version(self) -> str:
        return Rollouts().version()

    def resume(self) -> None:
        self.collect()

    def collect(self) -> int:
        for actions in self._actions:
            self._env.step(actions)
        return len(self._actions) * self.num_envs

    def pause(self) -> None:
        """Does nothing: every step is over when `collect` returns."""

    def close(self) -> None:
        """Does nothing: it holds only memory."""


class Coordinated:
    """One Ray worker, its fragments taken by `RolloutCoordinator.get`."""

    name = "rollouts, Ray worker"
    api = "get"
    notes: tuple[str, ...] = (
        "The worker's pool has `threads` threads; the caller only receives.",
        "In a Ray that was there before, the worker has niceness 15 unless it was started with "
        "RAY_worker_niceness=0: on a busy machine this ratio then tells little.",
    )

    def __init__(self, task: Task) -> None:
        """Starts the worker, and Ray if there is none."""
        from rollouts import RolloutCoordinator

        settings = task.settings
        # first, so that an error in the policy leaves no coordinator behind
        weights = task.local_policy(settings.num_envs).weights()
        self.num_envs, self.num_threads = settings.num_envs, settings.num_threads
        self._coordinator: RolloutCoordinator = RolloutCoordinator(
            settings.id,
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
        # fragments that waited in the queue took no time, so they are not part of a steady stream
        for _ in range(self._coordinator.stats()["queue_depth"] + 1):
            self.collect()

    def collect(self) -> int:
        return self._coordinator.get(timeout_s=_PAUSE_TIMEOUT_S).num_steps

    def pause(self) -> None:
        # the worker stops by itself when all its credits are in the queue; "none in flight" is no
        # sign of that, because it also holds between taking a fragment and the next request
        deadline_s = time.monotonic() + _PAUSE_TIMEOUT_S
        while not self._is_full():
            while self._is_lost():
                self.collect()  # the remaining fragments, and then the worker's error
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


def drawn_actions(task: Task) -> list[Array]:
    """Draws a rollout's T batches (B, *action_shape) as an untrained policy does.

    They are uniform for Discrete, and for a Box normal with a deviation of 1, clipped. The actions
    matter, because an engine's work depends on the forces.
    """
    settings, space = task.settings, task.spec.single_action_space
    batched = batch_space(space, settings.num_envs)
    if not isinstance(batched, spaces.Box):
        batched.seed(settings.seed % 2**32)
        return [np.asarray(batched.sample()) for _ in range(task.rollout_length)]
    random = np.random.default_rng(settings.seed % 2**32)
    normal = random.standard_normal((task.rollout_length, *batched.shape))
    return list(normal.clip(batched.low, batched.high).astype(batched.dtype))
