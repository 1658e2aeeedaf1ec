# SPDX-License-Identifier: Apache-2.0
"""The benchmark behind `rollouts bench`: our pool and other libraries in one run.

`all_peers` lists the peers by name with the measures that each takes part in, `own_pools` makes our
environments, `runner` measures all of them interleaved, `measurement` holds the results, and
`report` prints them. No other library is imported before its peer is opened.
"""

from __future__ import annotations

from rollouts.bench.all_peers import names, peers, stepper
from rollouts.bench.interleaved import compare
from rollouts.bench.measurement import Comparison, Failure, Measurement, NotMeasured, Settings
from rollouts.bench.own_pools import OpenEnv, Rollouts, Stepper
from rollouts.bench.peer import Peer

__all__ = [
    "Comparison",
    "Failure",
    "Measurement",
    "NotMeasured",
    "OpenEnv",
    "Peer",
    "Rollouts",
    "Settings",
    "Stepper",
    "compare",
    "names",
    "peers",
    "stepper",
]
