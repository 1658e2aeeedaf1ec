# SPDX-License-Identifier: Apache-2.0
"""Gradient steps in native code where it can read the networks, else in torch."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TypeVar

import rollouts

Steps = TypeVar("Steps")


def add_learner_engine(parser: argparse.ArgumentParser) -> None:
    """Adds the option --learner-engine."""
    parser.add_argument(
        "--learner-engine",
        choices=("auto", "native", "torch"),
        default="auto",
        help="maker of gradient steps; auto: native code where it can read the network",
    )


def read_or_none(read: Callable[[], Steps], learner_engine: str) -> Steps | None:
    """Returns what makes the steps in native code; None where torch makes them.

    Args:
      read: reads the networks; raises SpecError where it cannot, as on a GPU.
      learner_engine: value of --learner-engine.
    Raises:
      SpecError: native code is asked for and cannot read the networks.
    """
    if learner_engine == "torch":
        return None
    try:
        return read()
    except rollouts.SpecError:
        if learner_engine == "native":
            raise
        return None
