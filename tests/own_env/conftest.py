# SPDX-License-Identifier: Apache-2.0
"""Compiled files of these tests are kept between runs."""

from __future__ import annotations

import pytest
from own_envs import has_compiler, keep_between_runs

keep_between_runs()


@pytest.fixture(autouse=True)
def compiler() -> None:
    """Skips where there is none."""
    if not has_compiler():
        pytest.skip("needs a C++ compiler")
