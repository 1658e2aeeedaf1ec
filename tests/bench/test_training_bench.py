# SPDX-License-Identifier: Apache-2.0
"""`rollouts bench train`: whole trainings in turns."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from comparisons.training import whole_trainings
from comparisons.training.result import TrainingResult
from comparisons.training.whole_trainings import TrainingTask
from rollouts.cli import main as cli
from rollouts.errors import SpecError

pytestmark = pytest.mark.system

TASK = TrainingTask(algorithm="ppo", id="CartPole-v1", num_envs=2, total_steps=100, seed=5)


def test_seeds_follow_each_other_and_each_trainer_is_first_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns: list[tuple[str, int]] = []

    def trainer(name: str, seconds: float) -> Any:
        def train(task: TrainingTask) -> TrainingResult:
            turns.append((name, task.seed))
            return TrainingResult(seconds, task.total_steps, float(task.seed))

        return train

    trainers = {"rollouts": trainer("rollouts", 0.5), "other": trainer("other", 2.0)}
    monkeypatch.setattr(whole_trainings, "_trainers", lambda library, algorithm: trainers)
    rows = whole_trainings.measure_training("sb3", TASK, repeats=2)
    assert turns == [("rollouts", 5), ("other", 5), ("other", 6), ("rollouts", 6)]
    assert [(row.library, row.median, row.unit) for row in rows] == [
        ("rollouts", 200.0, "env-steps/s"),
        ("other", 50.0, "env-steps/s"),
        ("rollouts", 5.5, "mean return"),
        ("other", 5.5, "mean return"),
    ]


def test_a_training_of_stable_baselines3_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("stable_baselines3")
    code = cli.main(
        [
            "bench",
            "train",
            "sb3",
            "--algorithm",
            "a2c",
            "--num-envs",
            "2",
            "--total-steps",
            "400",
            "--repeats",
            "1",
            "--peer",
            "sb3-dummy",
            "--json",
        ]
    )
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert code == 0
    assert [row["library"] for row in rows] == ["rollouts", "sb3-dummy"] * 2
    assert all(row["median"] > 0 for row in rows)
    assert rows[0]["case"] == "a2c on CartPole-v1, 2 envs, 400 steps"


@pytest.mark.parametrize(
    ("library", "task"),
    [
        ("cleanrl", TrainingTask(algorithm="ppo", id="CartPole-v1", num_envs=2, total_steps=256)),
        (
            "cleanrl",
            TrainingTask(
                algorithm="ppo-continuous", id="Pendulum-v1", num_envs=1, total_steps=2048
            ),
        ),
        ("tianshou", TrainingTask(algorithm="dqn", id="CartPole-v1", num_envs=2, total_steps=100)),
        ("tianshou", TrainingTask(algorithm="sac", id="Pendulum-v1", num_envs=1, total_steps=20)),
    ],
)
def test_each_trainer_of_a_library_makes_the_steps_that_are_asked_for(
    library: str, task: TrainingTask
) -> None:
    pytest.importorskip("tianshou" if library == "tianshou" else "torch")
    rows = whole_trainings.measure_training(library, task, repeats=1)
    rates = [row for row in rows if row.unit == "env-steps/s"]
    assert len(rates) > 1
    assert all(row.median > 0 for row in rates)


def test_trainings_in_which_no_episode_ended_are_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def train(task: TrainingTask) -> TrainingResult:
        return TrainingResult(2.0, task.total_steps, math.nan)

    trainers = {"rollouts": train, "other": train}
    monkeypatch.setattr(whole_trainings, "_trainers", lambda library, algorithm: trainers)
    assert cli.main(["bench", "train", "sb3", "--total-steps", "100", "--repeats", "2"]) == 0
    ends = [line.split() for line in capsys.readouterr().out.splitlines() if "at the end" in line]
    assert [line[-3:] for line in ends] == [["nan", "mean", "return"]] * 2


@pytest.mark.parametrize(("algorithm", "steps"), [("ppo", 100_000), ("sac", 10_000)])
def test_algorithms_that_make_a_gradient_step_for_each_env_step_train_for_fewer(
    algorithm: str, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def train(task: TrainingTask) -> TrainingResult:
        seen.append(task.total_steps)
        return TrainingResult(2.0, task.total_steps, 1.0)

    monkeypatch.setattr(whole_trainings, "_trainers", lambda library, name: {"rollouts": train})
    assert cli.main(["bench", "train", "sb3", "--algorithm", algorithm, "--repeats", "1"]) == 0
    assert seen == [steps]


def test_the_mean_return_of_rllib_is_that_of_the_last_episodes_that_ended() -> None:
    pytest.importorskip("ray.rllib")
    from comparisons.training.rllib_training import _mean_return

    mean = math.nan
    # RLlib gives NaN for an iteration in which none ended
    for runners in ({}, {"episode_return_mean": -3.0}, {"episode_return_mean": math.nan}):
        mean = _mean_return({"env_runners": runners}, mean)
    assert mean == -3.0


def test_a_training_of_rllib_has_a_ray_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    ray: Any = pytest.importorskip("ray")
    ppo: Any = pytest.importorskip("ray.rllib.algorithms.ppo")
    # a cluster of others, which RLlib would join
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    addresses = []

    def init(address: str | None = None, **settings: Any) -> None:
        addresses.append(address)
        raise ConnectionError("a Ray takes long to start")

    # other tests of this process may have left theirs
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ppo.PPOConfig, "build_algo", lambda config: ray.init())
    with pytest.raises(ConnectionError):
        whole_trainings.measure_training("rllib", TASK, peers=["rllib"], repeats=1)
    assert addresses == ["local"]


def test_the_script_of_cleanrl_for_discrete_actions_takes_no_others() -> None:
    task = TrainingTask(algorithm="ppo", id="Pendulum-v1", num_envs=1, total_steps=128)
    with pytest.raises(SpecError, match="is ppo-continuous, not ppo: pass --algorithm"):
        whole_trainings.measure_training("cleanrl", task, repeats=1)


@pytest.mark.parametrize(
    ("library", "algorithm", "peers", "message"),
    [
        ("sb4", "ppo", [], "library is 'sb4', expected one of sb3, rllib, tianshou, cleanrl"),
        ("sb3", "trpo", [], "algorithm is 'trpo', expected one of sb3's: ppo, a2c, dqn, sac, td3"),
        ("sb3", "ppo", ["sb3"], "no peer 'sb3': there are .*sb3-dummy, sb3-subproc"),
        ("rllib", "ppo", ["torch"], "no peer 'torch': there are rollouts-torch, rllib"),
    ],
)
def test_wrong_names_are_answered_with_those_there_are(
    library: str, algorithm: str, peers: list[str], message: str
) -> None:
    pytest.importorskip("ray.rllib" if library == "rllib" else "stable_baselines3")
    task = TrainingTask(algorithm=algorithm, id="CartPole-v1", num_envs=2, total_steps=100)
    with pytest.raises(SpecError, match=message):
        whole_trainings.measure_training(library, task, peers=peers, repeats=1)
