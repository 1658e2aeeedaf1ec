# SPDX-License-Identifier: Apache-2.0
"""The wheel, built and installed into an empty environment, works without the checkout."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pytest
from wheels import ROOT, build_wheel, make_environment, run


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that holds the wheel and what it depends on."""
    return make_environment(tmp_path_factory.mktemp("empty") / "venv", wheel, ["all"])


def test_wheel_holds_headers_and_adapters_and_no_stray_top_level_package(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "rollouts/include/rollouts/core/step.h" in names
    assert "rollouts/integrations/__init__.py" in names
    assert {name.split("/")[0].split("-")[0] for name in names} == {"rollouts"}


def test_installed_wheel_steps_environments(python: Path, tmp_path: Path) -> None:
    code = """
import rollouts
for env_id in ("CartPole-v1", "Pendulum-v1", "ALE/Pong-v5"):
    with rollouts.make_vec(env_id, 4, num_threads=2, seed=1) as env:
        obs, info = env.reset()
        for _ in range(20):
            obs, reward, terminated, truncated, info = env.step(env.action_space.sample())
        assert env.observation_space.contains(obs), env_id
print(rollouts.__file__)
"""
    where = run(python, "-c", code, cwd=tmp_path).strip()
    assert str(ROOT) not in where


def test_installed_wheel_collects_through_ray(python: Path, tmp_path: Path) -> None:
    script = tmp_path / "collect.py"
    script.write_text(
        """
import torch
import rollouts

class ActorCritic(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(4, 3)
    def forward(self, obs):
        out = self.body(obs)
        return out[:, :2], out[:, 2]

def make_policy(spec):
    return rollouts.TorchPolicy(ActorCritic(), spec.single_action_space)

if __name__ == "__main__":
    with rollouts.RolloutCoordinator(
        "CartPole-v1", make_policy, num_workers=1, num_envs_per_worker=8, rollout_length=16
    ) as coordinator:
        coordinator.publish_weights(make_policy(rollouts.env_spec("CartPole-v1")).weights())
        print(coordinator.get(num_fragments=2, timeout_s=600).obs.shape)
"""
    )
    assert run(python, script, cwd=tmp_path).strip().endswith("(16, 16, 4)")


def test_command_lists_environments(python: Path, tmp_path: Path) -> None:
    listing = run(python.parent / "rollouts", "envs", cwd=tmp_path)
    assert "CartPole-v1" in listing
    assert "ALE/Pong-v5" in listing


def test_source_checkout_without_native_module_says_what_to_do(
    python: Path, tmp_path: Path
) -> None:
    checkout = tmp_path / "rollouts"
    checkout.mkdir()
    (checkout / "__init__.py").write_text((ROOT / "rollouts" / "__init__.py").read_text())
    result = subprocess.run(
        [python, "-c", "import rollouts"], cwd=tmp_path, capture_output=True, text=True
    )
    assert result.returncode != 0
    assert "pip install -e ." in result.stderr


@pytest.mark.slow  # compiles most of the native module once more
def test_wheel_is_built_from_what_pyproject_declares(tmp_path: Path) -> None:
    names = zipfile.ZipFile(build_wheel(tmp_path, isolated=True)).namelist()
    assert any(name.startswith("rollouts/_native.") for name in names)
