# SPDX-License-Identifier: Apache-2.0
"""`examples/r2d2.py`: its arithmetic against slow references, and by its command line."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import rollouts
from rollouts.checkpoint import load_checkpoint
from rollouts.collecting.collector import Collector
from rollouts.replay import ReplayBuffer, SequenceBatch, Sequences, TableConfig

pytestmark = pytest.mark.system

SCRIPT = Path(__file__).parents[2] / "examples" / "r2d2.py"
LIMIT_S = 600


def r2d2(*args: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The example as a module; what it imports lies beside it."""
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    import r2d2

    module: ModuleType = r2d2
    return module


def sampled(example: ModuleType, learner: Any, batch_size: int = 64) -> SequenceBatch:
    """Sequences that the learner's own policy collected: whole ones, padded ones, with ends."""
    spec = rollouts.env_spec("CartPole-v1")
    policy = rollouts.RecurrentTorchPolicy(
        learner.online, spec.single_action_space, keep_states=True
    )
    replay = ReplayBuffer(
        spec.single_observation_space,
        spec.single_action_space,
        TableConfig(items=Sequences(12, 8, burn_in=4, end_of_episode="pad")),
        policy_state=learner.policy_state,
    )
    with rollouts.make_vec("CartPole-v1", 8, seed=3, autoreset_mode="same_step") as env:
        collector = Collector(env, policy, 64, keep_final_obs=True)
        for _ in range(3):
            replay.add_batch(collector.collect())
    batch = replay.sample(batch_size, device="cpu")
    assert isinstance(batch, SequenceBatch)
    return batch


def test_the_learner_sees_the_values_that_the_worker_saw(example: ModuleType) -> None:
    learner = example.Learner(example.parse_args([]))
    batch = sampled(example, learner)
    values = learner.unroll(learner.online, batch)
    # step by step, as a worker goes, from the stored state on
    state = batch.policy_state
    for t, obs in enumerate(batch.obs):
        expected, _, state = learner.online(obs, state)
        is_step = t <= batch.num_steps
        # equal sums in another order: float32 rounding over a dozen steps
        torch.testing.assert_close(values[t][is_step], expected[is_step], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rescale", ["--rescale", "--no-rescale"])
def test_goals_are_those_of_a_loop_over_steps(example: ModuleType, rescale: str) -> None:
    learner = example.Learner(example.parse_args([rescale, "--n-step", "3", "--gamma", "0.9"]))
    batch = sampled(example, learner)
    assert (batch.num_steps < 12).any() and batch.terminated.any()
    generator = torch.Generator().manual_seed(1)
    following = torch.randn(13, 64, generator=generator)
    goal = learner.goal(batch, following)
    for b in range(64):
        steps = int(batch.num_steps[b])
        for t in range(steps):
            end = min(t + 3, steps)
            total = sum(0.9 ** (i - t) * float(batch.reward[i, b]) for i in range(t, end))
            if not batch.terminated[end - 1, b]:
                value = following[end, b]
                rest = example.inverse_root(value) if rescale == "--rescale" else value
                total += 0.9 ** (end - t) * float(rest)
            expected = torch.tensor(total)
            expected = example.root(expected) if rescale == "--rescale" else expected
            # sums of four float32 against double
            torch.testing.assert_close(goal[t, b], expected.float(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rescale", ["--rescale", "--no-rescale"])
def test_native_steps_are_those_of_torch(example: ModuleType, rescale: str) -> None:
    options = rescale, "--burn-in", "4", "--learn-steps", "8", "--n-step", "3"
    native, plain = (
        example.Learner(example.parse_args([*options, "--learner-engine", engine]))
        for engine in ("native", "torch")
    )
    assert native.native is not None and plain.native is None
    for _ in range(5):
        batch = sampled(example, native)
        found, logs = native.learn(batch, learning_rate=1e-3)
        expected, expected_logs = plain.learn(batch, learning_rate=1e-3)
        # the same sums in another order
        torch.testing.assert_close(found.float(), expected, rtol=1e-4, atol=1e-5)
        for name, each in logs.items():
            assert float(each) == pytest.approx(float(expected_logs[name]), rel=1e-4, abs=1e-5)
    for mine, its in zip(native.online.parameters(), plain.online.parameters(), strict=True):
        torch.testing.assert_close(mine, its, rtol=0, atol=1e-5)


def test_torch_learns_where_rows_are_not_kept_apart(example: ModuleType) -> None:
    assert example.Learner(example.parse_args(["--no-memory"])).native is None


@pytest.mark.parametrize("engine", ["native", "torch"])
def test_priorities_are_of_the_rows_that_are_learnt_from(example: ModuleType, engine: str) -> None:
    options = "--eta", "0.7", "--burn-in", "4", "--learn-steps", "8", "--learner-engine", engine
    learner = example.Learner(example.parse_args([*options]))
    batch = sampled(example, learner)
    with torch.no_grad():
        values = learner.unroll(learner.online, batch)
        goal = learner.goal(batch, values.max(-1).values)  # both networks are still the same
    priority, _ = learner.learn(batch, learning_rate=0.0)
    assert batch.first[0].any() and (~batch.first[0]).any()
    for b in range(64):
        # where the episode began the state is known, elsewhere it is burnt in
        rows = range(0 if batch.first[0, b] else 4, int(batch.num_steps[b]))
        errors = torch.stack([abs(values[t, b, batch.action[t, b]] - goal[t, b]) for t in rows])
        expected = 0.7 * errors.max() + 0.3 * errors.mean()
        # a mean summed in another order
        torch.testing.assert_close(priority[b].float(), expected, rtol=1e-5, atol=1e-6)


def test_without_memory_nothing_is_learnt_about_the_past(example: ModuleType) -> None:
    learner = example.Learner(example.parse_args(["--no-memory"]))
    batch = sampled(example, learner)
    gru = learner.online.gru
    inputs, memory = gru.weight_ih_l0.clone(), gru.weight_hh_l0.clone()
    learner.learn(batch, learning_rate=1e-3)
    # the weights of the state only ever meet zeros, so no gradient reaches them
    assert torch.equal(memory, gru.weight_hh_l0) and not torch.equal(inputs, gru.weight_ih_l0)
    assert not any(state.any() for state in batch.policy_state)


SHARDS = ("--num-workers", 2, "--num-shards", 2)


def test_workers_and_shards_of_ray_fill_and_sample_the_replay(tmp_path: Path) -> None:
    options = ("--min-size", 100, "--total-steps", 3_000, "--target-return", 1000)
    result = r2d2(*SHARDS, *options, "--run-dir", tmp_path)
    assert result.returncode == 1, result.stderr
    replay, summary = result.stdout.splitlines()
    assert re.match(r"replay: .* samples per insert, 0 shard restarts$", replay)
    assert summary.startswith("CartPole-v1: ")
    assert load_checkpoint(tmp_path).training["learner"]["updates"] > 0


@pytest.mark.slow  # a minute of CPU time and more
def test_it_learns_what_nobody_can_without_memory(tmp_path: Path) -> None:
    # 9 before it learns; the same network with --no-memory came to 36 in 230 000 env-steps
    result = r2d2(*SHARDS, "--target-return", 60, "--run-dir", tmp_path)
    assert result.returncode == 0, result.stderr
    replay, summary = result.stdout.splitlines()
    assert re.match(r"replay: .* samples per insert, 0 shard restarts$", replay)
    match = re.match(r"CartPole-v1: mean return (\d+\.\d) over the last 100 episodes ", summary)
    assert match and float(match[1]) >= 60
    assert (tmp_path / "training.png").read_bytes().startswith(b"\x89PNG")
