# SPDX-License-Identifier: Apache-2.0
"""The thread that collects does little for the log, as Python keeps it from the next rollout."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from recorded_run import policies_of

import rollouts

# with the coding of the record; the second has two groups of agents
MOST_CALLS = {"CartPole-v1": 27, "simple_tag_v3": 31}


def num_calls(id: str, record: Any) -> int:
    """Returns the fewest calls of Python functions that a rollout took."""
    counts: list[int] = []

    def count(frame: FrameType, event: str, arg: object) -> None:
        counts[-1] += event == "call"

    with rollouts.make_vec(id, 6, seed=3, autoreset_mode="same_step") as env:
        collector = rollouts.Collector(env, policies_of(env), 8, record=record)
        for _ in range(10):
            counts.append(0)
            sys.setprofile(count)
            try:
                collector.collect()
            finally:
                sys.setprofile(None)
        collector.close()
    return min(counts)


@pytest.mark.parametrize("id", MOST_CALLS)
def test_a_rollout_that_is_recorded_takes_few_calls_more(id: str, tmp_path: Path) -> None:
    more = num_calls(id, tmp_path / "log") - num_calls(id, None)
    assert 0 < more <= MOST_CALLS[id]
