# SPDX-License-Identifier: Apache-2.0
"""`rollouts.bench`: turns, counting, equal load for every library, and the report.

The libraries themselves are in test_bench_peers.
"""

from __future__ import annotations

import json
from typing import Any

import gymnasium
import numpy as np
import pytest
from numpy.typing import NDArray

from rollouts import VectorEnv
from rollouts.bench import Comparison, Measurement, OpenEnv, Settings, compare
from rollouts.bench.interleaved import action_batches, measure
from rollouts.bench.report import Machine, footer, header, table, to_json
from rollouts.errors import SpecError

Array = NDArray[Any]


class FakeEnv:
    """Writes down who was called with what."""

    def __init__(self, name: str, log: list[str], *, batch_size: int = 4) -> None:
        self.name, self.log, self.batch_size = name, log, batch_size
        self.actions: list[Array] = []
        self.sent_ids: list[int] = []
        self.received = 0

    def start(self) -> None:
        self.log.append(self.name)

    def step(self, actions: Array) -> None:
        self.actions.append(actions)
        self.log.append(self.name)

    def recv(self) -> tuple[Any, ...]:
        ids = np.array([self.received % 4])
        self.received += 1
        return None, None, None, None, {"env_id": ids}

    def send(self, actions: Array, env_id: Array) -> None:
        self.sent_ids += env_id.tolist()

    def open(self) -> OpenEnv:
        return OpenEnv(
            self.name, "1.0", self, 4, self.batch_size, 1, start=self.start, close=lambda: None
        )


ACTIONS = [np.array([0, 1, 0, 1]), np.array([1, 1, 0, 0])]


def test_libraries_take_turns() -> None:
    log: list[str] = []
    lines: list[str] = []
    envs = [FakeEnv("ours", log).open(), FakeEnv("peer", log).open()]
    measure(envs, [ACTIONS] * 2, duration_s=1e-4, repeats=3, on_progress=lines.append)
    turns = [name for name, before in zip(log, [None, *log], strict=False) if name != before]
    # one warm-up and three repeats each
    assert turns == ["ours", "peer"] * 4
    assert [line for line in lines if "repeat" in line] == [
        f"{name}: repeat {repeat} of 3" for repeat in (1, 2, 3) for name in ("ours", "peer")
    ]


def test_every_library_gets_the_same_actions_in_turn() -> None:
    envs = [FakeEnv("ours", []), FakeEnv("peer", [])]
    measure([env.open() for env in envs], [ACTIONS] * 2, duration_s=1e-4, repeats=1)
    for env in envs:
        assert {id(actions) for actions in env.actions} == {id(actions) for actions in ACTIONS}


def test_asynchronous_mode_sends_to_the_environments_just_received() -> None:
    env = FakeEnv("ours", [], batch_size=1)
    (found,) = measure([env.open()], [[np.array([0])]], duration_s=1e-4, repeats=2)
    assert env.sent_ids == [i % 4 for i in range(env.received)]
    assert found.api == "recv/send"


def test_env_steps_are_rows_returned() -> None:
    found = Measurement("ours", "1", 4, 1, "step", calls=100, elapsed_s=(2.0, 1.0, 4.0))
    assert found.env_steps_per_s == (200.0, 400.0, 100.0)
    assert found.median == 200.0
    assert found.us_per_call == 20_000.0


