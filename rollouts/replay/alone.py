# SPDX-License-Identifier: Apache-2.0
"""Whether anybody else is there who could end a wait without a timeout."""

from __future__ import annotations

import sys


def is_only_thread() -> bool:
    """Tells whether no other thread runs Python, whoever started it."""
    return len(sys._current_frames()) == 1
