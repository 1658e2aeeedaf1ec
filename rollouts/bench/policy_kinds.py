# SPDX-License-Identifier: Apache-2.0
"""The policies that `rollouts bench collect` knows by name; does not import torch."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import gymnasium

from rollouts.errors import SpecError


@dataclass(frozen=True, slots=True)
class PolicyKind:
    """A policy by its name.

    Attributes:
      name: The name that was given.
      hidden: Widths of the tanh layers for vectors; empty for "cnn", "gru" and "random".
    """

    name: str
    hidden: tuple[int, ...] = ()


def read_policy(name: str) -> PolicyKind:
    """Reads "64x64", widths of tanh layers, or one of "cnn", "gru", "random".

    Raises:
      SpecError: It is none of these.
    """
    if name in ("cnn", "gru", "random"):
        return PolicyKind(name)
    if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*)*", name):
        raise SpecError(
            f"policy is {name!r}, expected widths of layers such as 64x64 or 256x256, or one of "
            "cnn, gru and random"
        )
    return PolicyKind(name, tuple(int(width) for width in name.split("x")))


def default_policy(obs_space: gymnasium.Space[Any]) -> PolicyKind:
    """Returns "cnn" for images (C, H, W) and "64x64" for everything else."""
    return read_policy("cnn" if len(obs_space.shape or ()) == 3 else "64x64")
