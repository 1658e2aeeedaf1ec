# SPDX-License-Identifier: Apache-2.0
"""An environment that fails is reported by id, and the others go on.

Emulators are loaded by the first reset of an environment, except for one that is loaded
with the pool: a ROM that goes away in between makes the other environments fail. All of this in
processes of their own, as ALE has ended processes on bad ROMs.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from forked import run_forked

import rollouts
from rollouts.families import atari

pytestmark = pytest.mark.skipif(
    "ALE/Breakout-v5" not in rollouts.env_ids(), reason="needs ale-py: an engine that can fail"
)
SPOILED = {
    "missing": Path.unlink,
    "empty": lambda rom: rom.write_bytes(b""),
    "not a ROM": lambda rom: rom.write_bytes(b"corrupt" * 300),
}


def make_with_one_emulator(folder: Path, **arguments: object) -> tuple[rollouts.VectorEnv, Path]:
    """Three Breakouts of which only the first that resets has an emulator, and their ROM."""
    shutil.copy(atari.rom_path("ALE/Breakout-v5"), folder)
    os.environ["ALE_ROMS_DIR"] = str(folder)
    # our own engine has the ROM in memory by then
    arguments = {"num_threads": 1, "seed": 1, "max_episode_steps": 6, "engine": "ale"} | arguments
    return rollouts.make_vec("ALE/Breakout-v5", 3, **arguments), folder / "breakout.bin"


def put_back(rom: Path) -> None:
    del os.environ["ALE_ROMS_DIR"]
    shutil.copy(atari.rom_path("ALE/Breakout-v5"), rom)


def run_apart(body: Callable[..., None], *arguments: object) -> None:
    ended = run_forked(body, *arguments)
    assert ended.exitcode == 0, ended.stderr


def report_failures(folder: Path, kind: str, mode: str) -> None:
    env, rom = make_with_one_emulator(folder, autoreset_mode=mode)
    SPOILED[kind](rom)
    with pytest.raises(rollouts.EnvError, match=r"^2 environment.*env_id 1: .*env_id 2: ") as error:
        env.reset()
    assert str(rom) in str(error.value) and "next recv" in str(error.value)
    assert isinstance(error.value, RuntimeError)

    # the batch comes all the same: the failed rows are truncated and empty
    assert env.num_in_flight == 3
    batch = env.recv_batch()
    assert env.num_in_flight == 0
    assert batch.env_id.tolist() == [0, 1, 2]
    assert batch.truncated.tolist() == [False, True, True]
    assert not batch.terminated.any() and not batch.reward.any()
    assert not batch.episode_length.any() and not batch.episode_return.any()
    assert batch.obs[0].any() and not batch.obs[1:].any()
    assert batch.info["lives"].tolist() == [5, 0, 0]
    with pytest.raises(rollouts.ProtocolError, match="never return"):
        env.recv()

    # as long as the cause is there, so is the error, and nothing else suffers
    if mode != "disabled":
        env.send([0, 0, 0])
        with pytest.raises(rollouts.EnvError, match="2 environment"):
            env.recv()
        info = env.recv()[4]
        assert info["episode_length"].tolist() == [1, 0, 0]
        assert info["lives"].tolist() == [5, 0, 0]
    else:
        with pytest.raises(rollouts.ProtocolError, match="env_id 1 in row 1 has ended"):
            env.send([0, 0, 0])
        env.step([0], [0])

    # once it is gone, they begin an episode
    put_back(rom)
    if mode == "disabled":
        obs = env.reset(options={"reset_mask": np.array([False, True, True])})[0]
    else:
        obs = env.step([0, 0, 0])[0]
    assert obs[1:].any(axis=(1, 2, 3)).all()
    info = env.step([0, 0, 0])[4]
    assert info["episode_length"].tolist() == [2 if mode == "disabled" else 3, 1, 1]
    env.close()


# the pool goes on by its mode and not by what its engine said
@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        pytest.param(
            kind,
            mode,
            marks=[pytest.mark.slow] * (kind != "missing" and mode != "next_step"),
        )
        for kind in SPOILED
        for mode in ("next_step", "same_step", "disabled")
    ],
)
def test_failed_resets_are_reported_and_the_others_go_on(
    tmp_path: Path, kind: str, mode: str
) -> None:
    run_apart(report_failures, tmp_path, kind, mode)


def fail_asynchronously(folder: Path) -> None:
    env, rom = make_with_one_emulator(folder, batch_size=1)
    rom.unlink()
    env.async_reset()
    reported, rows = 0, []
    for _ in range(40):
        while True:
            try:
                batch = env.recv_batch(timeout_s=300)
            except rollouts.EnvError as error:
                reported += int(str(error).split()[0])
            else:
                break
        (one,) = batch.env_id.tolist()
        if batch.truncated[0] and batch.episode_length[0] == 0:
            rows.append(one)
            # nothing of the environment that had this row before
            assert not batch.obs.any() and not batch.reward.any()
            assert batch.info["lives"].tolist() == [0]
            assert batch.info["raw_reward"].tolist() == [0]
        env.send([one], batch.env_id)
    # each failure is reported once; of the last ones the rows may be in flight
    assert set(rows) == {1, 2} and len(rows) > 20
    assert 0 <= reported - len(rows) <= env.num_in_flight
    env.close()


def test_failed_rows_show_nothing_of_other_environments(tmp_path: Path) -> None:
    run_apart(fail_asynchronously, tmp_path)


def restore_failed(folder: Path) -> None:
    env, rom = make_with_one_emulator(folder)
    rom.unlink()
    with pytest.raises(rollouts.EnvError):
        env.reset()
    env.recv()
    with pytest.raises(rollouts.EngineError, match="no emulator"):
        env.get_state([1])
    state = env.get_state([0])
    with pytest.raises(rollouts.SpecError, match="env_id 1"):
        env.set_state([1], state)  # no emulator can be loaded for it
    put_back(rom)
    env.set_state([1, 2], state * 2)
    obs = env.step([1, 1, 1])[0]
    np.testing.assert_array_equal(obs[1], obs[0])
    np.testing.assert_array_equal(obs[2], obs[0])
    env.close()


def test_failed_environment_can_be_restored(tmp_path: Path) -> None:
    run_apart(restore_failed, tmp_path)


def drain_failures(folder: Path) -> None:
    env, rom = make_with_one_emulator(folder)
    rom.unlink()
    env.async_reset()
    put_back(rom)
    # what is discarded is not reported, whether it failed or not
    obs = env.reset()[0]
    assert obs.any(axis=(1, 2, 3)).all()
    env.step([0, 0, 0])
    # a pool with a failure that nobody received may be closed
    env.close()


def test_reset_discards_failures_with_the_batch(tmp_path: Path) -> None:
    run_apart(drain_failures, tmp_path)
