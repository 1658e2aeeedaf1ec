# SPDX-License-Identifier: Apache-2.0
"""Names that the library reads or writes itself, which a user's own environment must not take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from rollouts.batch import STEP_ARRAYS
from rollouts.envs.unknown_option import arguments_of_make_vec
from rollouts.envs.wrappers import NAMES as WRAPPERS
from rollouts.rendering.frame_options import NAMES as FRAMES
from rollouts.rendering.frame_options import PREFIX

_TOLD_BY_ALL = frozenset(("env_id", "episode_return", "episode_length", "env_error"))
# further names in batches with several agents, and in steps
_TOLD = frozenset((*STEP_ARRAYS, "active", "ended", "episode", "env_error"))
# keywords that the library reads before environments' options
_READ_ELSEWHERE = ("from_pixels", "main_body", "model", "obs_dtype", "reset_mask")
# the library splits an option with this ending into two
_RANGE = "_range"


def is_told_by_pools(info_name: str) -> bool:
    """Tells if pools themselves put an array or a mask of this name into infos."""
    plain = info_name.removeprefix("_")
    return plain in _TOLD_BY_ALL or plain.startswith("final_")


def first_reserved(options: Sequence[str], infos: Sequence[str]) -> tuple[str, str] | None:
    """(name, reason) of the first option or info that an environment must not have."""
    return next(chain(_reserved_options(options), _reserved_infos(infos)), None)


def _reserved_infos(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    for name in names:
        if is_told_by_pools(name) or name in _TOLD or name.startswith("_"):
            yield name, f"the info {name!r} is the library's own: give yours another name"


def _reserved_options(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    frames = {*FRAMES, *(PREFIX + name for name in FRAMES)}
    for name in names:
        if name in arguments_of_make_vec():
            reader = "an argument of make_vec"
        elif name in WRAPPERS:
            reader = "a wrapper of make_vec"
        elif name in frames:
            reader = "an option of frames"
        elif name in _READ_ELSEWHERE or name.endswith(_RANGE):
            reader = "read by make_vec itself"
        else:
            continue
        yield name, f"the option {name!r} is {reader} and would not reach it: give it another name"
