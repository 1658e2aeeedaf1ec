# SPDX-License-Identifier: Apache-2.0
"""Settings that `ppo_on_device.py --warpdrive-yaml` makes of WarpDrive's keys, and refused keys."""

from __future__ import annotations

from math import inf
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from rollouts import SpecError

EXAMPLES = Path(__file__).parents[2] / "examples"
TRAINED: dict[str, Any] = {"to_train": True}


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The reader as a module; what it imports lies beside it."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import common.warpdrive

    module: ModuleType = common.warpdrive
    return module


def test_the_run_on_the_grid_is_read(example: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    import ppo_on_device

    path = str(EXAMPLES / "warpdrive" / "tag_gridworld.yaml")
    args = ppo_on_device.parse_args(["--warpdrive-yaml", path, "--num-envs", "50"])
    assert args.num_envs == 50  # what the command line says goes first
    expected = {
        **{"env_id": "TagGridWorld-v0", "seed": 20, "shared": True, "train": None},
        **{"rollout_length": 100, "total_steps": 200_000_000, "hidden": [32, 32]},
        **{"learning_rate": 0.001, "anneal": False, "gamma": 0.98, "gae_lambda": 1.0},
        **{"value_coef": 1, "entropy_coef": 0.05, "max_grad_norm": 3, "num_epochs": 1},
        **{"num_minibatches": 1, "normalize_advantage": False, "target_return": None},
    }
    assert {name: getattr(args, name) for name in expected} == expected
    options = dict(args.option)
    assert options["max_episode_steps"] == 100 and options["tag_penalty_for_runner"] == 5


def test_the_run_on_the_plane_trains_taggers_alone(example: ModuleType) -> None:
    found = example.read_warpdrive(EXAMPLES / "warpdrive" / "tag_continuous.yaml")
    assert found["train"] == ["tagger"] and not found["shared"]
    assert found["max_grad_norm"] == inf and found["rollout_length"] == 500
    options = dict(found["option"])
    assert options["start_seed"] == 274880 and options["skill_level_runner"] == 0
    assert options["max_episode_steps"] == 500 and "seed" not in options


def read(example: ModuleType, tmp_path: Path, **content: Any) -> dict[str, Any]:
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump({"name": "tag_gridworld", **content}))
    found: dict[str, Any] = example.read_warpdrive(path)
    return found


def test_what_a_file_leaves_open_is_as_in_warpdrive(example: ModuleType, tmp_path: Path) -> None:
    found = read(example, tmp_path, policy={"shared": TRAINED}, saving={"basedir": "/tmp"})
    assert (found["num_envs"], found["rollout_length"]) == (10, 1000)
    assert (found["learning_rate"], found["value_coef"], found["clip"]) == (1e-4, 0.01, 0.01)
    # older files say for all what newer ones say of each policy
    older = read(
        example, tmp_path, policy={"shared": TRAINED}, trainer={"vf_loss_coeff": 2, "num_envs": 5}
    )
    assert older["value_coef"] == 2 and older["rollout_length"] == 2000


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"name": "single_cartpole"}, "name is 'single_cartpole', expected one of tag_gridworld"),
        ({"sampler": {}}, "has sampler, which has no counterpart here"),
        ({"trainer": {"num_gpus": 2}}, "trainer.num_gpus is 2, expected 1"),
        ({"trainer": {"n_step": 5}}, "trainer has n_step, which has no counterpart"),
        ({"trainer": {"num_envs": 3}}, "train_batch_size is 10000, expected a multiple of num_en"),
        ({"policy": {"shared": {}}}, "has none with to_train: True"),
        ({"policy": {"a": TRAINED}}, r"policy\.a: expected shared, or tagger and runner"),
        ({"policy": {"shared": TRAINED | {"lr": [[0, 1], [9, 0]]}}}, "expected a number: no sched"),
        ({"policy": {"shared": TRAINED | {"tau": 1}}}, r"policy\.shared has tau"),
        (
            {"policy": {"shared": TRAINED | {"algorithm": "DDPG"}}},
            r"algorithm is 'DDPG', expected A2C or PPO: use .*sac_on_device.py --algorithm ddpg",
        ),
        (
            {"policy": {"shared": TRAINED | {"normalize_return": True}}},
            "normalize_return is True, expected False",
        ),
        (
            {"policy": {"tagger": TRAINED, "runner": TRAINED | {"gamma": 0.9}}},
            "gamma differs between runner and tagger",
        ),
        (
            {"policy": {"shared": TRAINED | {"model": {"model_ckpt_filepath": "x"}}}},
            "model_ckpt_filepath is 'x'",
        ),
        ({"policy": {"shared": TRAINED | {"model": {"type": "cnn"}}}}, "the model is {'cnn'}"),
        ({"env": [1]}, r"env is \[1\], expected keys and values"),
    ],
)
def test_what_has_no_counterpart_is_refused(
    content: dict[str, Any], message: str, example: ModuleType, tmp_path: Path
) -> None:
    with pytest.raises(SpecError, match=message):
        read(example, tmp_path, **{"policy": {"shared": TRAINED}, **content})
