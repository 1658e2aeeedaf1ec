# SPDX-License-Identifier: Apache-2.0
"""`save_checkpoint`: ordinary values are read again, others are named and replace nothing."""

from __future__ import annotations

import collections
import enum
import os
import stat
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import rollouts
from rollouts.checkpoint import FILE_NAME, Checkpoint, load_checkpoint, save_checkpoint
from rollouts.own_env.header_files import HeaderFiles
from rollouts.own_env.registrations import OwnEnv, OwnEnvId

GOOD = Checkpoint(id="CartPole-v1", program="mine.py", weights={"w": torch.ones(2)})


class Choice(enum.StrEnum):
    FIRST = "first"


class Level(enum.IntEnum):
    HARD = 3


# what `register_env` returns: text that brings its header along when it is pickled
OWN_ID = OwnEnvId(
    OwnEnv(
        id="Mine-v0",
        files=HeaderFiles(name="mine.h", files={"mine.h": ""}, folder=""),
        type="Mine",
        max_episode_steps=0,
        reward_threshold=float("nan"),
    )
)


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("id", OWN_ID, "Mine-v0"),
        ("id", np.str_("CartPole-v1"), "CartPole-v1"),
        ("id", Choice.FIRST, "first"),
        ("program", Path("nets") / "mine.py", "nets/mine.py"),
        ("env_steps", np.int64(12), 12),
        ("env_steps", np.uint8(12), 12),
        ("policy_version", np.int32(3), 3),
        ("seed", np.int64(7), 7),
        ("seed", -1, -1),
        ("seed", None, None),
        ("env_options", {"g": np.float64(9.5)}, {"g": 9.5}),
        ("env_options", {"g": np.longdouble(9.5)}, {"g": 9.5}),
        ("env_options", {"g": np.ones(2, np.longdouble)}, {"g": [1.0, 1.0]}),
        ("env_options", {np.str_("level"): Level.HARD}, {"level": 3}),
        ("env_options", {"obs_type": Choice.FIRST}, {"obs_type": "first"}),
        ("env_options", {"sab": np.True_}, {"sab": True}),
        ("program_options", {"hidden": (np.int64(64), 64)}, {"hidden": [64, 64]}),
        ("program_options", collections.OrderedDict(a=Path("x")), {"a": "x"}),
        ("training", {"best": np.float64(1.5)}, {"best": 1.5}),
        ("training", {"best": np.float32(1.5), "n": np.int64(3)}, {"best": 1.5, "n": 3}),
        ("training", {"log": Path("runs") / "log.csv"}, {"log": "runs/log.csv"}),
        ("training", {"level": Level.HARD, "mode": Choice.FIRST}, {"level": 3, "mode": "first"}),
        ("training", {"returns": collections.deque([1.0, 2.0])}, {"returns": [1.0, 2.0]}),
        ("training", {"counts": collections.defaultdict(int, a=1)}, {"counts": {"a": 1}}),
        ("training", {"range": range(3)}, {"range": [0, 1, 2]}),
        ("training", {"shape": torch.Size([2])}, {"shape": torch.Size([2])}),
        ("training", {np.int64(3): "a", (1, "b"): 2}, {3: "a", (1, "b"): 2}),
        ("training", {"names": frozenset({"a"}), "raw": b"ab"}, {"names": {"a"}, "raw": b"ab"}),
        ("training", {"pair": (1, np.int8(2)), "none": None}, {"pair": (1, 2), "none": None}),
        ("training", {"big": 10**40, "nan": float("inf")}, {"big": 10**40, "nan": float("inf")}),
        ("training", collections.OrderedDict(a=True), {"a": True}),
    ],
)
def test_ordinary_values_are_read_again(
    name: str, given: Any, expected: Any, tmp_path: Path
) -> None:
    save_checkpoint(tmp_path, replace(GOOD, **{name: given}))
    found = getattr(load_checkpoint(tmp_path), name)
    assert found == expected
    assert type(found) is type(expected)


def test_arrays_become_tensors(tmp_path: Path) -> None:
    weights = {
        "array": np.arange(6.0, dtype=np.float32).reshape(2, 3)[:, ::-1],
        "scalar": np.float64(2),
        "swapped": np.arange(3, dtype=">i4"),
        "parameter": torch.nn.Parameter(torch.ones(2)),
    }
    training = {"best": np.eye(2), "steps": torch.nn.Parameter(torch.zeros(1))}
    save_checkpoint(tmp_path, replace(GOOD, weights=weights, training=training))
    found = load_checkpoint(tmp_path)
    assert found.weights["array"].tolist() == [[2, 1, 0], [5, 4, 3]]
    assert found.weights["array"].dtype == torch.float32
    assert found.weights["scalar"].shape == () and found.weights["swapped"].tolist() == [0, 1, 2]
    assert not found.weights["parameter"].requires_grad
    assert torch.equal(found.training["best"], torch.eye(2, dtype=torch.float64))


def test_statistics_of_numpy_numbers_are_read_again(tmp_path: Path) -> None:
    counted = rollouts.RunningStatistics(np.zeros(2), np.ones(2, np.float32), np.float64(3))
    save_checkpoint(tmp_path, replace(GOOD, statistics={"observation": counted}))
    found = load_checkpoint(tmp_path).statistics["observation"]
    assert (found.count, found.var.tolist()) == (3.0, [1.0, 1.0])


