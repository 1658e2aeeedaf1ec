# SPDX-License-Identifier: Apache-2.0
"""A policy whose actions tell its weights.

Nothing here imports torch, which would take a second and a half of each worker's process, and of
each that follows on a killed one.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np


def digest(weights: Mapping[str, Any]) -> int:
    """A number that any other bit, shape, dtype or name changes."""
    value = 0
    for name in sorted(weights):
        array = np.asarray(weights[name])
        head = f"{name} {array.dtype.str} {array.shape}".encode()
        value = zlib.crc32(head + np.ascontiguousarray(array).tobytes(), value)
    return value


class DigestPolicy:
    """Acts by what its weights are."""

    def __init__(self) -> None:
        self.policy_version = 0
        self.digest = 0

    def load_weights(self, weights: Mapping[str, np.ndarray], version: int) -> None:
        self.digest, self.policy_version = digest(weights), version

    def act(self, obs: np.ndarray) -> np.ndarray:
        return np.full(len(obs), self.digest)


def make_policy(spec: Any) -> Any:
    return DigestPolicy()
