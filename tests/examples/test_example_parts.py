# SPDX-License-Identifier: Apache-2.0
"""Parts that examples share: progress, checkpoints, exploration, evaluations."""

from __future__ import annotations

import argparse
import math
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from rollouts.checkpoint import FILE_NAME, Checkpoint, save_checkpoint
from rollouts.replay import Sequences, Transitions
from rollouts.workers import PolicySpec

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def common() -> Any:
    """The folder's modules by name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXAMPLES))
        from common import checkpoint, evaluation, progress, replay_training

        modules: dict[str, ModuleType] = {
            "checkpoint": checkpoint,
            "evaluation": evaluation,
            "progress": progress,
            "replay": replay_training,
        }
        yield SimpleNamespace(**modules)


def batch(steps: int, *returns: float) -> tuple[int, Any]:
    return steps, np.array(returns, np.float64)


def test_progress_begins_with_nothing(common: Any) -> None:
    made = common.progress.Progress()
    assert math.isnan(made.mean_return) and made.policy_version == 1
    assert not made.has_reached(-1e9)


def test_progress_counts_steps_updates_and_the_last_hundred_returns(common: Any) -> None:
    made = common.progress.Progress()
    made.add(*batch(8, *range(90)), seconds=1.0, policy_lag=0.5)
    assert made.mean_return == np.mean(range(90))
    made.add(*batch(8, *range(90, 130)), seconds=2.0, policy_lag=1.5)
    assert (made.env_steps, made.updates, made.seconds) == (16, 2, 2.0)
    assert made.policy_version == 3
    assert made.returns == list(range(30, 130)) and made.mean_return == np.mean(range(30, 130))
    assert [row["policy_lag"] for row in made.history] == [0.5, 1.5]


def test_a_target_is_reached_by_a_hundred_episodes_and_not_before(common: Any) -> None:
    made = common.progress.Progress()
    made.add(*batch(1, *[10.0] * 99), seconds=1.0, policy_lag=0)
    assert not made.has_reached(5.0)
    made.add(*batch(1, 10.0), seconds=2.0, policy_lag=0)
    assert made.has_reached(10.0) and not made.has_reached(10.1)
    assert not made.has_reached(None)


def test_throughput_is_that_of_ten_updates(common: Any) -> None:
    made = common.progress.Progress()
    for update in range(1, 13):
        made.add(*batch(update), seconds=float(update), policy_lag=0)
    rates = [row["env_steps_per_s"] for row in made.history]
    assert rates[0] == 1.0 and rates[1] == 2.0
    # the twelfth's counts what came since the end of the second
    assert rates[11] == sum(range(3, 13)) / 10


def save(directory: Path, **parts: Any) -> None:
    given = {"weights": {}, "program": "x.py", "training": {"kind": "ppo 1"}, **parts}
    save_checkpoint(directory, Checkpoint(id="CartPole-v1", **given))


class Learner:
    """All kinds of parts that a checkpoint holds."""


@pytest.fixture
def learner(common: Any) -> Any:
    class Saved(Learner, common.checkpoint.Checkpointed):  # type: ignore[misc, name-defined]
        saved = ("module", "tensor", "generator", "count")

        def __init__(self, seed: int) -> None:
            torch.manual_seed(seed)
            self.module = nn.Linear(2, 2)
            self.tensor = nn.Parameter(torch.rand(3))
            self.generator = torch.Generator().manual_seed(seed)
            self.count = seed

    return Saved


def test_a_learner_goes_back_to_its_state(learner: Any) -> None:
    one, other = learner(1), learner(2)
    identity = id(other.tensor)
    other.load_state(one.state())
    assert torch.equal(one.module.weight, other.module.weight)
    assert torch.equal(one.tensor, other.tensor) and id(other.tensor) == identity
    assert other.count == 1
    drawn = torch.rand(4, generator=one.generator)
    assert torch.equal(torch.rand(4, generator=other.generator), drawn)


def test_a_checkpoint_is_read_back(common: Any, learner: Any, tmp_path: Path) -> None:
    state = learner(1).state()
    save(tmp_path, training={"kind": "ppo 1", "learner": state})
    for where in (tmp_path / FILE_NAME, tmp_path):
        found = common.checkpoint.read_training(where, "ppo 1", id="CartPole-v1")
        assert torch.equal(found["learner"]["tensor"], state["tensor"])
    assert [each.name for each in tmp_path.iterdir()] == [FILE_NAME]


@pytest.mark.parametrize(
    ("kind", "expected", "message"),
    [
        ("dqn 1", {}, "holds 'ppo 1', expected 'dqn 1': is it of another program"),
        ("ppo 1", {"id": "Ant-v5"}, "has id = 'CartPole-v1', expected 'Ant-v5': resume"),
        ("ppo 1", {"seed": 2}, "has seed = 0, expected 2"),
    ],
)
def test_a_checkpoint_of_something_else_is_refused(
    common: Any, tmp_path: Path, kind: str, expected: dict[str, Any], message: str
) -> None:
    save(tmp_path)
    with pytest.raises(ValueError, match=message):
        common.checkpoint.read_training(tmp_path, kind, **expected)


@settings(max_examples=30)
@given(num_envs=st.integers(1, 300))
def test_environments_explore_less_and_less(common: Any, num_envs: int) -> None:
    epsilon = common.replay.epsilons(num_envs)
    assert epsilon.shape == (num_envs,) and epsilon.dtype == np.float32
    assert epsilon[0] == np.float32(0.4)
    assert (np.diff(epsilon) < 0).all()
    if num_envs > 1:
        assert epsilon[-1] == pytest.approx(0.4**8)


def policy_spec(offset: int, num_envs: int, start: int = 0) -> PolicySpec:
    from gymnasium import spaces

    return PolicySpec(
        id="x",
        single_observation_space=spaces.Discrete(1),
        single_action_space=spaces.Discrete(4, start=start),
        num_envs=num_envs,
        env_id_offset=offset,
        worker_id=0,
        incarnation=0,
        seed=0,
    )


def test_workers_have_the_shares_of_their_environments(common: Any) -> None:
    together = []
    for offset in (0, 3, 6):
        policy: Any = SimpleNamespace(head=None)
        common.replay.explore(policy, policy_spec(offset, 3), 9)
        together += policy.head.epsilon.tolist()
    assert together == common.replay.epsilons(9).tolist()


def test_actions_are_greedy_as_often_as_epsilon_says(common: Any) -> None:
    policy: Any = SimpleNamespace(head=None)
    common.replay.explore(policy, policy_spec(0, 2, start=10), 2)
    policy.head = replace(policy.head, epsilon=torch.tensor([0.0, 1.0]))
    values = torch.tensor([[0.0, 9.0, 1.0, 2.0], [0.0, 9.0, 1.0, 2.0]])
    generator = torch.Generator().manual_seed(0)
    drawn = torch.stack([policy.head.sample((values,), generator)[0] for _ in range(200)])
    assert set(drawn[:, 0].tolist()) == {11}
    # one that always explores takes any action, the best among them
    assert set(drawn[:, 1].tolist()) == {10, 11, 12, 13}
    assert policy.head.sample((values,), generator)[1].tolist() == [0, 0]
    with pytest.raises(NotImplementedError, match="learnt by their value"):
        policy.head.evaluate((values,), drawn[0])


def arguments(**changes: Any) -> argparse.Namespace:
    settings: dict[str, Any] = {
        "num_workers": 2,
        "num_envs": 4,
        "num_shards": 2,
        "rollout_length": 10,
        "greedy_epsilon": 0.02,
        "samples_per_insert": 8.0,
        "min_size": 100,
        "total_steps": 10_000,
        "batch_size": 32,
        "replay_size": 5_000,
        "priority_exponent": 0.6,
    }
    return argparse.Namespace(**settings | changes)


def test_episodes_of_those_who_explore_little_count(common: Any) -> None:
    counts = common.replay.explores_little(arguments())
    epsilon = common.replay.epsilons(8)
    assert (counts == (epsilon <= 0.02)).all() and 0 < counts.sum() < 8
    # somebody's always do
    assert common.replay.explores_little(arguments(greedy_epsilon=0.0)).sum() == 1
    assert common.replay.explores_little(arguments(num_workers=0, num_envs=1)).tolist() == [True]


def test_a_table_has_room_for_what_is_under_way(common: Any) -> None:
    table = common.replay.make_table(arguments(), Transitions())
    limiter = table.limiter
    assert (table.max_size, table.sampler, table.exponent) == (5_000, "prioritized", 0.6)
    assert (limiter.samples_per_insert, limiter.min_size) == (8.0, 100)
    # 4 batches, and two fragments to each shard
    assert limiter.error_buffer == 4 * 32 + 8 * (2 * 2 * 4 * 10)
    wide = common.replay.make_table(arguments(min_size=4_000), Transitions(), tolerance=0.5)
    assert wide.limiter.error_buffer == 0.5 * 8 * 4_000


def test_a_uniform_table_has_no_priorities(common: Any) -> None:
    assert common.replay.make_table(arguments(priority_exponent=0), Transitions()).sampler == (
        "uniform"
    )


def test_a_short_run_begins_to_learn_half_way(
    common: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    table = common.replay.make_table(arguments(min_size=800, total_steps=1_000), Transitions())
    assert table.limiter.min_size == 500
    assert "--min-size 800 is more than half of the items" in capsys.readouterr().err
    sequences = common.replay.make_table(
        arguments(min_size=800, total_steps=1_000), Sequences(length=8, period=4)
    )
    assert sequences.limiter.min_size == 125
    common.replay.make_table(arguments(), Transitions())
    assert capsys.readouterr().err.count("more than half") == 1


def row(common: Any, env_steps: int) -> Any:
    return common.evaluation.Evaluation("ours", env_steps, 1, 0.1 + 0.2, 1 / 3, 0.0)


def test_evaluations_are_read_back_to_the_bit(common: Any, tmp_path: Path) -> None:
    log = common.evaluation.EvaluationLog(tmp_path)
    rows = [row(common, steps) for steps in (10, 20)]
    for each in rows:
        log.add(each)
    assert common.evaluation.read_evaluations(tmp_path) == rows == log.rows


def test_a_resumed_log_forgets_what_its_checkpoint_does_not_know(
    common: Any, tmp_path: Path
) -> None:
    log = common.evaluation.EvaluationLog(tmp_path)
    for steps in (10, 20, 30):
        log.add(row(common, steps))
    again = common.evaluation.EvaluationLog(tmp_path, until=20)
    assert [each.env_steps for each in again.rows] == [10, 20]
    assert common.evaluation.read_evaluations(tmp_path) == again.rows
    # a run that begins anew has no past
    assert common.evaluation.EvaluationLog(tmp_path).rows == []
    assert common.evaluation.read_evaluations(tmp_path) == []


def test_an_evaluation_is_due_where_a_multiple_was_passed(common: Any, tmp_path: Path) -> None:
    log = common.evaluation.EvaluationLog(tmp_path)
    assert log.is_due(0, 100) and not log.is_due(0, 0)
    log.add(row(common, 150))
    assert [log.is_due(steps, 100) for steps in (150, 199, 200, 299, 310)] == [
        False,
        False,
        True,
        True,
        True,
    ]
    assert not log.is_due(10**9, 0)
