# SPDX-License-Identifier: Apache-2.0
"""`rollouts verify-atari`: our own Atari 2600 and ale-py's emulator in lock-step."""

from __future__ import annotations

import argparse
import hashlib
import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

import rollouts
from rollouts.errors import EnvError, SpecError
from rollouts.families.atari import ale_game_ids, rom_path

ACTIONS = ("random", "human-like")
_RANDOM_FRAMES = 4  # that each random action is held for
_HUMAN_FRAMES = 12  # in the mean
_IDLE = 0.2  # part of a human-like player's actions that press nothing


@dataclass(frozen=True, slots=True)
class Frame:
    """What is compared: ram (128,), screen (height, 160, 3); of a game's last frame none."""

    ram: npt.NDArray[np.uint8]
    screen: npt.NDArray[np.uint8] | None
    reward: int
    lives: int
    over: bool


class Player(Protocol):
    """An emulator with a game."""

    def restart(self) -> None:
        """Begins the game anew."""

    def act(self, action: int) -> Frame:
        """A frame with one of ALE's actions, by its place among the game's legal ones."""


class NativePlayer:
    """Our own, through the environment: a frame a step, and no preprocessing."""

    def __init__(self, env_id: str, size: tuple[int, int], mode: int, difficulty: int) -> None:
        """`size`: (height, width) of the screen. mode, difficulty: -1 is the game's own."""
        with warnings.catch_warnings():
            # of known differences, which are looked for here
            warnings.simplefilter("ignore", UserWarning)
            self._env = rollouts.make_vec(
                env_id, 1, engine="native", autoreset_mode="disabled", max_episode_steps=0,
                frameskip=1, stack_num=1, maxpool=False, grayscale=False, img_height=size[0],
                img_width=size[1], noop_max=0, use_fire_reset=False, reward_clipping=False,
                repeat_action_probability=0.0, full_action_space=True, ram_info=True, mode=mode,
                difficulty=difficulty,
            )  # fmt: skip
        self.restart()

    def restart(self) -> None:
        self._env.reset()

    def act(self, action: int) -> Frame:
        obs, _, terminated, _, info = self._env.step(np.array([action]))
        over = bool(terminated[0])
        ram = info["ram"][0].astype(np.uint8)
        screen = None if over else obs[0, 0]
        return Frame(ram, screen, int(info["raw_reward"][0]), int(info["lives"][0]), over)


class AlePlayer:
    """ale-py's, which begins every game from the state of its second reset, as ours does."""

    def __init__(self, env_id: str, mode: int, difficulty: int) -> None:
        import ale_py

        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        path = rom_path(env_id)
        ale: Any = ale_py.ALEInterface()
        # as ours; else the clock's, and Adventure chooses its modes with random numbers
        ale.setInt("random_seed", 0)
        ale.setFloat("repeat_action_probability", 0.0)
        ale.setInt("max_num_frames_per_episode", 0)
        ale.loadROM(str(path))
        if mode >= 0:
            ale.setMode(mode)
        if difficulty >= 0:
            ale.setDifficulty(difficulty)
        ale.reset_game()
        self._ale, self._start = ale, ale.cloneState()
        self._actions = ale.getLegalActionSet()
        self.num_actions = len(self._actions)
        self.size: tuple[int, int] = ale.getScreenDims()

    def restart(self) -> None:
        # a reset keeps memory of the game before, and a state has no frame buffers: both are needed
        self._ale.reset_game()
        self._ale.restoreState(self._start)

    def act(self, action: int) -> Frame:
        reward = int(self._ale.act(self._actions[action]))
        over = bool(self._ale.game_over())
        screen = None if over else self._ale.getScreenRGB()
        return Frame(self._ale.getRAM(), screen, reward, int(self._ale.lives()), over)


def draw_actions(kind: str, num_actions: int, seed: int) -> Iterator[int]:
    """Actions, one for each frame, without an end: `kind` is one of ACTIONS."""
    rng = np.random.default_rng(seed)
    while True:
        action = int(rng.integers(num_actions))
        held = _RANDOM_FRAMES
        if kind == "human-like":
            held = int(rng.geometric(1 / _HUMAN_FRAMES))
            action = 0 if rng.random() < _IDLE else action
        yield from [action] * held


def play(player: Player, frames: int, actions: Iterator[int]) -> Iterator[Frame]:
    """Frames of a game, which begins anew where it ends."""
    for _, action in zip(range(frames), actions, strict=False):
        frame = player.act(action)
        yield frame
        if frame.over:
            player.restart()


