# SPDX-License-Identifier: Apache-2.0
"""`rollouts eval` of what the examples trained: their networks are made again."""

from __future__ import annotations

import functools
import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from eval_command import evaluate, play
from warm_python import run_script

import rollouts
from rollouts.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from rollouts.workers import PolicySpec

ROOT = Path(__file__).parents[2]


@pytest.mark.system
def test_what_an_example_trained_is_evaluated_and_goes_on(tmp_path: Path) -> None:
    # a few seconds of a wrapped environment, whose statistics come with the weights
    options = ("--option", "normalize_observation=true", "--option", "rescale_action=[-1, 1]")
    common = ("--env-id", "Pendulum-v1", "--num-workers", 0, "--run-dir", tmp_path, *options)
    program = ROOT / "examples" / "ppo.py"
    done = run_script(program, *common, "--total-steps", 8192, timeout=300)
    assert done.returncode == 0, done.stderr
    counted = load_checkpoint(tmp_path).statistics["observation"].count
    assert counted > 8000
    command = [sys.executable, "-m", "rollouts", "eval", str(tmp_path), "--trust", "--json"]
    told = subprocess.run(
        [*command, "--episodes", "5", "--num-envs", "2", "--seed", "9", "--deterministic"],
        cwd=ROOT, capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    found = json.loads(told.stdout)
    assert found["env_options"] == {"normalize_observation": True, "rescale_action": [-1, 1]}
    assert evaluated_here(tmp_path, [3, 2], 9) == pytest.approx(
        # sums of the same rewards, which the pool keeps as float32 and adds up in double
        found["groups"][""]["returns"], rel=1e-5,
    )  # fmt: skip
    again = run_script(program, *common, "--total-steps", 16384, "--resume", tmp_path, timeout=300)
    assert again.returncode == 0, again.stderr
    assert load_checkpoint(tmp_path).statistics["observation"].count > counted + 8000


@pytest.mark.parametrize(
    ("program", "env_id", "options"),
    [
        ("dqn", "CartPole-v1", {"total_envs": 32}),
        ("impala", "Pendulum-v1", {}),
        ("sac", "Pendulum-v1", {}),
        ("recurrent_ppo", "CartPole-v1", {"visible": [0], "scale": [2.0], "has_memory": True}),
        (
            "r2d2",
            "CartPole-v1",
            {"total_envs": 8, "visible": [0, 2], "scale": [2.0, 20.0], "has_memory": True},
        ),
    ],
)
def test_networks_of_the_examples_are_made_again(
    program: str,
    env_id: str,
    options: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    from common.checkpoint import program_of

    module = importlib.import_module(program)
    made_by = program_of(functools.partial(module.make_policy, **options))
    assert made_by == {"program": f"examples/{program}.py", "program_options": options}
    spec = rollouts.env_spec(env_id)
    asked = PolicySpec(
        id=env_id,
        single_observation_space=spec.single_observation_space,
        single_action_space=spec.single_action_space,
        num_envs=1,
        env_id_offset=0,
        worker_id=0,
        incarnation=0,
        seed=0,
    )
    weights = module.make_policy(asked, **options).module.state_dict()
    save_checkpoint(tmp_path, Checkpoint(id=env_id, weights=weights, **made_by))
    for how in ((), ("--deterministic",)):
        report = evaluate(capsys, tmp_path, "--episodes", 5, "--num-envs", 4, *how)
        assert len(report["groups"][""]["returns"]) == 5


def evaluated_here(run: Path, counts: list[int], seed: int) -> list[float]:
    """The same with the example's network in this process."""
    checkpoint = load_checkpoint(run)
    counted = checkpoint.statistics["observation"]
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "examples"))
        import ppo

        options = {"rescale_action": (-1, 1)}
        spec = rollouts.env_spec("Pendulum-v1", **options)
        agent = ppo.Agent(spec.single_observation_space, spec.single_action_space)
    agent.load_state_dict(dict(checkpoint.weights))

    @torch.inference_mode()
    def act(obs: Any) -> Any:
        scaled = (obs.astype(np.float64) - counted.mean) / np.sqrt(counted.var + 1e-8)
        mean, *_ = agent(torch.from_numpy(scaled.astype(np.float32)))
        return mean.numpy().clip(-1, 1)

    return play(act, "Pendulum-v1", counts, seed, **options)[0]
