# SPDX-License-Identifier: Apache-2.0
"""`rollouts record`: the videos that it writes, whose policies it takes, and what it refuses."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import imageio.v2 as imageio
import numpy as np
import pytest
import torch

import rollouts
from rollouts.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from rollouts.cli import main as cli
from rollouts.cli.checkpoint_policy import load_policy, read_policy
from rollouts.cli.checkpoint_program import load_program
from rollouts.cli.record_actors import PolicyActor

pytestmark = pytest.mark.system

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = ["--width", "96", "--height", "64", "--max-steps", "12"]


@pytest.fixture
def examples(monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.chdir(EXAMPLES.parent)
    return EXAMPLES


def save_policy(path: Path, program: str, env_id: str, network: str) -> Any:
    """Writes a checkpoint as the example does, and returns its network."""
    spec = rollouts.env_spec(env_id)
    torch.manual_seed(0)
    module = importlib.import_module(program)
    made = getattr(module, network)(spec.single_observation_space, spec.single_action_space)
    weights, program = made.state_dict(), f"examples/{program}.py"
    save_checkpoint(path, Checkpoint(id=env_id, weights=weights, program=program))
    return made


def load_actor(path: Path, env_id: str, *, network: Path | None, samples: bool) -> PolicyActor:
    spec = rollouts.env_spec(env_id)
    checkpoint = read_policy(path, env_id)
    program = load_program(checkpoint, path, network=network, trust=True)
    how: Any = {"program": program, "samples": samples, "seed": 0, "num_envs": 1}
    policy = load_policy(checkpoint, path, spec, **how)
    return PolicyActor(policy, spec.single_action_space)


def test_a_mujoco_task_is_filmed_by_the_command(tmp_path: Path) -> None:
    out = tmp_path / "run.mp4"
    command = ["record", "--env-id", "Ant-v5", *SMALL, "--out", str(out), "--num-episodes", "2"]
    result = subprocess.run(
        [sys.executable, "-m", "rollouts", *command],
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    first, second, summary = result.stdout.splitlines()
    assert first.startswith("episode 1: return ") and "12 steps, stopped" in first
    assert second.startswith("episode 2: return ")
    assert "26 frames of 96 x 64 pixels at 20 frames/s" in summary and str(out) in summary
    with imageio.get_reader(out) as video:
        assert video.get_meta_data()["fps"] == 20
        frames = np.array([frame for frame in video])
    assert frames.shape == (26, 64, 96, 3)
    # the ant falls, and the second episode begins where the first did
    assert np.abs(frames[12].astype(int) - frames[0]).max() > 60
    assert np.abs(frames[13].astype(int) - frames[12]).mean() > 1


def test_an_atari_game_is_filmed_whole_and_in_colour(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run.gif"
    options = ["--option", "noop_max=0", "--option", "frameskip=6"]
    command = ["record", "--env-id", "ALE/Breakout-v5", *options, "--max-steps", "15"]
    assert cli.main([*command, "--out", str(out)]) == 0
    assert "16 frames of 160 x 210 pixels at 10 frames/s" in capsys.readouterr().out
    frames = [np.asarray(frame)[..., :3] for frame in imageio.mimread(out)]
    # a GIF joins frames that are equal
    assert 5 <= len(frames) <= 16
    assert frames[0].shape == (210, 160, 3)
    assert (frames[0] != frames[-1]).any()
    assert len(np.unique(frames[0].reshape(-1, 3), axis=0)) > 5


@pytest.mark.parametrize(
    ("env_id", "size", "returns"),
    [
        ("TagContinuous-v0", "96 x 80", r"tagger -?\d+\.\d\d, runner -?\d+\.\d\d"),
        ("simple_spread_v3", "700 x 700", r"-\d+\.\d\d"),
    ],
)
def test_several_agents_are_filmed(
    env_id: str, size: str, returns: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    films = []
    sizes = ["--width", "96", "--height", "80"] if env_id.startswith("Tag") else []
    for name in ("a", "b"):
        out = tmp_path / f"{name}.gif"
        command = ["record", "--env-id", env_id, *sizes, "--max-steps", "9", "--out", str(out)]
        assert cli.main([*command, "--num-episodes", "2"]) == 0
        printed = capsys.readouterr().out
        assert re.match(rf"episode 1: return {returns}, 9 steps, stopped by --max-steps\n", printed)
        assert f"20 frames of {size} pixels at 10 frames/s" in printed
        films.append(out.read_bytes())
    assert films[0] == films[1]
    frames = [np.asarray(frame)[..., :3] for frame in imageio.mimread(tmp_path / "a.gif")]
    assert len(frames) > 10 and (frames[0] != frames[9]).any()


def test_an_episode_of_several_agents_ends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = [
        # the time limit, though runners leave before
        (["TagContinuous-v0", "--option", "tagging_distance=0.2"], "truncated"),
        # one tagger that reaches everybody
        (["TagContinuous-v0", "--option", "tagging_distance=1.0"], "terminated"),
    ]
    for arguments, ending in cases:
        command = ["record", "--width", "64", "--height", "64", "--env-id", *arguments]
        assert cli.main([*command, "--out", str(tmp_path / "run.gif")]) == 0
        assert f"steps, {ending}\n" in capsys.readouterr().out


def test_a_terminal_without_unicode_or_display_costs_no_video(tmp_path: Path) -> None:
    out = tmp_path / "\u00e9.gif"
    displays = ("XDG_RUNTIME_DIR", "DISPLAY", "WAYLAND_DISPLAY")
    plain = {name: value for name, value in os.environ.items() if name not in displays}
    command = ["record", "--env-id", "CartPole-v1", "--max-steps", "3", "--out", str(out)]
    done = subprocess.run(
        [sys.executable, "-m", "rollouts", *command],
        env={**plain, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        timeout=240,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\\xe9.gif: 4 frames" in done.stdout
    assert out.is_file()


def test_the_same_seed_films_the_same(tmp_path: Path) -> None:
    for name in ("a", "b"):
        command = ["record", "--env-id", "Hopper-v5", *SMALL, "--seed", "3"]
        assert cli.main([*command, "--out", str(tmp_path / f"{name}.gif")]) == 0
    assert (tmp_path / "a.gif").read_bytes() == (tmp_path / "b.gif").read_bytes()


def test_a_checkpoint_of_an_example_plays(
    tmp_path: Path, examples: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # a directory is that of a run
    agent = save_policy(tmp_path / "checkpoint.pt", "ppo", "Hopper-v5", "Agent")
    out = tmp_path / "run.mp4"
    command = ["record", *SMALL, "--seed", "5", "--out", str(out)]
    assert cli.main([*command, "--policy", str(tmp_path), "--trust"]) == 0
    printed = capsys.readouterr().out

    # the most likely action is the mean
    total = 0.0
    with rollouts.make_vec("Hopper-v5", seed=5) as env:
        obs, _ = env.reset()
        for _ in range(12):
            with torch.inference_mode():
                mean, *_ = agent(torch.from_numpy(obs))
            obs, reward, *_ = env.step(mean.numpy().clip(-1, 1))
            total += reward[0]
    assert printed.startswith(f"episode 1: return {total:.2f}, 12 steps")
    assert out.is_file()


def test_values_of_actions_play_greedily(tmp_path: Path, examples: Path) -> None:
    path = tmp_path / "dqn.pt"
    network = save_policy(path, "dqn", "CartPole-v1", "QNetwork")
    actor = load_actor(path, "CartPole-v1", network=None, samples=False)
    obs = np.random.default_rng(0).normal(size=(40, 1, 4)).astype(np.float32)
    for each in obs:
        expected = network.values(torch.from_numpy(each)).argmax(-1).numpy()
        np.testing.assert_array_equal(actor.act(each, False), expected)
    # in training this one environment would explore in two of five steps
    drawing = load_actor(path, "CartPole-v1", network=None, samples=True)
    greedy = [int(actor.act(each, False)[0]) for each in obs]
    assert [int(drawing.act(each, False)[0]) for each in obs] != greedy


def test_half_precision_weights_play(tmp_path: Path, examples: Path) -> None:
    path = tmp_path / "dqn.pt"
    save_policy(path, "dqn", "CartPole-v1", "QNetwork")
    saved = load_checkpoint(path)
    narrow = {name: weight.to(torch.bfloat16) for name, weight in saved.weights.items()}
    save_checkpoint(path, replace(saved, weights=narrow))
    actor = load_actor(path, "CartPole-v1", network=None, samples=False)
    assert actor.act(np.zeros((1, 4), np.float32), True).shape == (1,)


def test_a_network_of_the_users_own_with_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))  # undone with the test
    program = tmp_path / "mine.py"
    program.write_text(
        "import torch\n"
        "from rollouts import RecurrentTorchPolicy\n"
        "class Counter(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.step = torch.nn.Parameter(torch.zeros(1))\n"
        "    def initial_state(self):\n"
        "        return (torch.zeros(1),)\n"
        "    def forward(self, obs, state):\n"
        "        count = state[0] + self.step\n"
        "        mean = count.expand(-1, 3) / 10\n"
        "        return mean, torch.zeros(3), count[:, 0], (count,)\n"
        "def make_policy(spec):\n"
        "    return RecurrentTorchPolicy(Counter(), spec.single_action_space)\n"
    )
    weights = tmp_path / "weights.pt"
    torch.save({"step": torch.ones(1)}, weights)
    actor = load_actor(weights, "Hopper-v5", network=program, samples=False)
    obs = np.zeros((1, 11))
    seen = [actor.act(obs, begins)[0, 0] for begins in (True, False, False, True)]
    np.testing.assert_allclose(seen, [0.1, 0.2, 0.3, 0.1], rtol=1e-6)


class Malice:
    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("executed",)


def test_what_a_checkpoint_cannot_be_is_refused(
    tmp_path: Path, examples: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = tmp_path / "good.pt"
    save_policy(good, "ppo", "Hopper-v5", "Agent")
    evil, unknown = tmp_path / "evil.pt", tmp_path / "unknown.pt"
    torch.save({"kind": Malice()}, evil)
    save_checkpoint(unknown, replace(load_checkpoint(good), program="/etc/another.py"))
    empty = tmp_path / "empty.pt"
    torch.save({"kind": "rollouts examples/ppo.py, version 1"}, empty)
    cases = [
        ("Ant-v5", good, "was trained in Hopper-v5, --env-id is Ant-v5: leave --env-id out"),
        ("Ant-v5", evil, "is not a readable checkpoint"),
        ("Hopper-v5", unknown, "names '/etc/another.py', which is no file in this directory: run"),
        ("Ant-v5", empty, "is no checkpoint of rollouts: it has kind, expected format"),
        ("Ant-v5", tmp_path / "none.pt", "no checkpoint at"),
    ]
    for env_id, policy, message in cases:
        command = ["record", "--env-id", env_id, "--out", str(tmp_path / "run.mp4")]
        assert cli.main([*command, "--policy", str(policy), "--trust"]) == 2
        printed = capsys.readouterr()
        assert message in printed.err, printed.err
        assert "executed" not in printed.out
    assert not (tmp_path / "run.mp4").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--env-id", "Hoper-v5", "--out", "run.mp4"], "Did you mean Hopper-v5"),
        (["--out", "run.mp4"], "random actions need an environment: give --env-id ID"),
        (["--env-id", "Hopper-v5", "--out", "run.avi"], "ends in .mp4 or .gif"),
        (["--env-id", "Hopper-v5", "--out", "none/run.mp4"], "none/run.mp4 does not exist"),
        (["--env-id", "Hopper-v5", "--out", "full.mp4"], "cannot be written"),
        (["--env-id", "Hopper-v5", "--out", "run.mp4", "--width", "33"], "needs even numbers"),
        (["--env-id", "Hopper-v5", "--out", "run.mp4", "--camera", "7"], "has no camera 7"),
        (["--env-id", "NChain-v0", "--out", "run.mp4"], "cannot be rendered"),
        (["--env-id", "simple_v3", "--out", "run.mp4", "--width", "96"], "no options width"),
        (["--env-id", "simple_v3", "--out", "run.mp4", "--policy", "x"], "no checkpoint at x"),
        (["--env-id", "Hopper-v5", "--out", "run.mp4", "--option", "seed=1"], "no option 'seed'"),
        (
            ["--env-id", "Hopper-v5", "--out", "run.mp4", "--option", "max_episode_steps=0"],
            "say with --max-steps",
        ),
    ],
)
def test_mistakes_are_named(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full.mp4").mkdir()
    assert cli.main(["record", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run.mp4").exists()


def test_a_missing_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # None makes the import fail as if nothing were installed
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    out = tmp_path / "run.mp4"
    assert cli.main(["record", "--env-id", "Hopper-v5", "--out", str(out)]) == 2
    assert "pip install 'rollouts[render]'" in capsys.readouterr().err
