# SPDX-License-Identifier: Apache-2.0
"""Gradient steps in native code, where it can read the network, and their logs."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import gymnasium
import numpy as np
import torch
from torch import nn

import rollouts
from common.training import spec_of
from rollouts.learner.native_learner import Losses, NativeLearner

Steps = TypeVar("Steps")

LOGGED = ("policy_loss", "value_loss", "entropy", "kl", "clip_fraction")


def add_learner_engine(parser: argparse.ArgumentParser) -> None:
    """Adds --learner-engine."""
    parser.add_argument(
        "--learner-engine",
        choices=("auto", "native", "torch"),
        default="auto",
        help="maker of gradient steps; auto: native code where it can read the network",
    )


def read_module(
    module: nn.Module,
    action_space: gymnasium.Space[Any],
    observation_space: gymnasium.Space[Any] | int,
    optimizer: torch.optim.Optimizer,
    *,
    engine: str,
    num_threads: int,
) -> NativeLearner | None:
    """Makes a learner in native code; None where torch learns, as with a CNN.

    Args:
      module: Module that `NativePolicy.from_torch` can take, with its spaces.
      optimizer: Optimiser that `NativeLearner` can take.
      engine: Choice of --learner-engine.
      num_threads: Threads that compute a large minibatch.

    Raises:
      SpecError: The engine is "native", which cannot read the module.
    """

    def read() -> NativeLearner:
        policy = rollouts.NativePolicy.from_torch(module, action_space, observation_space)
        return NativeLearner(policy, optimizer, num_threads=num_threads)

    return read_or_none(read, engine)


def read_learner(
    module: nn.Module, optimizer: torch.optim.Optimizer, args: argparse.Namespace
) -> NativeLearner | None:
    """Makes the learner of a module for the environment of --env-id; see `read_module`."""
    spec = spec_of(args)
    return read_module(
        module,
        spec.single_action_space,
        spec.single_observation_space,
        optimizer,
        engine=args.learner_engine,
        num_threads=args.torch_threads,
    )


def read_or_none(read: Callable[[], Steps], engine: str) -> Steps | None:
    """Returns the maker of steps in native code; None where torch makes the steps.

    Args:
      read: Reads the networks; raises SpecError where it cannot, as on a GPU.
      engine: Choice of --learner-engine.

    Raises:
      SpecError: The engine is "native", which cannot read the networks.
    """
    if engine == "torch":
        return None
    try:
        return read()
    except rollouts.SpecError:
        if engine == "native":
            raise
        return None


def logs_of(found: Sequence[Losses]) -> dict[str, float]:
    """Means over all minibatches by the names of LOGGED; value_loss is half the squared error."""
    parts = [
        np.stack(
            [
                each.policy_loss,
                0.5 * each.value_loss,
                each.entropy,
                each.approx_kl,
                each.clip_fraction,
            ]
        )
        for each in found
    ]
    return dict(zip(LOGGED, np.concatenate(parts, 1).mean(1).tolist(), strict=True))
