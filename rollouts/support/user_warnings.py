# SPDX-License-Identifier: Apache-2.0
"""Warnings that name the line in the user's code that led to them."""

from __future__ import annotations

import sys
import warnings

_PACKAGE = __name__.partition(".")[0]


def warn_user(message: str, category: type[Warning]) -> None:
    """Warns at the innermost line outside this library, at any depth of calls.

    Where warnings are errors this raises: call it after all results are stored.
    """
    frame, level = sys._getframe(1), 2  # our caller
    while frame.f_back is not None and _is_ours(frame.f_globals.get("__name__")):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def _is_ours(module: object) -> bool:
    return isinstance(module, str) and module.partition(".")[0] == _PACKAGE
