# SPDX-License-Identifier: Apache-2.0
"""Parts that tests of several adapters share."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture(scope="session")
def rllib_ray(ray_session: Any) -> None:
    """The Ray that tests share, for algorithms of RLlib."""
