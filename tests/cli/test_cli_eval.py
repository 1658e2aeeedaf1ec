# SPDX-License-Identifier: Apache-2.0
"""`rollouts eval`: episodes are those of the network, and each environment's first ones."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from eval_command import evaluate, play

import rollouts
from rollouts.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from rollouts.cli import main as cli

ROOT = Path(__file__).parents[2]
NETWORK = """
import torch
from torch import nn
from rollouts import TorchPolicy

class Net(nn.Module):
    def __init__(self, inputs, outputs, hidden):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, outputs))
    def forward(self, obs):
        return self.body(obs.float()), torch.zeros(len(obs))

def make_policy(spec, hidden=8):
    net = Net(spec.single_observation_space.shape[0], int(spec.single_action_space.n), hidden)
    return TorchPolicy(net, spec.single_action_space, seed=spec.seed)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a program that makes a policy."""
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets" / "mine.py").write_text(NETWORK)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])  # importing a program adds to it
    return tmp_path


def network(inputs: int = 4, outputs: int = 2, hidden: int = 8) -> torch.nn.Sequential:
    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Linear(inputs, hidden), torch.nn.Tanh(), torch.nn.Linear(hidden, outputs)
    )


def save(directory: Path, net: torch.nn.Module, **parts: Any) -> None:
    directory.mkdir(exist_ok=True)
    given: dict[str, Any] = {
        "id": "CartPole-v1",
        "program": "nets/mine.py",
        "weights": {f"body.{name}": value for name, value in net.state_dict().items()},
        "env_steps": 1234,
        **parts,
    }
    save_checkpoint(directory, Checkpoint(**given))


def test_episodes_are_those_of_the_network(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net = network()
    save(here / "run", net)
    arguments = ("run", "--episodes", 11, "--num-envs", 4, "--seed", 5, "--deterministic")
    report = evaluate(capsys, *arguments)
    returns, lengths = play(
        lambda obs: net(torch.from_numpy(obs)).argmax(-1).numpy(), "CartPole-v1", [3, 3, 3, 2], 5
    )
    (found,) = report["groups"].values()
    assert found["returns"] == returns and found["lengths"] == lengths
    assert len(set(lengths)) > 1
    for what, values in (("return", returns), ("length", lengths)):
        expected = {
            "mean": np.mean(values),
            "std": np.std(values),
            "min": min(values),
            "max": max(values),
        }
        assert found[what] == pytest.approx(expected, rel=1e-12)
    assert report["env_steps"] == 1234 and report["num_episodes"] == 11
    assert report["deterministic"] is True
    assert evaluate(capsys, *arguments) == report

    assert cli.main(["eval", *map(str, arguments), "--trust"]) == 0
    first, second, third = capsys.readouterr().out.splitlines()
    assert first == (
        "run: CartPole-v1 after 1,234 env-steps of training; 11 episodes in 4 environments, most "
        "likely actions, seed 5"
    )
    assert second.startswith(f"return mean {np.mean(returns):.2f}  std {np.std(returns):.2f}  min ")
    assert third == (
        f"length mean {np.mean(lengths):.2f}  std {np.std(lengths):.2f}  min {min(lengths):.2f}  "
        f"max {max(lengths):.2f} steps"
    )


def test_actions_are_drawn_as_in_training_unless_told_otherwise(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(here / "run", network())
    arguments = ("run", "--episodes", 20, "--seed", 1)
    drawn = evaluate(capsys, *arguments)
    assert drawn["num_envs"] == 16 and not drawn["deterministic"]
    assert evaluate(capsys, *arguments)["groups"] == drawn["groups"]
    assert evaluate(capsys, *arguments, "--deterministic")["groups"] != drawn["groups"]


def test_short_episodes_are_not_preferred(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # half of the environments have poles that hardly fall
    lengths = [0.5, 5.0] * 4
    save(here / "run", network(), env_options={"pole_half_length": np.array(lengths)})
    report = evaluate(capsys, "run", "--episodes", 40, "--num-envs", 8)
    (found,) = report["groups"].values()
    by_env = np.array(found["lengths"]).reshape(8, 5)
    assert by_env[1::2].mean() > 1.5 * by_env[::2].mean()


def test_options_of_the_training_hold_unless_others_are_given(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    net = network()
    save(here / "run", net, env_options={"max_episode_steps": 7, "gravity": 1.0})
    report = evaluate(capsys, "run", "--episodes", 3)
    assert report["groups"][""]["lengths"] == [7, 7, 7]
    other = evaluate(capsys, "run", "--episodes", 3, "--option", "max_episode_steps=5")
    assert other["groups"][""]["lengths"] == [5, 5, 5]
    assert other["env_options"] == {"max_episode_steps": 5, "gravity": 1.0}


def test_observations_are_scaled_by_the_statistics_of_the_training(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    net = network()
    mean, var = np.array([0.3, -0.5, 0.02, 0.2]), np.array([0.5, 1.5, 0.01, 0.9])
    counted = rollouts.RunningStatistics(mean, var, 1e6)
    options = {"normalize_observation": True}
    save(here / "run", net, env_options=options, statistics={"observation": counted})
    report = evaluate(
        capsys, "run", "--episodes", 4, "--num-envs", 2, "--seed", 3, "--deterministic"
    )

    def act(obs: Any) -> Any:
        scaled = ((obs.astype(np.float64) - mean) / np.sqrt(var + 1e-8)).astype(np.float32)
        return net(torch.from_numpy(scaled)).argmax(-1).numpy()

    returns, _ = play(act, "CartPole-v1", [2, 2], 3)
    assert report["groups"][""]["returns"] == returns
    plain, _ = play(
        lambda obs: net(torch.from_numpy(obs)).argmax(-1).numpy(), "CartPole-v1", [2, 2], 3
    )
    assert plain != returns


@pytest.mark.parametrize("env_id", ["simple_spread_v3", "TagContinuous-v0"])
def test_several_agents_have_their_groups(
    env_id: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = NETWORK.replace("int(spec.single_action_space.n)", "outputs(spec)") + (
        "\ndef outputs(spec):\n"
        "    space = spec.single_action_space\n"
        "    return int(getattr(space, 'nvec', [getattr(space, 'n', 0)])[0] if not hasattr(space, "
        "'nvec') else sum(space.nvec))\n"
    )
    (here / "nets" / "mine.py").write_text(program)
    groups = rollouts.env_spec(env_id).groups
    weights = {}
    for group in groups:
        inputs = group.single_observation_space.shape
        space: Any = group.single_action_space
        outputs = sum(space.nvec) if hasattr(space, "nvec") else int(space.n)
        assert inputs
        for name, value in network(inputs[0], outputs).state_dict().items():
            weights[f"{group.name}/body.{name}"] = value
    save(here / "run", network(), id=env_id, weights=weights)
    report = evaluate(capsys, "run", "--episodes", 3, "--num-envs", 2, "--deterministic")
    assert list(report["groups"]) == [group.name for group in groups]
    for group in groups:
        found = report["groups"][group.name]
        assert len(found["returns"]) == 3 * group.num_agents
        assert max(found["lengths"]) <= (rollouts.env_spec(env_id).max_episode_steps or 0)
    assert cli.main(["eval", "run", "--trust", "--episodes", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines[1:]] == [g.name for g in groups for _ in range(2)]


def test_agents_play_as_their_policies(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    env_id = "simple_spread_v3"
    (group,) = rollouts.env_spec(env_id).groups
    net = network(18, 5)
    weights = {f"{group.name}/body.{name}": value for name, value in net.state_dict().items()}
    save(here / "run", net, id=env_id, weights=weights)
    arguments = ("run", "--episodes", 5, "--num-envs", 2, "--seed", 7, "--deterministic")
    found = evaluate(capsys, *arguments)["groups"][group.name]

    played: list[list[Any]] = [[], []]
    with rollouts.make_multi_agent_vec(env_id, 2, seed=7, autoreset_mode="same_step") as env:
        obs, _ = env.reset()
        totals = np.zeros((2, group.num_agents))
        while len(played[0]) < 3:
            with torch.inference_mode():
                actions = net(torch.from_numpy(np.asarray(obs))).argmax(-1).numpy()
            obs, reward, _, _, info = env.step(actions)
            totals += np.asarray(reward)
            for row in np.flatnonzero(info["ended"]):
                played[row].append(totals[row].copy())
                totals[row] = 0
    # agent by agent of an environment, each with its episodes
    expected = [
        total
        for row, count in ((0, 3), (1, 2))
        for agent in range(group.num_agents)
        for total in [episode[agent] for episode in played[row][:count]]
    ]
    np.testing.assert_allclose(found["returns"], expected, rtol=1e-6)
    pytest.importorskip("imageio")
    film = ["record", "--policy", "run", "--trust", "--out", "film.gif", "--seed", "7"]
    assert cli.main(film) == 0
    assert (here / "film.gif").stat().st_size > 1000


def test_an_episode_is_filmed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("imageio")
    options = {"max_episode_steps": 9, "normalize_observation": True}
    counted = rollouts.RunningStatistics(np.zeros(4), np.ones(4), 5.0)
    save(here / "run", network(), env_options=options, statistics={"observation": counted})
    assert cli.main(["eval", "run", "--trust", "--episodes", "1", "--record", "one.gif"]) == 0
    assert "one.gif: " in capsys.readouterr().out
    assert (here / "one.gif").stat().st_size > 1000
    (here / "one.gif").unlink()
    evaluate(capsys, "run", "--episodes", 1, "--record", "one.gif")
    assert (here / "one.gif").exists()


def test_mistakes_are_named(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(here / "run", network())
    good = load_checkpoint(here / "run")
    (here / "empty").mkdir()
    (here / "nets" / "none.py").write_text("x = 1\n")
    outside = here.parent / f"{here.name}.py"
    outside.write_text("raise SystemError('executed')\n")
    for name, change in {
        "absolute": {"program": str(outside)},
        "above": {"program": f"../{outside.name}"},
        "gone": {"program": "nets/gone.py"},
        "no_function": {"program": "nets/none.py"},
        "options": {"program_options": {"size": 3}},
        "other_weights": {"weights": {"x": torch.ones(1)}},
        "other_env": {"id": "Acrobot-v1"},
        "no_env": {"id": "CartPol-v1"},
        "endless": {"id": "NChain-v0", "env_options": {"max_episode_steps": 0}},
    }.items():
        (here / name).mkdir()
        save_checkpoint(here / name, replace(good, **change))
    (here / "damaged.pt").write_bytes(b"PK")
    for arguments, message in {
        ("empty",): "no checkpoint at empty/checkpoint.pt",
        ("damaged.pt",): "damaged.pt is not a readable checkpoint",
        ("absolute",): "is no file in this directory: run this where that program is",
        ("above",): "is no file in this directory",
        ("gone",): "gone names 'nets/gone.py', which is no file",
        ("no_function",): "nets/none.py has no function make_policy(spec)",
        ("options",): "makes no policy for CartPole-v1",
        ("other_weights",): "are not those of the network that nets/mine.py makes for CartPole-v1",
        ("other_env",): "trained in Acrobot-v1, are not those of the network",
        ("no_env",): "Did you mean CartPole-v1",
        ("endless",): "have no time limit here and may never end",
        ("run", "--episodes", "3", "--num-envs", "4"): "4 environments: give more episodes, or",
        ("run", "--record", "x.avi"): "ends in .mp4 or .gif",
        ("run", "--option", "nonsense=1"): "nonsense",
        ("run", "--network", "nets/gone.py"): "which is no Python file",
    }.items():
        assert cli.main(["eval", *arguments, "--trust"]) == 2, arguments
        assert message in capsys.readouterr().err, arguments
