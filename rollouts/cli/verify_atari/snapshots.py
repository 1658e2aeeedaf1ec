# SPDX-License-Identifier: Apache-2.0
"""States: the environment and ale-py save and restore at random frames, and go on alike."""

from __future__ import annotations

import numpy as np

from rollouts.cli.verify_atari.lockstep import Trial, draw_actions, first_difference
from rollouts.cli.verify_atari.players import AlePlayer, EnvPlayer, Frame

_BETWEEN = 60  # most frames from one snapshot to the next
_REPLAYED = 40  # most frames after a snapshot, which are played twice
# ale-py's states have no frame buffers: what frames leave undrawn is that of later ones at first
_STALE = 2


def compare_snapshots(trial: Trial) -> str | None:
    """Plays both; every frame counts, replayed ones too.

    Returns:
      The first difference with its frame; None: there is none.
    """
    pair = _Pair(trial)
    actions = draw_actions(trial.actions, pair.theirs.num_actions, trial.setting.seed)
    rng = np.random.default_rng([trial.setting.seed, 2])
    while pair.played < trial.frames:
        between, replayed = (int(rng.integers(1, most + 1)) for most in (_BETWEEN, _REPLAYED))
        found = pair.play([next(actions) for _ in range(between)])
        found = found or pair.play_twice([next(actions) for _ in range(replayed)])
        if found:
            return f"frame {pair.played - 1}: {found}"
    return None


class _Pair:
    """Both, at the same frame."""

    def __init__(self, trial: Trial) -> None:
        self.theirs = AlePlayer(trial.env_id, trial.setting, colours=True)
        self.ours = EnvPlayer(trial.env_id, self.theirs.size, trial.setting)
        self.played = 0
        self._frames: list[Frame] = []  # ours of the last `play`
        self._stale = 0  # frames to come whose screens ale-py does not know

    def play(self, actions: list[int]) -> str | None:
        """Plays until a game ends, which begins anew then; returns what differs."""
        self._frames = []
        for action in actions:
            if found := self._act(action):
                return found
            if self._frames[-1].over:
                self.ours.restart()
                self.theirs.restart()
                self._stale = 0
                break
        return None

    def play_twice(self, actions: list[int]) -> str | None:
        """Plays, goes back to where it began, and plays the same again."""
        saved, their_saved = self.ours.save(), self.theirs.save()
        if found := self.play(actions):
            return found
        before = self._frames
        self.ours.load(saved)
        self.theirs.load(their_saved)
        self._stale = _STALE
        if found := self.play(actions):
            return f"{len(self._frames)} frames behind a restore, {found}"
        for number, (frame, again) in enumerate(zip(before, self._frames, strict=True)):
            # whole, as our states have frame buffers
            if found := first_difference(again, frame):
                return f"frame {number} behind a restore is not what it was: {found}"
        return None

    def _act(self, action: int) -> str | None:
        one, other = self.ours.act(action), self.theirs.act(action)
        self._frames.append(one)
        self.played += 1
        if self._stale:
            self._stale -= 1
            other = other._replace(screen=None)
        return first_difference(one, other)
