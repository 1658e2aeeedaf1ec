# SPDX-License-Identifier: Apache-2.0
"""ReplayBuffer: waiting, states, frame stacks, tensors, figures and errors."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fragments import fragment_info
from gymnasium import spaces
from processes import environ_with_path
from replay_model import ACTION_SPACE, OBS_SPACE, TERMINATED, TRUNCATED, World
from torch.utils.data import DataLoader

import rollouts
from rollouts.metrics import MetricsReporter
from rollouts.replay import (
    Acted,
    NStep,
    Queue,
    ReplayBuffer,
    ReplayDataset,
    Sequences,
    TableConfig,
    stack_num,
)
from rollouts.workers import Fragment

HANG_S = 300.0


def make_buffer(*tables: TableConfig, **options: Any) -> ReplayBuffer:
    return ReplayBuffer(OBS_SPACE, ACTION_SPACE, tables or None, **options)


def make_world() -> World:
    return World([[(5, TERMINATED), (7, TRUNCATED)], [(4, TRUNCATED)]], env_id=[3, 8])


def filled() -> tuple[ReplayBuffer, World]:
    world = make_world()
    buffer = make_buffer(
        TableConfig(items=NStep(2, 0.5), sampler="prioritized"),
        TableConfig("sequences", Sequences(4, 2, burn_in=1)),
    )
    buffer.add_batch(world.rollout(20))
    return buffer, world


# -- waiting ---------------------------------------------------------------------------


def test_what_the_limiter_keeps_out_stays_pending_and_goes_first() -> None:
    world = make_world()
    with make_buffer(TableConfig(items=NStep(1), limiter=Queue(4))) as buffer:
        assert buffer.add_batch(world.rollout(6), timeout_s=0) == 4
        pending = buffer.stats()["tables"]["replay"]["pending"]
        assert pending > 0
        with pytest.raises(TimeoutError, match="call again"):
            buffer.add_batch(world.rollout(1), timeout_s=0)
        # each item once and in the order of time
        taken: list[float] = []
        while buffer.size():
            taken += buffer.sample(1, timeout_s=HANG_S).obs[:, 2].tolist()
            buffer.flush(timeout_s=0)
        assert len(taken) == 4 + pending
        assert buffer.stats()["steps"]["produced"] == 12


def test_save_and_end_episodes_do_not_wait_for_a_blocked_writer(tmp_path: Path) -> None:
    world = make_world()
    with make_buffer(TableConfig(items=NStep(1), limiter=Queue(2))) as buffer:
        ended: list[BaseException] = []

        def add() -> None:
            try:
                buffer.add_batch(world.rollout(10))
            except rollouts.ClosedError as error:
                ended.append(error)

        thread = threading.Thread(target=add, daemon=True)
        thread.start()
        buffer.sample(1, timeout_s=HANG_S)  # the writer is past its rows
        buffer.save(tmp_path / "replay")
        buffer.end_episodes()
        buffer.close()
        thread.join(HANG_S)
        assert not thread.is_alive()
        assert len(ended) == 1


def test_fragments_are_added_once_and_a_gap_cuts() -> None:
    world = make_world()
    with make_buffer(TableConfig(items=NStep(1))) as buffer:
        fragments = [Fragment(fragment_info(i), world.rollout(3)) for i in range(4)]
        for i in (0, 1):
            buffer.add_batch(fragments[i])
        size = buffer.size()
        assert buffer.add_batch(fragments[0]) == 0
        assert buffer.size() == size
        buffer.add_batch(fragments[3])
        stats = buffer.stats()
        assert stats["steps"] == {"produced": 4 * 6, "discarded": {"duplicate": 6}}
        assert stats["episodes_cut"] > 0


# -- states ----------------------------------------------------------------------------

CONTINUE = """
import sys
from test_replay_buffer import fingerprint, make_buffer, make_world
from rollouts.replay import NStep, Sequences, TableConfig
buffer = make_buffer(TableConfig(items=NStep(2, 0.5), sampler="prioritized"),
                     TableConfig("sequences", Sequences(4, 2, burn_in=1)))
buffer.load(sys.argv[1])
world = make_world()
world.rollout(20)
print(fingerprint(buffer, world))
"""


def fingerprint(buffer: ReplayBuffer, world: World) -> str:
    """A buffer's behaviour from now on: samples, and what further rollouts make of it."""
    parts = []
    for _ in range(3):
        buffer.add_batch(world.rollout(6))
        for table in buffer.tables:
            batch = buffer.sample(16, table=table)
            parts += [batch.key.tolist(), batch.obs.sum().item(), batch.reward.sum().item()]
            parts += [batch.age.tolist(), batch.env_id.tolist()]
    return repr(parts)


