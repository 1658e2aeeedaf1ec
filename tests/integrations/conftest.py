# SPDX-License-Identifier: Apache-2.0
"""What tests of several adapters share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "distributed"))


@pytest.fixture(scope="session")
def rllib_ray() -> Iterator[None]:
    """Ray with 3 CPUs, for algorithms of RLlib."""
    import ray
    from small_cluster import NODE_ARGS, started

    already = ray.is_initialized()
    if not already:
        started(lambda: ray.init(num_cpus=3, log_to_driver=False, **NODE_ARGS))
    yield
    if not already:
        ray.shutdown()
