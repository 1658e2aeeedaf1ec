# SPDX-License-Identifier: Apache-2.0
"""`examples/common/evaluation.py`: whole episodes, each once; a log that survives its process."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import rollouts

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The example as a module."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    from common import evaluation

    module: ModuleType = evaluation
    return module


def push(obs: Any) -> Any:
    """A fixed torque for each environment, of another size for another observation."""
    return np.tanh(obs[:, :3]).astype(np.float32)


def test_returns_are_those_of_the_first_episodes(example: ModuleType) -> None:
    returns = example.evaluate(push, "Hopper-v5", num_episodes=6, seed=7)
    expected = np.full(6, np.nan)
    with rollouts.make_vec("Hopper-v5", 6, seed=7, autoreset_mode="same_step") as env:
        obs, _ = env.reset()
        lengths = np.zeros(6, int)
        while np.isnan(expected).any():
            env.send(push(obs))
            step = env.recv_batch()
            obs = step.obs
            first = (step.terminated | step.truncated) & np.isnan(expected)
            expected[first] = step.episode_return[first]
            lengths[first] = step.episode_length[first]
    # they fall at different times, which one that ended first must not feel
    assert len(set(lengths.tolist())) > 1
    # sums of the same rewards, which the pool keeps as float32 and adds up in double
    np.testing.assert_allclose(returns, expected, rtol=1e-6)
    assert np.array_equal(returns, example.evaluate(push, "Hopper-v5", num_episodes=6, seed=7))


def test_a_log_goes_on_from_what_the_checkpoint_knows(example: ModuleType, tmp_path: Path) -> None:
    rows = [
        example.Evaluation("rollouts", steps, steps // 2, steps / 3, -1 / 7, 1.5)
        for steps in (0, 1000, 2050)
    ]
    log = example.EvaluationLog(tmp_path)
    for row in rows:
        assert log.is_due(row.env_steps, 1000)
        log.add(row)
        assert not log.is_due(row.env_steps + 900, 1000)
    assert not log.is_due(10_000, 0)
    assert example.read_evaluations(tmp_path) == rows
    # the process was killed after its checkpoint of step 1500
    assert example.EvaluationLog(tmp_path, until=1500).rows == rows[:2]
    assert example.read_evaluations(tmp_path) == rows[:2]
    # a new run begins anew
    assert example.EvaluationLog(tmp_path).rows == [] == example.read_evaluations(tmp_path)
