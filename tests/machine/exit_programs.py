# SPDX-License-Identifier: Apache-2.0
"""Programs that end at work: `python exit_programs.py PROGRAM REPEATS RAY_ADDRESS ENDING...`.

This process imports everything once and forks each run. The run is an ordinary end of an ordinary
interpreter: it leaves the main module, and CPython joins, calls atexit and finalises. Prints the
exit codes of each ending's runs, as subprocess has them (negative: ended by a signal).
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

import rollouts
from rollouts import _native

HANG_S = 300
ROUNDS = 20
EXIT_CODES = {"normal": 0, "exception": 1, "interrupt": -signal.SIGINT, "exit": 7}

kept: list[Any] = []  # lives until the interpreter clears the module


def in_daemon_threads(*calls: Callable[[], object]) -> None:
    """Makes each call again and again; returns when all threads are well on their way."""
    ready = [threading.Semaphore(0) for _ in calls]

    def run(call: Callable[[], object], rounds: threading.Semaphore) -> None:
        while True:
            call()
            rounds.release()

    for call, rounds in zip(calls, ready, strict=True):
        threading.Thread(target=run, args=(call, rounds), daemon=True).start()
    for rounds in ready:
        for _ in range(ROUNDS):
            assert rounds.acquire(timeout=HANG_S)


def store_of(rows: int) -> Any:
    table = {"name": "t", "max_size": 10, "sampler": "uniform", "remover": "fifo"}
    store = _native.ReplayStore(
        [("x", "int64", (), 1, "zero")],
        [table | {"limiter": ("min_size", 1)}],
        num_streams=1,
        history_rows=10,
    )
    plan = _native.GatherPlan(store, [("x", "x", 0, 0)])
    if rows:
        store.append([0], {"x": np.arange(rows).reshape(rows, 1)})
        store.insert("t", [0] * rows, np.arange(rows), 1)
    return store, plan


def stepping() -> None:
    """Threads in step, in recv and in sample, all of which return."""
    env = rollouts.make_vec("CartPole-v1", 64, num_threads=2, autoreset_mode="same_step")
    env.reset()
    actions = np.zeros(64, np.int64)
    waiting = rollouts.make_vec("Pendulum-v1", 64, batch_size=16, num_threads=2)
    waiting.async_reset()
    store, plan = store_of(4)

    def recv_and_send() -> None:
        env_id = waiting.recv()[4]["env_id"]
        waiting.send(np.zeros((len(env_id), 1), np.float32), env_id)

    kept.extend([env, waiting, store])
    in_daemon_threads(
        lambda: env.step(actions),
        recv_and_send,
        lambda: store.sample("t", plan, 64),
        env.stats,
    )


def waiting_for_ever() -> None:
    """A thread in a sample that nobody will ever fill."""
    store, plan = store_of(0)
    kept.append(store)
    threading.Thread(target=store.sample, args=("t", plan, 1), daemon=True).start()
    while not store.info("t")["num_waiting_samples"]:
        threading.Event().wait(0.001)


def prefetching(*, filled: bool) -> None:
    """A prefetcher that waits for items, or has some."""
    from replay_model import ACTION_SPACE, OBS_SPACE, TERMINATED, World

    from rollouts.replay import NStep, ReplayBuffer, TableConfig

    buffer = ReplayBuffer(OBS_SPACE, ACTION_SPACE, [TableConfig(items=NStep(1))])
    if filled:
        buffer.add_batch(World([[(5, TERMINATED)]], env_id=[0]).rollout(20))
    batches = buffer.prefetch(2)
    if filled:
        batches.get(HANG_S)
    kept.extend([buffer, batches])


def ray_alone() -> None:
    """Ray without this library."""
    import ray

    ray.init(sys.argv[3], logging_level="ERROR")


def collecting() -> None:
    """A coordinator whose worker in Ray collects, and a thread that takes what it collects."""
    from counter_world import CounterCollector, make_policy, weights

    coordinator = rollouts.RolloutCoordinator(
        "Counter",
        make_policy,
        num_workers=1,
        num_envs_per_worker=2,
        rollout_length=4,
        collect=rollouts.CollectOptions(make_collector=CounterCollector),
        ray_address=sys.argv[3],
    )
    kept.append(coordinator)
    coordinator.publish_weights(weights())
    in_daemon_threads(lambda: coordinator.get_fragments(1, HANG_S))


def end(ending: str) -> None:
    """Ends the program that way, or returns for its normal end."""
    if ending == "exception":
        raise RuntimeError("the program's own error")
    if ending == "exit":
        sys.exit(EXIT_CODES["exit"])
    if ending == "interrupt":
        os.kill(os.getpid(), signal.SIGINT)
        threading.Event().wait(HANG_S)


PROGRAMS: dict[str, Callable[[], None]] = {
    "stepping": stepping,
    "waiting_for_ever": waiting_for_ever,
    "prefetch_waiting": lambda: prefetching(filled=False),
    "prefetch_with_data": lambda: prefetching(filled=True),
    "ray_alone": ray_alone,
    "collecting": collecting,
}
OF_RAY = ["ray_alone", "collecting"]


def exit_code(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main(program: str, repeats: int, endings: list[str]) -> None:
    if program.startswith("prefetch"):
        import replay_model  # noqa: F401

        import rollouts.replay.prefetch
    if program in OF_RAY:
        import ray  # noqa: F401

        import rollouts.workers.on_ray.coordinator  # noqa: F401
    codes: dict[str, list[int]] = {ending: [] for ending in endings}
    for ending in endings:
        for _ in range(repeats):
            pid = os.fork()
            if pid == 0:
                PROGRAMS[program]()
                end(ending)
                return
            codes[ending].append(exit_code(pid))
    print(json.dumps(codes))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main(sys.argv[1], int(sys.argv[2]), sys.argv[4:])
