# SPDX-License-Identifier: Apache-2.0
"""Plays the same actions on two emulators, and finds the first frame that differs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from comparisons.verify_atari.players import AlePlayer, ConsolePlayer, Frame, Player, Setting

ACTIONS = ("random", "human-like")
_RANDOM_FRAMES = 4  # frames that each random action is held for
_HUMAN_FRAMES = 12  # mean number of frames
_IDLE = 0.2  # share of a human-like player's actions that press nothing
_RESTART_FRAMES = 3000  # mean number of frames between restarts of a game that goes on
_FUZZED_FRAMES = 200  # the same with changed memory, which may make a game stand still
# games whose score is another number after ale-py has restored a saved state
_NOT_RESTORED = frozenset({"ALE/MiniatureGolf-v5"})
_POKED = 0.1  # probability that memory is changed before a frame
_MOST_POKES = 4


class LockstepTrial(NamedTuple):
    """One comparison.

    actions: one of ACTIONS. fuzz: bytes of memory are changed at random between frames.
    """

    id: str
    frames: int
    actions: str = "random"
    setting: Setting = Setting()
    fuzz: bool = False
    snapshots: bool = False


class Move(NamedTuple):
    """A frame's action, and whether the game restarts before it."""

    action: int
    restart: bool = False
    pokes: tuple[tuple[int, int], ...] = ()  # (address, value)


def draw_actions(kind: str, num_actions: int, seed: int) -> Iterator[int]:
    """Endless actions, one for each frame: `kind` is one of ACTIONS."""
    rng = np.random.default_rng(seed)
    while True:
        action = int(rng.integers(num_actions))
        held = _RANDOM_FRAMES
        if kind == "human-like":
            held = int(rng.geometric(1 / _HUMAN_FRAMES))
            action = 0 if rng.random() < _IDLE else action
        yield from [action] * held


def draw_moves(trial: LockstepTrial, num_actions: int) -> Iterator[Move]:
    """Endless moves of a trial, one for each frame."""
    seed = trial.setting.seed
    rng = np.random.default_rng([seed, 1])
    mean = _FUZZED_FRAMES if trial.fuzz else _RESTART_FRAMES
    left = int(rng.geometric(1 / mean))
    for action in draw_actions(trial.actions, num_actions, seed):
        restart = left == 0
        left = int(rng.geometric(1 / mean)) if restart else left - 1
        pokes: tuple[tuple[int, int], ...] = ()
        if trial.fuzz and rng.random() < _POKED:
            count = int(rng.integers(1, _MOST_POKES + 1))
            drawn = rng.integers((128, 256), size=(count, 2)).tolist()
            pokes = tuple((address, value) for address, value in drawn)
        yield Move(action, restart, pokes)


def play(player: Player, frames: int, moves: Iterator[Move]) -> Iterator[Frame]:
    """Frames of a game, which begins anew where it ends."""
    for _, move in zip(range(frames), moves, strict=False):
        if move.restart:
            player.restart()
        for address, value in move.pokes:
            player.poke(address, value)
        frame = player.act(move.action)
        yield frame
        if frame.over:
            player.restart()


def first_difference(ours: Frame, theirs: Frame) -> str | None:
    """Describes the first value in which two frames differ."""
    if not _are_equal(ours.ram, theirs.ram):
        wrong = np.flatnonzero(ours.ram != theirs.ram)
        at = int(wrong[0])
        return (
            f"RAM {at + 0x80:#04x} is {ours.ram[at]:#04x}, ALE has {theirs.ram[at]:#04x}"
            f" ({len(wrong)} bytes differ)"
        )
    for name in ("reward", "lives", "over"):
        if getattr(ours, name) != getattr(theirs, name):
            return f"{name} is {getattr(ours, name)}, ALE has {getattr(theirs, name)}"
    if ours.screen is None or theirs.screen is None or _are_equal(ours.screen, theirs.screen):
        return None
    differing = ours.screen != theirs.screen
    pixels = np.argwhere(differing if differing.ndim == 2 else differing.any(axis=-1))
    y, x = (int(each) for each in pixels[0])
    return (
        f"pixel (row {y}, column {x}) is {ours.screen[y, x].tolist()}, ALE has"
        f" {theirs.screen[y, x].tolist()} ({len(pixels)} pixels differ)"
    )


def compare(trial: LockstepTrial) -> str | None:
    """Plays both emulators.

    Returns:
      The first difference with its frame; None: there is none.
    """
    # ale-py's saved states lack the frame buffers: after changes of memory, a start from one would
    # show what the last game left there
    resets = trial.fuzz or trial.setting.sticky > 0 or trial.id in _NOT_RESTORED
    theirs = AlePlayer(trial.id, trial.setting, resets=resets)
    ours = ConsolePlayer(trial.id, trial.setting, resets=resets)
    pairs = zip(
        play(ours, trial.frames, draw_moves(trial, theirs.num_actions)),
        play(theirs, trial.frames, draw_moves(trial, theirs.num_actions)),
        strict=True,
    )
    for number, (one, other) in enumerate(pairs):
        if found := first_difference(one, other):
            return f"frame {number}: {found}"
    return None


def _are_equal(one: npt.NDArray[np.uint8], other: npt.NDArray[np.uint8]) -> bool:
    # comparing bytes takes a third of array_equal's time for a screen
    return one.shape == other.shape and one.tobytes() == other.tobytes()
