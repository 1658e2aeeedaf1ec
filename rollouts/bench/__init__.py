# SPDX-License-Identifier: Apache-2.0
"""The benchmark behind `rollouts bench`: our pool and other libraries in one run.

`peers` knows how each library makes the environment we make, `runner` measures them
interleaved, `measurement` holds what was measured, `report` writes it down. No library
but ours is imported before a peer is asked for.
"""

from __future__ import annotations

from rollouts.bench.engines import ENGINES
from rollouts.bench.measurement import Comparison, Failure, Measurement, NotMeasured, Settings
from rollouts.bench.multi_agent_peers import MULTI_AGENT_PEERS
from rollouts.bench.other_id import OTHERS_OF_OURS
from rollouts.bench.peers import LIBRARIES, OpenEnv, Peer, Rollouts
from rollouts.bench.runner import compare

PEERS = {
    **LIBRARIES,
    **OTHERS_OF_OURS,
    **ENGINES,
    **MULTI_AGENT_PEERS,
}

__all__ = [
    "PEERS",
    "Comparison",
    "Failure",
    "Measurement",
    "NotMeasured",
    "OpenEnv",
    "Peer",
    "Rollouts",
    "Settings",
    "compare",
]
