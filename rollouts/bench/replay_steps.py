# SPDX-License-Identifier: Apache-2.0
"""`rollouts bench replay --workload add_step | hindsight`: a step of B environments at a time.

The data has the shapes of HalfCheetah, or of a reaching arm with goals (`replay_goals.py`). The
libraries take turns in one process, repeat by repeat, so that each ratio compares neighbours in
time. Time is the CPU time of the calling thread, which other processes of a busy machine do not
lengthen.
"""

from __future__ import annotations

import importlib.metadata
import statistics
import time
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from gymnasium import spaces

from rollouts.bench.all_peers import find
from rollouts.bench.peer import Peer
from rollouts.bench.replay_goals import CAPACITY as GOAL_CAPACITY
from rollouts.bench.replay_goals import OwnHindsight, make_goal_steps
from rollouts.bench.replay_own import Given, StepBuffer
from rollouts.replay import Acted, NStep, ReplayBuffer, TableConfig
from rollouts.replay.acted import GymnasiumStep

StepMeasure = Literal["add_step", "hindsight"]

OBS_SIZE, ACTION_SIZE = 17, 6  # HalfCheetah-v5
CAPACITY = 100_000  # transitions
_NUM_KEPT = 64  # steps of data, which are repeated


@dataclass(frozen=True, slots=True)
class StepMeasurement:
    """Medians over the repeats; ratios are the peer's time divided by ours in the same repeat."""

    library: str
    version: str
    num_envs: int
    add_us: float
    sample_us: float
    add_ratio: float
    sample_ratio: float


class Ours:
    """rollouts.replay.ReplayBuffer."""

    def __init__(self, num_envs: int) -> None:
        """Makes an empty buffer."""
        table = TableConfig(items=NStep(1), max_size=CAPACITY)
        self._buffer = ReplayBuffer(*step_spaces(), table, autoreset_mode="same_step")

    def add(self, given: Given, step: GymnasiumStep) -> None:
        """See StepBuffer."""
        self._buffer.add_step(Acted(*given), step)

    def sample(self, batch_size: int) -> Any:
        """See StepBuffer."""
        return self._buffer.sample(batch_size)


OURS = Peer(name="rollouts", add_step=Ours, hindsight=OwnHindsight)


def compare(
    measure: StepMeasure,
    num_envs: int,
    peers: list[str],
    *,
    batch_size: int,
    num_calls: int,
    repeats: int,
    seed: int,
) -> tuple[list[StepMeasurement], list[str]]:
    """Measures ours and the peers.

    Args:
      measure: The kind of steps and samples.
      num_envs: Environments B.
      peers: Names of `all_peers.names(measure)`.
      batch_size: Items of a sample.
      num_calls: Calls of each kind in one repeat.
      repeats: Repeats, of which the median counts.
      seed: Seed of the data.

    Returns:
      The measurements, and a sentence for each peer that cannot be used here.
    """
    buffers: dict[str, StepBuffer] = {}
    missing = []
    found_peers = {peer.name: peer for peer in (OURS, *(find(name, measure) for name in peers))}
    for name, peer in found_peers.items():
        try:
            buffers[name] = peer.open(measure, num_envs)
        except ImportError as error:
            missing.append(f"{name} was not measured, as it cannot be used here: {error}")
    capacity = CAPACITY if measure == "add_step" else GOAL_CAPACITY
    data = (make_steps if measure == "add_step" else make_goal_steps)(num_envs, seed)
    for buffer in buffers.values():
        # fills the buffer first, because training mostly runs with a full buffer
        _fill(buffer, data, capacity // num_envs)
        _measure(buffer, data, batch_size, num_calls)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in buffers}
    for _ in range(repeats):
        for name, buffer in buffers.items():
            times[name].append(_measure(buffer, data, batch_size, num_calls))
    results = []
    for name, found in times.items():
        add_us, sample_us = (statistics.median(part) for part in zip(*found, strict=True))
        pairs = list(zip(found, times["rollouts"], strict=True))
        ratios = [statistics.median(peer[i] / own[i] for peer, own in pairs) for i in (0, 1)]
        version = importlib.metadata.version(found_peers[name].distribution)
        results.append(StepMeasurement(name, version, num_envs, add_us, sample_us, *ratios))
    return results, missing


def make_steps(num_envs: int, seed: int) -> list[tuple[Given, GymnasiumStep]]:
    """Makes steps that continue each other, the last one into the first; no episode ends."""
    rng = np.random.default_rng(seed)
    obs = rng.normal(size=(_NUM_KEPT, num_envs, OBS_SIZE))
    steps: list[tuple[Given, GymnasiumStep]] = []
    for t in range(_NUM_KEPT):
        action = rng.uniform(-1, 1, (num_envs, ACTION_SIZE)).astype(np.float32)
        next_obs = obs[(t + 1) % _NUM_KEPT]
        reward = rng.random(num_envs, np.float32)
        terminated, truncated = np.zeros((2, num_envs), np.bool_)
        steps.append(((obs[t], action), (next_obs, reward, terminated, truncated, {})))
    return steps


def to_text(
    results: list[StepMeasurement], missing: list[str], batch_size: int, measure: StepMeasure
) -> str:
    """Lays the measurements out as a table in Markdown."""
    shapes = {"add_step": "HalfCheetah's shapes", "hindsight": "A reaching arm's shapes and goals"}
    lines = [
        f"{shapes[measure]}, full buffers; us of one add of B environments, and of one sample "
        f"of {batch_size} transitions, in time of the thread's CPU; medians.",
        "",
        "| environments | library | add, us | over ours | sample, us | over ours |",
        "|---:|---|---:|---:|---:|---:|",
    ]
    for r in results:
        lines.append(
            f"| {r.num_envs} | {r.library} {r.version} | {r.add_us:.1f} | {r.add_ratio:.2f} "
            f"| {r.sample_us:.1f} | {r.sample_ratio:.2f} |"
        )
    return "\n".join([*lines, *missing])


def to_json(results: list[StepMeasurement], missing: list[str]) -> dict[str, Any]:
    """Returns the measurements as plain data."""
    return {"measurements": [asdict(r) for r in results], "missing": missing}


def _fill(buffer: StepBuffer, data: list[tuple[Given, GymnasiumStep]], num_steps: int) -> None:
    for _ in range(-(-num_steps // len(data))):
        for given, step in data:
            buffer.add(given, step)


def _measure(
    buffer: StepBuffer, data: list[tuple[Given, GymnasiumStep]], batch_size: int, num_calls: int
) -> tuple[float, float]:
    """Returns microseconds of one add and of one sample."""
    # a whole number of rounds, so that the next round continues this one
    num_steps = -(-num_calls // len(data)) * len(data)
    begin = time.thread_time()
    for t in range(num_steps):
        buffer.add(*data[t % len(data)])
    added = time.thread_time()
    for _ in range(num_calls):
        buffer.sample(batch_size)
    end = time.thread_time()
    return (added - begin) / num_steps * 1e6, (end - added) / num_calls * 1e6


def step_spaces() -> tuple[spaces.Box, spaces.Box]:
    """Spaces of HalfCheetah's observations and actions."""
    return (
        spaces.Box(-np.inf, np.inf, (OBS_SIZE,), np.float64),
        spaces.Box(-1, 1, (ACTION_SIZE,), np.float32),
    )
