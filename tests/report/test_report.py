# SPDX-License-Identifier: Apache-2.0
"""`rollouts report`: what commands print becomes rows, and rows become a page."""

from __future__ import annotations

import dataclasses
import html.parser
import importlib.util
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from comparisons.report import make_report, running
from comparisons.report.make_report import load_warning
from comparisons.report.mujoco_tasks import MUJOCO_TASKS, SUITE_TASKS
from comparisons.report.page import MeasuredSection, blocks, to_html, to_markdown
from comparisons.report.plan import SECTIONS, Measure, Section
from comparisons.report.report_rows import Row, read_rows, row_of, times
from comparisons.report.running import Outcome, run_measure
from rollouts import _native
from rollouts.bench import all_peers
from rollouts.bench.report import Machine
from rollouts.cli.main import main
from rollouts.errors import SpecError

pytestmark = pytest.mark.system

SHORT = ("--repeats", "2", "--duration-s", "0.01")


def row(library: str, median: float, **more: Any) -> Row:
    return Row("a case", library, "1", median, median, median, "us", **more)


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_ratios_are_of_the_first_row_of_a_case_and_say_how_many_times_as_good_it_is() -> None:
    fast, slow = row("rollouts", 200.0), row("other", 50.0)
    assert times(fast, [fast, slow]) is None
    assert times(slow, [fast, slow]) == 4.0
    small, large = (row(name, n, higher_is_better=False) for name, n in (("a", 2.0), ("b", 5.0)))
    assert times(large, [small, large]) == 2.5


def test_another_unit_is_another_comparison() -> None:
    inserts = row("rollouts", 200.0)
    samples = Row("a case", "rollouts", "1", 30.0, 30.0, 30.0, "samples/s")
    other = Row("a case", "other", "1", 10.0, 10.0, 10.0, "samples/s")
    assert times(other, [inserts, samples, other]) == 3.0


def test_a_figure_of_nothing_has_no_ratio() -> None:
    assert times(row("other", 0.0), [row("rollouts", 1.0), row("other", 0.0)]) is None
    # a return below 0 is no multiple of another
    returns = [row("rollouts", -500.0), row("other", -600.0)]
    assert times(returns[1], returns) is None


def test_stepping_is_read_as_it_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    data = printed(
        capsys, "bench", "--env-id", "CartPole-v1", "--num-envs", "2", "4", "--peer", "gymnasium",
        "--num-threads", "1", *SHORT,
    )  # fmt: skip
    rows = read_rows("pool", data)
    assert [(one.library, one.x) for one in rows] == [
        ("rollouts", 2), ("gymnasium", 2), ("rollouts", 4), ("gymnasium", 4),
    ]  # fmt: skip
    first = data["results"][0]["measurements"][0]["env_steps_per_s"]
    assert (rows[0].median, rows[0].low, rows[0].high) == (
        first["median"], first["min"], first["max"],
    )  # fmt: skip
    assert rows[0].case == "CartPole-v1, 2 envs, step, 1 thread"
    assert all(one.version for one in rows)


def test_adapters_are_told_with_versions(capsys: pytest.CaptureFixture[str]) -> None:
    data = printed(
        capsys, "bench", "adapter", "env_fns", "--num-envs", "2", "--rollout-length", "2",
        "--peer", "gymnasium-sync", *SHORT,
    )  # fmt: skip
    ours, peer = read_rows("adapter", data)
    assert (ours.library, peer.library) == ("rollouts", "gymnasium-sync")
    assert ours.version and peer.version
    assert peer.median == data[1]["median"]
    assert peer.case == f"env_fns: {data[1]['id']}, 2 envs"


def test_latency_has_a_row_per_percentile(capsys: pytest.CaptureFixture[str]) -> None:
    data = printed(
        capsys, "bench", "latency", "--env-id", "CartPole-v1", "--num-envs", "2", "--calls", "50",
        "--peer", "gymnasium", "--repeats", "2",
    )  # fmt: skip
    rows = read_rows("latency", data)
    assert len(rows) == 2 * 4
    ours = [one.median for one in rows if one.library == "rollouts"]
    assert ours == sorted(ours), "higher percentiles take longer"
    assert all(not one.higher_is_better and one.low <= one.median <= one.high for one in rows)


