# SPDX-License-Identifier: Apache-2.0
"""`rollouts verify-mujoco` finds what differs, and says where."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comparisons.verify_mujoco import runs
from comparisons.verify_mujoco.array_errors import Errors, relative
from comparisons.verify_mujoco.comparison import StepComparison, compare
from comparisons.verify_mujoco.differing_step import describe, save
from comparisons.verify_mujoco.driver import KINDS, STATE, Driver
from comparisons.verify_mujoco.models import starts_of, subject_of
from comparisons.verify_mujoco.runs import errors_apart
from rollouts import _native
from rollouts.checkpoint import Checkpoint, save_checkpoint
from rollouts.cli.main import main

pytestmark = pytest.mark.system

_GOLDEN = Path(__file__).parents[1] / "mujoco_lanes" / "golden.npz"


def test_equal_models_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["verify-mujoco", "--env-id", "HalfCheetah-v5", "PendulumSwingup-v1"]
    assert main([*command, "--steps", "2000", "--width", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("HalfCheetah-v5") and " equal: 2048 substeps, " in lines[0]
    assert any(line.startswith("PendulumSwingup-v1") for line in lines)
    assert sum("free runs, median distance: " in line for line in lines) == 2


def test_mujoco_is_compared_with_itself(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["verify-mujoco", "--env-id", "Hopper-v5", "--steps", "2000", "--against-itself"]
    assert main(command) == 0
    said = capsys.readouterr().out.splitlines()[1]
    assert (
        said == "  MuJoCo beside itself: 0 beyond 1e-11, 0 with other iterations, 0 with other rows"
    )


def test_a_moved_state_is_another_step_of_mujoco() -> None:
    subject = subject_of("HalfCheetah-v5")
    driver = Driver(subject.model, starts_of(subject, 0), KINDS, 64, 5, 0)
    # lanes that are far off are no part of it
    other: Any = _Heavier(subject.comparer)
    found = compare(other, subject.model, driver, 640, outputs=False, against_itself=True)
    assert found.beyond and found.itself is not None
    assert found.itself.constrained == found.constrained > 0
    assert not found.itself.beyond and found.itself.first is None
    assert 0 < found.itself.errors["next qvel"].max < 1e-11


def test_episodes_of_both_engines_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["verify-mujoco", "--env-id", "InvertedPendulum-v5", "--steps", "64"]
    assert main([*command, "--episodes", "32", "--kinds", "random,resting"]) == 0
    said = capsys.readouterr().out
    assert "random returns of 32 episodes: " in said
    assert "random lengths of 32 episodes: " in said


def test_later_episodes_are_no_longer_than_the_first() -> None:
    # 64 environments: each has two, and a step between them that begins the second
    found = runs.random_episodes("Reacher-v5", "lanes", 128, seed=1)
    assert found.lengths.tolist() == [50.0] * 128
    assert (found.returns < 0).all()


def test_a_model_that_lanes_refuse_is_no_difference(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify-mujoco", "--env-id", "FingerSpin-v1", "--steps", "10"]) == 0
    assert "MuJoCo steps it alone: its friction cones are elliptic" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--env-id", "CartPole-v1"], "has no MuJoCo model"),
        (["--env-id", "Hopper-v9"], "Hopper-v5"),
        (["--kinds", "policy"], "--checkpoint"),
        (["--width", "3"], "this machine has lanes of"),
        (["--golden", "nothing.npz"], "has no states of --record"),
        (["--golden", str(_GOLDEN), "--env-id", "FishSwim-v1"], "has no states of 'FishSwim-v1'"),
    ],
)
def test_mistakes_are_explained(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify-mujoco", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_an_unknown_kind_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["verify-mujoco", "--kinds", "random,calm"])
    assert "expected some of random, resting" in capsys.readouterr().err


def test_states_that_are_kept_tell_of_another_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "golden.npz"
    assert main(["verify-mujoco", "--env-id", "Ant-v5", "--record", str(path)]) == 0
    assert main(["verify-mujoco", "--golden", str(path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split() == ["Ant-v5", "equal"]
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    arrays["Ant-v5/next_qvel"][2, 3] += 1e-6
    np.savez(path, **arrays)
    assert main(["verify-mujoco", "--golden", str(path)]) == 1
    assert "differs in next qvel of MuJoCo" in capsys.readouterr().out


def test_a_step_that_differs_is_traced_and_saved(tmp_path: Path) -> None:
    subject = subject_of("HalfCheetah-v5")
    driver = Driver(subject.model, starts_of(subject, 0), KINDS, 16, 5, 0)
    other = _Heavier(subject.comparer)
    found = compare(other, subject.model, driver, 64)  # type: ignore[arg-type]
    assert not found.is_equal and found.first is not None
    lines = describe(found.first, subject.model)
    assert "the next state differs" in lines[0] and lines[1].startswith("errors: ")
    save(tmp_path / "first.npz", subject.id, found.first)
    with np.load(tmp_path / "first.npz") as file:
        assert file["state_qpos"].shape == (9,)
        assert not np.array_equal(file["next_qvel_lanes"], file["next_qvel_mujoco"])


class _Heavier:
    """A comparer whose lanes are a little off."""

    def __init__(self, comparer: _native.LanesComparer) -> None:
        self.outputs, self.sensed, self.forward = (
            comparer.outputs,
            comparer.sensed,
            comparer.forward,
        )
        self._step = comparer.step

    def step(self, *arrays: object, **given: object) -> dict[str, object]:
        found = self._step(*arrays, **given)  # type: ignore[arg-type]
        found["qvel"][0][:] *= 1 + 1e-10
        return found


def test_rows_of_all_kinds_begin_and_move_alike_by_seed() -> None:
    subject = subject_of("Hopper-v5")
    starts = starts_of(subject, 0)
    drivers = [Driver(subject.model, starts, KINDS, 16, 4, 3) for _ in range(2)]
    for _ in range(12):
        for driver in drivers:
            driver.advance(subject.comparer.step(*driver.states.arrays()))
    for name in STATE:
        one, other = (getattr(driver.states, name) for driver in drivers)
        np.testing.assert_array_equal(one, other)
    assert len(np.unique(drivers[0].states.qpos[:, 0])) == 16


def test_quantiles_are_those_of_the_numbers() -> None:
    errors = Errors()
    numbers = 10 ** np.random.default_rng(0).uniform(-16, -8, 20000)
    errors.add(numbers)
    for part in (0.5, 0.999):
        assert errors.quantile(part) == pytest.approx(np.quantile(numbers, part), rel=0.2)
    assert errors.max == numbers.max()
    errors.add(np.array([np.nan]))
    assert errors.max == np.inf


def test_errors_are_relative_to_the_largest_entry() -> None:
    ours = np.array([[1.0, 100.0], [0.0, 0.0], [1.0, np.nan]])
    theirs = np.array([[2.0, 100.0], [0.0, 1e-7], [1.0, 2.0]])
    errors = relative(ours, theirs)
    assert errors[0] == 0.01 and errors[1] == 1 and np.isnan(errors[2])


def test_one_other_iteration_in_a_million_is_allowed() -> None:
    found = StepComparison(constrained=100_000_000, other_iterations=100, of_rounding=100)
    assert found.is_equal
    found.other_iterations = 200
    assert not found.is_equal
    assert not StepComparison(beyond=1, unexplained=1).is_equal


def test_steps_beyond_the_bound_are_few_though_rounding_explains_them() -> None:
    found = StepComparison(steps=1_000_000, beyond=4, of_rounding=4)
    assert found.is_equal
    found.beyond = found.of_rounding = 100
    assert not found.is_equal
    assert not StepComparison(steps=2000, beyond=2, of_rounding=2).is_equal


def test_means_two_standard_errors_apart_differ(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["verify-mujoco", "--env-id", "InvertedPendulum-v5", "--steps", "64"]
    command += ["--episodes", "8"]
    for apart, status in ((1.9, 0), (2.1, 1)):
        monkeypatch.setattr(runs, "errors_apart", lambda *_, apart=apart: apart)
        assert main(command) == status
    assert "2.1 standard errors apart" in capsys.readouterr().out


def test_means_are_apart_by_standard_errors() -> None:
    same = np.array([1.0, 2.0, 3.0])
    assert errors_apart(same, same) == 0
    assert errors_apart(np.full(3, 1.0), np.full(3, 2.0)) == np.inf
    assert errors_apart(same, same + 2) == pytest.approx(2 / np.sqrt(2 * same.var() / 3))


_PROGRAM = """
import torch
from torch import nn
from rollouts import TorchPolicy

