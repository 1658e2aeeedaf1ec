# SPDX-License-Identifier: Apache-2.0
"""`rollouts bench coordinator` and `prediction` on real workers, and what a call carries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from counter_world import assert_balanced, weights

from rollouts.cli import main as cli
from rollouts.simulation.measured import driver_of

pytestmark = pytest.mark.system

pytest.importorskip("ray")
pytest.importorskip("torch")


def test_all_contestants_have_a_cost_for_each_stage(
    ray_session: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    asked = ["--num-workers", "2", "--num-fragments", "400", "--publish-every", "200"]
    assert cli.main(["bench", "coordinator", *asked, "--repeats", "1", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    ours, alone, bare = row["costs"]
    names = ["RolloutCoordinator", "one fragment a call", "bare Ray"]
    assert [cost["name"] for cost in row["costs"]] == names
    # 4 steps of 4 environments
    assert ours["nbytes"] == alone["nbytes"] == bare["nbytes"] > 0
    for cost in (ours, alone):
        assert {"submit", "state machine", "queue", "resolve", "weights"} <= set(cost["stages"])
    for cost in row["costs"]:
        assert len(cost["cpu_us"]) == 1 and cost["cpu_us"][0] > 0
    assert ours["per_call"][0] > 1.5
    # those that are under way at the end of a turn are not the same as at its beginning
    assert alone["per_call"] == pytest.approx([1.0], abs=0.05)
    assert bare["per_call"] == pytest.approx([1.0], abs=0.05)
    costs = tmp_path / "costs.json"
    costs.write_text(json.dumps([row]))
    assert driver_of(costs).further_us < driver_of(costs).take_us


def test_coordinators_are_a_contestant_where_they_are_asked_for(
    ray_session: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--num-workers", "2", "--num-fragments", "400", "--publish-every", "200"]
    several = [
        "--num-coordinators",
        "2",
        "--max-queued-fragments",
        "64",
        "--repeats",
        "1",
        "--json",
    ]
    assert cli.main(["bench", "coordinator", *asked, *several, "--repeats", "1", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert [cost["name"] for cost in row["costs"]][2:] == ["2 coordinators", "bare Ray"]
    found = row["costs"][2]
    assert {"submit", "state machine", "queue", "resolve", "weights"} <= set(found["stages"])
    assert found["cpu_us"][0] > 0 and found["nbytes"] == row["costs"][0]["nbytes"]
    # small fragments share the calls of workers here, too
    assert found["per_call"][0] > 1.5
    assert row["task"]["max_queued_fragments"] == 64


# slow: with two coordinators there is all that one driver has
@pytest.mark.parametrize("num_coordinators", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_a_real_run_stands_beside_its_prediction(
    ray_session: Any, capsys: pytest.CaptureFixture[str], num_coordinators: int
) -> None:
    asked = ["--num-workers", "2", "--fragment-s", "0.02", "--seconds", "0.5", "--repeats", "1"]
    asked += ["--num-coordinators", str(num_coordinators)]
    assert cli.main(["bench", "prediction", *asked, "--learner-load", "0.5", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["task"]["num_workers"] == 2
    names = {"fragments_per_s", "driver_load", "queue_depth", "lag_mean"}
    for levels in (*row["measured"], *row["predicted"]):
        assert {*levels} == names and levels["fragments_per_s"] > 0
    # workers sleep as long as was asked for, and what is left is Ray's part
    for turn in row["turns"]:
        assert turn["collect_s"] > 0.01 and turn["call_s"] > 0 and turn["driver"]["submit_us"] > 0
    assert {*row["ratios"]} == names


def test_an_offer_travels_once_and_every_version_acts(counters: Any) -> None:
    coordinator = counters()
    newest = 0
    for _ in range(4):
        newest = coordinator.publish_weights(weights())
        # what was asked for before has older weights, what is asked for now the newest
        seen = {
            fragment.max_policy_version for fragment in coordinator.get_fragments(4, timeout_s=300)
        }
        assert max(seen) <= newest
    while min(one.min_policy_version for one in coordinator.get_fragments(2, 300)) < newest:
        pass
    assert_balanced(coordinator.stats())
