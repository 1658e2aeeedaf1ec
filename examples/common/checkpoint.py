# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of the examples: written whole or not at all, read without executing anything."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import torch

from rollouts import RunningStatistics

FILE_NAME = "checkpoint.pt"


class Checkpointed:
    """A learner that names what of it a checkpoint holds.

    Attributes:
      saved: attributes: modules, optimisers, tensors, a torch.Generator, RunningStatistics,
        numbers.
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


def save_checkpoint(path: Path, kind: str, state: dict[str, Any]) -> None:
    """Replaces `path` by a file with `state`; whenever this stops, `path` is the old or the new.

    Args:
      path: the file; its directory exists.
      kind: which program this is for, and in which version.
      state: tensors, numbers, strings, and lists and dicts of them.
    """
    # in the same directory, because only within a file system is a rename atomic
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            torch.save({"kind": kind, **state}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def load_checkpoint(path: Path, kind: str, **expected: str) -> dict[str, Any]:
    """Reads a file of `save_checkpoint`.

    Args:
      path: the file, or the directory it is in.
      kind: what `save_checkpoint` was told.
      expected: entries that must have these values, such as env_id.
    Raises:
      ValueError: the file is damaged, of another program, or of another environment.
      FileNotFoundError: there is none.
    """
    path = path / FILE_NAME if path.is_dir() else path
    if not path.is_file():
        raise FileNotFoundError(f"no checkpoint at {path}: give a run directory or its {FILE_NAME}")
    try:
        # weights_only: pickled code in a foreign file is refused instead of executed
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises a dozen types for damaged files
        reason = (str(error).splitlines() or [""])[0]
        raise ValueError(
            f"{path} is not a readable checkpoint ({type(error).__name__}: {reason}): "
            "expected a file written by this program; it may be damaged"
        ) from error
    if not isinstance(state, dict) or state.get("kind") != kind:
        found = state.get("kind") if isinstance(state, dict) else type(state).__name__
        raise ValueError(f"{path} holds {found!r}, expected {kind!r}: is it of another program?")
    for name, value in expected.items():
        if state.get(name) != value:
            raise ValueError(
                f"{path} has {name} = {state.get(name)!r}, expected {value!r}: "
                "resume with the arguments of the first run"
            )
    return state
