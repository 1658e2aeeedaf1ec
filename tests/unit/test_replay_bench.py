# SPDX-License-Identifier: Apache-2.0
"""`rollouts bench-replay`: what it stores is what it says, and a missing peer is named."""

from __future__ import annotations

import json

import pytest

from rollouts import cli
from rollouts.bench import replay

SMALL = replay.Workload("small", (4, 8, 8), "uint8", 4, 2, 8, 32)


def test_ours_is_measured_with_threads_and_memory() -> None:
    results, missing = replay.compare(SMALL, [], num_threads=2, num_batches=2, repeats=1)
    (ours,) = results
    assert missing == []
    assert ours.inserts_per_s > 0
    assert ours.samples_per_s > 0
    # a transition's two stacks would be 512 bytes
    assert ours.bytes_per_transition > 64
    assert "| small | rollouts" in replay.to_text(results, missing)


def test_a_peer_that_cannot_be_imported_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(load: replay.Workload) -> replay._Candidate:
        raise ImportError("No module named 'absent'")

    monkeypatch.setitem(replay.LIBRARIES, "absent", ("absent", absent))
    results, missing = replay.compare(SMALL, ["absent"], num_batches=1, repeats=1)
    assert [r.library for r in results] == ["rollouts"]
    assert "absent" in missing[0]


def test_the_command_prints_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(replay, "WORKLOADS", (SMALL,))
    options = ["--num-threads", "1", "--num-batches", "1", "--repeats", "1", "--json"]
    assert cli.main(["bench-replay", *options]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [m["library"] for m in printed["measurements"]] == ["rollouts"]