class Net(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.body = nn.Linear(inputs, outputs)
        self.log_std = nn.Parameter(torch.zeros(outputs))
    def forward(self, obs):
        mean = self.body(obs.float())
        return mean, self.log_std.expand_as(mean), mean[:, 0]

def make_policy(spec):
    net = Net(spec.single_observation_space.shape[0], spec.single_action_space.shape[0])
    return TorchPolicy(net, spec.single_action_space, seed=spec.seed)
"""


def test_a_policy_makes_states_and_episodes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])  # importing a program adds to it
    (tmp_path / "mine.py").write_text(_PROGRAM)
    sizes = {"Hopper-v5": (3, 11), "InvertedPendulum-v5": (1, 4)}
    for env_id, (outputs, inputs) in sizes.items():
        weights = {
            "body.weight": torch.zeros(outputs, inputs),
            "body.bias": torch.zeros(outputs),
            "log_std": torch.zeros(outputs),
        }
        checkpoint = Checkpoint(id=env_id, weights=weights, program="mine.py", policy_version=2)
        save_checkpoint(tmp_path / env_id, checkpoint)
    command = ["verify-mujoco", "--checkpoint", *sizes, "--trust"]
    assert main([*command, "--kinds", "policy,resting", "--steps", "600", "--episodes", "16"]) == 0
    said = capsys.readouterr().out
    reports = [line.split(" ")[0] for line in said.splitlines() if " substeps, " in line]
    assert reports == list(sizes)
    assert said.count("policy returns of 16 episodes: ") == 2
    assert main([*command, "--env-id", "Hopper-v5"]) == 2
    assert "InvertedPendulum-v5 was trained in InvertedPendulum-v5" in capsys.readouterr().err
