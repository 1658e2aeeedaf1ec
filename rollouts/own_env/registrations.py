# SPDX-License-Identifier: Apache-2.0
"""Users' own environments, by id: those that this process registered, and how ids are pickled."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rollouts import _native
from rollouts.errors import SpecError
from rollouts.own_env.compile_errors import place_of
from rollouts.own_env.compiler import build, sources_beside
from rollouts.own_env.header_files import HeaderFiles
from rollouts.support.include_dir import include_dir
from rollouts.support.option_help import remember_header

# prefix of the `EnvSpec.header` of a user's own environment
HEADERS = "own/"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnEnv:
    """All that registers an environment, here or in another process.

    Attributes:
      id, max_episode_steps, reward_threshold: As for `rollouts.register_env`; NaN stands for no
        threshold.
      files: Its header.
      type: The type in it.
    """

    id: str
    files: HeaderFiles
    type: str
    max_episode_steps: int
    reward_threshold: float

    @property
    def header(self) -> str:
        """The path shown as `EnvSpec.header`."""
        return f"{HEADERS}{self.files.digest[:12]}/{self.files.name}"

    def same_as(self, other: OwnEnv) -> bool:
        """Tells if both make the same environment, even if read from different folders."""
        thresholds = {self.reward_threshold, other.reward_threshold}
        return (
            (self.id, self.type, self.max_episode_steps, self.files.digest)
            == (other.id, other.type, other.max_episode_steps, other.files.digest)
        ) and (len(thresholds) == 1 or all(math.isnan(one) for one in thresholds))


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvSource:
    """The files from which a compiler makes an environment of ours or of a user.

    Attributes:
      header: The path to `#include`, below one of `include_dirs`.
      type: The environment's type, as named inside namespace rollouts.
      include_dirs: Folders for the compiler.
      multi_agent: Whether it follows core/multi_agent.h; else it follows core/env.h.
      files: A user's header and its includes; None: an environment of ours.
    """

    header: str
    type: str
    include_dirs: tuple[Path, ...]
    multi_agent: bool
    files: HeaderFiles | None


class OwnEnvId(str):
    """An id that is pickled with its environment: unpickling registers it in that process."""

    __slots__ = ("own",)

    own: OwnEnv

    def __new__(cls, own: OwnEnv) -> OwnEnvId:
        made = super().__new__(cls, own.id)
        made.own = own
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrive, (self.own,)


_lock = threading.Lock()
_registered: dict[str, tuple[OwnEnv, Path]] = {}  # by id, with each one's library


def add(own: OwnEnv, reserved: Callable[[list[str], list[str]], tuple[str, str] | None]) -> bool:
    """Compiles an environment and adds it to the native registry; thread-safe.

    Args:
      own: The environment.
      reserved: Returns an option or info with a name that it must not have, and the reason.

    Returns:
      Whether it was not registered in this process before.

    Raises:
      SpecError: Another environment has this id, the header does not compile, or it declares
        something wrong.
      EngineError: No compiler.
    """
    with _lock:
        if own.id in _registered:
            before, _ = _registered[own.id]
            if before.same_as(own):
                return False
            raise SpecError(f"{own.id!r} is registered already, {_difference(before, own)}")
        if any(entry["id"] == own.id for entry in _native.registry()):
            raise SpecError(f"{own.id!r} is one of our own ids: choose another one")
        library = build(own.files, own.type)
        _check_declared(own, library, reserved)
        _native.register_env(
            id=own.id,
            max_episode_steps=own.max_episode_steps,
            reward_threshold=own.reward_threshold,
            header=own.header,
            # states can only be loaded by environments with the same source text
            type=f"{own.type} of {own.header}",
            library=str(library),
        )
        # the header comes before its includes, so that its fields come first
        texts = sorted(own.files.files.items(), key=lambda file: file[0] != own.files.name)
        remember_header(own.header, "\n".join(text for _, text in texts))
        _registered[own.id] = own, library
        return True


def _check_declared(
    own: OwnEnv,
    library: Path,
    reserved: Callable[[list[str], list[str]], tuple[str, str] | None],
) -> None:
    try:
        refused = reserved(*_native.own_env_names(str(library)))
    except SpecError as error:
        place = place_of(own.files, own.type, r"\bkSpec\b\s*=|\bMakeSpec\s*\(")
        raise SpecError(f"{place}: {own.type}: {error}") from None
    if refused:
        name, why = refused
        place = place_of(own.files, own.type, rf'"{re.escape(name)}"')
        raise SpecError(f"{place}: {own.type}: {why}")


def _difference(before: OwnEnv, now: OwnEnv) -> str:
    if before.files.digest != now.files.digest:
        return (
            "with another text of its header: take another id, such as one with -v1, or begin anew"
        )
    return (
        f"as type={before.type!r}, max_episode_steps={before.max_episode_steps}, "
        f"reward_threshold={before.reward_threshold:g}"
    )


def travelling(id: str) -> str:
    """The id, in the form that registers an own environment wherever it is unpickled."""
    # an argument that is no id is refused by the code that reads it
    found = _registered.get(id) if isinstance(id, str) else None
    return id if found is None else OwnEnvId(found[0])


def travelling_all(id: str | Sequence[str]) -> str | list[str]:
    """`travelling` of one id or of each."""
    return travelling(id) if isinstance(id, str) else [travelling(one) for one in id]


def env_source(id: str) -> EnvSource:
    """The source of an environment's text, for the compilers of other devices.

    Args:
      id: Id of an entry of the native registry.

    Raises:
      SpecError: There is no such id.
    """
    for entry in _native.registry():
        if entry["id"] != id:
            continue
        if id in _registered:
            own, library = _registered[id]
            return EnvSource(
                header=own.files.name,
                type=own.type,
                include_dirs=(sources_beside(library), include_dir()),
                multi_agent=entry["multi_agent"],
                files=own.files,
            )
        return EnvSource(
            header=f"rollouts/{entry['header']}",
            type=entry["type"],
            include_dirs=(include_dir(),),
            multi_agent=entry["multi_agent"],
            files=None,
        )
    raise SpecError(f"unknown id {id!r}: `rollouts.env_ids()` lists all of them")


def _arrive(own: OwnEnv) -> OwnEnvId:
    # called by name, because the function also registers with Gymnasium and belongs to a higher
    # layer
    import rollouts

    rollouts.register_env(
        own.id,
        header=own.files,
        type=own.type,
        max_episode_steps=own.max_episode_steps or None,
        reward_threshold=None if math.isnan(own.reward_threshold) else own.reward_threshold,
    )
    return OwnEnvId(own)
