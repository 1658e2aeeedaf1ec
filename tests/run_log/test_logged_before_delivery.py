# SPDX-License-Identifier: Apache-2.0
"""A worker hands a fragment over when its log has it; errors name the command that shows them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recorded_run import SHOWN, policies_of

import rollouts
from rollouts.run_log.log_reader import open_log

pytestmark = pytest.mark.system

STEPS, FRAGMENTS = 8, 5
# a worker that is killed in the moment in which it would hand its last fragment over
PROGRAM = """
import os, signal, sys
import numpy as np
from recorded_run import SHOWN, small_policy
from rollouts import RunLog
from rollouts.workers.worker import RolloutWorker
from rollouts.workers.worker_config import CollectOptions, WorkerConfig

folder, id, engine = sys.argv[1:]
worker = RolloutWorker(
    WorkerConfig(
        id=id, num_envs=3, rollout_length={steps}, num_threads=1, seed=4, env_options={{}},
        record=RunLog(path=folder + "/log", state_every=2),
        collect=CollectOptions(engine=engine),
    ),
    small_policy,
    owns_process=False,
)
for number in range({fragments}):
    batch = worker.collect(None).batch
np.savez(folder + "/last.npz", **{{name: getattr(batch, name)[:, 1] for name in SHOWN}})
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(
    ("id", "engine"),
    [("HalfCheetah-v5", "native"), ("CartPole-v1", "torch"), ("ALE/Pong-v5", "auto")],
)
def test_what_a_killed_worker_delivered_is_in_its_log(id: str, engine: str, tmp_path: Path) -> None:
    text = PROGRAM.format(steps=STEPS, fragments=FRAGMENTS)
    path = os.pathsep.join(sys.path)
    ran = subprocess.run(
        [sys.executable, "-c", text, str(tmp_path), id, engine],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    last = (FRAGMENTS - 1) * STEPS
    again = rollouts.replay_run(tmp_path, env_id=1, step=last)
    assert again.is_verified and again.first_step == last
    own, dumped = again.of_env(), np.load(tmp_path / "last.npz")
    for name in SHOWN:
        np.testing.assert_array_equal(own[name], dumped[name])


@pytest.mark.parametrize("error", [OSError(28, "no room"), KeyError("weights"), ValueError("odd")])
def test_an_error_keeps_its_kind_and_says_the_command(error: Exception, tmp_path: Path) -> None:
    with rollouts.make_vec("CartPole-v1", 2, seed=1, autoreset_mode="same_step") as env:
        policy: Any = policies_of(env)
        act, calls = policy.act, iter(range(100))

        def fails(obs: Any) -> Any:
            if next(calls) == STEPS + 3:
                raise error
            return act(obs)

        policy.act = fails
        collector = rollouts.Collector(env, policy, STEPS, engine="torch", record=tmp_path)
        collector.collect()
        with pytest.raises(type(error)) as raised:
            collector.collect()
        collector.close()
    said = " ".join([str(raised.value), *getattr(raised.value, "__notes__", [])])
    assert f"--env 0 --step {STEPS + 2}" in said and str(error) in said
    assert getattr(raised.value, "errno", None) in (None, 28)
    assert open_log(tmp_path)[0].steps() == (0, 2 * STEPS)
