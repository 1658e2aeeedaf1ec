# SPDX-License-Identifier: Apache-2.0
"""Figures of a benchmark: medians and ratios, three digits, columns that are left out."""

from __future__ import annotations

import json
import math
import statistics
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from rollouts.bench import interleaved
from rollouts.bench.measurement import Comparison, Measurement, Settings
from rollouts.bench.report import Machine, footer, header, si, table, to_json
from rollouts.cli.envs import _option_to_json, _space_to_json, space_text
from rollouts.errors import SpecError


def measurement(library: str = "rollouts", elapsed: Any = (1.0,), **changes: Any) -> Measurement:
    fields: dict[str, Any] = {
        "library": library,
        "version": "1",
        "batch_size": 4,
        "num_threads": 2,
        "api": "step",
        "calls": 1000,
        "elapsed_s": tuple(elapsed),
    }
    return Measurement(**fields | changes)


def compared(*measurements: Measurement, env_id: str = "A-v1", **options: Any) -> Comparison:
    settings = Settings(env_id, 4, 4, 2, repeats=len(measurements[0].elapsed_s))
    return Comparison(settings, options, measurements)


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=9), st.integers(1, 10**6))
def test_rates_and_times_are_of_the_same_repeats(elapsed: list[float], calls: int) -> None:
    made = measurement(elapsed=elapsed, calls=calls)
    assert made.env_steps_per_s == tuple(calls * 4 / each for each in elapsed)
    assert made.median == statistics.median(made.env_steps_per_s)
    assert made.us_per_call == pytest.approx(statistics.median(elapsed) / calls * 1e6)


def test_ours_is_so_many_times_the_peer() -> None:
    comparison = compared(measurement(), measurement("peer", (4.0,)))
    ours, peer = comparison.measurements
    assert comparison.ratio(peer) == 4.0 and comparison.ratio(ours) == 1.0


@pytest.mark.parametrize(("options", "frames"), [({}, None), ({"frameskip": 4}, 4)])
def test_frames_are_those_of_an_emulator(options: Any, frames: Any) -> None:
    assert compared(measurement(), **options).frames_per_step == frames


@pytest.mark.parametrize("changes", [{"duration_s": 0}, {"duration_s": math.inf}, {"repeats": 0}])
def test_settings_that_measure_nothing_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="must be"):
        Settings("A-v1", 4, 4, 2, **changes)


@pytest.mark.parametrize(("batch_size", "is_async"), [(4, False), (3, True)])
def test_a_batch_below_the_whole_is_asynchronous(batch_size: int, is_async: bool) -> None:
    assert Settings("A-v1", 4, batch_size, 2).is_async is is_async


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (-1, "-1.00"),
        (0.00123456, "0.00123"),
        (0.9996, "1.00"),
        (1, "1.00"),
        (9.994, "9.99"),
        (9.996, "10.0"),
        (99.96, "100"),
        (999.4, "999"),
        (999.6, "1.00 k"),
        (1000, "1.00 k"),
        (12_345, "12.3 k"),
        (999_600, "1.00 M"),
        (1.5e6, "1.50 M"),
        (2e9, "2.00 G"),
        (3e12, "3000 G"),
        (-1_234.5, "-1.23 k"),
        (-0.5, "-0.500"),
        (math.nan, "nan"),
    ],
)
def test_figures_have_three_digits(value: float, text: str) -> None:
    assert si(value) == text


@given(st.floats(1e-6, 9.99e11))
def test_a_figure_is_within_half_of_its_last_digit(value: float) -> None:
    number, _, unit = si(value).partition(" ")
    factor = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9}[unit]
    assert float(number) * factor == pytest.approx(value, rel=5.1e-3)
    assert sum(c.isdigit() for c in number.lstrip("0.")) == 3
    assert "e" not in number


def test_columns_that_nobody_fills_are_left_out() -> None:
    alone = table([compared(measurement())]).splitlines()[0].split()
    assert "frames/s" not in alone and "rollouts" not in alone
    full = table([compared(measurement(), measurement("peer"), frameskip=4)]).splitlines()[0]
    assert "frames/s" in full and "rollouts is" in full


def test_settings_of_a_sweep_are_apart_where_they_have_several_rows() -> None:
    def pair(env_id: str = "A-v1") -> Comparison:
        return compared(measurement(), measurement("peer"), env_id=env_id)

    sweep = [pair(), pair()]
    assert [bool(line) for line in table(sweep).splitlines()] == [True] * 3 + [False] + [True] * 2
    assert "" not in table(sweep, markdown=True).splitlines()
    # one row each, or one setting of each id: nothing to set apart
    assert "" not in table([compared(measurement()), compared(measurement())]).splitlines()
    assert "" not in table([pair(), pair("B-v1")]).splitlines()


