# SPDX-License-Identifier: Apache-2.0
"""`register_env`: makes an id for a user's own environment."""

from __future__ import annotations

import math
import operator
import os
import re

import numpy as np

from rollouts.envs import registry
from rollouts.envs.gymnasium_ids import register_ids
from rollouts.envs.reserved_names import first_reserved
from rollouts.errors import DTypeError, SpecError
from rollouts.own_env.header_files import HeaderFiles, read_header
from rollouts.own_env.registrations import OwnEnv, add, travelling

_ID = re.compile(r"[A-Za-z0-9_.-]+")
_TYPE = re.compile(r"(::)?[A-Za-z_]\w*(::[A-Za-z_]\w*)*(<[\w:<>, ]*>)?")


def register_env(
    id: str,
    *,
    header: str | os.PathLike[str] | HeaderFiles,
    type: str,
    max_episode_steps: int | None = None,
    reward_threshold: float | None = None,
) -> str:
    """Makes an id for an environment that is written in a user's own C++ header.

    The system's C++ compiler ($CXX, else c++, g++ or clang++) compiles the header at the first call
    on this machine, which takes some seconds. The result is kept in ROLLOUTS_CACHE_DIR (default:
    ~/.cache/rollouts) and used again until the header, a file that it includes with "", the
    compiler or this library changes. The id is then in `env_ids()` or `multi_agent_ids()`:
    `make_vec`, collectors, workers of Ray, adapters and Gymnasium ("rollouts/" + id) take it.

    The id is known in this process. Pools and `RolloutCoordinator` register it in the processes
    that they start, from the text of the header. Code that pickles ids for other processes should
    pickle what this function returns, or call it again there.

    Args:
      id: Letters, digits, `_`, `.` and `-`, such as "MyEnv-v0".
      header: A file that follows the contract in rollouts/core/env.h or rollouts/core/multi_agent.h
        of `include_dir()`; `rollouts new-env` writes such a file, `rollouts check-env` tries it.
      type: Name of the struct in the header; inside namespace rollouts it needs no prefix.
      max_episode_steps: Steps after which an episode is truncated; None: never.
      reward_threshold: Mean return at which the task counts as solved; None: not defined.

    Returns:
      The id. Where it is unpickled, it registers the environment in that process.

    Raises:
      DTypeError: The header is no path, or the threshold is no number.
      SpecError: An argument is wrong, the header does not compile (the message has its file and
        line), or the id exists and means another environment. A repeated call does nothing.
      EngineError: There is no compiler, or no folder for its output.

    Example:
      rollouts.register_env("MyEnv-v0", header="my_env.h", type="MyEnv", max_episode_steps=200)
      envs = rollouts.make_vec("MyEnv-v0", 1024)
    """
    if not isinstance(id, str) or not _ID.fullmatch(id):
        raise SpecError(f"id must be letters, digits, _, . and -, as 'MyEnv-v0', got {id!r}")
    if not isinstance(type, str) or not _TYPE.fullmatch(type):
        raise SpecError(f"type must name a struct in C++, as 'MyEnv', got {type!r}")
    own = OwnEnv(
        id=str(id),
        files=header if isinstance(header, HeaderFiles) else read_header(_path(header)),
        type=type,
        max_episode_steps=_limit(max_episode_steps),
        reward_threshold=_threshold(reward_threshold),
    )
    if add(own, first_reserved):
        registry.forget_entries()
        register_ids(only=id)
    return travelling(id)


def _path(header: object) -> str | os.PathLike[str]:
    if not isinstance(header, (str, os.PathLike)) or isinstance(os.fspath(header), bytes):
        raise DTypeError(
            f"header must be a path, as 'my_env.h' or a pathlib.Path, got {header!r}; "
            "`rollouts new-env my_env.h` writes one to begin with"
        )
    text = os.fspath(header)
    if "\n" in text or "\0" in text:
        begin = text.strip().splitlines()[0][:40] if text.strip() else ""
        raise SpecError(
            f"header is text that begins with {begin!r}, expected the path of a file: write the "
            "text into one, as pathlib.Path('my_env.h').write_text(text)"
        )
    if not text:
        raise SpecError("header is '', expected the path of a file, as 'my_env.h'")
    return header


def _threshold(threshold: object) -> float:
    if threshold is None:
        return math.nan
    if isinstance(threshold, bool) or not isinstance(threshold, (int, float, np.number)):
        raise DTypeError(f"reward_threshold must be a number or None, got {threshold!r}")
    return float(threshold)


def _limit(limit: int | None) -> int:
    try:
        steps = 0 if limit is None else operator.index(limit)
    except TypeError:
        steps = -1
    if not 0 <= steps < 2**31 or limit == 0 or isinstance(limit, bool):
        raise SpecError(f"max_episode_steps must be a positive int or None, got {limit!r}")
    return steps
