# SPDX-License-Identifier: Apache-2.0
"""Options of collecting that a Collector has too reach the Collector of a worker."""

from __future__ import annotations

import inspect

import rollouts
from rollouts.returns import Gae
from rollouts.workers import CollectOptions


def test_a_worker_s_collector_gets_every_option_of_its_own() -> None:
    returns = Gae(gamma=0.9, gae_lambda=0.8)
    options = CollectOptions(keep_final_obs=True, returns=returns, batch_size=2)
    given = options.of_collector
    assert (given["keep_final_obs"], given["returns"]) == (True, returns)
    keywords = {*inspect.signature(rollouts.Collector).parameters}
    ours = {one for one in CollectOptions.__dataclass_fields__ if one in keywords}
    assert {*given} == ours
    assert {"engine", "mask_actions", "num_torch_threads", "outputs"} < ours
    assert "batch_size" not in given
