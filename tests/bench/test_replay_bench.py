# SPDX-License-Identifier: Apache-2.0
"""`rollouts bench replay`: what it stores is what it says, and a missing peer is named."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch

from rollouts.bench import (
    Peer,
    all_peers,
    replay,
    replay_goals,
    replay_own,
    replay_steps,
    replay_workloads,
)
from rollouts.cli import main as cli

SMALL = replay_workloads.Workload("small", (4, 8, 8), "uint8", 4, 2, 8, 32)


@pytest.mark.parametrize("output", ["torch", "numpy"])
def test_ours_is_measured_with_threads_and_memory(output: replay.Output) -> None:
    settings = replay.ReplaySettings(num_threads=2, num_batches=2, repeats=1, output=output)
    results, missing = replay.compare(SMALL, [], settings)
    (ours,) = results
    assert missing == []
    assert ours.inserts_per_s > 0
    assert ours.samples_per_s > 0
    # a transition's two stacks would be 512 bytes
    assert ours.bytes_per_transition > 64
    assert "| small | rollouts" in replay.to_text(results, missing, settings)


def test_a_peer_that_cannot_be_imported_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(load: replay_workloads.Workload) -> replay_own.Candidate:
        raise ImportError("No module named 'absent'")

    known = {"absent": Peer(name="absent", replay=absent)}
    monkeypatch.setattr(all_peers, "peers", lambda: known)
    settings = replay.ReplaySettings(num_batches=1, repeats=1)
    results, missing = replay.compare(SMALL, ["absent"], settings)
    assert [r.library for r in results] == ["rollouts"]
    assert "absent" in missing[0]


def test_torchrl_without_its_extension_is_measured_with_uniform_samples_and_says_so() -> None:
    pytest.importorskip("torchrl", reason="torchrl is not installed")
    results, missing = replay.compare(
        SMALL, ["torchrl"], replay.ReplaySettings(batch_size=8, num_batches=2, repeats=1)
    )
    ours, peer = results
    assert missing == []
    assert peer.samples_per_s > 0
    try:
        import torchrl._torchrl  # noqa: F401
    except ImportError:
        assert "Samples are uniform and have no priorities" in peer.note
        assert f"torchrl: {peer.note}" in replay.to_text(results, [], replay.ReplaySettings())
    else:
        assert peer.note == ""
    assert ours.note == ""


def test_the_command_prints_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(replay, "WORKLOADS", (SMALL,))
    options = ["--num-threads", "1", "--num-batches", "1", "--repeats", "1", "--json"]
    assert cli.main(["bench", "replay", *options]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [m["library"] for m in printed["measurements"]] == ["rollouts"]


def test_writers_share_the_environments_and_batches_are_of_one_kind() -> None:
    shares = replay_workloads.shares(SMALL, 2)
    assert [ids.tolist() for ids in shares] == [[0], [1]]
    rollouts = replay_workloads.make_rollouts(SMALL, 0, 2)
    assert [r["obs"].shape[:2] for r in rollouts] == [(9, 1), (9, 1)]
    assert (rollouts[0]["obs"][0] == rollouts[0]["obs"][-1]).all()
    fields = {"reward": np.ones(2), "weight": torch.ones(2)}
    for output, kind in (("torch", torch.Tensor), ("numpy", np.ndarray)):
        made = replay_workloads.converter(output)(fields)
        assert all(isinstance(value, kind) for value in made.values())


@pytest.mark.parametrize("workload", ["add_step", "hindsight"])
def test_steps_are_measured_beside_sb3(
    workload: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # a million steps fill a buffer of goals, which takes half a minute
    monkeypatch.setattr(replay_steps, "GOAL_CAPACITY", 30_000)
    for module in ("rollouts.bench.replay_goals", "comparisons.replaying.sb3_goals"):
        monkeypatch.setattr(f"{module}.CAPACITY", 30_000)
    options = ["--workload", workload, "--num-envs", "3", "--num-batches", "2", "--repeats", "1"]
    assert cli.main(["bench", "replay", *options, "--peer", "sb3", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [m["library"] for m in printed["measurements"]] == ["rollouts", "sb3"]
    assert all(m["add_us"] > 0 and m["sample_us"] > 0 for m in printed["measurements"])


@pytest.mark.parametrize("make", [replay_steps.make_steps, replay_goals.make_goal_steps])
def test_the_steps_that_are_measured_continue_each_other(make: Any) -> None:
    steps = make(2, seed=0)
    for (_, step), (following, _) in zip(steps, [*steps[1:], steps[0]], strict=True):
        np.testing.assert_array_equal(step[0], following[0])


def test_a_peer_of_another_workload_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "replay", "--peer", "sb3"]) != 0
    assert (
        "peer 'sb3' has no measure 'replay', expected one of ['torchrl'" in capsys.readouterr().err
    )
