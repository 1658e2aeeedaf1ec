# SPDX-License-Identifier: Apache-2.0
"""`rollouts replay-run`: makes a step of a recorded run again, and shows it."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rollouts.cli.check_env import find_type
from rollouts.cli.checkpoint_program import import_program, options_of
from rollouts.collecting.replayed import ReplayedFragment, replay_run
from rollouts.envs.register import register_env
from rollouts.errors import SpecError
from rollouts.own_env.header_files import read_header
from rollouts.rendering.video import VideoWriter, check_path
from rollouts.run_log.log_header import LogHeader
from rollouts.run_log.log_reader import find_log, open_log
from rollouts.support.whole_file import replace_whole

Array = npt.NDArray[Any]

_AROUND = 3  # steps that are printed before and after the one that was asked for
_MOST_NUMBERS = 4  # numbers of an observation or action that a line shows


def add_arguments(
    parser: argparse.ArgumentParser,
    *,
    whole_number: Callable[[str], int],
    positive_float: Callable[[str], float],
    option: Callable[[str], Any],
) -> None:
    """Adds the arguments of the command; the types are those of the other commands."""
    add = parser.add_argument
    add("run", type=Path, metavar="RUN",
        help="a run's directory, whose log is in its folder log, or the log's folder")  # fmt: skip
    add(
        "--env", type=whole_number, required=True, metavar="ENV_ID", help="env_id, over all workers"
    )
    add("--step", type=whole_number, required=True, metavar="S",
        help="of this environment, counted from 0 in each incarnation of its worker")  # fmt: skip
    add("--worker", type=whole_number, metavar="W", help="default: that of the environment")
    add("--incarnation", type=whole_number, metavar="I", help="default: the newest with the step")
    add("--render", type=Path, metavar="FILE",
        help="a video of the fragment; ends in .mp4 or .gif; needs the extra render")  # fmt: skip
    add("--fps", type=positive_float, metavar="F",
        help="frames per second; default: as fast as the environment's time passes")  # fmt: skip
    add("--dump", type=Path, metavar="FILE.npz",
        help="the environment's arrays of the fragment, as numpy.load reads them")  # fmt: skip
    add("--make-env", metavar="FILE.py:FUNCTION",
        help="function that makes the environments, of a run whose environments Python functions "
        "made: called with the log's LogHeader, it returns as many, of the same seed")  # fmt: skip
    add(
        "--header", type=Path, metavar="FILE.h", help="the environment of your own that the run had"
    )
    add("--type", metavar="TYPE", help="the struct in it; default: the one there is")
    add("--option", action="append", default=[], type=option, metavar="KEY=VALUE",
        help="option of the environments in place of the run's; of a log with options that name "
        "files, which are repeated so")  # fmt: skip
    add("--any-release", action="store_true",
        help="make a log of another release again all the same, with a warning")  # fmt: skip


def run(args: argparse.Namespace) -> None:
    """Makes the fragment again, writes the requested files, and prints steps around the given one.

    Raises:
      SpecError, EngineError, FileError: There is no such step, it cannot be made, drawn or written.
      ProtocolError: The result differs from the run.
    """
    if args.render is not None:
        check_path(args.render)
    if args.dump is not None and args.dump.suffix != ".npz":
        raise SpecError(f"--dump is {args.dump}, expected a name that ends in .npz")
    header = find_log(open_log(args.run), args.env, args.step, args.worker, args.incarnation).header
    if args.header is not None:
        _register(args, header)
    # the user must repeat options that name files, because a log may come from a stranger
    options = options_of(header, args.run, dict(args.option))
    with contextlib.ExitStack() as during:
        film = None
        if args.render is not None:
            film = during.enter_context(_Film(args.render, args.env, args.fps))
        made = replay_run(
            args.run,
            env_id=args.env,
            step=args.step,
            worker=args.worker,
            incarnation=args.incarnation,
            make_env=_maker(args.make_env),
            env_options=options,
            any_release=args.any_release,
            see=None if film is None else film.see,
        )
    own = made.of_env()
    if args.dump is not None:
        with replace_whole(args.dump) as file:
            np.savez_compressed(file, **own)  # type: ignore[arg-type]
    _report(made, own, args)


class _Film:
    """A video that gets a frame before each step."""

    def __init__(self, path: Path, env_id: int, fps: float | None) -> None:
        self._path, self._env_id, self._fps = path, env_id, fps
        self._video: VideoWriter | None = None
        self._open = contextlib.ExitStack()

    def __enter__(self) -> _Film:
        self._open.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._open.__exit__(*error)

    def see(self, env: Any, t: int) -> None:
        """Writes a frame of the environment as it is now."""
        if self._video is None:
            pace = self._fps or env.metadata.get("render_fps") or 30.0
            self._video = self._open.enter_context(VideoWriter(self._path, pace))
        frame = env.render([self._env_id])[0]
        if frame is None:
            raise SpecError("the environments draw nothing: leave --render out")
        self._video.write(frame)


def _register(args: argparse.Namespace, header: LogHeader) -> None:
    """Registers the environment of --header under the run's ids."""
    files = read_header(args.header)
    kind = args.type or find_type(files)
    for name in sorted(set(header.ids)):
        register_env(name, header=files, type=kind, max_episode_steps=header.time_limit)


