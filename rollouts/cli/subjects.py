# SPDX-License-Identifier: Apache-2.0
"""The subjects of `rollouts bench SUBJECT`."""

from __future__ import annotations

from collections.abc import Sequence

POOL = "pool"  # the subject if none is named


def subject_of(arguments: Sequence[str]) -> str:
    """The subject in arguments that begin with "bench"."""
    return arguments[1] if len(arguments) > 1 and not arguments[1].startswith("-") else POOL


def with_subject(arguments: Sequence[str]) -> list[str]:
    """Returns the command's arguments, with the default subject added if "bench" has none."""
    first = arguments[1] if len(arguments) > 1 else ""
    if arguments[:1] == ["bench"] and first.startswith("-") and first not in ("-h", "--help"):
        return ["bench", POOL, *arguments[1:]]
    return list(arguments)