def first_difference(ours: Frame, theirs: Frame) -> str | None:
    """The first thing in which two frames differ."""
    wrong = np.flatnonzero(ours.ram != theirs.ram)
    if len(wrong):
        at = int(wrong[0])
        return (
            f"RAM {at + 0x80:#04x} is {ours.ram[at]:#04x}, ALE has {theirs.ram[at]:#04x}"
            f" ({len(wrong)} bytes differ)"
        )
    for name in ("reward", "lives", "over"):
        if getattr(ours, name) != getattr(theirs, name):
            return f"{name} is {getattr(ours, name)}, ALE has {getattr(theirs, name)}"
    if ours.screen is not None and theirs.screen is not None:
        pixels = np.argwhere((ours.screen != theirs.screen).any(axis=-1))
        if len(pixels):
            y, x = (int(each) for each in pixels[0])
            return (
                f"pixel (row {y}, column {x}) is {ours.screen[y, x].tolist()}, ALE has"
                f" {theirs.screen[y, x].tolist()} ({len(pixels)} pixels differ)"
            )
    return None


def compare(
    env_id: str, frames: int, actions: str, seed: int, *, mode: int = -1, difficulty: int = -1
) -> str | None:
    """Plays both.

    Returns:
      The first difference with its frame; None: there is none.
    """
    theirs = AlePlayer(env_id, mode, difficulty)
    ours = NativePlayer(env_id, theirs.size, mode, difficulty)
    pairs = zip(
        play(ours, frames, draw_actions(actions, theirs.num_actions, seed)),
        play(theirs, frames, draw_actions(actions, theirs.num_actions, seed)),
        strict=True,
    )
    for number, (one, other) in enumerate(pairs):
        if found := first_difference(one, other):
            return f"frame {number}: {found}"
    return None


def digest(player: Player, frames: int, actions: Iterator[int]) -> str:
    """A hash of all that is compared."""
    state = hashlib.sha256()
    for frame in play(player, frames, actions):
        state.update(frame.ram.tobytes())
        state.update(np.array([frame.reward, frame.lives, frame.over], np.int64).tobytes())
        if frame.screen is not None:
            state.update(frame.screen.tobytes())
    return state.hexdigest()


def add_arguments(parser: argparse.ArgumentParser, *, positive_int: Callable[[str], int]) -> None:
    """Adds the arguments of the command; `positive_int` reads its texts."""
    add = parser.add_argument
    add("--games", nargs="+", metavar="ID", help="such as ALE/Pong-v5; default: all")
    add("--frames", type=positive_int, default=2000, metavar="N", help="of each; default: 2000")
    add("--actions", choices=ACTIONS, default="random", help="default: random")
    add("--seed", type=int, default=0, help="of the actions; default: 0")
    add("--record", type=Path, metavar="FILE", help="write hashes of ale-py's frames to a file")
    add("--golden", type=Path, metavar="FILE",
        help="compare with such a file, without ale-py's emulation; its frames, actions and seed "
        "are used")  # fmt: skip


def verify(args: argparse.Namespace) -> bool:
    """Compares games, and prints a line for each.

    Returns:
      Whether all are equal.

    Raises:
      SpecError: An unknown game, or a file that has no hashes.
    """
    known = ale_game_ids()
    games = args.games or known
    for env_id in games:
        rom_path(env_id)
    if args.record is not None:
        _record(args, games)
        return True
    golden = None if args.golden is None else _read(args.golden)
    equal = True
    for env_id in games:
        if golden is None:
            frames = args.frames
            try:
                found = compare(env_id, frames, args.actions, args.seed)
            except EnvError as error:
                # of one game; the others are compared all the same
                found = f"its error: {error}"
        else:
            if env_id not in golden["games"]:
                continue
            frames = golden["frames"]
            found = compare_with_golden(env_id, golden)
        print(f"{env_id:32} " + (f"differs in {found}" if found else f"{frames} frames equal"))
        equal = equal and found is None
    return equal


def compare_with_golden(env_id: str, golden: Mapping[str, Any]) -> str | None:
    """Plays ours alone; returns what differs from the hashes of `--record`."""
    size = tuple(golden["games"][env_id]["size"])
    ours = NativePlayer(env_id, (size[0], size[1]), -1, -1)
    count = golden["games"][env_id]["actions"]
    actions = draw_actions(golden["actions"], count, golden["seed"])
    found = digest(ours, golden["frames"], actions)
    wanted = golden["games"][env_id]["sha256"]
    return None if found == wanted else f"its hash: {found[:12]}..., ALE has {wanted[:12]}..."


def _record(args: argparse.Namespace, games: list[str]) -> None:
    rows = {}
    for env_id in games:
        player = AlePlayer(env_id, -1, -1)
        actions = draw_actions(args.actions, player.num_actions, args.seed)
        rows[env_id] = {
            "size": player.size,
            "actions": player.num_actions,
            "sha256": digest(player, args.frames, actions),
        }
    header = {"frames": args.frames, "actions": args.actions, "seed": args.seed}
    args.record.write_text(json.dumps({**header, "games": rows}, indent=1) + "\n")
    print(f"{len(rows)} hashes of {args.frames} frames: {args.record}")


def _read(path: Path) -> Mapping[str, Any]:
    try:
        golden = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SpecError(f"--golden {path} has no hashes of --record: {error}") from error
    if not isinstance(golden, dict) or not {"frames", "actions", "seed", "games"} <= golden.keys():
        raise SpecError(f"--golden {path} has no hashes of --record")
    return golden