def _maker(given: str | None) -> Callable[[LogHeader], Any] | None:
    """Returns the function that --make-env names."""
    if given is None:
        return None
    file, colon, name = given.rpartition(":")
    expected = "a function that takes a LogHeader and returns the environments"
    if not (file and colon and name):
        raise SpecError(f"--make-env is {given!r}, expected FILE.py:FUNCTION with {expected}")
    module = import_program(Path(file), "--make-env", expected)
    function: Callable[[LogHeader], Any] | None = getattr(module, name, None)
    if not callable(function):
        raise SpecError(f"{file} has no function {name}, expected {expected}")
    return function


def _report(made: ReplayedFragment, own: Mapping[str, Array], args: argparse.Namespace) -> None:
    header, last = made.header, made.first_step + made.num_steps - 1
    what = " + ".join(dict.fromkeys(header.ids)) or "environments in Python"
    print(f"{what}, worker {header.worker_id}, incarnation {header.incarnation}, env {made.env_id}")
    by = ""
    if made.policy_version is not None:
        old, new = made.policy_version
        by = f", by policy version {old}" + (f" to {new}" if new != old else "")
    print(f"fragment with steps {made.first_step} to {last}{by}")
    if made.is_verified:
        print("bit for bit what the run did: the checksum is the run's")
    elif made.failed:
        print(f"the run ended here, so that there is no checksum: {made.failed.splitlines()[0]}")
    for text in made.env_errors:
        print(f"failed again: {text.splitlines()[0]}")
    for prefix in (f"{name}/" if name else "" for name in made.batches):
        _show_steps(own, prefix, made.step)
    for path in (args.dump, args.render):
        if path is not None:
            print(f"written: {path}")


def _show_steps(own: Mapping[str, Array], prefix: str, wanted: int) -> None:
    """Prints the steps around the requested one."""
    steps = own["step"]
    near = np.flatnonzero(abs(steps - min(wanted, int(steps[-1]) if len(steps) else 0)) <= _AROUND)
    if prefix:
        print(f"group {prefix[:-1]}:")
    for row in near:
        ends = own[f"{prefix}terminated"][row], own[f"{prefix}truncated"][row]
        words = [word for word, is_so in zip(("terminated", "truncated"), ends, strict=True)
                 if np.any(is_so)]  # fmt: skip
        mark = ">" if steps[row] == wanted else " "
        reward = _numbers(own[f"{prefix}reward"][row])
        print(
            f"{mark} step {steps[row]}: obs {_numbers(own[f'{prefix}obs'][row])}, action "
            f"{_numbers(own[f'{prefix}action'][row])}, reward {reward}{', ' if words else ''}"
            f"{', '.join(words)}"
        )


def _numbers(array: Any) -> str:
    """The first numbers of an array, as a short text."""
    flat = np.asarray(array).ravel()
    shown = " ".join(f"{value:.6g}" for value in flat[:_MOST_NUMBERS])
    rest = f" ... ({' x '.join(map(str, np.shape(array)))})" if flat.size > _MOST_NUMBERS else ""
    return shown + rest
