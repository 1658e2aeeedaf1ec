# SPDX-License-Identifier: Apache-2.0
"""Atari games in which our own console is not equal to ALE, frame by frame, and why.

All others passed `rollouts verify-atari`: the same RAM, screen, reward, lives and end.
"""

from __future__ import annotations

# by id; empty: none is known
DIFFERENT: dict[str, str] = {
    "ALE/Alien-v5": "its screen differs after some hundred frames",
}
