# SPDX-License-Identifier: Apache-2.0
"""What tests of several adapters share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def rllib_ray() -> Iterator[None]:
    """Ray with 3 CPUs, for algorithms of RLlib."""
    import ray

    already = ray.is_initialized()
    if not already:
        ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False)
    yield
    if not already:
        ray.shutdown()