def test_states_are_saved_and_restored(capsys: pytest.CaptureFixture[str]) -> None:
    data = printed(capsys, "bench", "states", "--env-id", "CartPole-v1", "--repeats", "1")
    rows = read_rows("states", data)
    assert [one.case for one in rows] == ["CartPole-v1, save", "CartPole-v1, restore"]
    assert all(one.median > 0 for one in rows)


def test_memory_is_measured_in_fresh_processes(capsys: pytest.CaptureFixture[str]) -> None:
    data = printed(
        capsys, "bench", "memory", "--env-id", "Taxi-v3", "--num-envs", "20000", "--repeats", "1",
    )  # fmt: skip
    begin, memory = read_rows("memory", data)
    assert (begin.unit, memory.unit) == ("s", "MB")
    # 20 000 rows with their clocks and statistics are more than a megabyte, and no hundred
    assert 1 < memory.median < 100


def test_memory_of_what_cannot_be_made_says_whose(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["bench", "memory", "--env-id", "CartPole-v1", "--peer", "ale", "--repeats", "1"]) == 2
    )
    assert "ale: CartPole-v1 cannot be made" in capsys.readouterr().err


def test_a_process_that_takes_too_long_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "memory", "--env-id", "CartPole-v1", "--timeout-s", "0.01"]) == 2
    assert "rollouts: 64 of CartPole-v1 were not made" in capsys.readouterr().err


def test_a_peer_that_is_missing_is_told_and_the_others_are_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    envpool = dataclasses.replace(
        all_peers.find("envpool", "step"), module="no_such_module.inside", install="pip install it"
    )
    known = {**all_peers.peers(), "envpool": envpool}
    monkeypatch.setattr(all_peers, "peers", lambda: known)
    measure = Measure(
        ("bench", "--env-id", "CartPole-v1", "--num-envs", "2", *SHORT), ("envpool", "gymnasium")
    )
    found = run_measure(measure)
    assert [one.library for one in found.rows] == ["rollouts", "gymnasium"]
    assert found.problems == ("envpool: not installed, so not measured; pip install it.",)
    assert found.command.endswith("--peer gymnasium")


def test_a_peer_in_an_interpreter_of_its_own_is_told_where_it_cannot_be_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    measure = Measure(
        ("bench", "--env-id", "CartPole-v1", "--num-envs", "2", *SHORT), ("pufferlib",)
    )
    assert run_measure(measure).problems == (
        "pufferlib: not installed, so not measured; make peers.",
    )
    there = Path(all_peers.find("pufferlib", "step").module)
    there.parent.mkdir(parents=True)
    # without the packages of the environment that it is in
    there.symlink_to(Path(sys.executable).resolve())
    found = run_measure(measure)
    assert [one.library for one in found.rows] == ["rollouts"]
    (problem,) = found.problems
    assert problem.startswith("pufferlib not installed: not measured with CartPole-v1, ")
    assert "No module named" in problem


def test_a_command_that_fails_costs_its_own_rows() -> None:
    found = run_measure(Measure(("bench", "--env-id", "NoSuch-v0")))
    assert found.rows == []
    assert "exit status 2" in found.problems[0] and "NoSuch-v0" in found.problems[0]


def test_a_command_that_takes_too_long_is_ended() -> None:
    arguments = ("bench", "--env-id", "CartPole-v1", "--duration-s", "1000")
    found = run_measure(Measure(arguments, timeout_s=0.5))
    assert "ended by the report" in found.problems[0]


def test_what_libraries_print_before_the_figures_does_not_matter() -> None:
    assert running._begin('a banner { of\nsome [ library\n{\n "a": 1}\n') == 29
    assert running._begin('[\n{"a": 1}]') == 0


def test_a_section_without_its_library_says_so() -> None:
    found = run_measure(Measure(("bench", "--env-id", "CartPole-v1"), needs=("no_such_module",)))
    assert "no_such_module is not installed" in found.problems[0]


