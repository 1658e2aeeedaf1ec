# SPDX-License-Identifier: Apache-2.0
"""The common part of training from a replay: workers that explore, shards, the loop, outputs."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import rollouts
from common.progress import report
from common.training import Run, Trained, make_run, spec_of
from rollouts.replay import (
    ReplayService,
    SampleToInsertRatio,
    Sequences,
    TableConfig,
    stack_num,
)
from rollouts.replay.config import ItemKind
from rollouts.replay.sampling import ReplayBatch
from rollouts.workers import CollectOptions, PolicySpec, QueueLimits, WeightTransport


class ReplayLearner(Trained, Protocol):
    """A learner from samples of a replay."""

    @property
    def policy_state(self) -> tuple[NDArray[Any], ...]:
        """Examples of one environment's recurrent state; () without memory."""
        ...

    def learn(self, batch: ReplayBatch, *, learning_rate: float) -> tuple[Tensor, dict[str, Any]]:
        """Takes one gradient step; returns the items' new priorities (B,) and what to log."""
        ...


@dataclass(frozen=True, slots=True)
class EpsilonGreedy:
    """The action of highest value or, with the environment's epsilon as probability, any action."""

    epsilon: Tensor  # (num_envs,) of one worker
    start: int  # the action space's first action
    dtype: Any

    def sample(self, params: Any, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Chooses actions (B,) for the values (B, A) of all environments in order."""
        (values,) = params
        greedy = values.argmax(-1)
        random = torch.randint(values.shape[1], greedy.shape, generator=generator)
        explores = torch.rand(greedy.shape, generator=generator) < self.epsilon
        return torch.where(explores, random, greedy) + self.start, torch.zeros(len(greedy))

    def evaluate(self, params: Any, action: Tensor) -> tuple[Tensor, Tensor]:
        """Refuses: nothing here learns from the probability of an action."""
        raise NotImplementedError("epsilon-greedy actions are learnt by their value")


def epsilons(num_envs: int, *, base: float = 0.4, alpha: float = 7.0) -> NDArray[np.float32]:
    """Returns the exploration rates of all environments, as in Horgan et al. 2018 (Ape-X)."""
    rank = np.arange(num_envs) / max(1, num_envs - 1)
    return (base ** (1 + alpha * rank)).astype(np.float32)


def explore(policy: rollouts.TorchPolicy, spec: PolicySpec, total_envs: int) -> None:
    """Makes a worker's policy explore in each environment with its rate of `epsilons`."""
    own = epsilons(total_envs)[spec.env_id_offset :][: spec.num_envs]
    space: Any = spec.single_action_space
    policy.head = EpsilonGreedy(torch.from_numpy(own), int(space.start), space.dtype)


def add_replay_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options that `run` reads, except those of `run_parser` and samples_per_insert."""
    add = parser.add_argument
    add("--num-shards", type=int, default=2, help="Ray actors of the replay; 0: in this process")
    add("--num-envs", type=int, default=8, help="environments per worker")
    add("--rollout-length", type=int, default=32, help="steps per environment and fragment")
    add("--total-steps", type=int, default=500_000, help="env-steps to train for at most")
    add("--target-return", type=float, help="stop at this mean return of 100 episodes")
    add("--learning-rate", type=float, default=1e-3, help="of Adam")
    add("--anneal", action=argparse.BooleanOptionalAction, default=True, help="the rate falls to 0")
    add("--gamma", type=float, default=0.99, help="discount per step")
    add("--n-step", type=int, default=5, help="rewards before a value stands in for the rest")
    add("--replay-size", type=int, default=100_000, help="items in all shards together")
    add("--min-size", type=int, default=1_000, help="items before the first update")
    add("--batch-size", type=int, default=256, help="items per update")
    add("--priority-exponent", type=float, default=0.6, help="0: uniform")
    add("--beta", type=float, default=0.4, help="of the importance weights")
    add("--publish-interval", type=int, default=10, help="updates between two sets of weights")
    add("--save-replay", action="store_true", help="a checkpoint has what the replay holds, too")


def add_greedy_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of programs that act by `explore` and learn the values of all actions."""
    add = parser.add_argument
    add("--samples-per-insert", type=float, default=8.0, help="times an item is learnt from")
    add("--greedy-epsilon", type=float, default=0.02, help="whose episodes count: explore less")
    add("--target-interval", type=int, default=100, help="updates between two target networks")
    add("--max-grad-norm", type=float, default=10.0, help="gradients are scaled down to this")


def explores_little(args: argparse.Namespace) -> NDArray[np.bool_]:
    """Marks the environments, by env_id, that explore so little that their episodes count."""
    epsilon = epsilons(max(1, args.num_workers) * args.num_envs)
    return epsilon <= max(args.greedy_epsilon, epsilon.min())


def make_table(args: argparse.Namespace, items: ItemKind, *, tolerance: float = 0.1) -> TableConfig:
    """Returns the table that the options describe; its ratio has a margin of some batches.

    Args:
      args: as `run`.
      items: kind of the table's items.
      tolerance: how far inserts or samples may run ahead, as a share of the items at min_size; at
        least the items under way.
    """
    per_insert = args.samples_per_insert
    period = items.step if isinstance(items, Sequences) else 1
    # a short run learns, too, and ends at its last step
    min_size = min(args.min_size, max(1, args.total_steps // (2 * period)))
    if min_size < args.min_size:
        print(
            f"--min-size {args.min_size:,} is more than half of the items that --total-steps "
            f"{args.total_steps:,} gives: learning begins after {min_size:,}",
            file=sys.stderr,
        )
    # two fragments are on their way to each shard
    coming = 2 * max(1, args.num_shards) * args.num_envs * args.rollout_length / period
    # the batch in use and those drawn ahead are sampled early
    slack = max(tolerance * per_insert * min_size, 4 * args.batch_size + per_insert * coming)
    return TableConfig(
        items=items,
        max_size=args.replay_size,
        sampler="prioritized" if args.priority_exponent else "uniform",
        exponent=args.priority_exponent,
        limiter=SampleToInsertRatio(per_insert, min_size, slack),
    )


def run(
    args: argparse.Namespace,
    make_learner: Callable[[argparse.Namespace], ReplayLearner],
    make_policy: Callable[[PolicySpec], rollouts.Policy],
    table: TableConfig,
    *,
    kind: str,
    title: str,
    counts: NDArray[np.bool_] | None = None,
    queue: QueueLimits = QueueLimits(),
    training_type: type[ReplayTraining] | None = None,
) -> int:
    """Trains until the target, the last env-step or Ctrl-C, and saves the results.

    Args:
      args: arguments with the options of `run_parser` and `add_replay_arguments`.
      make_learner: called once.
      make_policy: called in each worker.
      table: table of the replay.
      kind: kind of the checkpoint: the program and its version.
      title: title of the plot.
      counts: (N,) of all environments, by env_id: whether their episodes count; None: all.
      queue: see `rollouts.RolloutCoordinator`; credits_per_worker=1 collects with newer weights.
      training_type: maker of the ReplayTraining, for a program with a subclass.
    Returns:
      the exit status: 0, 1 where the target was missed, or 130 after Ctrl-C.
    """
    make_training = training_type or ReplayTraining
    training = make_run(
        args,
        lambda: make_training(args, make_learner(args), make_policy, kind=kind, counts=counts),
    )
    spec = spec_of(args)
    # a resumed run plays other episodes than those it was trained with
    seeds = np.random.SeedSequence((args.seed, training.progress.updates)).generate_state(2)

    def train(stop: Event) -> None:
        with (
            rollouts.RolloutCoordinator(
                args.env_id,
                make_policy,
                env_options=dict(args.option),
                num_workers=args.num_workers,
                num_envs_per_worker=args.num_envs,
                rollout_length=args.rollout_length,
                num_threads_per_worker=args.num_threads,
                seed=int(seeds[0]),
                ray_address=args.ray_address,
                queue=queue,
                weights=WeightTransport(first_version=training.progress.policy_version),
                collect=CollectOptions(keep_final_obs=True),
            ) as coordinator,
            ReplayService(
                coordinator,
                spec.single_observation_space,
                spec.single_action_space,
                table,
                num_shards=args.num_shards,
                stack_num=stack_num(spec),
                policy_state=training.learner.policy_state,
                seed=int(seeds[1]),
                ray_address=args.ray_address,
            ) as replay,
        ):
            training.loop(coordinator, replay, stop)

    return training.run(train, title)


class ReplayTraining(Run):
    """A run that learns from a replay, which holds parts of many rollouts."""

    def __init__(
        self,
        args: argparse.Namespace,
        learner: ReplayLearner,
        make_policy: Callable[[PolicySpec], rollouts.Policy],
        *,
        kind: str,
        counts: NDArray[np.bool_] | None = None,
    ) -> None:
        super().__init__(args, learner, make_policy, kind=kind)
        self.learner = learner
        self.num_updates = 0  # in this process
        self.began_at = replace(self.progress)
        self.first_stats: dict[str, Any] = {}  # the replay's counts when this process began
        self.replay_dir: Path = self.dir / "replay"
        # the return of an environment that mostly explores says little about the policy
        self._counts = counts

    def loop(
        self, coordinator: rollouts.RolloutCoordinator, replay: ReplayService, stop: Event
    ) -> None:
        """Learns until the target, the last env-step or `stop`, saving now and then."""
        args, progress = self.args, self.progress
        writer, bar = self.make_writer(), self.make_bar()
        if args.resume and self.replay_dir.is_dir():
            replay.load(self.replay_dir)
        # counts of a loaded replay include those of earlier processes
        self.first_stats = replay.stats()
        before = self.first_stats["steps"]["inserted"] - progress.env_steps
        start = time.perf_counter() - progress.seconds
        next_save = progress.seconds + args.checkpoint_interval_s
        self.share_statistics(coordinator)
        coordinator.publish_weights(self.learner.policy.weights())

        def stats() -> dict[str, Any]:
            return {**coordinator.stats(), "tables": replay.stats()["tables"]}

        sampling = self.sampling(replay)
        with bar, writer, self.make_reporter(stats, writer), sampling as sample:
            while not (self.is_finished() or stop.is_set()):
                # workers and shards work while the learner does
                policy_lag, logs = self.learn(sample, replay)
                coordinator.publish_weights(self.learner.policy.weights())

                self.statistics = coordinator.statistics
                ended, self.stats = replay.take_episodes(), replay.stats()
                inserted = self.stats["steps"]["inserted"] - before - progress.env_steps
                counts = slice(None) if self._counts is None else self._counts[ended.env_id]
                seconds = time.perf_counter() - start
                progress.add(
                    inserted, ended.returns[counts], seconds=seconds, policy_lag=policy_lag
                )
                report(progress, logs, bar=bar, writer=writer)
                if progress.seconds >= next_save or self.is_finished() or stop.is_set():
                    writer.flush()  # the logs never have less than the checkpoint
                    self.save()
                    if args.save_replay:
                        replay.save(self.replay_dir)
                    next_save = time.perf_counter() - start + args.checkpoint_interval_s

    @contextmanager
    def sampling(self, replay: ReplayService) -> Iterator[Callable[[], ReplayBatch]]:
        """Yields a function that returns the next batch; with workers, batches are drawn ahead."""
        args = self.args
        options = {"beta": args.beta, "device": args.device}
        if args.num_workers:
            with replay.prefetch(args.batch_size, **options) as batches:
                yield batches.get
        else:
            # without workers sampling also collects, which the publishing thread has to do
            yield lambda: replay.sample(args.batch_size, **options)

    def learn(
        self, sample: Callable[[], ReplayBatch], replay: ReplayService
    ) -> tuple[float, dict[str, float]]:
        """Takes the gradient steps between two sets of weights; returns policy lag and logs."""
        args = self.args
        remaining = max(0.0, 1 - self.progress.env_steps / args.total_steps) if args.anneal else 1.0
        lags, logs = [], {}
        for _ in range(args.publish_interval):
            batch = sample()
            rate = args.learning_rate * remaining
            priorities, logs = self.learner.learn(batch, learning_rate=rate)
            if args.priority_exponent:
                replay.update_priorities(batch.key, priorities)
            lags.append(batch.policy_lag.float().mean())
        self.num_updates += args.publish_interval
        return float(torch.stack(lags).mean()), {name: float(log) for name, log in logs.items()}

    def summary(self) -> str:
        """One line about the replay, and one about the whole run."""
        args, progress = self.args, self.progress
        seconds = max(progress.seconds - self.began_at.seconds, 1e-9)
        rate = (progress.env_steps - self.began_at.env_steps) / seconds
        of_whom = "" if self._counts is None else " with little exploration"
        line = (
            f"{args.env_id}: {self.result()}{of_whom}, {progress.env_steps:,} env-steps in "
            f"{progress.seconds:.1f} s of training ({rate:,.0f} env-steps/s); outputs in {self.dir}"
        )
        if not self.stats:
            return line
        (table,), (first,) = (s["tables"].values() for s in (self.stats, self.first_stats))
        return (
            f"replay: {self.num_updates * args.batch_size / seconds:,.0f} samples/s, "
            f"{(table['inserts'] - first['inserts']) / seconds:,.0f} inserts/s, "
            f"{table['size']:,} items in {self.stats['memory']['used_bytes'] / 2**20:,.1f} MiB, "
            f"{table['samples_per_insert']:.2f} samples per insert, "
            f"{self.stats['shard_restarts']} shard restarts\n{line}"
        )
