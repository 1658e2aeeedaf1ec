# SPDX-License-Identifier: Apache-2.0
"""Peers in an interpreter of their own: it works in its turns alone, and fails for itself alone."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comparisons.elsewhere import child as child_module
from comparisons.elsewhere import peers
from comparisons.elsewhere.child import FOLDER, Child, version_there
from comparisons.elsewhere.peers import PufferLib, _divisor
from rollouts.bench import NotMeasured, OpenEnv, Settings, compare
from rollouts.bench.all_peers import find
from rollouts.bench.interleaved import measure
from rollouts.bench.measurement import Failure, Measurement
from rollouts.bench.report import footer, table, to_json
from rollouts.cli import main as cli
from rollouts.envs.registry import env_spec
from rollouts.errors import EngineError, SpecError

HERE = Path(sys.executable)
ROOT = Path(__file__).resolve().parents[2]
SHORT = ["--duration-s", "0.01", "--repeats", "2"]
QUICK = ["--num-envs", "4", "--num-threads", "2", *SHORT]

SCRIPT = """
import os, sys, threading, time
class Made:
    told = {"version": "7", "notes": []}
    def run(self, calls):
        print("a banner")
        sys.stdout.flush()
        if calls == 3: raise KeyError("three")
        if calls == 4: sys.stderr.write("last words"); sys.stderr.flush(); os._exit(5)
        if calls == 5: threading.Event().wait()
        return 0.5, calls * 2
    def close(self): pass
def make(fails=False):
    if fails: raise RuntimeError("cannot be made")
    return Made()
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


@pytest.fixture
def open_child(script: Path) -> Any:
    made = Child("fake", HERE, str(script), {})
    yield made
    made.close()


def state_of(pid: int) -> str:
    """The letter of /proc/PID/stat once the process has stopped or ended."""
    os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_it_answers_and_what_it_prints_is_no_answer(open_child: Any) -> None:
    assert open_child.told == {"version": "7", "notes": []}
    for calls in (1, 2):
        answer = open_child.ask({"run": calls}, timeout_s=60.0)
        assert answer == {"seconds": 0.5, "env_steps": 2 * calls}


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="/proc is missing")
def test_it_is_stopped_between_its_turns(open_child: Any) -> None:
    assert state_of(open_child._process.pid) == "T"
    open_child.ask({"run": 1}, timeout_s=60.0)
    assert state_of(open_child._process.pid) == "T"


def test_it_fails_for_itself_alone(open_child: Any) -> None:
    with pytest.raises(NotMeasured, match="KeyError: 'three'"):
        open_child.ask({"run": 3}, timeout_s=60.0)
    # and goes on
    assert open_child.ask({"run": 1}, timeout_s=60.0)["env_steps"] == 2
    with pytest.raises(NotMeasured, match=r"ended with status 5: .*last words"):
        open_child.ask({"run": 4}, timeout_s=60.0)


def test_it_is_not_waited_for_without_end(open_child: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_module, "_CLOSE_TIMEOUT_S", 0.1)
    with pytest.raises(NotMeasured, match="no answer within 0 s"):
        open_child.ask({"run": 5}, timeout_s=0.1)
    open_child.close()
    assert open_child._process.returncode < 0


def test_what_cannot_be_made_leaves_nothing_behind(script: Path) -> None:
    with pytest.raises(NotMeasured, match="RuntimeError: cannot be made"):
        Child("fake", HERE, str(script), {"fails": True})


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone ends a child with its parent")
def test_it_ends_with_the_process_that_started_it(script: Path) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path\n"
        "from comparisons.elsewhere.child import Child\n"
        "made = Child('fake', Path(sys.executable), sys.argv[1], {})\n"
        "print(made._process.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(script)], stdout=subprocess.PIPE, start_new_session=True
    )
    assert done.returncode == -signal.SIGKILL
    wait_until_ended(int(done.stdout))