def test_notes_are_said_once_each() -> None:
    noted = measurement("peer", notes=("Slow.", "Old."))
    text = footer([compared(measurement(), noted)] * 2, command="x --y", skipped=["Not z."])
    assert text.count("peer: Slow.") == text.count("peer: Old.") == 1
    assert text.splitlines()[0] == (
        "Median, minimum and maximum of 1 repeat of about 1 s, the libraries taking turns."
    )
    assert text.splitlines()[-2:] == ["Not z.", "Command: x --y"]


@pytest.mark.parametrize(
    ("machine", "end"),
    [
        (Machine("CPU", 1, None, {"a": "1"}), "a 1, CPU, 1 usable CPU"),
        (Machine("CPU", 2, 0.5, {}), "CPU, 2 usable CPUs, load average 0.5"),
    ],
)
def test_the_header_is_one_line(machine: Machine, end: str) -> None:
    assert header(machine) == end


def test_json_has_no_ratio_of_ours_and_no_frames_where_there_are_none() -> None:
    made = to_json(
        [compared(measurement(elapsed=(1.0, 2.0)), measurement("peer", (4.0, 4.0)))],
        Machine("CPU", 1, None, {}),
        command="x",
    )
    (result,) = json.loads(json.dumps(made))["results"]
    ours, peer = result["measurements"]
    assert ours["rollouts_ratio"] is None and peer["rollouts_ratio"] == 3.0
    assert ours["frames_per_s"] is None
    assert ours["env_steps_per_s"] == {"median": 3000.0, "min": 2000.0, "max": 4000.0}
    assert [each["elapsed_s"] for each in ours["repeats"]] == [1.0, 2.0]


class Timed:
    """An environment whose calls take as long as the test says."""

    def __init__(self, watch: Any, batch_size: int = 2) -> None:
        self.watch, self.calls = watch, 0
        self.sent: list[Any] = []
        self.batch_size, self.num_envs = batch_size, 4
        self.is_async, self.env, self.run = batch_size < 4, self, None

    def step(self, actions: Any) -> None:
        self.calls += 1
        self.watch.now += 0.001

    def recv(self) -> Any:
        self.calls += 1
        self.watch.now += 0.001
        return None, None, None, None, {"env_id": self.calls}

    def send(self, actions: Any, env_id: Any) -> None:
        self.sent.append((actions, env_id))


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = SimpleNamespace(now=0.0)
    monkeypatch.setattr(interleaved.time, "perf_counter", lambda: made.now)
    return made


def test_calls_are_timed_from_the_first_to_the_last(watch: Any) -> None:
    env: Any = Timed(watch, 4)
    assert interleaved.run_calls(env, [1, 2, 3]) == pytest.approx(0.003)  # type: ignore[list-item]
    assert env.calls == 3
    assert interleaved.run_calls(env, []) == 0.0


def test_what_was_received_is_sent_to_next(watch: Any) -> None:
    env: Any = Timed(watch)
    interleaved.run_calls(env, ["a", "b"])  # type: ignore[list-item]
    assert env.sent == [("a", 1), ("b", 2)]


@pytest.mark.parametrize("warm_up_s", [0.001, 0.1, 1.0])
def test_a_warm_up_goes_on_until_its_loop_is_long_enough(watch: Any, warm_up_s: float) -> None:
    env: Any = Timed(watch)
    rate = interleaved.calls_per_s(env, [np.zeros(2)], warm_up_s=warm_up_s)
    assert rate == pytest.approx(1000)
    # loops double, so no more than about twice what is needed
    assert watch.now <= 2 * warm_up_s + 0.02


def test_actions_are_the_same_for_one_seed_of_any_size() -> None:
    space = spaces.Discrete(5)
    for seed in (0, 7, 2**32 + 7, 2**63):
        one, other = (interleaved.action_batches(space, 3, seed=seed) for _ in range(2))
        assert len(one) == 16 and all(map(np.array_equal, one, other))
    seven, beyond = (interleaved.action_batches(space, 3, seed=s) for s in (7, 8))
    assert not all(map(np.array_equal, seven, beyond))


@pytest.mark.parametrize(
    ("space", "text"),
    [
        (spaces.Box(-1, 1, (3,), np.float32), "Box (3,) float32 in [-1, 1]"),
        (spaces.Box(0, 255, (4, 84, 84), np.uint8), "Box (4, 84, 84) uint8 in [0, 255]"),
        (spaces.Box(np.float32([0, 1]), np.float32([2, 2])), "Box (2,) float32"),
        (spaces.Discrete(4), "Discrete(4)"),
    ],
)
def test_a_space_is_told_in_few_characters(space: Any, text: str) -> None:
    assert space_text(space) == text


def test_a_space_and_an_option_fit_into_json() -> None:
    unbounded = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    told = json.loads(json.dumps(_space_to_json(unbounded), allow_nan=False))
    assert told["shape"] == [2] and "inf" in told["text"] and "n" not in told
    assert _space_to_json(spaces.Discrete(4))["n"] == 4
    assert _option_to_json(math.inf) == "inf" and _option_to_json(-math.inf) == "-inf"
    assert _option_to_json(1.5) == 1.5 and _option_to_json("x") == "x"
