# SPDX-License-Identifier: Apache-2.0
"""Compiled files of these tests are kept between runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from own_envs import has_compiler, keep_between_runs, quick_compiler

keep_between_runs()


@pytest.fixture(autouse=True)
def compiler() -> None:
    """Skips where there is none."""
    if not has_compiler():
        pytest.skip("needs a C++ compiler")


@pytest.fixture(scope="module")
def quickly_here() -> Iterator[None]:
    """As `quickly`, for the fixtures of a module."""
    with pytest.MonkeyPatch.context() as patched:
        if has_compiler():
            patched.setenv("CXX", quick_compiler())
        yield


@pytest.fixture
def quickly(compiler: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiles without optimisations, for tests of what the contract says."""
    monkeypatch.setenv("CXX", quick_compiler())
