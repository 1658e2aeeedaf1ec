# SPDX-License-Identifier: Apache-2.0
"""`examples/mappo.py` by its command line."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import imageio.v2 as imageio
import numpy as np
import pytest
import torch
from warm_python import Script, run_script

import rollouts
from rollouts.checkpoint import load_checkpoint
from rollouts.cli.main import main as command

pytestmark = pytest.mark.system

SCRIPT = Path(__file__).parents[2] / "examples" / "mappo.py"


# a PettingZoo environment of the user's own: two kinds of agents that see float64, one that leaves
OWN = """
import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv


class Fields(ParallelEnv):
    metadata = {"name": "fields"}

    def __init__(self, size):
        self.size, self.possible_agents = size, ["fox_0", "hen_0", "hen_1"]

    def observation_space(self, agent):
        return spaces.Box(0, 1, (self.size, 1 if "fox" in agent else 2), np.float64)

    def action_space(self, agent):
        return spaces.Discrete(2 if "fox" in agent else 3)

    def _seen(self):
        return {one: self.rng.random(self.observation_space(one).shape) for one in self.agents}

    def reset(self, seed=None, options=None):
        self.rng, self.agents, self.steps = np.random.default_rng(seed), self.possible_agents[:], 0
        return self._seen(), {one: {} for one in self.agents}

    def step(self, actions):
        self.steps += 1
        reward = {one: float(actions[one] == 0) for one in self.agents}
        ended = {one: self.steps >= (3 if one == "hen_1" else 6) for one in self.agents}
        seen, info = self._seen(), {one: {} for one in self.agents}
        self.agents = [one for one in self.agents if not ended[one]]
        return seen, reward, ended, {one: False for one in ended}, info


def make(size=3):
    return Fields(size)


number = 3
"""
SMALL = ("--num-envs", 4, "--num-epochs", 1)


def mappo(
    *args: object, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return run_script(SCRIPT, *args, timeout=300, cwd=cwd, env=env)


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The example as a module; what it imports lies beside it."""
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    return importlib.import_module("mappo")


