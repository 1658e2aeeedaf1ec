# SPDX-License-Identifier: Apache-2.0
"""The common part of training runs: arguments, the loop around the learner, resuming, outputs."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from threading import Event
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

import rollouts
from common.checkpoint import add_resume_arguments, program_of, read_training, resumed_run
from common.plotting import save_training_curves
from common.progress import Progress, report
from common.sinks import add_sink_arguments, make_sinks
from common.stopping import next_batch, stop_on_interrupt
from rollouts.checkpoint import Checkpoint, save_checkpoint
from rollouts.metrics import MetricsReporter
from rollouts.workers import PolicySpec, QueueLimits, WeightTransport

R = TypeVar("R", bound="Run")


class Trained(Protocol):
    """A learner from any kind of data."""

    @property
    def policy(self) -> rollouts.TorchPolicy:
        """The policy whose weights the workers get."""
        ...

    def state(self) -> dict[str, Any]:
        """Everything a checkpoint needs."""
        ...

    def load_state(self, state: dict[str, Any]) -> None:
        """Goes back to a state that `state` returned."""
        ...


class Learner(Trained, Protocol):
    """A learner from rollouts."""

    def update(self, batch: rollouts.RolloutBatch, *, learning_rate: float) -> dict[str, float]:
        """Learns from one batch; returns the values to log."""
        ...


def run_parser(doc: str | None) -> argparse.ArgumentParser:
    """Makes a parser of `run`'s options except num_envs, rollout_length and learning_rate.

    Args:
      doc: docstring of the program; its first paragraph describes the program.
    """
    parser = argparse.ArgumentParser(
        description=(doc or "").partition("\n\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--env-id", default="CartPole-v1", help="any id that `rollouts envs` lists")
    add("--option", action="append", default=[], type=env_option, metavar="KEY=VALUE",
        help="of the environment or a wrapper, such as normalize_observation=true")  # fmt: skip
    add("--num-workers", type=int, default=2, help="Ray workers; 0 samples in this process")
    add("--num-threads", type=int, default=1, help="threads that step environments, per worker")
    add("--seed", type=int, default=1, help="of environments, sampling and initial weights")
    add("--device", default="cpu", help="where the learner's module runs")
    add("--torch-threads", type=int, default=1, help="threads of the learner")
    add("--ray-address", help="cluster to join; by default Ray is started here")
    add("--run-dir", type=Path, help="outputs; by default runs/<env>-<time>")
    add_sink_arguments(parser)
    add_resume_arguments(parser)
    add("--checkpoint-interval-s", type=float, default=60.0, help="seconds between checkpoints")
    return parser


def env_option(text: str) -> tuple[str, Any]:
    """Reads KEY=VALUE; the value is JSON or else text."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"expected KEY=VALUE, got {text!r}")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def spec_of(args: argparse.Namespace) -> rollouts.EnvSpec:
    """Returns the spec of --env-id with each --option."""
    return rollouts.env_spec(args.env_id, **dict(args.option))


