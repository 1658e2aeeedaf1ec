# SPDX-License-Identifier: Apache-2.0
"""Atari games in which the native engine is known to differ from ALE, with the differences.

There are none: in all games, 100 000 frames of a random player had the same memory, screen, reward,
lives and end (`rollouts verify-atari`); tests/atari2600/golden.json has hashes of 120 frames.
"""

from __future__ import annotations

# by id
DIFFERENT: dict[str, str] = {}
