# SPDX-License-Identifier: Apache-2.0
"""Parameters of which some stand for all: the others are `slow`, and `make test-all` has them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def slow_beside(kept: Collection[Any], values: Iterable[Any]) -> list[Any]:
    """Returns the values as parameters, of which those that are not in `kept` are slow."""
    return [pytest.param(one, marks=[pytest.mark.slow] * (one not in kept)) for one in values]
