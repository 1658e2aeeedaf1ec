# SPDX-License-Identifier: Apache-2.0
"""An hour of everything at once: memory, files, threads and shared memory must stay flat.

Each round uses all parts one after the other: a pool that stays and pools that come and go, Python
environments in processes, Ray workers that are killed, and a replay that their rollouts fill. After
each round a sample of the resources that this process and its descendants hold is taken.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium

from comparisons.report.plan import Section
from comparisons.report.running import Outcome
from rollouts.errors import SpecError

SECTION = Section(
    "soak",
    "An hour of everything at once",
    "Memory, open files, threads and shared memory of this process and of all that it started, "
    "while pools come and go, Ray workers are killed and replay is filled.",
    "Nothing is left out of the curves, Ray's own processes among them.",
    "Ray's object store and log files grow until they reach their own limits.",
    (),
)

_ENV_ID = "CartPole-v1"
_KILL_EVERY = 5  # rounds
_ROUND_STEPS = 200


@dataclass(frozen=True, slots=True)
class Soak:
    """Soak: the contents of a file of `rollouts soak`.

    Attributes:
      values: A dict for each round: "seconds" and the quantities of `held`.
      outcome: Result of the command.
    """

    values: list[dict[str, Any]]
    outcome: Outcome


def read_soak(path: Path) -> Soak:
    """Reads a file of `rollouts soak --out`.

    Raises:
      SpecError: There is no such file, or it is not one of a soak.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        values = data["samples"]
        seconds = float(values[-1]["seconds"])
        return Soak(values, Outcome(data["command"], seconds))
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise SpecError(
            f"{path} is not what `rollouts soak --out FILE` writes ({error})"
        ) from error


def run_soak(
    seconds: float, *, seed: int = 0, on_round: Callable[[dict[str, Any]], None] | None = None
) -> list[dict[str, Any]]:
    """Runs rounds until the time is over.

    Args:
      seconds: Duration; at least one round is made.
      seed: Seed of environments and of the choice of killed processes.
      on_round: Called with each sample.

    Returns:
      A sample for each round.

    Raises:
      RolloutsError: A part failed.
      EngineError: torch or Ray are missing.
    """
    samples: list[dict[str, Any]] = []
    started, elapsed_s = time.monotonic(), 0.0
    with _Everything(seed) as everything:
        while not samples or elapsed_s < seconds:
            everything.round()
            elapsed_s = time.monotonic() - started
            sample = {"seconds": round(elapsed_s, 1), **held()}
            sample["worker_kills"] = everything.kills
            samples.append(sample)
            if on_round is not None:
                on_round(sample)
    return samples