def chosen_env_id(argv: list[str] | None, default: str) -> str:
    """Returns --env-id alone: other defaults depend on it, even those in --help."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--env-id", default=default)
    return str(parser.parse_known_args(argv)[0].env_id)


def run(
    args: argparse.Namespace,
    make_learner: Callable[[argparse.Namespace], Learner],
    make_policy: Callable[[PolicySpec], rollouts.Policy],
    *,
    kind: str,
    title: str,
    fragments_per_update: int,
    queue: QueueLimits,
    training_type: type[Training] | None = None,
) -> int:
    """Trains until the target, the last env-step or Ctrl-C, and saves the results.

    Args:
      args: arguments with the options of `run_parser`.
      make_learner: called once.
      make_policy: called in each worker.
      kind: kind of the checkpoint: the program and its version.
      title: title of the plot.
      fragments_per_update: number of workers' rollouts in one batch.
      queue: most rollouts of a worker that are under way or wait for the learner, and their largest
        age.
      training_type: maker of the Training, for a program with a subclass.
    Returns:
      the exit status: 0, 1 where the target was missed, or 130 after Ctrl-C or SIGTERM.
    """
    training = make_run(
        args,
        lambda: (training_type or Training)(args, make_learner(args), make_policy, kind=kind),
    )
    # a resumed run plays other episodes than those it was trained with
    seeds = np.random.SeedSequence((args.seed, training.progress.updates))

    def train(stop: Event) -> None:
        with rollouts.RolloutCoordinator(
            args.env_id,
            make_policy,
            env_options=dict(args.option),
            num_workers=args.num_workers,
            num_envs_per_worker=args.num_envs,
            rollout_length=args.rollout_length,
            num_threads_per_worker=args.num_threads,
            seed=int(seeds.generate_state(1)[0]),
            sync_mode="free_running",
            ray_address=args.ray_address,
            queue=queue,
            weights=WeightTransport(first_version=training.progress.policy_version),
        ) as coordinator:
            training.loop(coordinator, stop, fragments_per_update)

    return training.run(train, title)


def make_run(args: argparse.Namespace, make: Callable[[], R]) -> R:
    """Returns the run that `make` makes; on an error, prints one sentence and ends the program."""
    torch.set_num_threads(args.torch_threads)
    try:
        return make()
    except (ValueError, FileNotFoundError) as error:
        sys.exit(f"error: {error}")


class Run:
    """A training run: its progress, its checkpoint, and the directory of its outputs."""

    def __init__(
        self,
        args: argparse.Namespace,
        trained: Trained,
        make_policy: Callable[[PolicySpec], rollouts.Policy],
        *,
        kind: str,
    ) -> None:
        self.args, self.trained, self.kind = args, trained, kind
        self.made_by = program_of(make_policy)
        self.progress = Progress()
        self.statistics: dict[str, rollouts.RunningStatistics] = {}  # for normalising wrappers
        self.stats: dict[str, Any] = {}  # the coordinator's, at the end of this process's training
        args.resume = resumed_run(args)
        if args.resume:
            state = read_training(args.resume, kind, id=args.env_id, env_options=dict(args.option))
            trained.load_state(state["learner"])
            self.progress = Progress(**state["progress"])
            self.statistics = state["statistics"]
        self.dir = run_dir(args)
        self.dir.mkdir(parents=True, exist_ok=True)

    def run(self, train: Callable[[Event], None], title: str) -> int:
        """Trains until `train` returns or a signal sets its event; returns the exit status."""
        with stop_on_interrupt() as stop:
            try:
                train(stop)
            finally:
                # whatever ended the training, the results are saved
                self.save()
                self.draw(title)
        print(self.summary())
        return 130 if stop.is_set() else self.exit_status()

    def summary(self) -> str:
        """The lines that are printed at the end."""
        raise NotImplementedError

    def make_writer(self) -> SummaryWriter:
        """Returns TensorBoard's writer."""
        # a process that was killed may have logged more than its last checkpoint contains
        return SummaryWriter(self.dir, purge_step=self.progress.env_steps + 1)

    def make_bar(self) -> tqdm[Any]:
        """Returns the progress bar, in env-steps."""
        return tqdm(
            total=self.args.total_steps,
            initial=self.progress.env_steps,
            unit="step",
            unit_scale=True,
            # a log file gets a line at times, a terminal a moving bar
            mininterval=0.1 if sys.stderr.isatty() else 1.0,
        )

    def make_reporter(
        self, stats: Callable[[], dict[str, Any]], writer: SummaryWriter
    ) -> MetricsReporter:
        """Returns a reporter of `stats` for the time of the training."""
        sinks = make_sinks(self.args, self.dir, writer, first_step=self.progress.env_steps)
        return MetricsReporter(stats, sinks)

    def is_finished(self) -> bool:
        """Tells whether the target or the last env-step is reached."""
        args, progress = self.args, self.progress
        return progress.has_reached(args.target_return) or progress.env_steps >= args.total_steps

    def save(self) -> None:
        """Writes the checkpoint."""
        training = {
            "kind": self.kind,
            "learner": self.trained.state(),
            "progress": asdict(self.progress),
        }
        checkpoint = Checkpoint(
            id=self.args.env_id,
            env_options=dict(self.args.option),
            statistics=self.statistics,
            weights=self.trained.policy.module.state_dict(),
            policy_version=self.progress.policy_version,
            env_steps=self.progress.env_steps,
            seed=self.args.seed,
            training=training,
            **self.made_by,
        )
        save_checkpoint(self.dir, checkpoint)

    def share_statistics(self, coordinator: rollouts.RolloutCoordinator) -> None:
        """Makes workers that normalise go on from the counts of a resumed run."""
        if self.statistics:
            coordinator.statistics = self.statistics

    def draw(self, title: str) -> None:
        """Writes the PNG of the training."""
        path, target = self.dir / "training.png", self.args.target_return
        save_training_curves(path, self.progress.history, title=title, target=target)

    def exit_status(self) -> int:
        """Returns 0, or prints that the target was missed and returns 1."""
        args = self.args
        if args.target_return is None or self.progress.has_reached(args.target_return):
            return 0
        print(
            f"the target was missed: no 100 episodes had a mean return of {args.target_return:g} "
            f"within {args.total_steps:,} env-steps; see --target-return and --total-steps",
            file=sys.stderr,
        )
        return 1

    def result(self) -> str:
        """The mean return that was reached."""
        progress = self.progress
        if not progress.returns:
            return "no episode ended"
        count = len(progress.returns)
        return f"mean return {progress.mean_return:.1f} over the last {count} episodes"


