# SPDX-License-Identifier: Apache-2.0
"""Parts that tests of several examples share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from small_cluster import cluster_of_its_own


@pytest.fixture(scope="session")
def in_a_cluster() -> Iterator[dict[str, str]]:
    """The environment of a program that joins a cluster of 4 CPUs, and starts no Ray of its own."""
    pytest.importorskip("ray")
    with cluster_of_its_own(num_cpus=4) as address:
        yield {**os.environ, "RAY_ADDRESS": address}
