# SPDX-License-Identifier: Apache-2.0
"""Errors in the middle of a training with Ray workers: the process goes on, or ends with them."""

from __future__ import annotations

import subprocess
import sys

import pytest
from processes import environ_with_path

pytest.importorskip("ray")
pytest.importorskip("stable_baselines3")

pytestmark = pytest.mark.system

TIMEOUT_S = 1200.0

BEGIN = """
import ray
from rollouts.integrations.sb3 import RolloutsDQN, RolloutsPPO, RolloutsVecEnv
from stable_baselines3.common.callbacks import BaseCallback

from rollouts.workers import FaultPolicy

# without a CPU a worker is given up after this time
OPTIONS = {"faults": FaultPolicy(max_restarts=0, start_timeout_s=180.0)}
SETTINGS = {
    RolloutsPPO: {"n_steps": 16, "batch_size": 64, "n_epochs": 1},
    RolloutsDQN: {"learning_starts": 10, "train_freq": 12, "buffer_size": 400},
}

class Raising(BaseCallback):
    def __init__(self, method, error):
        super().__init__()
        self.error = error
        setattr(self, method, self.fail)

    def fail(self):
        raise self.error("by the callback")

    def _on_step(self):
        return True

def make(algorithm):
    env = RolloutsVecEnv("CartPole-v1", 4, seed=3)
    return algorithm("MlpPolicy", env, device="cpu", num_workers=1, worker_options=OPTIONS,
                     **SETTINGS[algorithm])
"""

IN_THE_USERS_RAY = """
from small_cluster import started

started(lambda: ray.init("local", num_cpus=1, include_dashboard=False))
kept = []
cases = ((RolloutsPPO, "_on_step"), (RolloutsPPO, None), (RolloutsDQN, "_on_step"))
for algorithm, method in cases:
    model = make(algorithm)
    if method is None:
        model.train = lambda *args, **kwargs: 1 / 0
    try:
        model.learn(400, callback=method and Raising(method, KeyboardInterrupt))
    except (ZeroDivisionError, KeyboardInterrupt) as error:
        kept.append((model, error))
# those that failed can be trained again
model = kept[0][0]
model.learn(400)
model.close()
print(len(kept), "errors")
"""

LAST_WORDS = """
model = make(RolloutsPPO)
model.learn(400, callback=Raising("_on_step", ValueError))
"""


def run(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", BEGIN + script],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env=environ_with_path(),
        check=False,
    )


def test_an_error_that_ends_a_training_gives_the_cpus_of_its_workers_back() -> None:
    result = run(IN_THE_USERS_RAY)
    assert (result.returncode, result.stdout.splitlines()[-1:]) == (0, ["3 errors"]), result.stderr


def test_an_error_that_nobody_catches_ends_the_process() -> None:
    result = run(LAST_WORDS)
    assert result.returncode == 1
    assert result.stderr.strip().splitlines()[-1] == "ValueError: by the callback"
