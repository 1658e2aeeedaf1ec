# SPDX-License-Identifier: Apache-2.0
"""Sinks of a training's metrics, in addition to the terminal."""

from __future__ import annotations

import argparse
from pathlib import Path

from torch.utils.tensorboard import SummaryWriter

from rollouts.metrics import MLflowSink, Sink, StatusFileSink, TensorBoardSink, WandbSink
from rollouts.workers.on_ray.ray_metrics import RayMetricsSink


def add_sink_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options that `make_sinks` reads."""
    add = parser.add_argument
    add("--prometheus", action="store_true", help="metrics through Ray too, which needs workers")
    add("--wandb", metavar="PROJECT", help="metrics in Weights & Biases, too")
    add("--mlflow", metavar="URI", help="metrics in MLflow, too, such as sqlite:///mlflow.db")


def make_sinks(
    args: argparse.Namespace, directory: Path, writer: SummaryWriter, *, first_step: int
) -> list[Sink]:
    """Returns the sinks that the options name, and those that every run has.

    Args:
      args: arguments with the options of `add_sink_arguments`.
      directory: directory of the run.
      writer: TensorBoard's writer.
      first_step: env-steps of the runs that this one resumes.
    """
    # `rollouts top` shows the status file
    sinks: list[Sink] = [StatusFileSink(directory), TensorBoardSink(writer, first_step=first_step)]
    if args.prometheus:
        sinks.append(RayMetricsSink(run=directory.name))
    if args.wandb:
        config = {name: str(value) for name, value in vars(args).items()}
        sinks.append(
            WandbSink(args.wandb, directory=directory, config=config, first_step=first_step)
        )
    if args.mlflow:
        sinks.append(MLflowSink(args.mlflow, run_name=directory.name, first_step=first_step))
    return sinks
