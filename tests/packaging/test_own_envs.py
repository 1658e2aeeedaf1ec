# SPDX-License-Identifier: Apache-2.0
"""Environments of users' own, with the wheel in an empty environment and no checkout to be seen."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from own_envs import HEADERS
from wheels import ROOT, make_environment, run

pytestmark = pytest.mark.system

REGISTER = """
import json, os, sys, time
os.environ["ROLLOUTS_CACHE_DIR"] = os.path.abspath("cache")
import rollouts

def register():
    began = time.perf_counter()
    rollouts.register_env("Vault-v0", header="vault.h", type="games::Vault", max_episode_steps=40)
    with rollouts.make_vec("Vault-v0", 4, seed=1) as env:
        first = env.reset()[0].tolist()
    vault_s = time.perf_counter() - began
    began = time.perf_counter()
    rollouts.register_env("Herd-v0", header="herd.h", type="Herd", max_episode_steps=30)
    rollouts.make_vec("Herd-v0", 4).close()
    return {"vault_s": vault_s, "herd_s": time.perf_counter() - began, "first": first}
"""

TWICE = (
    REGISTER
    + """
print(json.dumps({**register(), "include_dir": str(rollouts.include_dir())}))
"""
)

WORKERS = (
    REGISTER
    + """
import numpy as np
import torch

class Net(torch.nn.Module):
    def __init__(self, inputs, actions):
        super().__init__()
        self.body = torch.nn.Linear(inputs, actions + 1)
    def forward(self, obs):
        out = self.body(obs)
        return out[:, :-1], out[:, -1]

def make_policy(spec):
    torch.manual_seed(0)
    space = spec.single_action_space
    actions = int(space.n) if hasattr(space, "n") else int(space.nvec.sum())
    inputs = spec.single_observation_space.shape[0]
    return rollouts.TorchPolicy(Net(inputs, actions), space, seed=2)

def collect(env_id, weights, num_workers):
    settings = dict(num_workers=num_workers, num_envs_per_worker=5, rollout_length=12, seed=3)
    with rollouts.RolloutCoordinator(env_id, make_policy, **settings) as coordinator:
        coordinator.publish_weights(weights)
        return coordinator.get(timeout_s=600)

def digest(batch):
    return [np.array(getattr(batch, name)).sum(dtype=float).item() for name in ("obs", "reward")]

if __name__ == "__main__":
    register()
    vault = make_policy(rollouts.env_spec("Vault-v0")).weights()
    groups = rollouts.env_spec("Herd-v0").groups
    herd = {group.name: make_policy(group).weights() for group in groups}
    said = []
    for num_workers in (0, 1):
        one = collect("Vault-v0", vault, num_workers)
        two = collect("Herd-v0", herd, num_workers)
        said.append([digest(one), *(digest(two[name]) for name in ("dog", "sheep"))])
    print(json.dumps(said))
"""
)

KERNELS = (
    REGISTER
    + """
import numpy as np
register()
apart = []
for env_id in ("Vault-v0", "Herd-v0"):
    cpu = rollouts.make_vec(env_id, 4, seed=1)
    kernel = rollouts.make_vec(env_id, 4, seed=1, device="cpu-emulation")
    cpu.reset(), kernel.reset()
    for _ in range(100):
        actions = cpu.action_space.sample()
        theirs, mine = cpu.step(actions)[0], kernel.step(actions)[0]
        if env_id == "Vault-v0":
            theirs, mine = {"": theirs}, {"": mine}
        apart += [float(abs(mine[name].numpy() - one).max()) for name, one in theirs.items()]
    kernel.synchronize()
print(json.dumps(max(apart)))
"""
)


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_environment(tmp_path_factory.mktemp("empty") / "venv", wheel, ["torch", "ray"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder with the two headers, and what was compiled of them."""
    if not any(map(shutil.which, (os.environ.get("CXX", "c++"), "g++", "clang++"))):
        pytest.skip("needs a C++ compiler")
    folder = tmp_path_factory.mktemp("user") / "mine"
    shutil.copytree(HEADERS, folder)
    return folder


def test_a_header_is_compiled_once(
    python: Path, folder: Path, record_property: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    first = json.loads(run(python, "-c", TWICE, cwd=folder))
    built = {path: path.stat().st_ino for path in (folder / "cache").rglob("env.so")}
    second = json.loads(run(python, "-c", TWICE, cwd=folder))
    assert len(built) == 2
    assert built == {path: path.stat().st_ino for path in (folder / "cache").rglob("env.so")}
    assert str(ROOT) not in first["include_dir"]
    assert first["first"] == second["first"]
    for name in ("vault_s", "herd_s"):
        record_property(name, (first[name], second[name]))
    with capsys.disabled():
        print(
            f"\nfirst use: {first['vault_s']:.1f} s and {first['herd_s']:.1f} s; "
            f"second: {second['vault_s']:.3f} s and {second['herd_s']:.3f} s"
        )


def test_kernels_as_loops_are_the_pools(python: Path, folder: Path) -> None:
    assert json.loads(run(python, "-c", KERNELS, cwd=folder)) < 1e-6


def test_workers_of_ray_give_the_data_of_the_driver(python: Path, folder: Path) -> None:
    (folder / "collect.py").write_text(WORKERS)
    here, there = json.loads(run(python, "collect.py", cwd=folder).strip().splitlines()[-1])
    assert here == there


def test_the_commands_write_check_and_measure(
    python: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a user's choice: without optimisations, on which a compiler spends most of its time
    compiler = folder / "quick"
    compiler.write_text(f'#!/bin/sh\nexec {os.environ.get("CXX", "c++")} "$@" -O0\n')
    compiler.chmod(0o700)
    monkeypatch.setenv("CXX", str(compiler))
    command = python.parent / "rollouts"
    run(command, "new-env", "game.h", cwd=folder)
    run(command, "new-env", "games.h", "--agents", cwd=folder)
    # the other one is checked without the wheel, in tests/own_env
    assert "FAIL" not in run(command, "check-env", "game.h", "--steps", "20", cwd=folder)
