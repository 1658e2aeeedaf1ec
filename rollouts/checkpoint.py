# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: one file with a trained policy, what it was trained in, and how far it was.

`docs/how_to/checkpoints.md` lists the entries. Reading one executes nothing that it holds.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rollouts.errors import SpecError
from rollouts.pool.statistics import RunningStatistics
from rollouts.support.extras import needs
from rollouts.support.whole_file import replace_whole

if TYPE_CHECKING:
    from torch import Tensor

    from rollouts.pool.vector_env import VectorEnv

FILE_NAME = "checkpoint.pt"  # in the directory of a run
FORMAT = "rollouts checkpoint"
VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A trained policy.

    Attributes:
      env_id: What it was trained in.
      env_options: Keyword arguments of `make_vec` that were given for it, wrappers among them:
        numbers, text, None, and arrays, lists and dicts of them.
      statistics: "observation" and "reward" -> what the wrappers that normalise had counted.
      program: Python file whose `make_policy(spec, **program_options)` makes the policy, relative
        to the directory that its users run commands in, such as "examples/ppo.py".
      program_options: What `make_policy` is given beside the spec; as env_options.
      weights: The state_dict of the policy's module; of several agents "<group>/<name>" -> tensor.
      policy_version: Of the weights; 1 before any training.
      env_steps: That it was trained with.
      seed: Of the training.
      training: What the program needs to go on: tensors too.
    """

    env_id: str
    weights: Mapping[str, Tensor]
    program: str
    program_options: Mapping[str, Any] = field(default_factory=dict)
    env_options: Mapping[str, Any] = field(default_factory=dict)
    statistics: Mapping[str, RunningStatistics] = field(default_factory=dict)
    policy_version: int = 1
    env_steps: int = 0
    seed: int = 0
    training: Mapping[str, Any] = field(default_factory=dict)

    def freeze_statistics(self, env: VectorEnv) -> None:
        """Has a pool scale by what was counted in the training, and count no more.

        Raises:
          SpecError: The statistics do not fit the pool's observations.
        """
        for kind, counted in self.statistics.items():
            setattr(env, f"{kind}_statistics", counted)
        if self.statistics:
            env.update_statistics = False


# entry -> what it must be
_ENTRIES: dict[str, type] = {
    "env_id": str,
    "weights": dict,
    "program": str,
    "program_options": dict,
    "env_options": dict,
    "statistics": dict,
    "policy_version": int,
    "env_steps": int,
    "seed": int,
    "training": dict,
}


def save_checkpoint(path: str | os.PathLike[str], checkpoint: Checkpoint) -> None:
    """Replaces a file; whenever this stops, it is the old or the new one.

    Args:
      path: The file, or the directory of a run, which then exists.
      checkpoint: What it shall hold.

    Raises:
      SpecError: An option is of a type that no checkpoint holds; nothing is written.
      OSError: The file cannot be written.
    """
    import torch

    path = _file(path)
    state = {name: getattr(checkpoint, name) for name in _ENTRIES}
    for name in ("env_options", "program_options"):
        state[name] = {key: _plain(f"{name}[{key!r}]", one) for key, one in state[name].items()}
    state["statistics"] = {key: one.state_dict() for key, one in checkpoint.statistics.items()}
    for name in ("weights", "training"):
        state[name] = dict(state[name])
    with replace_whole(path) as file:
        torch.save({"format": FORMAT, "version": VERSION, **state}, file)


def load_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Reads what `save_checkpoint` wrote, tensors on the CPU.

    Args:
      path: The file, or the directory of a run.

    Raises:
      SpecError: There is none, it is damaged, of another version or something else.
      EngineError: torch is missing.
    """
    path = _file(path)
    return from_state(read_state(path), path)


def read_state(path: Path) -> dict[str, Any]:
    """The dict in a file of torch.save, be it a checkpoint or not. Nothing in it is executed.

    Raises:
      SpecError: There is none, it is damaged or holds something else.
      EngineError: torch is missing.
    """
    with needs("torch", "reading a checkpoint"):
        import torch

    if not path.is_file():
        raise SpecError(
            f"no checkpoint at {path}: give a checkpoint, or the directory of a run that has a "
            f"{FILE_NAME}"
        )
    try:
        # weights_only: pickled code in a foreign file is refused instead of executed
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises a dozen types for damaged files
        reason = (str(error).splitlines() or [""])[0]
        raise SpecError(
            f"{path} is not a readable checkpoint ({type(error).__name__}: {reason}): expected a "
            "file of torch.save with tensors, numbers and strings alone; it may be damaged"
        ) from error
    if not isinstance(state, dict):
        raise SpecError(f"{path} holds a {type(state).__name__}, expected a dict")
    return state


def from_state(state: Mapping[str, Any], path: Path) -> Checkpoint:
    """The checkpoint that a file's dict is.

    Raises:
      SpecError: It is none, or of another version.
    """
    if state.get("format") != FORMAT:
        found = ", ".join(sorted(map(str, state))[:8]) or "nothing"
        raise SpecError(
            f"{path} is no checkpoint of rollouts: it has {found}, expected format = {FORMAT!r}; "
            "rollouts.checkpoint.save_checkpoint writes one"
        )
    if state.get("version") != VERSION:
        raise SpecError(
            f"{path} has version {state.get('version')!r} of the format, expected {VERSION}: read "
            "it with the release of rollouts that wrote it, or train again"
        )
    for name, kind in _ENTRIES.items():
        value = state.get(name)
        if not isinstance(value, kind) or isinstance(value, bool):
            found = "no" if name not in state else f"a {type(value).__name__} as"
            raise SpecError(f"{path} has {found} {name}, expected a {kind.__name__}")
    _check_weights(state["weights"], path)
    entries = {name: state[name] for name in _ENTRIES}
    try:
        entries["statistics"] = {
            kind: RunningStatistics.from_state_dict(counted)
            for kind, counted in state["statistics"].items()
        }
    except SpecError as error:
        raise SpecError(f"{path} has statistics that cannot be read: {error}") from error
    return Checkpoint(**entries)


def _check_weights(weights: Mapping[str, Any], path: Path) -> None:
    import torch

    for name, value in weights.items():
        if not isinstance(value, torch.Tensor):
            raise SpecError(
                f"{path} has a {type(value).__name__} as weights[{name!r}], expected a tensor"
            )


def _file(path: str | os.PathLike[str]) -> Path:
    path = Path(path)
    return path / FILE_NAME if path.is_dir() else path


def _plain(name: str, value: Any) -> Any:
    """The same of numbers, text, None, lists and dicts alone."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biuf":
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, list | tuple):
        return [_plain(f"{name}[{index}]", one) for index, one in enumerate(value)]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _plain(f"{name}[{key!r}]", one) for key, one in value.items()}
    raise SpecError(
        f"{name} is {value!r}, which a checkpoint cannot hold: expected numbers, text, None, and "
        "arrays, lists and dicts of them"
    )
