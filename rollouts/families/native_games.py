# SPDX-License-Identifier: Apache-2.0
"""Atari games in which our own console is known not to be equal to ALE, frame by frame, and how.

All others played 2 000 frames of random actions with the same memory, screen, reward, lives and end
(`rollouts verify-atari`); tests/atari2600/golden.json has hashes of 120.
"""

from __future__ import annotations

_EARLY = "memory or screen differ within 120 frames"
_LATE = "screen or memory differ within 5 000 frames"

# by id
DIFFERENT: dict[str, str] = {
    "ALE/AirRaid-v5": _EARLY,
    "ALE/Alien-v5": _LATE,
    "ALE/Backgammon-v5": _EARLY,
    "ALE/JourneyEscape-v5": _EARLY,
    "ALE/Klax-v5": "its score is in the cartridge's memory, which its rules do not see",
    "ALE/MiniatureGolf-v5": "it ends in an error: its score at the start is not found",
    "ALE/Pitfall2-v5": _EARLY,
    "ALE/TicTacToe3D-v5": _EARLY,
    "ALE/VideoChess-v5": _LATE,
}