class _Everything(contextlib.ExitStack):
    """The parts that each round uses."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        from rollouts.envs.hosted import from_env_fns
        from rollouts.envs.make import make_vec
        from rollouts.envs.registry import env_spec
        from rollouts.replay import NStep, ReplayBuffer, TableConfig
        from rollouts.workers import CollectOptions, FaultPolicy
        from rollouts.workers.on_ray.coordinator import RolloutCoordinator

        spec = env_spec(_ENV_ID)
        self.kills = 0
        self._random, self._rounds = random.Random(seed), 0
        self._make_vec = make_vec
        self._policy = _make_policy(spec)
        self._pool = self.enter_context(make_vec(_ENV_ID, 64, seed=seed))
        self._hosted = self.enter_context(from_env_fns([_make_env] * 8, num_processes=2))
        self._coordinator = self.enter_context(
            RolloutCoordinator(
                _ENV_ID,
                _make_policy,
                num_workers=2,
                num_envs_per_worker=16,
                rollout_length=64,
                seed=seed,
                collect=CollectOptions(keep_final_obs=True),
                # killed workers are restarted without a limit
                faults=FaultPolicy(restart_window_s=0.0),
            )
        )
        # full after some rounds, so that inserts evict items
        table = TableConfig("replay", NStep(3), sampler="prioritized", max_size=20_000)
        self._replay = self.enter_context(
            contextlib.closing(
                ReplayBuffer(spec.single_observation_space, spec.single_action_space, table)
            )
        )
        for env in (self._pool, self._hosted):
            env.action_space.seed(seed)
            env.reset(seed=seed)

    def round(self) -> None:
        """Runs all parts for some seconds."""
        self._rounds += 1
        for env in (self._pool, self._hosted):
            for _ in range(_ROUND_STEPS):
                env.step(env.action_space.sample())
        # makes and closes pools in the middle of their work
        with self._make_vec(_ENV_ID, 32, batch_size=8, seed=self._rounds) as env:
            env.async_reset()
            for _ in range(20):
                _, _, _, _, info = env.recv()
                env.send(env.action_space.sample()[: len(info["env_id"])], info["env_id"])
        if self._rounds % _KILL_EVERY == 0:
            self._kill_worker()
        self._coordinator.publish_weights(self._policy.weights())
        for _ in range(8):
            for fragment in self._coordinator.get_fragments(2, timeout_s=600.0):
                self._replay.add_batch(fragment)
        with contextlib.suppress(TimeoutError):  # before there are enough items
            batch = self._replay.sample(256, timeout_s=0.0)
            self._replay.update_priorities(batch.key, abs(batch.reward))

    def _kill_worker(self) -> None:
        workers = self._coordinator.stats()["workers"]
        pids = [one["pid"] for one in workers if one["state"] == "running"]
        if pids:
            with contextlib.suppress(ProcessLookupError):  # the process has ended
                os.kill(self._random.choice(pids), signal.SIGKILL)
                self.kills += 1


def _make_env() -> gymnasium.Env[Any, Any]:
    return gymnasium.make(_ENV_ID)


def _make_policy(spec: Any) -> Any:
    import torch

    from rollouts.policy import TorchPolicy

    class Agent(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = torch.nn.Sequential(torch.nn.Linear(4, 64), torch.nn.Tanh())
            self.actor, self.critic = torch.nn.Linear(64, 2), torch.nn.Linear(64, 1)

        def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            hidden = self.body(obs)
            return self.actor(hidden), self.critic(hidden)[:, 0]

    return TorchPolicy(Agent(), spec.single_action_space)


def held(proc: Path = Path("/proc")) -> dict[str, float]:
    """Memory, files and threads that this process and its descendants hold now; Linux only.

    Returns:
      own_memory_mb, memory_mb: Memory of this process, and of all, that is resident and not shared.
      open_files, threads, processes: Counts of all.
      shared_memory_mb: Size of files in /dev/shm that one of these processes has open or mapped.
    """
    totals = {"memory_mb": 0.0, "open_files": 0.0, "threads": 0.0, "processes": 0.0}
    own, shared = 0.0, dict[str, int]()
    for pid in _family(proc):
        folder = proc / str(pid)
        with contextlib.suppress(OSError):  # the process has ended
            pages = (folder / "statm").read_text().split()
            memory = (int(pages[1]) - int(pages[2])) * os.sysconf("SC_PAGE_SIZE") / 1e6
            own = memory if pid == os.getpid() else own
            files = list((folder / "fd").iterdir())
            shared |= _in_shared_memory(folder)
            totals["memory_mb"] += memory
            totals["open_files"] += len(files)
            totals["threads"] += len(list((folder / "task").iterdir()))
            totals["processes"] += 1
    return {"own_memory_mb": own, **totals, "shared_memory_mb": sum(shared.values()) / 1e6}


def _family(proc: Path) -> Iterator[int]:
    """This process and its descendants."""
    children: dict[int, list[int]] = {}
    for folder in proc.iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                # the name in brackets may have spaces
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(folder.name))
    todo = [os.getpid()]
    while todo:
        pid = todo.pop()
        yield pid
        todo += children.get(pid, [])


def _in_shared_memory(folder: Path) -> dict[str, int]:
    """Bytes on disk of each file of /dev/shm that a process has mapped, by name."""
    names = {
        line.split(maxsplit=5)[5]
        for line in (folder / "maps").read_text().splitlines()
        if "/dev/shm/" in line
    }
    found = {}
    for name in names:
        with contextlib.suppress(OSError):  # deleted: only its maps are left
            found[name] = os.stat(name).st_blocks * 512
    return found
