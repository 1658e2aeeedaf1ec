# SPDX-License-Identifier: Apache-2.0
"""Calls without a timeout where nobody could end their waiting: an error at once, and only there.

Each case is a process of its own, as the one that runs the tests may have threads. All are forked
from one that has imported what they need.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from processes import environ_with_path
from replay_model import ACTION_SPACE, OBS_SPACE, TERMINATED, World

from rollouts.replay import MinSize, NStep, ReplayBuffer, TableConfig, reader

HANG_S = 300.0

BEGIN = """
import json, os, pathlib, sys, threading, traceback
from replay_model import ACTION_SPACE, OBS_SPACE, TERMINATED, World
from rollouts.errors import ClosedError, ProtocolError
from rollouts.replay import MinSize, NStep, Queue, ReplayBuffer, TableConfig

world = World([[(50, TERMINATED)]] * 2, env_id=[0, 1])

def make(limiter):
    return ReplayBuffer(OBS_SPACE, ACTION_SPACE, TableConfig(items=NStep(1), limiter=limiter))

def expect_error(buffer, batch_size, text):
    expect_refusal(lambda: buffer.sample(batch_size), text)

def expect_refusal(call, text):
    try:
        call()
    except ProtocolError as error:
        assert text in str(error), error
    else:
        raise SystemExit("no error")
"""

ERRORS = {
    "an empty buffer": """
expect_error(make(MinSize(1)), 1, "has 0 items")
""",
    "fewer items than the limiter asks for": """
buffer = make(MinSize(100))
buffer.add_batch(world.rollout(10))
expect_error(buffer, 4, "has 18 items")
buffer.add_batch(world.rollout(45))
assert len(buffer.sample(4).key) == 4
""",
    "one step that waits for the next": """
buffer = make(MinSize(1))
buffer.add_batch(world.rollout(1))
expect_error(buffer, 1, "end_episodes")
buffer.end_episodes()
expect_error(buffer, 1, "2 items are pending")
buffer.flush()
assert len(buffer.sample(1).key) == 1
""",
    "a queue that nobody fills": """
buffer = make(Queue(4))
buffer.add_batch(world.rollout(6), timeout_s=0)
expect_error(buffer, 6, "6 items are pending")
# what was drawn before the error comes first
buffer.flush(timeout_s=0)
assert len(set(buffer.sample(6).key.tolist())) == 6
""",
    "rows that only this thread could sample": """
buffer = make(Queue(4))
expect_refusal(lambda: buffer.add_batch(world.rollout(6)), "items are pending")
# they are not lost, and go first
expect_refusal(lambda: buffer.add_batch(world.rollout(3)), "not to be added again")
expect_refusal(buffer.flush, "call flush()")
seen = [buffer.sample(4).key.tolist()]
expect_refusal(buffer.flush, "call flush()")
seen += [buffer.sample(4).key.tolist()]
assert len(set(sum(seen, []))) == 8
""",
    "a step that only this thread could make room for": """
import numpy as np
from rollouts.replay import Acted
table = TableConfig(items=NStep(1), limiter=Queue(2))
buffer = ReplayBuffer(OBS_SPACE, ACTION_SPACE, table, autoreset_mode="next_step")
obs, zeros, no = np.zeros((2, 3), np.float32), np.zeros(2), np.zeros(2, bool)
def step():
    return buffer.add_step(
        Acted(obs, np.zeros(2, np.int64)), (obs, zeros, no, no, {"env_id": np.arange(2)})
    )
step()
step()
expect_refusal(step, "items are pending")
""",
    "a writer that ended": """
buffer = make(MinSize(100))
thread = threading.Thread(target=lambda: buffer.add_batch(world.rollout(10)))
thread.start()
expect_error(buffer, 1, "has 18 items")
thread.join()
""",
    "a full queue that nobody empties": """
buffer = make(Queue(4))
for add in (lambda: buffer.add_batch(world.rollout(6)), buffer.flush, buffer.flush):
    try:
        add()
    except ProtocolError as error:
        assert "6 items are pending" in str(error), error
    else:
        raise SystemExit("no error")
# nothing is lost
buffer.sample(4)
assert buffer.flush(timeout_s=0) == 4
buffer.sample(4)
assert buffer.flush() == 2
""",
    "a sampler that ended before a queue was full": """
buffer = make(Queue(20))
buffer.add_batch(world.rollout(6))
thread = threading.Thread(target=lambda: buffer.sample(2))
thread.start()
thread.join()
try:
    buffer.add_batch(world.rollout(20))
except ProtocolError:
    pass
else:
    raise SystemExit("no error")
""",
    "a prefetcher whose taker alone could add": """
buffer = make(MinSize(1))
with buffer.prefetch(4) as batches:
    expect_refusal(batches.get, "no other thread is there that could add")
    expect_refusal(lambda: next(iter(batches)), "the table has 0 items")
    # neither the prefetcher nor what comes later is lost
    buffer.add_batch(world.rollout(5))
    assert batches.get().obs.shape == (4, 3)
""",
    "two prefetchers": """