@dataclass
class Config:
    hidden: int = 3


def itself() -> dict[str, Any]:
    loop: dict[str, Any] = {}
    loop["again"] = loop
    return loop


class Unreadable(torch.Tensor):
    """A class of the program, which no other one reads."""


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weights": torch.nn.Linear(1, 1)}, r"weights is Linear\(.*weights=module.state_dict\(\)"),
        ({"weights": None}, r"weights is None, expected a dict: weights=module.state_dict\(\)"),
        ({"weights": {"w": [1.0]}}, r"weights\['w'\] is \[1.0\], expected a tensor or an array"),
        ({"weights": {0: torch.ones(1)}}, "weights has the key 0, expected names"),
        ({"weights": {"w": np.array(["a"])}}, r"weights\['w'\] is an array of dtype <U1"),
        ({"weights": {"w": torch.ones(1).as_subclass(Unreadable)}}, "could not be read back"),
        ({"id": 3}, "id is 3, expected text: give a str"),
        ({"id": None}, "id is None, expected text"),
        ({"program": None}, "program is None, expected text"),
        ({"program": Config}, "program is <class .*Config'>, expected text"),
        ({"env_steps": 1.5}, "env_steps is 1.5, expected a whole number of at least 0"),
        ({"env_steps": True}, "env_steps is True, expected a whole number"),
        ({"env_steps": -1}, "env_steps is -1, expected a whole number of at least 0"),
        ({"policy_version": "1"}, "policy_version is '1', expected a whole number"),
        ({"seed": "a"}, "seed is 'a', expected a whole number: give an int"),
        ({"env_options": None}, r"env_options is None, expected a dict: env_options=\{...\}"),
        ({"env_options": [("g", 1)]}, r"env_options is \[\('g', 1\)\], expected a dict"),
        ({"env_options": {3: 1}}, r"env_options is \{3: 1\}, which a checkpoint cannot hold"),
        ({"env_options": {"reward": len}}, r"env_options\['reward'\] is <built-in function len>"),
        ({"program_options": {"net": Config()}}, r"program_options\['net'\] is Config\(hidden=3\)"),
        ({"statistics": {"observation": 3}}, r"statistics\['observation'\] must be a RunningStat"),
        ({"statistics": {"obs": None}}, "statistics has the key 'obs', expected 'observation' or"),
        ({"statistics": None}, "statistics is None, expected a dict"),
        ({"training": 3}, "training is 3, expected a dict"),
        ({"training": {"config": Config()}}, r"give dataclasses.asdict\(it\)"),
        ({"training": {"net": torch.nn.Linear(1, 1)}}, r"give its state_dict\(\)"),
        ({"training": {"act": len}}, r"training\['act'\] is .*give what it is made from"),
        ({"training": {"names": np.array(["a"])}}, r"training\['names'\] is an array of dtype <U1"),
        ({"training": {"a": [1, {"b": {1j: object()}}]}}, r"training\['a'\]\[1\]\['b'\] has the"),
        ({"training": {"a": [object()]}}, r"training\['a'\]\[0\] is <object object"),
        ({"training": itself()}, "training holds itself, or is nested too deeply"),
        ({"program_options": itself()}, "program_options holds itself"),
    ],
)
def test_other_values_are_named_and_replace_nothing(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    save_checkpoint(tmp_path, GOOD)
    before = (tmp_path / FILE_NAME).read_bytes()
    with pytest.raises(rollouts.SpecError, match=message):
        save_checkpoint(tmp_path, replace(GOOD, **changes))
    assert (tmp_path / FILE_NAME).read_bytes() == before
    assert os.listdir(tmp_path) == [FILE_NAME]


def test_a_checkpoint_keeps_its_mode(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, GOOD)
    path = tmp_path / FILE_NAME
    path.chmod(0o664)
    save_checkpoint(tmp_path, GOOD)
    assert stat.S_IMODE(path.stat().st_mode) == 0o664


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(rollouts.FileError, match=r"there is no folder .*runs: make it first"):
        save_checkpoint(tmp_path / "runs" / "first.pt", GOOD)


def test_a_full_disk_is_named_and_leaves_the_old_checkpoint(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    save_checkpoint(tmp_path, GOOD)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        for size in (20_000, 10**6):  # one that ends within a tensor, one that ends behind it
            large = replace(GOOD, weights={"w": torch.ones(size), "v": torch.ones(size)})
            with pytest.raises(rollouts.FileError, match="cannot be written, File too large"):
                save_checkpoint(tmp_path, large)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert load_checkpoint(tmp_path).weights["w"].tolist() == [1, 1]
    assert os.listdir(tmp_path) == [FILE_NAME]


@pytest.mark.parametrize("path", [None, 3, "", "a\0b", ["runs"], GOOD])
def test_what_is_no_path_is_named(path: Any) -> None:
    for call in (lambda: save_checkpoint(path, GOOD), lambda: load_checkpoint(path)):
        with pytest.raises(rollouts.SpecError, match=r"path is .*, expected the path"):
            call()


def test_what_is_no_checkpoint_is_not_saved(tmp_path: Path) -> None:
    given: Any = {"id": "CartPole-v1"}
    with pytest.raises(rollouts.SpecError, match=r"checkpoint is \{'id'.*, expected"):
        save_checkpoint(tmp_path, given)
