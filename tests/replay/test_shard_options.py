# SPDX-License-Identifier: Apache-2.0
"""ShardOptions: its checks, and keywords that ReplayService does not take."""

from __future__ import annotations

import dataclasses
import inspect
import pickle
from typing import Any

import pytest

from rollouts.errors import DTypeError, SpecError
from rollouts.replay import ReplayService, ShardOptions


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_batch_length": 0}, r"shards\.max_batch_length is 0"),
        ({"num_threads": 0}, r"shards\.num_threads is 0"),
        ({"max_bytes": -1}, r"shards\.max_bytes is -1"),
        ({"max_restarts": -1}, r"shards\.max_restarts is -1"),
        ({"storage_dir": 3}, r"shards\.storage_dir is 3, expected a str"),
        ({"num_cpus": -0.5}, r"shards\.num_cpus is -0\.5, expected at least 0"),
        ({"num_cpus": 1, "strategy": "NEAR"}, r"shards\.strategy is 'NEAR', expected None or one"),
        ({"node_labels": "b"}, r"shards\.node_labels is 'b', expected a dict"),
        ({"strategy": "SPREAD"}, r"shards\.num_cpus is 0\.0, expected more than 0 with a strategy"),
    ],
)
def test_a_value_out_of_range_names_its_field(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        ShardOptions(**fields)


def test_options_are_frozen_and_pickle() -> None:
    options = ShardOptions(num_cpus=1, strategy="PACK", node_labels={"zone": "b"})
    assert pickle.loads(pickle.dumps(options)) == options
    with pytest.raises(dataclasses.FrozenInstanceError):
        options.num_cpus = 2  # type: ignore[misc]


@pytest.mark.parametrize("keyword", ["num_threads_per_shard", "num_cpus", "max_restart"])
def test_a_keyword_that_it_does_not_take_is_named_with_those_that_it_takes(keyword: str) -> None:
    anything: Any = None
    with pytest.raises(DTypeError, match=rf"ReplayService.*{keyword}.*shards"):
        ReplayService(anything, anything, anything, **{keyword: 2})
    assert len(inspect.signature(ReplayService).parameters) == 11