class _Cells(html.parser.HTMLParser):
    """Texts of a table's cells."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_the_page_has_every_figure_command_and_what_is_not_equal() -> None:
    section = Section("name", "A title", "A question?", "the same", "not | the <same>", ())
    rows = [row("rollouts", 2.0), row("other", 3.0, note="a | b <c>", higher_is_better=False)]
    part = MeasuredSection(
        section, [Outcome("rollouts bench", 1.0, rows, ("x: not installed.",))], ["a.png"]
    )
    page = list(blocks("The report", {"Machine": "one"}, [part]))
    markdown, web = to_markdown(page), to_html(page)
    line = next(one for one in markdown.splitlines() if "| other |" in one)
    assert line == "| a case | other | 1 | 3.00 | 3.00 | 3.00 | us | 1.50x | a \\| b <c> |"
    parser = _Cells()
    parser.feed(web)
    for text in ("a | b <c>", "1.50x", "rollouts bench", "x: not installed.", "A question?"):
        assert text in parser.texts
    assert "Not equal: not | the <same>" in parser.texts
    assert "![a.png](a.png)" in markdown and '<img src="a.png"' in web


def test_every_measure_of_the_plan_is_a_command_that_exists() -> None:
    from rollouts.cli.main import _parser
    from rollouts.cli.subjects import with_subject

    parser = _parser()
    for section in SECTIONS:
        for measure in section.measures:
            flags = [word for name in measure.peers for word in ("--peer", name)]
            args = parser.parse_args(with_subject([*measure.arguments, *flags, "--json"]))
            assert args.json, measure
            assert set(measure.peers) <= set(all_peers.peers())
        assert section.fair.endswith(".") and section.unfair.endswith(".")


def test_make_bench_measures_the_same_tasks_of_mujoco_as_the_report() -> None:
    makefile = (Path(__file__).parents[2] / "Makefile").read_text().replace("\\\n", " ")
    for name, tasks in (("MUJOCO_TASKS", MUJOCO_TASKS), ("SUITE_TASKS", SUITE_TASKS)):
        found = re.search(rf"^{name} := \$\(addsuffix (-v\d),(.*)\)$", makefile, re.MULTILINE)
        assert found is not None
        assert [task + found[1] for task in found[2].split()] == tasks.split()
    of_gymnasium = [
        one["id"]
        for one in _native.registry()
        if one["header"].startswith("envs/mujoco/") and one["id"].endswith("-v5")
    ]
    assert sorted(of_gymnasium) == sorted(MUJOCO_TASKS.split())


def test_an_unknown_section_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"no section 'pool', expected some of \['pools'"):
        make_report(tmp_path, only=["pool"])
    with pytest.raises(SpecError, match="is not what `rollouts soak --out FILE` writes"):
        make_report(tmp_path, soak=tmp_path / "none.json")


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="matplotlib is missing")
def test_a_report_of_one_section_is_written(tmp_path: Path) -> None:
    soak = tmp_path / "soak.json"
    samples = [{"seconds": float(n), "threads": 3.0, "memory_mb": 10.0 + n} for n in range(3)]
    soak.write_text(json.dumps({"command": "rollouts soak", "samples": samples}))
    rows = make_report(tmp_path / "out", quick=True, only=["states"], soak=soak)
    told = json.loads((tmp_path / "out" / "report.json").read_text())
    assert list(told["sections"]) == ["states", "soak"]
    assert len(told["sections"]["states"]["rows"]) == len(rows)
    page = (tmp_path / "out" / "report.md").read_text()
    for name in ("states.png", "soak.png"):
        if f"![{name}]" in page:
            assert (tmp_path / "out" / name).stat().st_size > 1000
    assert "rollouts soak" in page
    assert sys.version.split()[0] in page


def test_row_of_takes_medians() -> None:
    found = row_of("a", "rollouts", [3.0, 1.0, 2.0], "s", higher_is_better=False)
    assert (found.median, found.low, found.high) == (2.0, 1.0, 3.0)
    assert found.version


def test_the_web_page_shows_words_of_code_without_backticks() -> None:
    section = Section("name", "`a`", "Is `x < 1`?", "the same", "not", ())
    rows = [row("rollouts", 2.0, note="with `step`")]
    part = MeasuredSection(section, [Outcome("echo `date`", 1.0, rows, ())], [])
    web = to_html(list(blocks("The report", {"Command": "`rollouts report`"}, [part])))
    for text in ("Is <code>x &lt; 1</code>?", "<code>step</code>", "<code>rollouts report</code>"):
        assert text in web
    # but for a shell's own
    assert web.count("`") == 2 and "<pre>echo `date`</pre>" in web


def test_a_busy_machine_is_warned_of() -> None:
    busy, quiet, unknown = (Machine("a CPU", 4, load, {}) for load in (6.5, 0.3, None))
    assert "the load was 6.5 on 4 usable CPUs" in load_warning(busy)
    assert load_warning(quiet) == load_warning(unknown) == ""
