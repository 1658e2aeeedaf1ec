# SPDX-License-Identifier: Apache-2.0
"""Curves of whole trainings: what trainers report, and the picture of it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comparisons.training import curves, whole_trainings
from comparisons.training.result import TrainingResult
from comparisons.training.whole_trainings import TrainingTask
from rollouts.cli import main as cli
from rollouts.errors import SpecError

pytestmark = pytest.mark.system


def training(*points: tuple[int, float]) -> TrainingResult:
    return TrainingResult(1.0, points[-1][0] if points else 0, math.nan, points)


def test_curves_are_read_at_the_env_steps_that_all_seeds_have() -> None:
    found = [
        training((100, math.nan), (200, 2.0), (400, 4.0)),
        training((100, 10.0), (300, 30.0), (500, 50.0)),
        # no episode ended
        training((100, math.nan)),
    ]
    steps, returns = curves.over_seeds(found)
    assert (steps[0], steps[-1]) == (200.0, 400.0)
    np.testing.assert_allclose(returns, [steps / 100, steps / 10])


def test_the_picture_has_the_mean_of_the_seeds_and_a_band_of_their_deviation() -> None:
    found = {
        "rollouts": [training((0, 1.0), (10, 1.0)), training((0, 3.0), (10, 3.0))],
        "other": [training((0, 5.0), (10, 5.0))],
        # no episode ended
        "short": [training()],
    }
    figure = curves.draw(found, title="ppo on CartPole-v1")
    (axes,) = figure.axes
    lines = {str(line.get_label()): np.unique(line.get_ydata()) for line in axes.lines}
    assert lines == {"rollouts, seeds: 2": [2.0], "other, seeds: 1": [5.0]}
    band: Any = axes.collections[0].get_paths()[0].get_extents()
    assert (band.y0, band.y1) == (1.0, 3.0)
    assert axes.get_title() == "ppo on CartPole-v1"


# episodes are short: SAC makes no gradient step before the hundredth env-step
SHORT = TrainingTask(algorithm="sac", id="InvertedPendulum-v5", num_envs=1, total_steps=120)


@pytest.mark.parametrize(
    ("library", "task"),
    [
        ("sb3", TrainingTask(algorithm="ppo", id="CartPole-v1", num_envs=1, total_steps=4096)),
        ("sb3", SHORT),
        ("cleanrl", TrainingTask(algorithm="ppo", id="CartPole-v1", num_envs=2, total_steps=512)),
        ("tianshou", TrainingTask(algorithm="dqn", id="CartPole-v1", num_envs=2, total_steps=100)),
    ],
)
def test_trainers_report_the_mean_return_with_the_env_steps(
    library: str, task: TrainingTask
) -> None:
    pytest.importorskip("stable_baselines3" if library == "sb3" else "torch")
    pytest.importorskip("tianshou" if library == "tianshou" else "torch")
    trainers = whole_trainings._trainers(library, task.algorithm)
    # the engine of gradient steps reports nothing
    for name in [name for name in list(trainers)[:3] if name != "rollouts-torch"]:
        found = trainers[name](task)
        steps = [step for step, _ in found.curve]
        assert len(steps) > 1, name
        assert steps == sorted(steps)
        assert 0 < steps[0] <= steps[-1] <= found.env_steps
        assert found.curve[-1][1] == pytest.approx(found.mean_return), name


def test_a_plot_is_written_by_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def train(task: TrainingTask) -> TrainingResult:
        return training((50, 1.0), (100, float(task.seed)))

    monkeypatch.setattr(whole_trainings, "_trainers", lambda library, name: {"rollouts": train})
    picture = tmp_path / "curve.png"
    assert cli.main(["bench", "train", "sb3", "--repeats", "2", "--plot", str(picture)]) == 0
    assert picture.read_bytes()[:4] == b"\x89PNG"


def test_a_plot_that_cannot_be_written_is_refused_before_a_training(tmp_path: Path) -> None:
    task = TrainingTask(algorithm="ppo", id="CartPole-v1", num_envs=1, total_steps=1)
    with pytest.raises(SpecError, match="a plot cannot be written as"):
        whole_trainings.measure_training("sb3", task, repeats=1, plot=tmp_path / "curve.txt")
