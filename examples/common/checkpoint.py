# SPDX-License-Identifier: Apache-2.0
"""A checkpoint's contents besides the policy, with which a run goes on (`rollouts.checkpoint`)."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from rollouts import RunningStatistics, SpecError
from rollouts.checkpoint import FILE_NAME, load_checkpoint


class Checkpointed:
    """A learner that names the attributes that a checkpoint saves.

    Attributes:
      saved: names of attributes: modules, optimisers, tensors, a torch.Generator,
        RunningStatistics, numbers.
    """

    saved: tuple[str, ...]

    def state(self) -> dict[str, Any]:
        """Everything a checkpoint needs."""
        return {name: _state_of(getattr(self, name)) for name in self.saved}

    def load_state(self, state: dict[str, Any]) -> None:
        """Goes back to a state that `state` returned."""
        for name in self.saved:
            part = getattr(self, name)
            if isinstance(part, torch.Generator):
                part.set_state(state[name])
            elif isinstance(part, torch.Tensor):
                part.data.copy_(state[name])
            elif hasattr(part, "load_state_dict"):
                part.load_state_dict(state[name])
            elif isinstance(part, RunningStatistics):
                setattr(self, name, RunningStatistics.from_state_dict(state[name]))
            else:
                setattr(self, name, state[name])


def _state_of(part: Any) -> Any:
    if isinstance(part, torch.Generator):
        return part.get_state()
    if isinstance(part, torch.Tensor):
        return part.detach().cpu()
    return part.state_dict() if hasattr(part, "state_dict") else part


def add_resume_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds --resume and --auto-resume, which `resumed_run` reads."""
    parser.add_argument("--resume", type=Path, help="a run directory, or a checkpoint in one")
    parser.add_argument("--auto-resume", action="store_true",
        help="go on where --run-dir has a checkpoint, begin where it has none: for jobs that are "
        "queued again")  # fmt: skip


def resumed_run(args: argparse.Namespace) -> Path | None:
    """Returns the checkpoint to go on with, or its directory; None for a new run.

    Raises:
      ValueError: --auto-resume without --run-dir, or with --resume.
    """
    if not args.auto_resume:
        return args.resume  # type: ignore[no-any-return]
    if args.run_dir is None or args.resume:
        raise ValueError(
            "--auto-resume needs --run-dir, the directory in which the run goes on, and no --resume"
        )
    return args.run_dir if (args.run_dir / FILE_NAME).exists() else None


def read_training(path: Path, kind: str, **expected: Any) -> dict[str, Any]:
    """Returns what a program saved in a checkpoint for resuming.

    Args:
      path: the checkpoint, or the directory of its run.
      kind: the program and its version.
      expected: attributes that the checkpoint must have, such as id.
    Raises:
      SpecError, a ValueError: there is no checkpoint, or it is damaged, or of another program.
    """
    checkpoint = load_checkpoint(path)
    found = checkpoint.training.get("kind")
    if found != kind:
        raise SpecError(f"{path} holds {found!r}, expected {kind!r}: is it of another program?")
    for name, value in expected.items():
        if getattr(checkpoint, name) != value:
            raise SpecError(
                f"{path} has {name} = {getattr(checkpoint, name)!r}, expected {value!r}: "
                "resume with the arguments of the first run"
            )
    return {**checkpoint.training, "statistics": dict(checkpoint.statistics)}


def program_of(make_policy: Callable[..., Any]) -> dict[str, Any]:
    """Describes how a policy is made, for a checkpoint: `program` and `program_options`.

    Args:
      make_policy: a function of a program, or a functools.partial of one.
    """
    function = getattr(make_policy, "func", make_policy)
    path = Path(inspect.getfile(function)).resolve()
    home = Path(__file__).resolve().parents[2]
    shown = path.relative_to(home) if path.is_relative_to(home) else path
    return {
        "program": shown.as_posix(),
        "program_options": getattr(make_policy, "keywords", {}),
    }
