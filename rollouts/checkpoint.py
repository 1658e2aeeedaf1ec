# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: one file with a trained policy, its environment, and the state of its training.

`docs/how_to/checkpoints.md` lists the entries. Reading one executes nothing that it holds.
"""

from __future__ import annotations

import contextlib
import os
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from rollouts.envs.statistics import RunningStatistics, checked
from rollouts.errors import EngineError, SpecError
from rollouts.support.extras import needs
from rollouts.support.plain_values import (
    as_tensor,
    first_sentence,
    plain_int,
    plain_option,
    plain_path,
    plain_state,
    plain_text,
    shown,
)
from rollouts.support.whole_file import replace_whole

if TYPE_CHECKING:
    from torch import Tensor

    from rollouts.envs.vector_env import VectorEnv

FILE_NAME = "checkpoint.pt"  # in the directory of a run
FORMAT = "rollouts checkpoint"
VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A trained policy.

    Attributes:
      id: The id of the training.
      env_options: Keyword arguments of `make_vec` that were given for it, wrappers among them:
        numbers, text, None, and arrays, lists and dicts of them.
      statistics: "observation" and "reward" -> statistics of the wrappers that normalise.
      program: Python file whose `make_policy(spec, **program_options)` makes the policy, relative
        to the directory that its users run commands in, such as "examples/ppo.py".
      program_options: Arguments of `make_policy` besides the spec; of the same kinds as
        env_options.
      weights: The state_dict of the policy's module; for several agents "<group>/<name>" -> tensor.
      policy_version: Version of the weights; 1 before any training.
      env_steps: Env-steps of the training.
      seed: Seed of the training; None: without a seed.
      training: State from which the program continues: tensors, bytes, tuples and sets, too.
    """

    id: str
    weights: Mapping[str, Tensor]
    program: str
    program_options: Mapping[str, Any] = field(default_factory=dict)
    env_options: Mapping[str, Any] = field(default_factory=dict)
    statistics: Mapping[str, RunningStatistics] = field(default_factory=dict)
    policy_version: int = 1
    env_steps: int = 0
    seed: int | None = 0
    training: Mapping[str, Any] = field(default_factory=dict)

    def freeze_statistics(self, env: VectorEnv) -> None:
        """Makes a pool scale with the statistics of the training, and stop counting.

        Raises:
          SpecError: The statistics do not fit the pool's observations.
        """
        for kind, counted in self.statistics.items():
            setattr(env, f"{kind}_statistics", counted)
        if self.statistics:
            env.update_statistics = False


# entry -> its types
_ENTRIES: dict[str, tuple[type, ...]] = {
    "id": (str,),
    "weights": (dict,),
    "program": (str,),
    "program_options": (dict,),
    "env_options": (dict,),
    "statistics": (dict,),
    "policy_version": (int,),
    "env_steps": (int,),
    "seed": (int, type(None)),
    "training": (dict,),
}
_KINDS = ("observation", "reward")  # the statistics that a checkpoint may hold
SAFE_TORCH = (2, 10)  # the first release whose weights_only is safe


def save_checkpoint(path: str | os.PathLike[str], checkpoint: Checkpoint) -> None:
    """Writes a checkpoint, and reads it back before it replaces the file.

    A crash leaves the old file or the new one.
    NumPy's numbers become Python's, paths become text, and arrays become lists or, in `weights` and
    `training`, tensors. An existing file keeps its mode.

    Args:
      path: The file, or an existing directory of a run.
      checkpoint: The contents.

    Raises:
      SpecError: An entry is, or contains, a value that no checkpoint holds; nothing is written.
      FileError: The file cannot be written, for lack of a folder or of room.
    """
    import torch

    path = _file(path)
    state = {"format": FORMAT, "version": VERSION, **_plain_entries(checkpoint)}
    with replace_whole(path) as file:
        try:
            torch.save(state, file)
        except Exception as error:
            if isinstance(error.__context__, OSError):  # torch reports only "unexpected pos"
                raise error.__context__ from None
            raise SpecError(
                f"torch.save cannot write the checkpoint ({first_sentence(error)}), expected "
                "tensors as those of a state_dict: leave others out"
            ) from error
        file.seek(0)
        try:
            from_state(_read(file, path), path)
        except SpecError as error:
            raise SpecError(
                f"the checkpoint was not saved, for it could not be read back ({error}): leave out "
                f"what torch.load(..., weights_only=True) does not read; {path} is as it was"
            ) from error


def _plain_entries(checkpoint: Checkpoint) -> dict[str, Any]:
    """All entries in types that `load_checkpoint` reads.

    Raises:
      SpecError: A value has another type; the message names its entry.
    """
    if not isinstance(checkpoint, Checkpoint):
        raise SpecError(
            f"checkpoint is {shown(checkpoint)}, expected a rollouts.checkpoint.Checkpoint: "
            "save_checkpoint(path, Checkpoint(id=..., weights=..., program=...))"
        )
    given = {name: getattr(checkpoint, name) for name in _ENTRIES}
    for name, types in _ENTRIES.items():
        if dict in types and not isinstance(given[name], Mapping):
            hint = f"{name}=module.state_dict()" if name == "weights" else f"{name}={{...}}"
            raise SpecError(f"{name} is {shown(given[name])}, expected a dict: {hint}")
    plain: dict[str, Any] = {name: plain_text(name, given[name]) for name in ("id", "program")}
    for name in ("policy_version", "env_steps", "seed"):
        is_none = name == "seed" and given[name] is None
        least = None if name == "seed" else 0
        plain[name] = None if is_none else plain_int(name, given[name], least=least)
    for name in ("env_options", "program_options"):
        plain[name] = plain_option(name, given[name])
    plain["statistics"] = {
        _kind(kind): plain_option(f"statistics[{kind!r}]", _counted(kind, one).state_dict())
        for kind, one in given["statistics"].items()
    }
    plain["weights"] = {name: _weight(name, one) for name, one in given["weights"].items()}
    plain["training"] = plain_state("training", given["training"])
    return plain