@pytest.mark.parametrize(
    "space",
    [
        gymnasium.spaces.Discrete(3),
        gymnasium.spaces.Discrete(3, start=-1),
        gymnasium.spaces.Box(-2.0, 2.0, (2,), np.float32),
    ],
)
def test_actions_depend_on_the_seed_alone(space: gymnasium.Space[Any]) -> None:
    first, again, other = (action_batches(space, 5, seed=seed) for seed in (2**40, 2**40, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert all(row in space for batch in first for row in batch)
    assert len({batch.tobytes() for batch in first}) > 1


def test_every_environment_is_closed_when_one_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []

    class Broken:
        name = "broken"

        def version(self) -> str:
            return "1"

        def make(self, settings: Settings, spec: Any) -> OpenEnv:
            def fail(*_: object) -> None:
                raise KeyboardInterrupt

            return OpenEnv("broken", "1", self, 2, 2, 1, fail, lambda: closed.append("broken"))

    ours = VectorEnv.close
    monkeypatch.setattr(VectorEnv, "close", lambda env: (closed.append("rollouts"), ours(env)))
    with pytest.raises(KeyboardInterrupt):
        compare(Settings("CartPole-v1", 2, 2, 1, duration_s=1e-3), [Broken()])
    assert closed == ["broken", "rollouts"]


@pytest.mark.parametrize("changes", [{"duration_s": 0.0}, {"duration_s": np.nan}, {"repeats": 0}])
def test_settings_out_of_range_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match=f"{next(iter(changes))} must be"):
        Settings("CartPole-v1", 2, 2, 1, **changes)


# -- report ----------------------------------------------------------------------------

MACHINE = Machine("Some CPU", 2, 0.5, {"rollouts": "0.1.0", "envpool": "1.2.5"})


def comparison(env_id: str = "CartPole-v1", **options: Any) -> Comparison:
    return Comparison(
        Settings(env_id, 4, 4, 2, repeats=3),
        options,
        (
            Measurement("rollouts", "0.1.0", 4, 2, "step", 1_000_000, (1.0, 2.0, 4.0)),
            Measurement("envpool", "1.2.5", 4, 2, "step", 100_000, (2.0, 2.0, 1.0), {}, ("Note.",)),
        ),
    )


def test_table_columns_are_aligned() -> None:
    lines = table([comparison(), comparison("Pendulum-v1")]).splitlines()
    assert len(lines) == 5
    for name in ("env-steps/s", "us/call"):
        end = lines[0].index(name) + len(name)
        assert all(line[end - 1] != " " and line[end : end + 1] in ("", " ") for line in lines)
    assert lines[1].split()[:8] == ["CartPole-v1", "4", "4", "2", "step", "rollouts", "2.00", "M"]
    assert lines[2].endswith("10.0x")


def test_markdown_table_has_the_same_cells() -> None:
    plain, markdown = (table([comparison()], markdown=each) for each in (False, True))
    head, rule, *rows = markdown.splitlines()
    assert set(rule) <= set("|-: ")
    assert {line.count("|") for line in (head, rule, *rows)} == {head.count("|")}
    for line, row in zip(plain.splitlines(), [head, *rows], strict=True):
        assert line.split() == row.replace("|", " ").split()


def test_frames_are_env_steps_times_frameskip() -> None:
    assert "frames/s" not in table([comparison()])
    lines = table([comparison("ALE/Pong-v5", frameskip=4), comparison()]).splitlines()
    assert "frames/s" in lines[0]
    assert "8.00 M" in lines[1]


def test_footer_says_what_is_counted_and_how_to_repeat_it() -> None:
    text = footer([comparison()], command="rollouts bench --env-id CartPole-v1")
    assert "3 repeats of about 1 s" in text
    assert "first observation of a new episode counts as one" in text
    assert "envpool: Note." in text
    assert text.endswith("Command: rollouts bench --env-id CartPole-v1")


def test_ratios_of_several_ids_have_a_geometric_mean() -> None:
    slower = Measurement("envpool", "1.2.5", 4, 2, "step", 100_000, (8.0, 8.0, 8.0))
    ours = comparison().measurements[0]
    two = [comparison(), Comparison(Settings("Pendulum-v1", 4, 4, 2), {}, (ours, slower))]
    assert "Geometric mean of 2 rows: rollouts is 20.0x envpool." in footer(two, command="x")
    means = to_json(two, MACHINE, command="x")["geometric_means"]
    assert means == {"envpool": {"rollouts_ratio": pytest.approx(20.0), "rows": 2}}
    # a sweep of one id is no mean of environments
    assert "Geometric" not in footer([comparison(), comparison()], command="x")


def test_header_names_versions_and_cpu() -> None:
    expected = "rollouts 0.1.0, envpool 1.2.5, Some CPU, 2 usable CPUs, load average 0.5"
    assert header(MACHINE) == expected


def test_json_has_every_repeat() -> None:
    text = json.dumps(to_json([comparison()], MACHINE, command="x"), allow_nan=False)
    (result,) = json.loads(text)["results"]
    ours, peer = result["measurements"]
    assert [each["elapsed_s"] for each in ours["repeats"]] == [1.0, 2.0, 4.0]
    assert ours["env_steps_per_s"] == {"median": 2e6, "min": 1e6, "max": 4e6}
    assert ours["rollouts_ratio"] is None
    assert peer["rollouts_ratio"] == 10.0
    assert peer["notes"] == ["Note."]
