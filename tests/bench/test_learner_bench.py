# SPDX-License-Identifier: Apache-2.0
"""`rollouts bench learner`: both engines make the same steps, and each is a line."""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch")

from rollouts import _native  # noqa: E402
from rollouts.bench import learner, learner_off_policy, learner_recurrent  # noqa: E402
from rollouts.cli import main as cli  # noqa: E402

pytestmark = pytest.mark.system

FEW = ["--rows", "32", "--layers", "8", "--num-threads", "1", "2", "--repeats", "1"]


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ends each repeat of torch after a twentieth of the time."""
    monkeypatch.setattr(learner, "_MOST_S", learner._MOST_S / 20)


def test_it_measures_both_engines_with_each_number_of_threads(
    quickly: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["bench", "learner", *FEW, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(each["engine"], each["num_threads"]) for each in found] == [
        *(("native", 1), ("torch", 1)),
        *(("native", 2), ("torch", 2)),
    ]
    assert all(each["step_us"] > 0 and each["rows"] == 32 for each in found)


def test_its_last_line_is_the_ratio(quickly: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "learner", *FEW, "--box"]) == 0
    kernels = _native.policy_kernels_in_use()
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith(f"ppo, 32 rows, 8: native ({kernels}) is ")


def test_each_instruction_set_is_measured_beside_torch(capsys: pytest.CaptureFixture[str]) -> None:
    # the first and the last: each is measured in a process of its own
    sets = _native.policy_kernels()
    sets = [*dict.fromkeys((sets[0], sets[-1]))]
    one = [*FEW, "--num-threads", "1"]
    assert cli.main(["bench", "learner", *one, "--box", "--kernels", *sets, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(each["kernels"], each["engine"], each["num_threads"]) for each in found] == [
        (name, engine, 1) for name in sets for engine in ("native", "torch")
    ]
    lines = learner.to_text(learner.from_json(found)).splitlines()
    assert [line.partition(" is ")[0] for line in lines[-len(sets) :]] == [
        f"ppo, 32 rows, 8: native ({name})" for name in sets
    ]


def test_an_instruction_set_that_there_is_not_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "learner", *FEW, "--kernels", "sse9"]) == 2
    said = capsys.readouterr().err
    assert "'sse9'" in said and _native.policy_kernels()[0] in said


@pytest.mark.parametrize("is_box", [False, True])
def test_what_is_measured_are_the_same_steps(is_box: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    task = learner.LearnerTask(rows=64, layers=(16,), is_box=is_box)
    rows = learner._rows(task, 640, 1)
    agents, make_agent = [], learner._agent

    def kept(task: learner.LearnerTask, seed: int) -> object:
        agents.append(make_agent(task, seed))
        return agents[-1]

    monkeypatch.setattr(learner, "_agent", kept)
    assert learner._native(task, rows, 1, 1)() == 10
    assert learner._torch(task, rows, 1, 1)() == 10
    (one, _), (other, _) = agents
    for mine, its in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine, its, rtol=0, atol=1e-5)


def test_what_is_measured_through_time_are_the_same_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = learner_off_policy.Sizes(8, (16,), 5, 3)
    agents, make_agent = [], learner_recurrent.make_agent

    def kept(*given: object) -> object:
        agents.append(make_agent(*given))  # type: ignore[arg-type]
        return agents[-1]

    monkeypatch.setattr(learner_recurrent, "make_agent", kept)
    losses = learner._LOSS, learner._torch_loss
    made = [
        learner_recurrent.contestant(engine, sizes, 1, 1, 1e6, losses)()
        for engine in ("native", "torch")
    ]
    assert made == [50, 50]
    (one, _), (other, _) = agents
    for mine, its in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine, its, rtol=0, atol=1e-5)


def test_each_loss_is_a_line_of_its_own(quickly: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        cli.main(["bench", "learner", "--loss", "recurrent-ppo", "dqn", "sac", "r2d2", *FEW]) == 0
    )
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(" ")[0] for line in lines[1:]] == [
        *["recurrent-ppo"] * 4,
        *["dqn"] * 4,
        *["sac"] * 4,
        *["r2d2"] * 4,
        *("recurrent-ppo,", "dqn,", "sac,", "r2d2,"),
    ]


@pytest.mark.parametrize("kind", ["dqn", "sac", "r2d2"])
def test_what_is_measured_off_policy_are_the_same_steps(kind: str) -> None:
    sizes = learner_off_policy.Sizes(64, (16, 12), 5, 3)
    rows = learner_off_policy.make_rows(kind, sizes, 1)
    given = {name: each for name, each in rows.items() if name != "index"}
    one, other = (learner_off_policy.KINDS[kind](sizes, 1) for _ in range(2))
    step = one.native(sizes, 1)
    torch.manual_seed(2)
    for _ in range(5):
        step(given)
    torch.manual_seed(2)
    for _ in range(5):
        other.torch_step({name: torch.from_numpy(each) for name, each in rows.items()})
    for mine, its in zip(one.modules(), other.modules(), strict=True):
        for a, b in zip(mine.parameters(), its.parameters(), strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-5)
