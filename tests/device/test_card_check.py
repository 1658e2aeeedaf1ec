# SPDX-License-Identifier: Apache-2.0
"""The check of a first card, in emulation: it still fits the library that it will look at."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def check(out: Path, *options: str) -> subprocess.CompletedProcess[str]:
    script = Path(__file__).with_name("card") / "card_check.py"
    command = [sys.executable, str(script), "--emulate", "--out", str(out), *options]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)


def test_parts_that_do_not_exist_are_refused(tmp_path: Path) -> None:
    done = check(tmp_path / "out", "--only", "smoke,speed")
    assert done.returncode == 2
    assert "--only: speed: expected some of facts, smoke, tests" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.slow  # each kind of call beside the host, which tests of the calls' own compare too
def test_parts_run_in_emulation(tmp_path: Path) -> None:
    # the others are measurements by the same calls, and tests of their own
    done = check(tmp_path, "--only", "facts,smoke,mlp", "--stretch", "8", "--budget", "1500")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "-- smoke: ok" in (tmp_path / "summary.txt").read_text()
    rows = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    same = {row["what"]: row["same"] for row in rows if row["what"].endswith("beside the host")}
    assert same == dict.fromkeys(same, 1.0)
    assert len(same) == 6
