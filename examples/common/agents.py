# SPDX-License-Identifier: Apache-2.0
"""Environments with several agents, ours or the user's own, stepped here or by Ray workers."""

from __future__ import annotations

import argparse
import functools
import importlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event
from typing import Any

from gymnasium import spaces

import rollouts
from common.stopping import next_batch
from rollouts.workers import CollectOptions, PolicySpec, QueueLimits
from rollouts.workers.worker_config import WorkerConfig

# input of an update: group -> the batch of its agents
Batches = Mapping[str, rollouts.RolloutBatch]


@dataclass(frozen=True)
class AgentEnvs:
    """The environments that are stepped; pickled for workers.

    Attributes:
      name: an id of ours, or a name for the user's function.
      options: options of the id, or keyword arguments of the function.
      function: makes one PettingZoo ParallelEnv; None: `name` is an id.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    function: Callable[..., Any] | None = None

    def make(self, num_envs: int, *, num_threads: int | None, seed: int, first: int = 0) -> Any:
        """Makes a batch of them, whose first one has env_id `first`; the caller closes it."""
        common = {"seed": seed, "autoreset_mode": "same_step", "env_id_offset": first}
        if self.function is None:
            return rollouts.make_multi_agent_vec(
                self.name, num_envs, num_threads=num_threads, **common, **self.options
            )
        # with one thread, this process steps them itself, as with a native pool
        processes = 0 if num_threads == 1 else num_threads and min(num_threads, num_envs)
        one = functools.partial(self.function, **self.options)
        return rollouts.from_parallel_env_fns([one] * num_envs, num_processes=processes, **common)

    def make_for_worker(self, config: WorkerConfig) -> Any:
        """Makes the environments of a Ray worker."""
        return self.make(
            config.num_envs,
            num_threads=config.num_threads,
            seed=config.env_seed,
            first=config.env_id_offset,
        )

    def groups(self) -> dict[str, rollouts.AgentGroup]:
        """The agents of an environment, by group.

        Raises:
          ValueError: an agent's observation is not one array.
        """
        if self.function is None:
            found = {one.name: one for one in self._spec().groups}
        else:
            with self.make(1, num_threads=1, seed=0) as env:
                found = dict(env.groups)
        for group in found.values():
            space = group.single_observation_space
            if not isinstance(space, spaces.Box):
                raise ValueError(
                    f"agents of the group {group.name!r} observe {space}, expected a Box: flatten "
                    "it by a wrapper, as PettingZoo's and SuperSuit's do"
                )
        return found

    @property
    def max_episode_steps(self) -> int | None:
        """Time limit of an id; None where it is unknown."""
        return self._spec().max_episode_steps if self.function is None else None

    def _spec(self) -> rollouts.EnvSpec:
        return rollouts.env_spec(self.name, **dict(self.options))


def own_env(text: str) -> tuple[str, Callable[..., Any]]:
    """Reads MODULE:FUNCTION, which makes a PettingZoo ParallelEnv; for argparse."""
    module, colon, name = text.partition(":")
    if not (module and colon and name):
        raise argparse.ArgumentTypeError(
            f"expected MODULE:FUNCTION such as mpe2.simple_spread_v3:parallel_env, got {text!r}"
        )
    # a module in the current folder is found, as with `python -m`
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise argparse.ArgumentTypeError(
            f"{text} cannot be imported ({error}): name a module in this directory, or one that is "
            "installed, and a function of it"
        ) from error
    if not callable(function):
        raise argparse.ArgumentTypeError(f"{text} is {function!r}, expected a function")
    return text, function


@contextmanager
def collecting(
    envs: AgentEnvs,
    args: argparse.Namespace,
    policies: Mapping[str, rollouts.TorchPolicy],
    make_policy: Callable[[PolicySpec], rollouts.TorchPolicy],
    *,
    seed: int,
    stop: Event,
) -> Iterator[Callable[[], Batches | None]]:
    """Yields a function that returns the next rollouts of all workers; None once `stop` is set.

    Args:
      envs: the environments.
      args: num_workers, num_envs of each worker, rollout_length, num_threads, ray_address.
      policies: group -> the policy that is trained. Without workers it acts itself; workers get
        its weights when they begin a rollout.
      make_policy: called in each worker.
      seed: seed of the environments.
      stop: ends the wait for workers.
    """
    if not args.num_workers:
        with envs.make(args.num_envs, num_threads=args.num_threads, seed=seed) as env:
            yield rollouts.Collector(env, dict(policies), args.rollout_length).collect
        return
    own = envs.function is not None
    with rollouts.RolloutCoordinator[rollouts.MultiAgentRollout](
        envs.name,
        make_policy,
        env_options={} if own else dict(envs.options),
        num_workers=args.num_workers,
        num_envs_per_worker=args.num_envs,
        rollout_length=args.rollout_length,
        num_threads_per_worker=args.num_threads or 1,
        seed=seed,
        ray_address=args.ray_address,
        # one rollout ahead of the learner is enough: further ones would only be older
        queue=QueueLimits(credits_per_worker=1),
        collect=CollectOptions(make_env=envs.make_for_worker if own else None),
    ) as coordinator:

        def collect() -> Batches | None:
            coordinator.publish_weights({name: one.weights() for name, one in policies.items()})
            return next_batch(coordinator, stop, args.num_workers)

        yield collect
