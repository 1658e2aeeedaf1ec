# SPDX-License-Identifier: Apache-2.0
"""Busy loops beside a measurement: they take CPUs while it runs, and end with it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.processes import environ_with_path, wait_until

from rollouts.bench import Settings, compare
from rollouts.cli.main import main
from rollouts.errors import EngineError
from rollouts.machine.busy_loops import busy_loops

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")


def state_of(pid: int) -> list[str]:
    """Fields of /proc/PID/stat behind the name; empty where there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def children_of(pid: int) -> set[int]:
    found = (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())
    return {one for one in found if state_of(one)[1:2] == [str(pid)]}


def test_loops_take_processor_time_and_are_gone_behind_the_block() -> None:
    with busy_loops(2) as loops:
        assert len(set(loops)) == 2
        # user time, in ticks of a hundredth of a second
        assert wait_until(lambda: all(int(state_of(loop)[11]) >= 5 for loop in loops))
        sessions = {state_of(loop)[3] for loop in loops}
        assert sessions == {str(os.getsid(0))}
    assert all(state_of(loop) == [] for loop in loops)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_loops_are_gone_where_the_block_raises(error: type[BaseException]) -> None:
    with pytest.raises(error), busy_loops(1) as loops:
        raise error
    assert state_of(loops[0]) == []


def test_loops_end_where_the_process_that_started_them_is_killed() -> None:
    code = (
        "import os, signal\n"
        "from rollouts.machine.busy_loops import busy_loops\n"
        "with busy_loops(2) as loops:\n"
        "    print(*loops, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environ_with_path()
    )
    assert done.returncode == -signal.SIGKILL
    loops = [int(pid) for pid in done.stdout.split()]
    assert len(loops) == 2
    # one whose new parent does not wait for it stays in the list as a zombie
    assert wait_until(lambda: all(state_of(loop)[:1] in ([], ["Z"]) for loop in loops))


def test_ctrl_c_of_the_terminal_leaves_loops_to_the_one_who_started_them() -> None:
    with busy_loops(1) as (loop,):
        os.kill(loop, signal.SIGINT)
        before = int(state_of(loop)[11])
        assert wait_until(lambda: int(state_of(loop)[11]) > before + 1)


def test_a_loop_that_ends_meanwhile_spoils_the_measurement() -> None:
    with pytest.raises(EngineError, match="1 of 2 busy loops ended"), busy_loops(2) as loops:
        os.kill(loops[1], signal.SIGKILL)
        assert wait_until(lambda: state_of(loops[1])[0] == "Z")


def test_every_library_is_measured_beside_the_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    before = children_of(os.getpid())
    settings = Settings("CartPole-v1", 2, 2, 1, duration_s=0.01, repeats=2, busy_loops=3)
    compare(settings, [], on_progress=lambda _: seen.append(len(children_of(os.getpid()) - before)))
    assert seen == [3, 3, 3]
    assert children_of(os.getpid()) <= before


def test_the_command_measures_each_number_of_loops(capsys: pytest.CaptureFixture[str]) -> None:
    short = ["--num-envs", "2", "--duration-s", "0.01", "--repeats", "1", "--busy-loops", "0", "1"]
    assert main(["bench", "--env-id", "CartPole-v1", *short, "--json"]) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    assert [one["settings"]["busy_loops"] for one in results] == [0, 1]
    assert main(["bench", "--env-id", "CartPole-v1", *short]) == 0
    head, quiet, busy = capsys.readouterr().out.splitlines()[2:5]
    column = head.index("busy loops") + len("busy loops") - 1
    assert (quiet[column], busy[column]) == (" ", "1")


@pytest.mark.parametrize(
    "command",
    [
        ["bench", "collect", "--in-process", "--env-id", "CartPole-v1", "--num-envs", "2"],
        ["bench", "latency", "--env-id", "CartPole-v1", "--num-envs", "2", "--calls", "20"],
    ],
)
def test_other_measurements_have_loops_beside_them_too(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[int] = []

    def note(count: int) -> object:
        asked.append(count)
        return busy_loops(count)

    for module in ("rollouts.bench.collect", "comparisons.report.latency"):
        monkeypatch.setattr(f"{module}.busy_loops", note)
    short = ["--duration-s", "0.01"] if command[1] == "collect" else []
    assert main([*command, *short, "--repeats", "1", "--busy-loops", "1"]) == 0
    assert asked == [1]


def test_fewer_loops_than_none_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["bench", "--env-id", "CartPole-v1", "--busy-loops", "-1"])
    assert "expected a whole number that is not below 0, got '-1'" in capsys.readouterr().err