class Training(Run):
    """A run that learns from rollouts as they come."""

    def __init__(
        self,
        args: argparse.Namespace,
        learner: Learner,
        make_policy: Callable[[PolicySpec], rollouts.Policy],
        *,
        kind: str,
    ) -> None:
        super().__init__(args, learner, make_policy, kind=kind)
        self.learner = learner
        self.lags: Counter[int] = Counter()  # env-steps by policy lag, of this process
        self.last_batch: rollouts.RolloutBatch | None = None
        self.waited_s = 0.0  # for the first rollout of this process

    def loop(
        self, coordinator: rollouts.RolloutCoordinator, stop: Event, fragments_per_update: int
    ) -> None:
        """Learns until the target, the last env-step or `stop`, saving now and then."""
        args, progress, learner = self.args, self.progress, self.learner
        writer, bar = self.make_writer(), self.make_bar()
        asked = time.perf_counter()
        start: float | None = None
        next_save = progress.seconds + args.checkpoint_interval_s
        self.share_statistics(coordinator)
        version = coordinator.publish_weights(learner.policy.weights())
        with bar, writer, self.make_reporter(coordinator.stats, writer):
            while not (self.is_finished() or stop.is_set()):
                # the workers go on with the weights they have while this process learns
                batch = next_batch(coordinator, stop, fragments_per_update)
                if batch is None:
                    break
                self.statistics = coordinator.statistics
                if start is None:  # the clock starts with the first rollout
                    self.waited_s = time.perf_counter() - asked
                    start = time.perf_counter() - progress.seconds
                lag = version - batch.policy_version
                remaining = 1 - progress.env_steps / args.total_steps
                logs = learner.update(batch, learning_rate=args.learning_rate * remaining)
                version = coordinator.publish_weights(learner.policy.weights())

                values, counts = np.unique(lag, return_counts=True)
                self.lags.update(dict(zip(values.tolist(), counts.tolist(), strict=True)))
                seconds = time.perf_counter() - start
                returns, policy_lag = batch.episodes().returns, float(lag.mean())
                progress.add(batch.num_steps, returns, seconds=seconds, policy_lag=policy_lag)
                report(progress, logs, bar=bar, writer=writer)
                self.last_batch = batch
                if progress.seconds >= next_save:
                    writer.flush()  # the logs never have less than the checkpoint
                    self.save()
                    next_save = progress.seconds + args.checkpoint_interval_s
        self.stats = coordinator.stats()

    def summary(self) -> str:
        """One line about how old the data was, and one about the whole run."""
        progress = self.progress
        rate = progress.env_steps / max(progress.seconds, 1e-9)
        return (
            f"{self.lag_summary()}\n"
            f"{self.args.env_id}: {self.result()}, {progress.env_steps:,} env-steps in "
            f"{progress.seconds:.1f} s of training ({rate:,.0f} env-steps/s) after "
            f"{self.waited_s:.1f} s for the first rollout, "
            f"{self.stats.get('restarts', 0)} worker restarts; outputs in {self.dir}"
        )

    def lag_summary(self) -> str:
        """Age, in versions, of the policy that chose the steps of this process."""
        total = self.lags.total()
        if not total:
            return "no env-steps"
        percent = {lag: round(100 * n / total) for lag, n in sorted(self.lags.items())}
        shares = ", ".join(f"{lag}: {share} %" for lag, share in percent.items() if share)
        discarded = self.stats.get("env_steps", {}).get("discarded", {})
        return (
            f"env-steps by policy lag, in versions: {shares}; greatest {max(self.lags)}; "
            f"{sum(discarded.values()):,} env-steps discarded"
        )


def run_dir(args: argparse.Namespace) -> Path:
    """The directory of the outputs: --run-dir, else that of the resumed run, else a new one."""
    if args.run_dir:
        return Path(args.run_dir)
    if args.resume:
        return Path(args.resume if args.resume.is_dir() else args.resume.parent)
    name = args.env_id.replace("/", "-")
    return Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
