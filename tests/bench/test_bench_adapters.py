# SPDX-License-Identifier: Apache-2.0
"""`rollouts bench adapter`: who takes turns, what the table says, and what goes wrong."""

from __future__ import annotations

import json
import sys
from types import ModuleType

import pytest

from comparisons.adapters import measuring as adapters
from rollouts.cli import main as cli

CASE = adapters.Case(id="CartPole-v1", num_envs=4, num_threads=1)


class Counting:
    """Collects nothing, but says that it did, and keeps a log."""

    log: list[str]  # calls of all instances

    def __init__(self, name: str, steps: int) -> None:
        self.name, self.steps, self.note = name, steps, f"note of {name}"

    def collect(self) -> int:
        self.log.append(self.name)
        return self.steps

    def close(self) -> None:
        self.log.append(f"close {self.name}")


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A library "sb3" with three contestants; returns what they were asked."""
    module = ModuleType("counting")
    Counting.log = []
    module.CONTESTANTS = {
        name: lambda case, name=name: Counting(name, case.num_envs)
        for name in ("rollouts", "stock", "other")
    }
    monkeypatch.setitem(sys.modules, "comparisons.adapters.sb3", module)
    return Counting.log


def test_contestants_take_turns_and_all_are_closed(log: list[str]) -> None:
    results = adapters.compare("sb3", CASE, duration_s=1e-9, repeats=2)
    turns = ["rollouts", "stock", "other"]
    assert log == turns * 3 + [f"close {name}" for name in reversed(turns)]
    assert [each.name for each in results] == turns
    assert all(len(each.env_steps_per_s) == 2 for each in results)


def test_only_the_peers_asked_for_are_opened(log: list[str]) -> None:
    adapters.compare("sb3", CASE, peers=["other"], duration_s=1e-9, repeats=1)
    assert set(log) == {"rollouts", "other", "close rollouts", "close other"}


def test_a_contestant_that_fails_closes_the_others(
    log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(case: adapters.Case) -> Counting:
        raise RuntimeError("no such thing")

    module = sys.modules["comparisons.adapters.sb3"]
    monkeypatch.setitem(module.CONTESTANTS, "other", fail)
    with pytest.raises(RuntimeError, match="no such thing"):
        adapters.compare("sb3", CASE, duration_s=1e-9, repeats=1)
    assert log[-2:] == ["close stock", "close rollouts"]


def test_an_unknown_peer_is_named(log: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "adapter", "sb3", "--peer", "stok"]) == 2
    assert "has the peers ['stock', 'other'], got ['stok']" in capsys.readouterr().err
    assert log == []


def test_a_missing_library_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # None is what sys.modules holds for a module that cannot be imported
    monkeypatch.setitem(sys.modules, "comparisons.adapters.rllib", None)
    assert cli.main(["bench", "adapter", "rllib"]) == 2
    assert "pip install 'rollouts[rllib]'" in capsys.readouterr().err


def test_table_and_json_give_how_many_times_ours_is(
    log: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    slow = adapters.AdapterMeasurement("sb3", "stock", CASE, (1.0, 2.0, 9.0), "")
    fast = adapters.AdapterMeasurement("sb3", "rollouts", CASE, (8.0, 7.0, 9.0), "")
    rows = adapters.to_text([fast, slow]).splitlines()
    assert rows[1].split()[-4:] == ["8", "7", "9", "1.00x"]
    assert rows[2].split()[-4:] == ["2", "1", "9", "4.00x"]

    quick = ["--num-envs", "2", "3", "--duration-s", "1e-9", "--repeats", "1", "--json"]
    assert cli.main(["bench", "adapter", "sb3", "--peer", "stock", *quick]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(each["name"], each["num_envs"]) for each in found] == [
        ("rollouts", 2),
        ("stock", 2),
        ("rollouts", 3),
        ("stock", 3),
    ]
    assert found[0]["ours_is_times"] == 1.0
