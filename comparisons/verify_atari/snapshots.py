# SPDX-License-Identifier: Apache-2.0
"""States: the environment and ale-py save and restore at random frames, and go on alike."""

from __future__ import annotations

import numpy as np

from comparisons.verify_atari.lockstep import LockstepTrial, draw_actions, first_difference
from comparisons.verify_atari.players import AlePlayer, EnvPlayer, Frame

_BETWEEN = 60  # most frames from one snapshot to the next
_REPLAYED = 40  # most frames after a snapshot, which are played twice
# ale-py's states have no frame buffers: after a restore, pixels that a frame leaves undrawn still
# show frames played before it, until as many frames in a row equal ours
_STALE = 2


def compare_snapshots(trial: LockstepTrial) -> str | None:
    """Plays both emulators, and compares every frame, also replayed ones.

    Ours must go on from a state as it did before, to the pixel. ale-py's must do so except for the
    screen; where it does not, both games begin anew, since its states do not record that a frame
    was unfinished.

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
    if pair.lost == pair.snapshots:
        return f"all {pair.lost} snapshots: ale-py never goes on as before"
    return None


class _Pair:
    """Both emulators at the same frame."""

    def __init__(self, trial: LockstepTrial) -> None:
        self.theirs = AlePlayer(trial.id, trial.setting, colours=True)
        self.ours = EnvPlayer(trial.id, self.theirs.size, trial.setting)
        self.played = 0
        self.snapshots = 0
        self.lost = 0  # number of ale-py's states from which ale-py itself went on differently
        self._frames: list[Frame] = []  # our frames of the last `play`
        self._stale = 0  # equal frames to come until ale-py's frame buffers are known again

    def play(self, actions: list[int]) -> str | None:
        """Plays until a game ends, which then begins anew; returns the first difference."""
        self._frames = []
        for action in actions:
            one, other = self.ours.act(action), self.theirs.act(action)
            self._frames.append(one)
            self.played += 1
            if found := self._compare(one, other):
                return found
            if one.over:
                self._restart()
                break
        return None

    def play_twice(self, actions: list[int]) -> str | None:
        """Plays, goes back to the beginning, and plays the same again."""
        saved, their_saved = self.ours.save(), self.theirs.save()
        if found := self.play(actions):
            return found
        before = self._frames
        self.snapshots += 1
        self.ours.load(saved)
        self.theirs.load(their_saved)
        self._stale = _STALE
        for number, (action, frame) in enumerate(zip(actions, before, strict=False)):
            one, other = self.ours.act(action), self.theirs.act(action)
            self.played += 1
            if found := first_difference(one, frame):
                return f"{number} frames behind a restore, not what it was: {found}"
            if self._compare(one, other):
                self.lost += 1
                self._restart()
                return None
        if before[-1].over:
            self._restart()
        return None

    def _restart(self) -> None:
        self.ours.restart()
        self.theirs.restart()
        self._stale = 0

    def _compare(self, one: Frame, other: Frame) -> str | None:
        found = first_difference(one, other)
        if not self._stale:
            return found
        self._stale = _STALE if found else self._stale - 1
        return first_difference(one, other._replace(screen=None))
