# SPDX-License-Identifier: Apache-2.0
"""Settings for all tests."""

from __future__ import annotations

import gc
import inspect
import logging
import multiprocessing
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import durations
import pytest
from hypothesis import HealthCheck, settings

# what tests of several folders share; Ray's workers, which take over this process's path, import
# from there as well
sys.path.insert(0, str(Path(__file__).parent / "helpers"))

# Threads of torch that wait sleep, here and in what tests start: they would spin beside the other
# processes of a run, which share the cores. libgomp reads it when torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# Workers of each Ray that tests start get as much of a CPU as the other processes of a run. At the
# niceness 15 that Ray gives them, one that began beside six busy processes took over three minutes.
os.environ.setdefault("RAY_worker_niceness", "0")

# Tianshou compiles with numba for ten seconds in each process what no test here is about.
os.environ.setdefault("NUMBA_DISABLE_JIT", "1")

# Environments' processes are forked from a server that has imported what they and the modules of
# tests need, and has no threads of Ray or torch. Importing TorchRL would make the start method
# "spawn", under which each process imports for two seconds.
multiprocessing.set_start_method("forkserver")
multiprocessing.set_forkserver_preload(["gymnasium", "rollouts.envs.hosted", "pytest", "torch"])

# The same examples in each run, and no time limits, so that a run tells of the code and not of the
# machine. ROLLOUTS_RANDOM_TESTS=1 looks for new examples.
settings.register_profile(
    "repeatable", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("random", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("random" if os.environ.get("ROLLOUTS_RANDOM_TESTS") else "repeatable")


class Failures:
    """Names each failed test, and last the first internal error of pytest, which others follow."""

    def __init__(self) -> None:
        self._first = ""

    def pytest_internalerror(self, excrepr: object) -> None:
        self._first = self._first or str(excrepr)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Names a failure at once, also for a run that is ended before its summary."""
        if report.failed:
            print(f"\n{report.when} failed: {report.nodeid}", file=sys.__stderr__, flush=True)

    def pytest_unconfigure(self) -> None:
        if self._first:
            print(f"\npytest's first internal error ends with:\n{self._first[-1500:]}")


def pytest_configure(config: pytest.Config) -> None:
    from time_limit import TimeLimits

    config.pluginmanager.register(TimeLimits())
    # the processes of a run send their reports to the first one, which adds them up
    of_first: dict[str, Any] | None = getattr(config, "workerinput", None)
    if of_first is None:
        config.pluginmanager.register(Failures())
        for plugin in durations.plugins():
            config.pluginmanager.register(plugin)
    elif durations.CPU in of_first:
        config.pluginmanager.register(durations.CpuOfFiles())


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Keeps modules and tests, a million objects, out of what the garbage collector goes through.

    They live until the process ends, and each `gc.collect()` of a test would visit them all.
    """
    from first_imports import one_process_imports_first

    shares = hasattr(session.config, "workerinput")
    gc.disable()
    try:
        with one_process_imports_first(durations.BUILD) if shares else nullcontext():
            return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


def _log_settings() -> dict[str, tuple[int, bool, bool]]:
    """Settings that decide if the library's loggers keep a record, by name, and of all."""
    manager = logging.root.manager
    own = [name for name in list(manager.loggerDict) if name.split(".")[0] == "rollouts"]
    loggers = [logging.root, *map(logging.getLogger, own)]
    settings = {one.name: (one.level, one.disabled, one.propagate) for one in loggers}
    return {**settings, "all": (manager.disable, False, True)}


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Fails the test that silences the library's log, and not one of those that read it later."""
    before = _log_settings()
    yield
    after = _log_settings()
    fresh = {name: (logging.NOTSET, False, True) for name in after}
    assert after == {**fresh, **before}, "(level, disabled, propagate) of loggers changed"


@pytest.fixture(scope="session", autouse=True)
def modules_of_the_stack() -> None:
    """Tells `inspect` the modules of pytest's frames.

    Each connector of RLlib calls `inspect.stack()`. For a frame whose file no module has, such as
    those of pytest-xdist, that goes through all modules, of which there are thousands here.
    """
    for frame, _ in traceback.walk_stack(None):
        of_file = frame.f_code.co_filename, frame.f_globals.get("__name__", "")
        inspect.modulesbyfile.setdefault(*of_file)


@pytest.fixture
def one_torch_thread() -> Iterator[None]:
    """One thread of torch: small products are fastest so, whatever else the machine does."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def ray_session() -> Iterator[Any]:
    """Ray with 3 CPUs, one for all tests of a process that do not start or kill their own.

    On a busy machine Ray may need longer than a user would wait to free the CPUs of the test
    before, and a coordinator to report: here they have as long as they may need.
    """
    pytest.importorskip("ray")
    from small_cluster import started
    from warm_workers import use_warm_workers

    from rollouts.support.ray_private import make_tensor_store
    from rollouts.workers.on_ray import room, shares
    from rollouts.workers.on_ray.shared_ray import enter

    use_warm_workers()
    shared = started(lambda: enter(None, num_cpus=3, timeout_s=10.0))
    make_tensor_store()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(room, "_FREED_S", 120.0)
        patched.setattr(shares, "_REPORT_S", 120.0)
        yield shared
    shared.leave()


# Where several processes share the files, these folders' come first: they have the long ones, and
# the short ones of the others fill the end.
LONG_FIRST = ("native", "packaging", "examples", "cluster", "integrations", "sb3", "oracle")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def place(item: pytest.Item) -> int:
        folder = item.path.parent.name
        return LONG_FIRST.index(folder) if folder in LONG_FIRST else len(LONG_FIRST)

    items.sort(key=place)