buffer = make(MinSize(1))
with buffer.prefetch(4) as batches, buffer.prefetch(2) as others:
    expect_refusal(batches.get, "no other thread is there that could add")
    expect_refusal(others.get, "no other thread is there that could add")
""",
    "a sample beside a prefetcher": """
buffer = make(MinSize(1))
with buffer.prefetch(4):
    expect_error(buffer, 1, "has 0 items")
""",
    "a queue whose prefetcher holds all that it may": """
buffer = make(Queue(4))
with buffer.prefetch(2, depth=1) as batches:
    expect_refusal(lambda: buffer.add_batch(world.rollout(9)), "items are pending")
    seen = [batches.get().key.tolist()]
    expect_refusal(buffer.flush, "items are pending")
    seen += [batches.get().key.tolist() for _ in range(3)]
    assert len(set(sum(seen, []))) == 8
""",
    "a timeout is waited for": """
buffer = make(MinSize(1))
try:
    buffer.sample(1, timeout_s=0.01)
except TimeoutError:
    pass
""",
}

WAITS = {
    "another thread adds": """
buffer = make(MinSize(1))
waiting = threading.Event()
def add():
    waiting.wait()
    while not buffer.stats()["tables"]["replay"]["size"]:
        buffer.add_batch(world.rollout(2))
thread = threading.Thread(target=add)
thread.start()
waiting.set()
assert len(buffer.sample(3).key) == 3
thread.join()
""",
    "a prefetcher waits for what this thread adds": """
buffer = make(MinSize(1))
with buffer.prefetch(4) as batches:
    buffer.add_batch(world.rollout(5))
    assert batches.get(timeout_s=300).obs.shape == (4, 3)
""",
    "a prefetcher waits for what another thread adds": """
buffer = make(MinSize(1))
is_asked = threading.Event()
def add():
    is_asked.wait()
    while not buffer.stats()["tables"]["replay"]["size"]:
        buffer.add_batch(world.rollout(2))
thread = threading.Thread(target=add)
thread.start()
with buffer.prefetch(4) as batches:
    is_asked.set()
    assert batches.get().obs.shape == (4, 3)
thread.join()
""",
    "a prefetcher that has room samples what this thread adds": """
buffer = make(Queue(4))
with buffer.prefetch(2, depth=3):
    buffer.add_batch(world.rollout(5))
""",
    "another thread samples what this one adds": """
buffer = make(MinSize(5))
found = []
thread = threading.Thread(target=lambda: found.append(buffer.sample(2)))
thread.start()
for _ in range(3):
    buffer.add_batch(world.rollout(2))
thread.join()
assert len(found) == 1
""",
    "another thread empties a full queue": """
buffer = make(Queue(4))
thread = threading.Thread(target=lambda: [buffer.sample(2) for _ in range(6)])
thread.start()
buffer.add_batch(world.rollout(7))
thread.join()
""",
    "another thread closes": """
buffer = make(MinSize(5))
thread = threading.Thread(target=buffer.close)
try:
    thread.start()
    buffer.sample(1)
except (ClosedError, ProtocolError):
    pass
""",
}


# runs each case in a fork, one after the other; what it says goes to a file of its number.
# test_process_exit.py has the ends of whole interpreters
FORKS = """
import torch  # prefetchers import it
folder = pathlib.Path(sys.argv[1])
for number, case in enumerate(json.load(sys.stdin)):
    pid = os.fork()
    if pid == 0:
        os.dup2(os.open(folder / str(number), os.O_CREAT | os.O_WRONLY), 2)
        try:
            exec(case)
            # what an interpreter does before it takes itself apart, for a second
            [one.join() for one in threading.enumerate()[1:] if not one.daemon]
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""
CASES = {**ERRORS, **WAITS}


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str]]:
    """The exit code and the errors of each case's process."""
    folder: Path = tmp_path_factory.mktemp("cases")
    result = subprocess.run(
        [sys.executable, "-c", BEGIN + FORKS, str(folder)],
        input=json.dumps(list(CASES.values())),
        stdout=subprocess.PIPE,
        text=True,
        timeout=HANG_S,
        env=environ_with_path(),
        check=True,
    )
    codes = result.stdout.split()
    return {
        case: (code, (folder / str(number)).read_text())
        for number, (case, code) in enumerate(zip(CASES, codes, strict=True))
    }


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the cases fork")
@pytest.mark.parametrize("case", CASES)
def test_only_who_waits_for_itself_gets_an_error(
    case: str, ends: dict[str, tuple[str, str]]
) -> None:
    code, errors = ends[case]
    assert code == "0", errors


def test_what_a_thread_adds_before_it_ends_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other thread fills the table and ends, just before this one looks for others."""
    world = World([[(50, TERMINATED)]] * 2, env_id=[0, 1])
    table = TableConfig(items=NStep(1), limiter=MinSize(1))

    def add_and_end(besides: object = ()) -> bool:
        thread = threading.Thread(target=lambda: buffer.add_batch(world.rollout(2)))
        thread.start()
        thread.join()
        return True

    monkeypatch.setattr(reader, "is_only_adder", add_and_end)
    with ReplayBuffer(OBS_SPACE, ACTION_SPACE, table) as buffer:
        assert len(buffer.sample(3).key) == 3
