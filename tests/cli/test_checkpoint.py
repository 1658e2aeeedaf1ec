# SPDX-License-Identifier: Apache-2.0
"""`rollouts.checkpoint`: what is written is read back, and what is no checkpoint is named."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import rollouts
from rollouts.checkpoint import (
    FILE_NAME,
    FORMAT,
    Checkpoint,
    load_checkpoint,
    save_checkpoint,
)

STATISTICS = rollouts.RunningStatistics(np.arange(3.0), np.ones(3), 12.5)
GOOD = Checkpoint(
    id="Pendulum-v1",
    env_options={
        "normalize_observation": {"clip": 10.0},
        "rescale_action": (np.array([-2.0, -1.0]), 1),
        "g": np.float32(9.5),
        "xml_file": Path("a") / "b.xml",
        "render_mode": None,
    },
    statistics={"observation": STATISTICS},
    weights={"layer.weight": torch.arange(6.0).reshape(2, 3)},
    program="examples/ppo.py",
    program_options={"hidden": [64, 64]},
    policy_version=7,
    env_steps=12_345,
    seed=3,
    training={"optimizer": {"state": {0: {"step": torch.tensor(4)}}}, "kind": "mine"},
)


def test_everything_is_read_back(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, GOOD)
    assert [each.name for each in tmp_path.iterdir()] == [FILE_NAME]
    for path in (tmp_path, tmp_path / FILE_NAME, str(tmp_path)):
        found = load_checkpoint(path)
        assert found.env_options == {
            "normalize_observation": {"clip": 10.0},
            "rescale_action": [[-2.0, -1.0], 1],
            "g": 9.5,
            "xml_file": str(Path("a") / "b.xml"),
            "render_mode": None,
        }
        assert found.statistics["observation"].state_dict() == STATISTICS.state_dict()
        assert torch.equal(found.weights["layer.weight"], GOOD.weights["layer.weight"])
        assert found.training["optimizer"]["state"][0]["step"] == 4
        for name in ("id", "program", "program_options", "policy_version", "env_steps", "seed"):
            assert getattr(found, name) == getattr(GOOD, name)


def test_weights_that_the_training_holds_too_are_written_once(tmp_path: Path) -> None:
    weights = {"w": torch.zeros(100_000)}
    save_checkpoint(tmp_path / "one.pt", Checkpoint(id="x", program="", weights=weights))
    training = {"model": dict(weights)}
    save_checkpoint(
        tmp_path / "two.pt", Checkpoint(id="x", program="", weights=weights, training=training)
    )
    one, two = ((tmp_path / name).stat().st_size for name in ("one.pt", "two.pt"))
    assert 400_000 < one <= two < one + 1000


@pytest.mark.parametrize("name", ["env_options", "program_options"])
def test_options_that_no_checkpoint_holds_are_refused(name: str, tmp_path: Path) -> None:
    save_checkpoint(tmp_path, GOOD)
    before = (tmp_path / FILE_NAME).read_bytes()
    given = {"id": "x", "program": "", "weights": {}, name: {"model": {"mass": [abs]}}}
    with pytest.raises(rollouts.SpecError, match=rf"{name}\['model'\]\['mass'\]\[0\] is <built-in"):
        save_checkpoint(tmp_path, Checkpoint(**given))
    assert (tmp_path / FILE_NAME).read_bytes() == before


def test_a_checkpoint_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, GOOD)

    class Unpicklable(torch.Tensor):
        def __reduce_ex__(self, protocol: Any) -> Any:
            raise RuntimeError("no bytes")

    bad = Checkpoint(id="x", program="", weights={"n": torch.ones(1).as_subclass(Unpicklable)})
    with pytest.raises(rollouts.SpecError, match=r"torch.save cannot write .*no bytes"):
        save_checkpoint(tmp_path, bad)
    assert load_checkpoint(tmp_path).id == "Pendulum-v1"
    assert [each.name for each in tmp_path.iterdir()] == [FILE_NAME]


def test_what_is_no_checkpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(rollouts.SpecError, match=r"no checkpoint at .*none"):
        load_checkpoint(tmp_path / "none")
    save_checkpoint(tmp_path, GOOD)
    whole = (tmp_path / FILE_NAME).read_bytes()
    path = tmp_path / "damaged.pt"
    for damaged in (b"", b"PK damaged", whole[: len(whole) // 2], whole[100:]):
        path.write_bytes(damaged)
        with pytest.raises(rollouts.SpecError, match=r"damaged\.pt is not a readable checkpoint"):
            load_checkpoint(path)
    for other, message in (
        ([1, 2], "holds a list, expected a dict"),
        ({}, "it has nothing, expected format = 'rollouts checkpoint'"),
        ({"state_dict": {}, "epoch": 1}, "it has epoch, state_dict, expected format"),
    ):
        torch.save(other, path)
        with pytest.raises(rollouts.SpecError, match=message):
            load_checkpoint(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, r"has version 2 of the format, expected 1: read it with the release"),
        ({"version": None}, "has version None of the format"),
        ({"format": "another"}, f"expected format = {FORMAT!r}"),
        ({"weights": [1]}, "has a list as weights, expected a dict"),
        ({"weights": {"w": 1.5}}, r"has a float as weights\['w'\], expected a tensor"),
        ({"env_steps": "many"}, "has a str as env_steps, expected an int: it was not written by"),
        ({"seed": True}, "has a bool as seed"),
        ({"statistics": {"observation": 3}}, "has statistics that cannot be read"),
    ],
)
def test_wrong_entries_are_named(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    save_checkpoint(tmp_path, GOOD)
    path = tmp_path / FILE_NAME
    torch.save({**torch.load(path, weights_only=True), **change}, path)
    with pytest.raises(rollouts.SpecError, match=message) as caught:
        load_checkpoint(path)
    assert str(path) in str(caught.value)


def test_a_missing_entry_is_named(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, GOOD)
    path = tmp_path / FILE_NAME
    state = torch.load(path, weights_only=True)
    del state["program"]
    torch.save(state, path)
    with pytest.raises(rollouts.SpecError, match="has no program, expected a str"):
        load_checkpoint(path)


class Malice:
    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.trace,)


def test_pickled_code_is_not_executed(tmp_path: Path) -> None:
    path, trace = tmp_path / "evil.pt", tmp_path / "executed"
    torch.save({"format": FORMAT, "version": Malice(trace)}, path)
    with pytest.raises(rollouts.SpecError, match="is not a readable checkpoint"):
        load_checkpoint(path)
    path.write_bytes(pickle.dumps(Malice(trace)))
    with pytest.raises(rollouts.SpecError, match="is not a readable checkpoint"):
        load_checkpoint(path)
    assert not trace.exists()
