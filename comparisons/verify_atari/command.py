# SPDX-License-Identifier: Apache-2.0
"""The command: its arguments, the comparisons that they ask for, and a line for each."""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from comparisons.verify_atari.golden_frames import compare_with_golden, read, record
from comparisons.verify_atari.lockstep import ACTIONS, LockstepTrial, compare
from comparisons.verify_atari.players import Setting, modes_and_difficulties
from comparisons.verify_atari.snapshots import compare_snapshots
from rollouts.errors import EnvError, SpecError
from rollouts.families.atari import ale_game_ids, rom_path


def add_arguments(parser: argparse.ArgumentParser, *, positive_int: Callable[[str], int]) -> None:
    """Adds the arguments of the command; `positive_int` parses numbers."""
    add = parser.add_argument
    add("--games", nargs="+", metavar="ID", help="such as ALE/Pong-v5; default: all")
    add("--frames", type=positive_int, default=2000, metavar="N", help="of each; default: 2000")
    add("--actions", choices=ACTIONS, default="random", help="default: random")
    add("--seed", type=int, default=0, help="of all that is drawn; default: 0")
    add("--modes", action="store_true", help="each of a game's modes and difficulties")
    add("--sticky", type=_probability, default=0.0, metavar="P",
        help="probability that a frame repeats the action before, drawn by ALE's random numbers; "
        "default: 0")  # fmt: skip
    add("--fuzz", action="store_true", help="change bytes of memory at random between frames")
    add("--snapshots", action="store_true",
        help="save and restore states of the environment and of ale-py at random "
        "frames")  # fmt: skip
    add("--workers", type=positive_int, default=1, metavar="N",
        help="processes, each with a game at a time; default: 1, this one")  # fmt: skip
    add("--record", type=Path, metavar="FILE", help="write hashes of ale-py's frames to a file")
    add("--golden", type=Path, metavar="FILE",
        help="compare with such a file, without ale-py's emulation; its frames, actions and seed "
        "are used")  # fmt: skip


def verify(args: argparse.Namespace) -> bool:
    """Compares games, and prints a line for each.

    Returns:
      Whether all are equal.

    Raises:
      SpecError: An unknown game, a file without hashes, or options that exclude each other.
    """
    if args.snapshots and (args.sticky or args.fuzz):
        raise SpecError("--snapshots compares environments: leave out --sticky and --fuzz")
    if (args.record or args.golden) and (args.modes or args.sticky or args.fuzz or args.snapshots):
        raise SpecError(
            "--record and --golden are of a game's own mode: leave out --modes, --sticky, --fuzz "
            "and --snapshots"
        )
    games = args.games or ale_game_ids()
    for env_id in games:
        rom_path(env_id)
    if args.record is not None:
        record(args.record, games, args.frames, args.actions, args.seed)
        print(f"{len(games)} hashes of {args.frames} frames: {args.record}")
        return True
    if args.golden is not None:
        return _verify_golden(args.golden, games)
    trials = list(_trials(args, games))
    equal = True
    for trial, found in zip(trials, _results(trials, args.workers), strict=True):
        mode, difficulty = trial.setting.mode, trial.setting.difficulty
        chosen = f" mode {mode} difficulty {difficulty}" if args.modes else ""
        _report(trial.id + chosen, trial.frames, found)
        equal = equal and found is None
    return equal


def run(trial: LockstepTrial) -> str | None:
    """Describes the first difference in a trial; None: there is none."""
    try:
        return compare_snapshots(trial) if trial.snapshots else compare(trial)
    except EnvError as error:
        # a game failed; the others are still compared
        return f"its error: {error}"


def _probability(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"expected a number from 0 to 1, got {text!r}")
    return value


def _trials(args: argparse.Namespace, games: Sequence[str]) -> Iterator[LockstepTrial]:
    for env_id in games:
        settings = [(-1, -1)]
        if args.modes:
            settings = list(itertools.product(*modes_and_difficulties(env_id)))
        for mode, difficulty in settings:
            yield LockstepTrial(
                env_id,
                args.frames,
                args.actions,
                Setting(mode, difficulty, args.sticky, args.seed),
                fuzz=args.fuzz,
                snapshots=args.snapshots,
            )


def _results(trials: Sequence[LockstepTrial], workers: int) -> Iterator[str | None]:
    if workers == 1:
        yield from map(run, trials)
        return
    # processes are not forked, since threads of pools may hold locks
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as processes:
        yield from processes.map(run, trials)


def _verify_golden(path: Path, games: Sequence[str]) -> bool:
    golden = read(path)
    equal = True
    for env_id in games:
        if env_id not in golden["games"]:
            continue
        found = compare_with_golden(env_id, golden)
        _report(env_id, golden["frames"], found)
        equal = equal and found is None
    return equal


def _report(name: str, frames: int, found: str | None) -> None:
    # flushed, so that a reader of a pipe gets each line at once
    print(
        f"{name:32} " + (f"differs in {found}" if found else f"{frames} frames equal"), flush=True
    )