@pytest.fixture
def own_world(tmp_path: Path) -> Path:
    """A directory with a module of the user's."""
    pytest.importorskip("pettingzoo", reason="needs pettingzoo")
    (tmp_path / "fields.py").write_text(OWN)
    return tmp_path


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run of two updates, which others resume."""
    run_dir = tmp_path_factory.mktemp("mappo") / "run"
    result = mappo(*SMALL, "--seed", 3, "--total-steps", 200, "--run-dir", run_dir)
    assert result.returncode == 0, result.stderr
    return run_dir


@pytest.mark.parametrize(
    ("env_id", "critic"),
    [
        ("simple_spread_v3", "central"),
        # test_ppo_on_device.py films and evaluates a hundred agents, and the other critic has a
        # test below
        pytest.param("TagContinuous-v0", "own", marks=pytest.mark.slow),
    ],
)
def test_it_runs_to_its_end_and_draws(
    env_id: str,
    critic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = ("--env-id", env_id, "--critic", critic, "--num-envs", 4, "--num-epochs", 2)
    result = mappo(*options, "--gif", "--total-steps", 800, "--run-dir", tmp_path)
    assert result.returncode == 0, result.stderr
    *lines, last, film = result.stdout.splitlines()
    assert re.search(r"\d+ env-steps, .*: return (-?\d+\.\d\d|nan), entropy \d\.\d\d", lines[-1])
    assert last.endswith(f"picture and weights in {tmp_path}")
    num_frames = rollouts.env_spec(env_id).max_episode_steps + 1
    assert film == f"{num_frames} frames of an episode in {tmp_path / 'episode.gif'}"
    with imageio.get_reader(tmp_path / "episode.gif") as reader:
        frames = [np.asarray(frame)[..., :3] for frame in reader]
    # a GIF joins frames that are equal
    assert num_frames / 2 < len(frames) <= num_frames
    assert (frames[0] != frames[-1]).any()
    assert (tmp_path / "training.png").read_bytes().startswith(b"\x89PNG")
    monkeypatch.chdir(SCRIPT.parents[1])
    assert command(["eval", str(tmp_path), "--trust", "--episodes", "3", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    for group in rollouts.env_spec(env_id, **found["env_options"]).groups:
        assert len(found["groups"][group.name]["returns"]) == 3 * group.num_agents
    again = mappo(*options, "--total-steps", 0, "--weights", tmp_path)
    assert again.returncode == 0, again.stderr


@pytest.mark.parametrize(
    "env_id",
    # the other has two groups as well, and agents that leave
    [pytest.param("simple_tag_v3", marks=pytest.mark.slow), "TagContinuous-v0"],
)
def test_native_gradient_steps_are_those_of_torch(env_id: str, tmp_path: Path) -> None:
    """Two groups; in Tag agents that were caught leave."""
    small = ("--option", "num_runners=9", "--option", "grid_length=4")
    few = small if env_id == "TagContinuous-v0" else ()
    for engine in ("native", "torch"):
        where = ("--run-dir", tmp_path / engine, "--learner-engine", engine)
        result = mappo("--env-id", env_id, *few, *SMALL, "--total-steps", 200, *where)
        assert result.returncode == 0, result.stderr
    one, other = (load_checkpoint(tmp_path / engine).weights for engine in ("native", "torch"))
    assert one.keys() == other.keys()
    for name, weight in one.items():
        torch.testing.assert_close(weight, other[name], rtol=0, atol=1e-4, msg=name)


@pytest.mark.parametrize("engine", ["native", "torch"])
def test_a_group_of_fewer_rows_than_minibatches_learns(engine: str, tmp_path: Path) -> None:
    """It also saves on its way, in a folder that it makes."""
    run_dir = tmp_path / "new" / "run"
    where = ("--run-dir", run_dir, "--checkpoint-interval-s", 0)
    how = ("--learner-engine", engine, "--num-minibatches", 2_000)
    result = mappo("--env-id", "simple_tag_v3", *SMALL, "--total-steps", 200, *how, *where)
    assert result.returncode == 0, result.stderr
    assert all(each.isfinite().all() for each in load_checkpoint(run_dir).weights.values())
    assert {"checkpoint.pt", "training.png"} <= {one.name for one in run_dir.iterdir()}


def test_it_saves_while_it_runs_and_ctrl_c_keeps_what_was_learnt(tmp_path: Path) -> None:
    options = ("--num-envs", 4, "--num-epochs", 1, "--checkpoint-interval-s", 0)
    with Script(SCRIPT, *options, "--total-steps", 10**8, "--run-dir", tmp_path) as run:
        shown = ""
        # the bar says so after each update, which is saved
        while shown.count("agent: return") < 3:
            shown += (more := run.stderr.read(1))
            assert more, shown
        saved = load_checkpoint(tmp_path).env_steps
        os.kill(run.pid, signal.SIGINT)
        out, err = run.communicate(timeout=120)
    assert run.returncode == 130, err
    assert "picture and weights in" in out
    assert load_checkpoint(tmp_path).env_steps >= saved >= 100
    assert (tmp_path / "training.png").exists()


@pytest.mark.parametrize(
    "how",
    [
        # the others share its code
        pytest.param((), id="here", marks=pytest.mark.slow),
        pytest.param(("--critic", "own"), id="own critic"),
        pytest.param(("--num-workers", 2), id="workers"),
    ],
)
def test_it_trains_in_an_environment_of_the_users_own(
    how: tuple[object, ...], own_world: Path, in_a_cluster: dict[str, str]
) -> None:
    own = ("--env", "fields:make", "--option", "size=2", *how)
    sizes = (*SMALL, "--total-steps", 800)
    result = mappo(*own, *sizes, "--run-dir", "run", cwd=own_world, env=in_a_cluster)
    assert result.returncode == 0, result.stderr
    assert re.search(r" 800 env-steps, .*fox: return \d\.\d\d, .*hen: return", result.stdout)
    saved = load_checkpoint(own_world / "run")
    assert (saved.id, saved.env_options) == ("fields:make", {"size": 2})
    # a fox sees two numbers, a hen four
    sizes = {name: saved.weights[f"{name}/net.0.weight"].shape[1] for name in ("fox", "hen")}
    assert sizes == {"fox": 2, "hen": 4}


def test_workers_sample_while_it_learns(tmp_path: Path, in_a_cluster: dict[str, str]) -> None:
    options = (*SMALL, "--num-workers", 2)
    result = mappo(*options, "--total-steps", 1000, "--run-dir", tmp_path, env=in_a_cluster)
    assert result.returncode == 0, result.stderr
    # two workers of four environments, 25 steps each
    shown = [int(found) for found in re.findall(r"^ *(\d+) env-steps", result.stdout, re.M)]
    assert shown == [200, 400, 600, 800]  # and 1,000
    assert load_checkpoint(tmp_path).env_steps == 1000
    more = mappo(*options, "--total-steps", 1200, "--resume", tmp_path, env=in_a_cluster)
    assert more.returncode == 0, more.stderr
    assert load_checkpoint(tmp_path).env_steps == 1200


def test_a_resumed_run_goes_on_where_the_first_stopped(finished_run: Path, tmp_path: Path) -> None:
    shutil.copytree(finished_run, tmp_path, dirs_exist_ok=True)
    options = (*SMALL, "--seed", 3, "--total-steps", 400, "--resume", tmp_path)
    before = load_checkpoint(tmp_path).training
    second = mappo(*options)
    assert second.returncode == 0, second.stderr
    after = load_checkpoint(tmp_path)
    assert (after.env_steps, after.training["updates"], after.policy_version) == (400, 4, 5)
    steps = after.training["groups"]["agent"]["optimizer"]["state"][0]["step"]
    # four minibatches each
    assert float(steps) == 4 * 4
    assert (
        after.training["history"]["agent"][: len(before["history"]["agent"])]
        == (before["history"]["agent"])
    )
    assert min(map(int, re.findall(r"^ *(\d+) env-steps", second.stdout, re.M))) == 300
    # nothing is left to do
    third = mappo(*options)
    assert (third.returncode, third.stdout) == (0, "")


def test_a_run_is_resumed_with_its_own_arguments(
    finished_run: Path, own_world: Path, example: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(own_world)
    monkeypatch.delitem(sys.modules, "fields", raising=False)
    for other, message in (
        (("--env-id", "simple_tag_v3"), "id = 'simple_spread_v3', expected 'simple_tag_v3'"),
        (("--env", "fields:make"), "id = 'simple_spread_v3', expected 'fields:make'"),
        (("--critic", "own"), "has --critic central --hidden 64: resume with the arguments of"),
    ):
        arguments = ("mappo.py", *SMALL, "--seed", 3, *other, "--resume", finished_run)
        monkeypatch.setattr(sys, "argv", [str(each) for each in arguments])
        with pytest.raises(SystemExit, match=f"^error: .*{re.escape(message)}"):
            example.main()
    missing = mappo(*SMALL, "--resume", own_world / "nothing")
    assert missing.returncode == 1 and "Traceback" not in missing.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--env", "fields"), "expected MODULE:FUNCTION such as mpe2.simple_spread_v3"),
        (("--env", "nowhere:make"), "nowhere:make cannot be imported (No module named 'nowhere')"),
        (("--env", "fields:made"), "fields:made cannot be imported"),
        (("--env", "fields:number"), "fields:number is 3, expected a function"),
        (("--env", "fields:make", "--gif"), "--gif films ids of this library"),
        (("--env", "fields:make", "--eval-episodes", "1"), "knows the units of simple_spread_v3"),
        (("--resume", "x", "--weights", "y"), "leave --weights out"),
    ],
)
def test_what_cannot_be_meant_is_said_in_a_sentence(
    arguments: tuple[str, ...],
    message: str,
    own_world: Path,
    example: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(own_world)
    monkeypatch.delitem(sys.modules, "fields", raising=False)
    with pytest.raises(SystemExit) as ended:
        example.parse_args(list(arguments))
    assert ended.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())


@pytest.mark.slow
def test_agents_learn_to_spread(tmp_path: Path) -> None:
    # seed 0: -23.6 after 50 000 env-steps, -20.1 after 450 000
    result = mappo("--total-steps", 500_000, "--run-dir", tmp_path)
    means = [float(each) for each in re.findall(r"return (-\d+\.\d\d)", result.stdout)]
    assert means[-1] > means[0] + 2
