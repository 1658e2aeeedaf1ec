# SPDX-License-Identifier: Apache-2.0
"""The examples of Gymnasium's registry and of hosted Python environments run, and learn."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "integrations"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_gymnasium_loop_runs_on_our_id() -> None:
    mean_return = load("gymnasium_make_vec").main(["--num-envs", "8", "--num-steps", "100"])
    assert 10 < mean_return < 60  # a random policy's


def test_policy_learns_to_walk_the_corridor_of_a_hosted_environment() -> None:
    returns = load("env_fns").main(["--num-updates", "15"])
    # a random walk seldom arrives in time; the straight way is worth 0.93 on the average
    assert np.mean(returns[:2]) < 0.7
    assert np.mean(returns[-3:]) > 0.85