def _weight(name: Any, value: Any) -> Tensor:
    import torch

    if not isinstance(name, str):
        raise SpecError(f"weights has the key {shown(name)}, expected names as of a state_dict")
    if isinstance(value, torch.Tensor):
        return value.detach()
    if isinstance(value, np.ndarray | np.generic):
        tensor: Tensor = as_tensor(f"weights[{name!r}]", value)
        return tensor
    raise SpecError(
        f"weights[{name!r}] is {shown(value)}, expected a tensor or an array: give the "
        "state_dict() of the policy's module"
    )


def _kind(kind: Any) -> str:
    if kind not in _KINDS:
        raise SpecError(
            f"statistics has the key {shown(kind)}, expected 'observation' or 'reward': "
            "statistics={'observation': env.observation_statistics}"
        )
    return str(kind)


def _counted(kind: Any, given: Any) -> RunningStatistics:
    name = f"statistics[{kind!r}]"
    return checked(name, given, np.shape(getattr(given, "mean", ())))


def load_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Reads a file of `save_checkpoint`, with tensors on the CPU. Nothing in the file is executed.

    Do not trust its `program` and `env_options`, though: before you run the program, or use options
    that name files or are command lines, check that they are those that you expect.

    Args:
      path: The file, or the directory of a run.

    Raises:
      SpecError: There is no file, it is damaged, of another version or something else.
      EngineError: torch is missing, or of a release that executes contents of crafted files.
    """
    return from_state(read_state(path), _file(path))


def read_state(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The dict in a file of torch.save, whether a checkpoint or not. Nothing in it is executed.

    Args and errors are those of `load_checkpoint`.
    """
    path = _file(path)
    if not os.path.isfile(path):
        raise SpecError(
            f"no checkpoint at {path}: give a checkpoint, or the directory of a run that has a "
            f"{FILE_NAME}"
        )
    refuse_unsafe_torch()
    _refuse_foreign(path)
    return _read(path, path)


def refuse_unsafe_torch() -> None:
    """Raises unless this torch can read a stranger's file without executing anything in it.

    Raises:
      EngineError: torch is missing, or older than 2.10, where crafted files write into memory and
        run code in spite of weights_only (CVE-2025-32434, CVE-2026-24747).
    """
    with needs("torch", "reading a checkpoint"):
        import torch

    release = tuple(int(part) for part in re.findall(r"\d+", torch.__version__)[:2])
    if release < SAFE_TORCH:
        raise EngineError(
            f"torch {torch.__version__} executes what crafted files hold, weights_only or not "
            "(CVE-2026-24747), expected 2.10 or later: pip install 'rollouts[torch]' -U"
        )


def _refuse_foreign(path: Path) -> None:
    """Raises SpecError for files that are known to be another library's."""
    names: list[str] = []
    unreadable = contextlib.suppress(OSError, ValueError, NotImplementedError, zipfile.BadZipFile)
    with unreadable, zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    if "_stable_baselines3_version" in names:
        raise SpecError(
            f"{path} is a model of Stable-Baselines3, expected a checkpoint of "
            "rollouts.checkpoint.save_checkpoint: play it with that library's load and "
            "evaluate_policy over a RolloutsVecEnv"
        )


def _read(file: Path | BinaryIO, path: Path) -> dict[str, Any]:
    """The dict in a file; `path` is its name in messages."""
    import torch

    try:
        # weights_only: pickled code in a foreign file is refused instead of executed
        state = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises a dozen types for damaged files
        raise SpecError(
            f"{path} is not a readable checkpoint ({type(error).__name__}: "
            f"{first_sentence(error)}), expected a {FILE_NAME} that "
            "rollouts.checkpoint.save_checkpoint wrote: give another file; if it is one, it is "
            "damaged"
        ) from error
    if not isinstance(state, dict):
        raise SpecError(
            f"{path} holds a {type(state).__name__}, expected a dict: "
            "rollouts.checkpoint.save_checkpoint writes one"
        )
    return state


def from_state(state: Mapping[str, Any], path: Path) -> Checkpoint:
    """The checkpoint in a file's dict.

    Raises:
      SpecError: It is not a checkpoint, or one of another version.
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
    for name, kinds in _ENTRIES.items():
        value = state.get(name)
        if name not in state or not isinstance(value, kinds) or isinstance(value, bool):
            found = "no" if name not in state else f"a {type(value).__name__} as"
            article = "an" if kinds[0] is int else "a"
            raise SpecError(
                f"{path} has {found} {name}, expected {article} {kinds[0].__name__}: it was not "
                "written by save_checkpoint, or changed since"
            )
    _check_weights(state["weights"], path)
    entries = {name: state[name] for name in _ENTRIES}
    try:
        entries["statistics"] = {
            _kind(kind): _counted(kind, RunningStatistics.from_state_dict(counted))
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
    expected = "the path of a file or of a run's directory, such as 'runs/first'"
    name = plain_path("path", path, expected)
    return Path(name) / FILE_NAME if os.path.isdir(name) else Path(name)
