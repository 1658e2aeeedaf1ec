# SPDX-License-Identifier: Apache-2.0
"""Random streams of environments whose agents leave before an episode's end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from rollouts.datasets.step_blocks import FragmentStreams, ends_of


def _group(ended: list[list[int]]) -> Any:
    """A group's rollout (T, B) that says where its agents' episodes ended."""
    array = np.array(ended, np.bool_)
    columns = np.arange(array.shape[1], dtype=np.int32)
    reward = np.zeros(array.shape, np.float32)
    nothing = np.zeros_like(array)
    return SimpleNamespace(terminated=array, truncated=nothing, reward=reward, env_id=columns)


def test_a_group_that_has_left_ends_no_episode_of_others() -> None:
    # both runners of environment 0 leave at step 1, and its tagger goes on to step 3
    runners = _group([[0, 0, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0], [1, 1, 0, 0]])
    taggers = _group([[0, 0], [0, 0], [0, 0], [1, 0]])
    over = ends_of([runners, taggers], 2)
    np.testing.assert_array_equal(over, [[0, 0], [0, 0], [0, 0], [1, 0]])
    fragments = FragmentStreams(lambda incarnation: 7)
    info = SimpleNamespace(worker_id=0, incarnation=0, seq_no=0)
    streams = fragments.behind(info, {"runner": runners, "tagger": taggers}, over)
    assert streams is not None
    assert (streams.seed, streams.stream_id, streams.number.tolist()) == ([7, 7], [0, 1], [1, 0])
    # a fragment that is missing leaves nothing to count from
    info.seq_no = 2
    assert fragments.behind(info, {"runner": runners, "tagger": taggers}, over) is None
