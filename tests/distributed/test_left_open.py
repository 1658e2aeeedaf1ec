# SPDX-License-Identifier: Apache-2.0
"""Objects that were left open end with the interpreter, or with `close` where a call hangs."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from acted_worker import ActedWorker, worker_config
from counter_world import weights
from processes import environ_with_path

from rollouts.errors import ClosedError
from rollouts.workers import WeightStore, WorkerConfig
from rollouts.workers.fleet import FleetRules
from rollouts.workers.fleet_thread import FleetThread

pytestmark = pytest.mark.system

TIMEOUT_S = 300.0

FLEET_THREAD = """
import atexit, threading
from acted_worker import ActedWorker, worker_config
from rollouts.workers import WeightStore
from rollouts.workers.fleet import FleetRules
from rollouts.workers.fleet_thread import FleetThread

workers = []

def launch(config):
    workers.append(ActedWorker(config))
    return workers[-1]

def look():
    alive = [thread.name for thread in threading.enumerate() if thread.name == "rollouts-merge"]
    print([worker.is_killed for worker in workers], alive)

atexit.register(look)

def main():
    FleetThread(worker_config(), 2, launch, weights=WeightStore(), rules=FleetRules())

main()
"""

DEVICE_QUEUE = """
import atexit, threading
from rollouts.device_queue import DeviceQueue

def look():
    print([thread.name for thread in threading.enumerate() if thread.name == "rollouts-device"])

atexit.register(look)
asked = threading.Event()

def source(timeout_s):
    asked.set()
    threading.Event().wait(timeout_s)
    raise TimeoutError

DeviceQueue(source)
asked.wait()
"""

LATE_GET = """
import atexit, threading
from counter_world import CounterCollector, make_policy, weights
from rollouts import CollectOptions, RolloutCoordinator
from rollouts.support.at_exit import call_at_exit

coordinator = RolloutCoordinator(
    "Counter",
    make_policy,
    collect=CollectOptions(make_collector=CounterCollector),
    num_workers=0,
    num_envs_per_worker=1,
    rollout_length=4,
)
closed = threading.Event()

def learn():
    closed.wait()
    coordinator.get_fragments(1)

def look():  # after what call_at_exit calls
    closed.set()
    learner.join(1)
    print(learner.is_alive())

atexit.register(look)
call_at_exit(coordinator.close)
learner = threading.Thread(target=learn, daemon=True)
learner.start()
"""

METRICS = """
from rollouts.metrics import MetricsReporter

class Printing:
    def write(self, sample):
        print("last" if sample.is_last else "sample")
    def close(self):
        print("closed")

MetricsReporter(lambda: {"queue_depth": 1}, [Printing()], interval_s=None)
reporter = MetricsReporter(lambda: {"queue_depth": 1}, [Printing()], interval_s=1000)
reporter.report()
"""

# (what is appended to a program, the exit status that is then its own)
ENDS = {
    "normal": ("", 0),
    "exit": ("\nimport sys; sys.exit(3)", 3),
    "exception": ("\nraise KeyError", 1),
}


def run(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env=environ_with_path(),
        check=False,
    )


@pytest.mark.parametrize("end", ENDS)
def test_workers_and_merge_thread_end_with_the_program_whose_status_stays(end: str) -> None:
    line, status = ENDS[end]
    result = run(FLEET_THREAD + line)
    assert (result.returncode, result.stdout) == (status, "[True, True] []\n"), result.stderr


def test_the_thread_of_a_device_queue_ends_with_the_program() -> None:
    pytest.importorskip("torch")
    result = run(DEVICE_QUEUE)
    assert (result.returncode, result.stdout) == (0, "[]\n"), result.stderr


def test_a_daemon_thread_that_gets_from_what_the_exit_has_closed_says_nothing() -> None:
    result = run(LATE_GET)
    assert (result.returncode, result.stdout, result.stderr) == (0, "True\n", "")


def test_a_reporter_left_open_writes_its_last_sample_at_exit() -> None:
    result = run(METRICS)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-2:] == ["last", "closed"]


def test_close_returns_while_the_merge_thread_is_in_a_call_that_does_not() -> None:
    workers: list[ActedWorker] = []
    is_stuck, goes_on = threading.Event(), threading.Event()

    def launch(config: WorkerConfig) -> ActedWorker:
        if config.incarnation == 1:
            is_stuck.set()
            assert goes_on.wait(TIMEOUT_S)
        workers.append(ActedWorker(config))
        return workers[-1]

    store = WeightStore()
    fleet = FleetThread(worker_config(), 1, launch, weights=store, rules=FleetRules())
    workers[0].appear()
    store.publish(weights())
    fleet.published()
    workers[0].die()
    assert is_stuck.wait(TIMEOUT_S)
    with ThreadPoolExecutor(1) as executor:
        closing: Any = executor.submit(fleet.close)
        try:
            closing.result(TIMEOUT_S)
        finally:
            goes_on.set()
    # what was launched meanwhile is not left running
    fleet._thread.join(TIMEOUT_S)
    assert [worker.is_killed for worker in workers] == [True, True]


def test_what_is_abandoned_ends_its_workers_and_wakes_those_who_wait() -> None:
    workers: list[ActedWorker] = []

    def launch(config: WorkerConfig) -> ActedWorker:
        workers.append(ActedWorker(config))
        return workers[-1]

    fleet = FleetThread(worker_config(), 2, launch, weights=WeightStore(), rules=FleetRules())
    with ThreadPoolExecutor(1) as executor:
        waiting = executor.submit(fleet.get, 1, TIMEOUT_S)
        fleet.abandon()
        with pytest.raises(ClosedError):
            waiting.result(TIMEOUT_S)
    fleet._thread.join(TIMEOUT_S)
    assert [worker.is_killed for worker in workers] == [True, True]
    # as the interpreter's exit does, or an owner that comes late
    fleet.close()