def test_a_loaded_buffer_goes_on_identically_in_a_new_process(tmp_path: Path) -> None:
    buffer, world = filled()
    batch = buffer.sample(8)
    buffer.update_priorities(batch.key, np.arange(1.0, 9.0))
    path = tmp_path / "replay"
    buffer.save(path)
    assert [p.name for p in tmp_path.iterdir()] == ["replay"]
    here = fingerprint(buffer, world)
    result = subprocess.run(
        [sys.executable, "-c", CONTINUE, str(path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=HANG_S,
        env=environ_with_path(),
    )
    assert result.stdout.strip() == here


@pytest.mark.parametrize("damage", ["magic", "cut", "flip", "other"])
def test_a_damaged_or_foreign_state_changes_nothing(damage: str, tmp_path: Path) -> None:
    buffer, _ = filled()
    state = buffer.state()
    match damage:
        case "magic":
            state[0] ^= 1
        case "cut":
            state = state[: len(state) // 2]
        case "flip":
            state[-len(state) // 4] ^= 255
        case "other":
            with make_buffer(TableConfig(items=NStep(3))) as other:
                state = other.state()
    before = buffer.store.keys("replay").tolist()
    with pytest.raises(rollouts.SpecError):
        buffer.load_state(state)
    assert buffer.store.keys("replay").tolist() == before


# -- frame stacks ----------------------------------------------------------------------


def test_stacked_frames_come_back_to_the_bit_in_less_memory() -> None:
    options: dict[str, Any] = {"max_episode_steps": 60, "autoreset_mode": "same_step"}
    with rollouts.make_vec("ALE/Pong-v5", 2, seed=1, **options) as env:
        spec = env.env_spec
        one_space = spaces.Discrete(int(spec.single_action_space.n))  # type: ignore[attr-defined]
        tables = TableConfig(items=NStep(3, 0.5))
        mode = "same_step"
        stacked, plain = (
            ReplayBuffer(
                spec.single_observation_space, one_space, tables, autoreset_mode=mode, stack_num=num
            )
            for num in (stack_num(spec), 1)
        )
        rng = np.random.default_rng(1)
        obs, _ = env.reset()
        for _ in range(150):
            action = rng.integers(one_space.n, size=2)
            step = env.step(action)
            for buffer in (stacked, plain):
                buffer.add_step(Acted(obs, action), step)
            obs = step[0]
        keys = plain.store.keys("replay")
        assert len(keys) > 250
        assert (stacked.store.keys("replay") == keys).all()
        one, other = stacked.gather(keys), plain.gather(keys)
        for name in ("obs", "next_obs", "action", "reward", "discount", "truncated"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        assert one.truncated.sum() >= 2 * 2
        used = [b.stats()["memory"]["used_bytes"] for b in (stacked, plain)]
        assert used[0] < used[1] / 3


# -- tensors ---------------------------------------------------------------------------


def test_tensors_prefetcher_and_dataset_give_what_sample_gives() -> None:
    buffer, _ = filled()
    arrays = buffer.gather(buffer.store.keys("replay"))
    tensors = buffer.gather(torch.from_numpy(buffer.store.keys("replay")), device="cpu")
    assert isinstance(tensors.obs, torch.Tensor)
    np.testing.assert_array_equal(tensors.obs.numpy(), arrays.obs)
    assert buffer.update_priorities(tensors.key, torch.rand(len(arrays.key))) == len(arrays.key)

    with buffer.prefetch(4, table="sequences") as batches:
        batch = batches.get(timeout_s=HANG_S)
        assert batch.obs.shape == (5, 4, 3)
        assert batch.burn_in == 1
    dataset = ReplayDataset(buffer, 6, num_batches=3, timeout_s=HANG_S)
    sizes = [len(batch.key) for batch in DataLoader(dataset, batch_size=None)]
    assert sizes == [6, 6, 6]


# -- figures and errors ----------------------------------------------------------------


def test_stats_reach_the_metrics() -> None:
    buffer, _ = filled()
    batch = buffer.sample(10)
    stats = buffer.stats()
    table = stats["tables"]["replay"]
    assert table["size"] == table["inserts"]
    assert table["samples"] == 10
    assert table["age"]["max"] == batch.age.max()
    newest = stats["policy_version"]
    assert table["policy_lag"]["max"] == newest - batch.policy_version.min()
    reporter = MetricsReporter(buffer.stats, [], interval_s=None)
    sample = reporter.report()
    assert sample is not None
    found = {(r.metric.name, r.label): r.value for r in sample.readings}
    assert found["rollouts_replay_samples_total", "replay"] == 10
    assert found["rollouts_replay_env_steps_total", None] == 40


def test_weights_are_inverse_to_probabilities() -> None:
    buffer, _ = filled()
    keys = buffer.store.keys("replay")
    buffer.update_priorities(keys, np.arange(1.0, len(keys) + 1))
    batch = buffer.sample(64, beta=1.0)
    scaled = 1 / (batch.probability * batch.table_size)
    np.testing.assert_allclose(batch.weight, scaled / scaled.max(), rtol=1e-6)
    assert batch.weight.max() == 1.0


def test_errors_say_what_was_expected() -> None:
    world = make_world()
    with pytest.raises(rollouts.SpecError, match="stack_num"):
        ReplayBuffer(OBS_SPACE, ACTION_SPACE, stack_num=4)
    with pytest.raises(rollouts.SpecError, match="flatten"):
        ReplayBuffer(spaces.Dict(a=OBS_SPACE), ACTION_SPACE)
    with pytest.raises(rollouts.SpecError, match="no name twice"):
        make_buffer(TableConfig(), TableConfig())
    with make_buffer(max_batch_length=4, extras={"logits": np.zeros(2, np.float32)}) as buffer:
        with pytest.raises(rollouts.SpecError, match="max_batch_length"):
            buffer.add_batch(world.rollout(5))
        with pytest.raises(rollouts.SpecError, match="extras"):
            buffer.add_batch(world.rollout(2))
        with pytest.raises(rollouts.SpecError, match="no table 'other'"):
            buffer.sample(1, table="other")