def wait_until_ended(pid: int) -> None:
    """Returns once the process has ended; fails after a minute."""
    try:
        watched = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        # readable as soon as it has ended, whichever process its parent is
        ended, _, _ = select.select([watched], [], [], 60.0)
        assert ended
    finally:
        os.close(watched)


def test_an_interpreter_is_found_or_it_is_said_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    peer = find("pufferlib", "step")
    with pytest.raises(EngineError, match="run `make peers`, or name the python"):
        peer.interpreter(None)
    there = FOLDER / "pufferlib" / "bin" / "python"
    there.parent.mkdir(parents=True)
    there.symlink_to(HERE)
    # the link itself, beside which a virtual environment has its packages
    assert peer.interpreter(None) == tmp_path / there
    assert peer.interpreter(HERE) == HERE
    (tmp_path / "text").write_text("")
    with pytest.raises(EngineError, match="text is not one"):
        peer.interpreter(tmp_path / "text")


def test_the_version_is_that_of_the_interpreter() -> None:
    assert version_there(HERE, "numpy") == np.__version__
    assert version_there(HERE, "no-such-distribution") == "not installed"
    with pytest.raises(EngineError, match="is no Python"):
        version_there(Path("/bin/echo"), "numpy")


@pytest.mark.parametrize(
    ("subject", "peer"), [("pool", "pufferlib"), ("collect", "sample-factory")]
)
def test_a_wrong_path_is_refused_before_anything_is_measured(
    subject: str, peer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--env-id", "CartPole-v1", "--peer", peer, "--peer-python", "/no/python"]
    assert cli.main(["bench", subject, *arguments]) == 2
    assert f"peer {peer!r} runs in an interpreter of its own" in capsys.readouterr().err


@pytest.mark.skipif(importlib.util.find_spec("pufferlib") is not None, reason="pufferlib is here")
def test_a_library_that_is_not_there_is_a_row_with_the_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ["--env-id", "CartPole-v1", "--peer", "pufferlib", "--peer-python", str(HERE)]
    assert cli.main(["bench", *arguments, *QUICK, "--json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert [one["library"] for one in result["measurements"]] == ["rollouts"]
    (failure,) = result["not_measured"]
    assert (failure["library"], failure["version"]) == ("pufferlib", "not installed")
    assert "No module named 'pufferlib'" in failure["reason"]


def test_options_that_it_cannot_be_given_are_refused() -> None:
    settings = Settings("Pendulum-v1", 2, 2, 1, env_options={"gravity": 9.0})
    with pytest.raises(SpecError, match="no equal of the options"):
        compare(settings, [PufferLib(HERE)])
    spec = env_spec("TagGridWorld-v0")
    with pytest.raises(SpecError, match="of one agent"):
        PufferLib(HERE).make(Settings("TagGridWorld-v0", 2, 2, 1), spec)


def requests() -> dict[str, set[str]]:
    """script -> the names that its peer sends it."""
    tree = ast.parse(Path(peers.__file__).read_text())
    calls = [one for one in ast.walk(tree) if isinstance(one, ast.Call)]
    found = {}
    for call in calls:
        if isinstance(call.func, ast.Name) and call.func.id == "Child":
            script, request = call.args[2:]
            found[ast.literal_eval(script)] = {ast.literal_eval(key) for key in request.keys}  # type: ignore[attr-defined, arg-type]
    return found


@pytest.mark.parametrize("script", ["steps_pufferlib.py", "samples_sample_factory.py"])
def test_a_script_takes_what_its_peer_sends(script: str) -> None:
    """The libraries are in interpreters of their own, where few machines have them."""
    tree = ast.parse((Path(peers.__file__).parent / script).read_text())
    (made,) = (one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name == "make")
    assert requests()[script] == {one.arg for one in made.args.args}


def test_processes_share_the_environments_evenly() -> None:
    assert [_divisor(*each) for each in ((8, 2), (9, 2), (12, 5), (7, 100))] == [2, 1, 4, 7]


class Fails:
    """Runs by itself until its turn of that number."""

    def __init__(self, turns: int) -> None:
        self.turns, self.asked = turns, list[int]()

    def run(self, calls: int) -> float:
        self.asked.append(calls)
        if len(self.asked) > self.turns:
            raise NotMeasured("it broke")
        return calls * 1e-3

    def open(self) -> OpenEnv:
        nothing: Any = lambda: None  # noqa: E731
        return OpenEnv("other", "3", None, 4, 4, 2, nothing, nothing, run=self.run)


def test_what_runs_by_itself_is_asked_for_calls() -> None:
    other = Fails(turns=1000)
    (found,) = measure([other.open()], [[]], duration_s=0.1, repeats=2)
    assert isinstance(found, Measurement)
    # a millisecond for a call: of each turn a settling and the calls themselves
    assert found.calls == 100
    assert other.asked[-4:] == [12, 100, 12, 100]
    assert found.elapsed_s == pytest.approx((0.1, 0.1))


def test_what_breaks_in_its_turn_is_asked_no_more() -> None:
    other = Fails(turns=0)
    found = measure([other.open()], [[]], duration_s=0.1, repeats=2)
    assert found == [Failure("other", "3", "it broke")]
    assert len(other.asked) == 1


class Broken:
    name = "broken"

    def version(self) -> str:
        return "3"

    def make(self, settings: Settings, spec: Any) -> OpenEnv:
        raise NotMeasured("it cannot be made")


def test_the_report_has_a_row_for_what_was_not_measured() -> None:
    found = compare(Settings("CartPole-v1", 4, 4, 1, duration_s=0.01, repeats=1), [Broken()])
    assert found.failures == (Failure("broken", "3", "it cannot be made"),)
    lines = table([found, found]).splitlines()
    assert lines[2].split() == ["CartPole-v1", "4", "not", "measured", "broken"]
    assert "broken 3 was not measured with CartPole-v1: it cannot be made" in footer(
        [found], command="x"
    )
    machine: Any = type("M", (), dict.fromkeys(("cpu_model", "usable_cpus", "load_1min"), 1))()
    machine.versions = {}
    (result,) = to_json([found], machine, command="x")["results"]
    assert result["not_measured"] == [
        {"library": "broken", "version": "3", "reason": "it cannot be made"}
    ]


def interpreter(peer: str) -> str:
    """The interpreter of `make peers`; skips where there is none."""
    path = ROOT / FOLDER / peer / "bin" / "python"
    if not path.exists():
        pytest.skip(f"{peer} has no interpreter: run `make peers`")
    return str(path)


@pytest.mark.system
@pytest.mark.parametrize(
    ("size", "threads", "api"), [("N", "1", "step"), ("N", "2", "step"), ("N/2", "2", "recv/send")]
)
@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_pufferlib_is_measured(
    env_id: str, size: str, threads: str, api: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--peer", "pufferlib", "--peer-python", interpreter("pufferlib")]
    sizes = ["--num-envs", "4", "--batch-size", size, "--num-threads", threads]
    more = ["--env-id", env_id, *sizes, *SHORT]
    assert cli.main(["bench", *given, *more, "--json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    ours, peer = result["measurements"]
    assert result["not_measured"] == []
    assert (peer["library"], peer["version"], peer["api"]) == ("pufferlib", "3.0.0", api)
    assert (peer["batch_size"], peer["num_threads"]) == (ours["batch_size"], int(threads))
    assert peer["env_steps_per_s"]["median"] > 0


@pytest.mark.system
def test_sample_factory_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    given = ["--peer", "sample-factory", "--peer-python", interpreter("sample-factory")]
    more = ["--env-id", "CartPole-v1", "--in-process", *QUICK, "--rollout-length", "8"]
    assert cli.main(["bench", "collect", *given, *more, "--json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert result["not_measured"] == []
    peer = result["measurements"][-1]
    assert (peer["library"], peer["version"]) == ("Sample Factory sampler", "2.1.1")
    assert (peer["batch_size"], peer["num_threads"]) == (4, 2)
    assert peer["env_steps_per_s"]["median"] > 0
