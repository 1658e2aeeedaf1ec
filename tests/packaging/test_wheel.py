# SPDX-License-Identifier: Apache-2.0
"""The wheel, built and installed into an empty environment, works without the checkout."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from wheels import ROOT, build_wheel, make_environment, run

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that holds the wheel and the engines, torch and Ray."""
    return make_environment(tmp_path_factory.mktemp("empty") / "venv", wheel, ["all"])


def test_wheel_holds_headers_and_adapters_and_no_stray_top_level_package(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "rollouts/include/rollouts/core/step.h" in names
    assert "rollouts/py.typed" in names
    assert "rollouts/integrations/__init__.py" in names
    # as its licence asks
    assert "rollouts/licenses/Box2D.txt" in names
    assert {name.split("/")[0].split("-")[0] for name in names} == {"rollouts"}


def test_wheel_holds_no_comparison_with_other_libraries(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    theirs = ("envpool", "pufferlib", "warpdrive", "verify_", "soak", "integrations/bench")
    comparing = [name for name in names if any(one in name for one in theirs)]
    # users of EnvPool keep their code through an adapter of ours
    assert [name for name in comparing if "integrations/envpool/" not in name] == []


def test_installed_command_shows_only_what_is_there(python: Path, tmp_path: Path) -> None:
    command = python.parent / "rollouts"
    for arguments, there, not_there in (
        (["--help"], "tune-batch", ("report", "soak", "verify-atari", "verify-mujoco")),
        (["bench", "--help"], "collect", ("adapter", "latency", "solve", "train")),
        (["bench", "pool", "--help"], "rollouts-same-step", ("envpool", "gymnasium")),
    ):
        shown = run(command, *arguments, cwd=tmp_path).split()
        assert there in {word.strip(",:{};") for word in shown}
        assert not {word.strip(",:{};") for word in shown} & {*not_there}
    result = subprocess.run([command, "report"], cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 2
    assert "lie in the source checkout" in result.stderr
    assert len(result.stderr.splitlines()) == 1


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


# -- the library with numpy and gymnasium alone ----------------------------------------


@pytest.fixture(scope="module")
def light_python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the wheel and its dependencies, no extra."""
    return make_environment(tmp_path_factory.mktemp("light") / "venv", wheel, [])


def test_light_environment_holds_numpy_and_gymnasium_alone(
    light_python: Path, tmp_path: Path
) -> None:
    names = "[d.name.lower() for d in importlib.metadata.distributions()]"
    listed = run(light_python, "-c", f"import importlib.metadata; print(*{names})", cwd=tmp_path)
    of_gymnasium = {"cloudpickle", "farama-notifications", "typing_extensions"}
    tools = {"pip", "setuptools"}
    assert set(listed.split()) - tools == {"rollouts", "numpy", "gymnasium"} | of_gymnasium


def test_light_environment_steps_collects_and_replays(light_python: Path, tmp_path: Path) -> None:
    script = tmp_path / "light.py"
    script.write_text(
        """
import gymnasium
import numpy as np
import rollouts
from rollouts.replay import ReplayBuffer

class Policy:
    policy_version = 0
    def act(self, obs):
        zeros = np.zeros(len(obs), np.float32)
        return rollouts.PolicyOutput(np.zeros(len(obs), np.int64), zeros, zeros)
    def value(self, obs):
        return np.zeros(len(obs), np.float32)
    def weights(self):
        return {"bias": np.zeros(1, np.float32)}
    def load_weights(self, weights, version):
        self.policy_version = version

if __name__ == "__main__":
    with gymnasium.make_vec("rollouts/CartPole-v1", num_envs=4) as env:
        env.reset()
        env.step(env.action_space.sample())
    makers = [lambda: gymnasium.make("Acrobot-v1")] * 4
    with rollouts.from_env_fns(makers, num_processes=2) as env:
        env.reset(seed=1)
        env.step(env.action_space.sample())
    spec = rollouts.env_spec("CartPole-v1")
    replay = ReplayBuffer(spec.single_observation_space, spec.single_action_space)
    with rollouts.RolloutCoordinator(
        "CartPole-v1",
        lambda spec: Policy(),
        num_workers=0,
        num_envs_per_worker=4,
        rollout_length=32,
        collect=rollouts.CollectOptions(keep_final_obs=True),
    ) as coordinator:
        coordinator.publish_weights(Policy().weights())
        for _ in range(2):
            replay.add_batch(coordinator.get())
    print(replay.sample(8).obs.shape)
"""
    )
    assert run(light_python, script, cwd=tmp_path).strip().endswith("(8, 4)")


MISSING = {
    "rollouts.TorchPolicy": "torch",
    "rollouts.RecurrentTorchPolicy": "torch",
    "import rollouts.returns_torch": "torch",
    "from rollouts.replay import ReplayDataset": "torch",
    "from rollouts.replay import ReplayPrefetcher": "torch",
    "rollouts.RolloutCoordinator('CartPole-v1', print, num_workers=1, num_envs_per_worker=4,"
    " rollout_length=8)": "ray",
}
# an adapter names the extra of its library where it cannot import it
for file in sorted((ROOT / "integrations").rglob("*.py")):
    for extra in re.findall(r'^ *raise needs\("([\w-]+)"', file.read_text(), flags=re.MULTILINE):
        if "shared" not in file.parts:
            name = file.relative_to(ROOT / "integrations").parts[0].removesuffix(".py")
            MISSING[f"import rollouts.integrations.{name}"] = extra


ENGINES = [
    f"rollouts.make_vec({env_id!r})" for env_id in ("ALE/Pong-v5", "Ant-v5", "CheetahRun-v1")
]
# what each says, as a list of lists of lines; each has a process of its own, which is forked
SAY = """
import json, os, sys
import rollouts

said = []
for code in json.loads(sys.argv[1]):
    read, write = os.pipe()
    if os.fork() == 0:
        os.dup2(write, 1)
        try: exec(code)
        except rollouts.EngineError as error: print(error, flush=True)
        os._exit(0)
    os.close(write)
    with open(read) as file: said.append(file.read().splitlines())
    assert os.wait()[1] == 0, code
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def said(light_python: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The lines of each code that needs what is not there."""
    codes = [*MISSING, *ENGINES]
    shown = run(light_python, "-c", SAY, json.dumps(codes), cwd=tmp_path_factory.mktemp("say"))
    return dict(zip(codes, json.loads(shown), strict=True))


@pytest.mark.parametrize("code", MISSING)
def test_missing_library_is_one_sentence_with_its_extra(
    code: str, said: dict[str, list[str]]
) -> None:
    (line,) = said[code]
    assert f"pip install 'rollouts[{MISSING[code]}]'" in line


@pytest.mark.parametrize("code", ENGINES)
def test_missing_engine_is_one_sentence_with_its_package(
    code: str, said: dict[str, list[str]]
) -> None:
    (line,) = said[code]
    assert "pip install" in line


def test_light_command_lists_what_it_can_make_and_says_what_is_missing(
    light_python: Path, tmp_path: Path
) -> None:
    command = [light_python.parent / "rollouts", "envs"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "CartPole-v1" in result.stdout
    assert "Ant-v5" not in result.stdout
    assert 'pip install "mujoco' in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        "bench collect --env-id CartPole-v1",
        "bench replay",
        "bench learner",
        "tune-batch --env-id CartPole-v1",
        "top --once",
        "record --env-id CartPole-v1 --policy random --out film.mp4",
    ],
)
def test_light_command_says_which_extra_it_needs(
    arguments: str, light_python: Path, tmp_path: Path
) -> None:
    (tmp_path / "status.json").write_text("{}")
    command = [light_python.parent / "rollouts", *arguments.split()]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 2, result.stderr
    assert "Traceback" not in result.stderr
    assert "pip install 'rollouts[" in result.stderr


# -- type checkers ---------------------------------------------------------------------

TYPED = """
import rollouts

env = rollouts.make_vec("CartPole-v1", 4, gravity=9.0, healthy_z_range=(0.2, 1.0))
reveal_type(env)
obs, info = env.reset(seed=1)
reveal_type(obs)
reveal_type(env.stats())
reveal_type(rollouts.env_spec("CartPole-v1").max_episode_steps)
"""
MISTYPED = """
import rollouts

rollouts.make_vec("CartPole-v1", num_env=4)
rollouts.make_vec("CartPole-v1", num_envs="4")
rollouts.make_vec("CartPole-v1", gravity="down")
"""


def check_types(code: str, python: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """The words of `mypy --strict` on a user's script beside the installed wheel."""
    (folder / "script.py").write_text(code)
    command = [sys.executable, "-m", "mypy", "--strict", "--python-executable", python]
    # both scripts read the same modules
    cache = python.parents[2] / "mypy"
    command += ["--cache-dir", cache, "--config-file", os.devnull, "script.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def test_a_users_script_is_type_checked(light_python: Path, tmp_path: Path) -> None:
    result = check_types(TYPED, light_python, tmp_path)
    assert result.returncode == 0, result.stdout
    revealed = re.findall(r'Revealed type is "(.+)"', result.stdout)
    assert len(revealed) == 4
    assert "vector_env.VectorEnv[numpy.ndarray" in revealed[0]
    assert "numpy.ndarray" in revealed[1]
    assert "Any" not in (revealed[0], revealed[1], revealed[2], revealed[3])
    assert revealed[3] == "int | None"


def test_a_users_mistakes_are_errors_to_a_type_checker(light_python: Path, tmp_path: Path) -> None:
    result = check_types(MISTYPED, light_python, tmp_path)
    assert result.returncode == 1, result.stdout
    lines = [line for line in result.stdout.splitlines() if ": error: " in line]
    # a call that none of the overloads takes may be told twice
    assert sorted({int(line.split(":")[1]) for line in lines}) == [4, 5, 6]
    assert "num_env" in lines[0]


@pytest.mark.slow  # compiles most of the native module once more
def test_wheel_is_built_from_what_pyproject_declares(tmp_path: Path) -> None:
    names = zipfile.ZipFile(build_wheel(tmp_path, isolated=True)).namelist()
    assert any(name.startswith("rollouts/_native.") for name in names)
