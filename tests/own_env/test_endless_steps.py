# SPDX-License-Identifier: Apache-2.0
"""Headers whose step or reset does not end, and what Ctrl-C does about them."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from processes import environ_with_path, run_in_child, wait_until

import rollouts

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux' /proc"),
    pytest.mark.usefixtures("quickly"),
]
TEMPLATE = Path(rollouts.__file__).parent / "own_env" / "templates" / "one_agent.h"
# It says that it waits, and ends where there is such a file.
WAIT = """
    if ({condition}) {{
      static_cast<void>(!write(1, "waiting\\n", 8));
      while (access("may_end", F_OK) != 0) usleep(2000);
    }}
"""
PLACES = {
    "#pragma once": "#pragma once\n\n#include <unistd.h>",
    "const bool slips =": WAIT.format(condition="*action == 2") + "const bool slips =",
    "state.position = 0;": WAIT.format(condition='access("holds_resets", F_OK) == 0')
    + "state.position = 0;",
    # so long that threads begin before anybody receives
    ".step_cost_ns = 10}": ".step_cost_ns = 10'000'000}",
}
SENTENCE = "Ctrl-C came twice during one native call"
PROGRAM = """
import signal, sys
from pathlib import Path
import numpy as np
import rollouts
from test_endless_steps import native_collector

def on_interrupt(number, frame):
    print("handled", flush=True)
    raise KeyboardInterrupt

# a shell's background job inherits a SIGINT that is ignored
signal.signal(signal.SIGINT, {handler})
rollouts.register_env("Endless-v0", header="endless.h", type="MyEnv")
with rollouts.make_vec("Endless-v0", 3, **{options}) as env:
    env.reset()
    try:
        {call}
        print("returned", flush=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        if Path("may_end").exists():
            env.reset()
            env.step(np.zeros(3, np.int64))
            print("stepped", flush=True)
        raise
"""
STEP = "env.step(np.array([0, 0, 2]))"
RESET = 'Path("holds_resets").touch(); env.reset()'
COLLECT = "native_collector(env).collect()"
SAME_STEP = {"autoreset_mode": "same_step"}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "step, by the caller's thread": (STEP, {"num_threads": 1}),
    "step, by three threads": ("env.step(np.full(3, 2))", {"num_threads": 3}),
    "reset, by the caller's thread": (RESET, {"num_threads": 1}),
    "reset, by three threads": (RESET, {"num_threads": 3}),
    "recv of an asynchronous pool": (
        "env.send(np.full(2, 2)); env.recv()",
        {"num_threads": 2, "batch_size": 2},
    ),
    "collect, by the caller's thread": (COLLECT, {"num_threads": 1} | SAME_STEP),
    "collect, by three threads": (COLLECT, {"num_threads": 3} | SAME_STEP),
    "close": (
        "env.send(np.full(3, 2)); sys.stdin.readline(); env.close()",
        {"num_threads": 3},
    ),
    "an emulated kernel": ("env.step(np.full(3, 2))", {"device": "cpu-emulation"}),
}

BY_CALLER = ["step, by the caller's thread", "collect, by the caller's thread"]


def native_collector(env: Any) -> rollouts.Collector:
    """A collector of a policy that the pool's threads compute."""
    import torch
    from torch import nn

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.actor, self.critic = nn.Linear(2, 3), nn.Linear(2, 1)

        def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.actor(obs), self.critic(obs)[:, 0]

    policy = rollouts.TorchPolicy(Network(), env.single_action_space)
    return rollouts.Collector(env, policy, 64, engine="native")


@contextmanager
def running(folder: Path, call: str, options: dict[str, Any], **also: str) -> Iterator[Any]:
    """The program above, in a process whose environment waits by now."""
    text = TEMPLATE.read_text()
    for place, replacement in PLACES.items():
        assert text.count(place) == 1
        text = text.replace(place, replacement)
    (folder / "endless.h").write_text(text)
    handler = also.get("handler", "signal.default_int_handler")
    code = PROGRAM.format(call=call, options=options, handler=handler)
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=environ_with_path(),
    ) as process:
        try:
            assert process.stdout is not None and process.stderr is not None
            assert process.stdout.readline() == "waiting\n", process.stderr.read()
            print(file=process.stdin, flush=True)
            yield process
        finally:
            process.kill()


def interrupt(process: subprocess.Popen[str]) -> None:
    """Sends SIGINT, and waits until the process has it or is gone."""
    process.send_signal(signal.SIGINT)
    status = Path(f"/proc/{process.pid}/status")

    def is_taken() -> bool:
        if process.poll() is not None:
            return True
        line = next(line for line in status.read_text().splitlines() if line[:6] == "ShdPnd")
        return not int(line.split()[1], 16) & 1 << signal.SIGINT - 1

    assert wait_until(is_taken)


