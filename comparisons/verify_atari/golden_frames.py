# SPDX-License-Identifier: Apache-2.0
"""Hashes of ale-py's frames, for comparisons without its emulator."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from comparisons.verify_atari.lockstep import Move, draw_actions, play
from comparisons.verify_atari.players import AlePlayer, EnvPlayer, Player, Setting
from rollouts.errors import SpecError


def digest(player: Player, frames: int, actions: Iterator[int]) -> str:
    """A hash of all compared values; a game's last frame counts without its screen."""
    state = hashlib.sha256()
    for frame in play(player, frames, (Move(action) for action in actions)):
        state.update(frame.ram.tobytes())
        state.update(np.array([frame.reward, frame.lives, frame.over], np.int64).tobytes())
        if frame.screen is not None and not frame.over:
            state.update(frame.screen.tobytes())
    return state.hexdigest()


def compare_with_golden(id: str, golden: Mapping[str, Any]) -> str | None:
    """Plays our environment alone; returns the first difference from the hashes of `record`."""
    size = tuple(golden["games"][id]["size"])
    ours = EnvPlayer(id, (size[0], size[1]), Setting())
    count = golden["games"][id]["actions"]
    actions = draw_actions(golden["actions"], count, golden["seed"])
    found = digest(ours, golden["frames"], actions)
    wanted = golden["games"][id]["sha256"]
    return None if found == wanted else f"its hash: {found[:12]}..., ALE has {wanted[:12]}..."


def record(path: Path, games: Sequence[str], frames: int, kind: str, seed: int) -> None:
    """Writes hashes of ale-py's frames to a file; `kind` and `seed` choose the actions."""
    rows = {}
    for env_id in games:
        player = AlePlayer(env_id, Setting(), colours=True)
        rows[env_id] = {
            "size": player.size,
            "actions": player.num_actions,
            "sha256": digest(player, frames, draw_actions(kind, player.num_actions, seed)),
        }
    header = {"frames": frames, "actions": kind, "seed": seed}
    path.write_text(json.dumps({**header, "games": rows}, indent=1) + "\n")


def read(path: Path) -> Mapping[str, Any]:
    """Reads a file of `record`.

    Raises:
      SpecError: It is not such a file.
    """
    try:
        golden = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SpecError(f"--golden {path} has no hashes of --record: {error}") from error
    if not isinstance(golden, dict) or not {"frames", "actions", "seed", "games"} <= golden.keys():
        raise SpecError(f"--golden {path} has no hashes of --record")
    return golden
