# SPDX-License-Identifier: Apache-2.0
"""`examples/dqn.py` by its command line, in this process and with Ray workers and shards."""

from __future__ import annotations

import copy
import re
import subprocess
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from warm_python import run_in_new_python, run_script

import rollouts
from rollouts.checkpoint import load_checkpoint
from rollouts.replay import TransitionBatch
from rollouts.workers import PolicySpec

pytestmark = pytest.mark.system

SCRIPT = Path(__file__).parents[2] / "examples" / "dqn.py"
IN_PROCESS = ("--num-workers", 0, "--num-shards", 0, "--num-envs", 16)
LIMIT_S = 600
REPLAY_LINE = (
    r"replay: [\d,]+ samples/s, [\d,]+ inserts/s, ([\d,]+) items in [\d,.]+ MiB, "
    r"([\d.]+) samples per insert, 0 shard restarts"
)


def dqn(*args: object, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return run_script(SCRIPT, *args, timeout=LIMIT_S, env=env)


WITH_RAY = ("--num-workers", 2, "--num-shards", 2)


@pytest.mark.parametrize(
    "where",
    # in Ray the same learning takes a minute of CPU time; the path is the next test's
    [pytest.param(IN_PROCESS, id="here"), pytest.param(WITH_RAY, id="ray", marks=pytest.mark.slow)],
)
def test_it_learns_from_what_all_workers_inserted(
    where: tuple[object, ...], tmp_path: Path
) -> None:
    # the weights of this seed come to 9 before they learn; others are lucky, seed 1 comes to 226
    result = dqn(*where, "--seed", 3, "--target-return", 60, "--run-dir", tmp_path)
    assert result.returncode == 0, result.stderr
    # 8 in the long run, less the first 1 000 items
    assert 6 < float(match_replay(result)[2]) <= 8.5
    assert mean_return(result) >= 60
    assert (tmp_path / "training.png").read_bytes().startswith(b"\x89PNG")
    assert list(tmp_path.glob("events.out.tfevents.*"))


def test_workers_and_shards_of_ray_fill_and_sample_the_replay(
    tmp_path: Path, in_a_cluster: dict[str, str]
) -> None:
    options = ("--target-return", 1000, "--total-steps", 3_000, "--run-dir", tmp_path)
    result = dqn(*WITH_RAY, *options, env=in_a_cluster)
    assert result.returncode == 1, result.stderr
    # 8 of each item, less the first 1 000 of 3 000 and what inserts may run ahead
    assert 1 < float(match_replay(result)[2]) <= 8.5
    summary = re.search(r"([\d,]+) env-steps in ", result.stdout)
    assert summary and int(summary[1].replace(",", "")) >= 3_000
    # inserts may run ahead by 9 216 samples: (3 000 - 1 000) * 8 less those is 26 batches of 256,
    # of which some are still in the queue
    assert load_checkpoint(tmp_path).training["learner"]["updates"] >= 20


def mean_return(result: subprocess.CompletedProcess[str]) -> float:
    summary = result.stdout.splitlines()[1]
    match = re.match(r"CartPole-v1: mean return (\d+\.\d) over the last 100 episodes ", summary)
    assert match, summary
    return float(match[1])


def test_a_resumed_run_goes_on_with_what_the_replay_held(tmp_path: Path) -> None:
    options = (*IN_PROCESS, "--target-return", 1000, "--run-dir", tmp_path, "--save-replay")
    first = dqn(*options, "--total-steps", 4_000)
    assert first.returncode == 1, first.stderr
    before = load_checkpoint(tmp_path).training
    total_steps = before["progress"]["env_steps"] + 1
    second = dqn(*options, "--total-steps", total_steps, "--resume", tmp_path)
    assert second.returncode == 1, second.stderr
    after = load_checkpoint(tmp_path).training
    assert after["learner"]["updates"] > before["learner"]["updates"]
    # an empty replay would have waited for 1 000 items before the first update
    assert 4_000 <= total_steps <= after["progress"]["env_steps"] < total_steps + 1_000
    items = [int(match[1].replace(",", "")) for match in map(match_replay, (first, second))]
    assert items[0] <= items[1] <= after["progress"]["env_steps"]


def match_replay(result: subprocess.CompletedProcess[str]) -> re.Match[str]:
    match = re.fullmatch(REPLAY_LINE, result.stdout.splitlines()[0])
    assert match, result.stdout
    return match


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The example as a module; what it imports lies beside it."""
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    import dqn

    module: ModuleType = dqn
    return module


def transitions(seed: int, rows: int = 256) -> TransitionBatch:
    """As n-step returns of a prioritised table are; in a quarter of them the episode ended."""
    random = np.random.default_rng(seed)
    obs, next_obs = random.normal(size=(2, rows, 4)).astype(np.float32)
    ended = random.random(rows) < 0.25
    arrays = {
        "obs": obs,
        "next_obs": next_obs,
        "action": random.integers(2, size=rows),
        "reward": 5 * random.random(rows, np.float32),
        "discount": np.where(ended, 0, 0.99**5).astype(np.float32),
        "weight": random.random(rows, np.float32),
    }
    others = dict.fromkeys(
        {each.name for each in fields(TransitionBatch)} - arrays.keys(), torch.zeros(rows)
    )
    return TransitionBatch(**{k: torch.from_numpy(v) for k, v in arrays.items()}, **others)


@pytest.mark.parametrize("first", ["native", "torch"])
def test_both_engines_make_the_same_updates_and_go_on_from_each_other(
    first: str, example: ModuleType
) -> None:
    engines = ["native", "torch"] if first == "native" else ["torch", "native"]
    # the target network is taken over in the middle, and long gradients are clipped
    options = ["--target-interval", "4", "--max-grad-norm", "0.5", "--learner-engine"]
    one, other = (example.Learner(example.parse_args([*options, each])) for each in engines)
    assert (one.native is None) == (first == "torch") != (other.native is None)
    for update in range(10):
        if update == 5:
            other.load_state(copy.deepcopy(one.state()))
        for learner in (one, other) if update != 2 else (one,):
            found = learner.learn(transitions(update), learning_rate=1e-3)
            if learner is one:
                expected = found
    torch.testing.assert_close(found[0], expected[0], rtol=1e-4, atol=1e-4)
    assert found[1].keys() == expected[1].keys() and one.updates == other.updates == 10
    for name, number in expected[1].items():
        assert float(found[1][name]) == pytest.approx(float(number), rel=1e-4, abs=1e-4), name
    for network in ("online", "target"):
        mine, its = (getattr(each, network).state_dict() for each in (one, other))
        torch.testing.assert_close(mine, its, rtol=0, atol=1e-5)


def test_pixels_are_learnt_from_by_torch(example: ModuleType) -> None:
    def learner(engine: str) -> Any:
        return example.Learner(
            example.parse_args(["--env-id", "ALE/Pong-v5", "--learner-engine", engine])
        )

    assert learner("auto").native is None
    with pytest.raises(rollouts.SpecError, match="onv2d"):
        learner("native")


def test_workers_do_not_explore_alike(example: ModuleType) -> None:
    spec = rollouts.env_spec("CartPole-v1")
    actions = []
    for worker in range(2):
        worker_spec = PolicySpec(
            id="CartPole-v1",
            single_observation_space=spec.single_observation_space,
            single_action_space=spec.single_action_space,
            num_envs=1000,
            env_id_offset=0,
            worker_id=worker,
            incarnation=0,
            seed=worker,
        )
        policy = example.make_policy(worker_spec, total_envs=2000)
        policy.load_weights({k: 0 * w for k, w in policy.weights().items()}, 1)
        actions.append(policy.act(np.zeros((1000, 4), np.float32)).action)
    # the first environments explore two times in five
    assert (actions[0][:500] != actions[1][:500]).mean() > 0.1


def test_continuous_actions_are_refused(tmp_path: Path) -> None:
    options = ("--env-id", "Pendulum-v1", *IN_PROCESS, "--run-dir", tmp_path)
    result = run_in_new_python(SCRIPT, *options, timeout=LIMIT_S)
    assert result.returncode == 1 and "needs Discrete actions" in result.stderr
    assert "Traceback" not in result.stderr