@pytest.mark.skipif(find_spec("jax") is None, reason="JAX is not installed")
def test_ctrl_c_again_ends_a_computation_of_jax(tmp_path: Path) -> None:
    call = (
        "import jax; from rollouts.integrations.jax import xla; handle, _, _, step = xla(env); "
        "jax.block_until_ready(jax.jit(step)(handle, np.full(3, 2)))"
    )
    test_ctrl_c_again_ends_the_process(tmp_path, call, {"num_threads": 1})


# a reset and a collector wait for threads as a step does
SLOW = ("reset, by three threads", "collect, by three threads")
ENDLESS = [
    pytest.param(*CASES[case], id=case, marks=pytest.mark.slow if case in SLOW else ())
    for case in CASES
]


@pytest.mark.parametrize(("call", "options"), ENDLESS)
def test_ctrl_c_again_ends_the_process(tmp_path: Path, call: str, options: dict[str, Any]) -> None:
    with running(tmp_path, call, options) as process:
        for _ in range(60):
            interrupt(process)
            # as a user would: two that come together are one
            with suppress(subprocess.TimeoutExpired):
                process.wait(1)
                break
        assert process.returncode == -signal.SIGINT
        assert SENTENCE in process.stderr.read()


@pytest.mark.parametrize("case", BY_CALLER)
def test_one_ctrl_c_leaves_a_step_its_time(tmp_path: Path, case: str) -> None:
    with running(tmp_path, *CASES[case]) as process:
        interrupt(process)
        (tmp_path / "may_end").touch()
        out, errors = process.communicate(timeout=300)
        # raised by the call, or after a last batch that was whole
        assert "interrupted\nstepped\n" in out or out.endswith("returned\n")
        assert "KeyboardInterrupt" in errors and SENTENCE not in errors


def test_a_handler_of_the_programs_own_is_left_alone(tmp_path: Path) -> None:
    with running(tmp_path, *CASES[BY_CALLER[0]], handler="on_interrupt") as process:
        for _ in range(3):
            interrupt(process)
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.5)
        (tmp_path / "may_end").touch()
        out, errors = process.communicate(timeout=300)
        assert "handled\ninterrupted\nstepped\n" in out and SENTENCE not in errors


def c_handler() -> int | None:
    """The address of what the system calls at SIGINT."""
    action = ctypes.create_string_buffer(256)
    assert ctypes.CDLL(None).sigaction(int(signal.SIGINT), None, action) == 0
    address: int | None = ctypes.cast(action, ctypes.POINTER(ctypes.c_void_p))[0]
    return address


@contextmanager
def python_handler(handler: Any) -> Iterator[None]:
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def close_two_pools() -> None:
    with python_handler(signal.default_int_handler):
        before = c_handler()
        first, second = (rollouts.make_vec("CartPole-v1", 2) for _ in range(2))
        ours = c_handler()
        assert ours != before
        first.close()
        assert c_handler() == ours
        second.close()
        assert c_handler() == before


def reset_an_emulated_kernel() -> None:
    with python_handler(signal.default_int_handler):
        before = c_handler()
        with rollouts.make_vec("CartPole-v1", 2, device="cpu-emulation") as env:
            env.reset()
            assert c_handler() == before


# In a process without the pools that other tests left open: these, too, keep the handler.
def test_the_last_pool_that_closes_puts_the_handler_back() -> None:
    run_in_child(close_two_pools)


def test_an_emulated_kernel_leaves_the_handler_as_it_was() -> None:
    run_in_child(reset_an_emulated_kernel)


def test_a_handler_that_is_set_later_stays_and_the_default_one_is_found_again() -> None:
    with python_handler(signal.default_int_handler), rollouts.make_vec("CartPole-v1", 2) as env:
        ours = c_handler()
        with python_handler(lambda number, frame: None):
            theirs = c_handler()
            assert theirs != ours
            assert not wait_until_changed(env, theirs, calls=3)
        assert wait_until_changed(env, theirs) and c_handler() == ours


def wait_until_changed(env: rollouts.VectorEnv, handler: int | None, calls: int = 0) -> bool:
    """Tells if a reset finds another handler: among `calls`, or ever."""

    def is_other() -> bool:
        env.reset()
        return c_handler() != handler

    return any(is_other() for _ in range(calls)) if calls else wait_until(is_other)


def test_a_forked_child_steps_pools_of_its_own_and_is_interrupted_once() -> None:
    code = """
        import os, signal
        import rollouts
        signal.signal(signal.SIGINT, signal.default_int_handler)
        env = rollouts.make_vec("CartPole-v1", 2, num_threads=1)
        child = os.fork()
        if child == 0:
            try:
                os.kill(os.getpid(), signal.SIGINT)
                signal.pause()
            except KeyboardInterrupt:
                os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], env=environ_with_path() | os.environ
    )
    assert result.returncode == 0
