# SPDX-License-Identifier: Apache-2.0
"""Recorder in each cell: it works, or the table's sentence refuses it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_feature_table import IDS, make_env, needs, policies_of, tried

import rollouts
from rollouts.datasets import open_set
from rollouts.features import CELLS, Cell, why_not


@pytest.mark.parametrize("states", [False, True])
@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_rollouts_are_recorded_or_states_are_refused(
    cell: Cell, states: bool, tmp_path: Path
) -> None:
    needs(cell)
    with make_env(cell, "") as env:
        collector: Any = rollouts.Collector(env, policies_of(env), 8, keep_final_obs=True)
        to = tmp_path / "set.parquet"
        sentence = why_not("Recorder", "states", cell) if states else ""
        made = tried(cell, sentence, lambda: rollouts.Recorder(collector, to, states=states))
        if made is not None:
            with made as recorder:
                recorder.record(num_episodes=3)
            for path in recorder.paths.values():
                assert all((one.state is not None) == states for one in open_set(path))
        collector.close()


@pytest.mark.parametrize("cell", IDS, ids=str)
def test_single_steps_are_recorded_or_refused(cell: Cell, tmp_path: Path) -> None:
    needs(cell)
    with make_env(cell, "") as env:
        sentence = why_not("Recorder", "reset and step", cell)
        made = tried(cell, sentence, lambda: rollouts.Recorder(env, tmp_path / "set.parquet"))
        if made is not None:
            with made as recorder:
                recorder.reset()
                recorder.step(env.action_space.sample())
