# SPDX-License-Identifier: Apache-2.0
"""The examples of these adapters run, and do what they say."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "integrations"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_envpool_cartpole_balances_by_its_rule() -> None:
    # a random policy lasts about 22 steps
    assert load("envpool_cartpole").main(["--num-envs", "8", "--batch-size=4", "--steps=2000"]) > 60


def test_dm_env_loop_plays_alone_and_in_a_batch() -> None:
    pytest.importorskip("dm_env", reason="dm-env is not installed")
    one, many = load("dm_env_loop").main(["--episodes", "20", "--num-envs", "4", "--steps", "200"])
    assert -1 <= one <= 1 and -1 <= many <= 1


def test_jax_scan_improves_its_policy() -> None:
    pytest.importorskip("jax", reason="JAX is not installed")
    module = load("jax_scan")
    before = module.main(["--num-envs", "64", "--steps", "100", "--generations", "1"])
    after = module.main(["--num-envs", "64", "--steps", "100", "--generations", "6"])
    assert after > 1.5 * before


def test_rl_games_ppo_runs(tmp_path: Path) -> None:
    pytest.importorskip("rl_games", reason="rl_games is not installed")
    assert load("rl_games_ppo").main(["--epochs", "3", "--train-dir", str(tmp_path)]) > 5
