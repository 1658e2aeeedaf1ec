# SPDX-License-Identifier: Apache-2.0
"""The benchmark behind `rollouts bench replay`: inserts, prioritised samples, bytes per transition.

The libraries take turns in one process, repeat by repeat. Each inserts the same rollouts, then
draws batches and sets the same new priorities, as a learner does. With several threads, each thread
inserts its share of the environments, and then draws batches of its own.
"""

from __future__ import annotations

import gc
import importlib.metadata
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any, Literal

from rollouts.bench.all_peers import find
from rollouts.bench.peer import Peer
from rollouts.bench.replay_own import Candidate, OwnReplay
from rollouts.bench.replay_workloads import (
    Array,
    Workload,
    converter,
    make_rollouts,
    priorities,
    shares,
)

WORKLOADS = (
    Workload("Atari 84x84x4 uint8", (4, 84, 84), "uint8", 4, 8, 64, 1024),
    Workload("32 floats", (32,), "float32", 1, 64, 64, 2048),
)

OURS = Peer(name="rollouts", replay=OwnReplay)

Output = Literal["torch", "numpy"]


@dataclass(frozen=True, slots=True)
class ReplayMeasurement:
    """Medians over the repeats, for one library and workload; `note` tells how it differs."""

    library: str
    version: str
    workload: str
    num_threads: int
    inserts_per_s: float
    samples_per_s: float
    bytes_per_transition: float
    note: str = ""


@dataclass(frozen=True, slots=True)
class ReplaySettings:
    """Settings that are the same for every library.

    Attributes:
      num_threads: Threads that insert, and then sample and update, at the same time.
      batch_size: Items of a sample.
      num_batches: Samples of one repeat and thread.
      repeats: Repeats, of which the median counts.
      seed: Seed of the data and priorities.
      output: The form of a batch's values, made without a copy.
    """

    num_threads: int = 1
    batch_size: int = 256
    num_batches: int = 100
    repeats: int = 3
    seed: int = 0
    output: Output = "torch"


def compare(
    load: Workload, peers: list[str], settings: ReplaySettings
) -> tuple[list[ReplayMeasurement], list[str]]:
    """Measures ours and the peers on one workload.

    Args:
      load: The workload to store.
      peers: Names of `all_peers.names("replay")`.
      settings: Sizes and durations of the measurement.

    Returns:
      The measurements, and a sentence for each peer that could not be measured.
    """
    missing = []
    usable: dict[str, Peer] = {}
    notes: dict[str, str] = {}
    for peer in (OURS, *(find(name, "replay") for name in peers)):
        name = peer.name
        try:
            candidate: Candidate = peer.open("replay", load)
            notes[name] = candidate.note
            usable[name] = peer
        except (ImportError, RuntimeError, AttributeError) as error:
            # any error, because some libraries fail only when a buffer is made
            missing.append(f"{name} was not measured, as it cannot be used here: {error}")

    rollouts = make_rollouts(load, settings.seed, settings.num_threads)
    figures: dict[str, list[tuple[float, float, float]]] = {name: [] for name in usable}
    # in turns, so that a busy moment of the machine affects all libraries
    for _ in range(settings.repeats):
        for name, peer in usable.items():
            figures[name].append(_measure(peer.open("replay", load), load, rollouts, settings))
            gc.collect()
    results = []
    for name, found in figures.items():
        inserts, samples, nbytes = (statistics.median(f) for f in zip(*found, strict=True))
        version = importlib.metadata.version(usable[name].distribution)
        per_transition = nbytes / load.size
        results.append(
            ReplayMeasurement(
                name,
                version,
                load.name,
                settings.num_threads,
                inserts,
                samples,
                per_transition,
                notes[name],
            )
        )
    return results, missing


def to_text(results: list[ReplayMeasurement], missing: list[str], settings: ReplaySettings) -> str:
    """Lays the measurements out as a table in Markdown."""
    lines = [
        f"Batches of {settings.batch_size}, their values as {settings.output} on the CPU for every "
        f"library; medians of {settings.repeats}; 0 bytes: not told.",
        "",
        "| workload | library | threads | inserts/s | samples/s | bytes/transition |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for r in results:
        lines.append(
            f"| {r.workload} | {r.library} {r.version} | {r.num_threads} | {r.inserts_per_s:,.0f} "
            f"| {r.samples_per_s:,.0f} | {r.bytes_per_transition:,.0f} |"
        )
    notes = dict.fromkeys(f"{r.library}: {r.note}" for r in results if r.note)
    return "\n".join([*lines, *notes, *missing])


def to_json(
    results: list[ReplayMeasurement], missing: list[str], settings: ReplaySettings
) -> dict[str, Any]:
    """Returns the measurements as plain data."""
    told = asdict(settings)
    del told["num_threads"]  # each measurement has its own
    return {"settings": told, "measurements": [asdict(r) for r in results], "missing": missing}


def _measure(
    candidate: Candidate, load: Workload, rollouts: list[dict[str, Array]], settings: ReplaySettings
) -> tuple[float, float, float]:
    def insert(rollout: dict[str, Array], env_id: Array) -> None:
        for _ in range(load.num_steps // load.length):
            candidate.add(rollout, env_id)

    convert = converter(settings.output)

    size = settings.batch_size
    samples = [candidate.samples(size) for _ in range(settings.num_threads)]

    def learn(thread: int, num_batches: int) -> None:
        new = priorities(size, settings.seed + thread)
        for _ in range(num_batches):
            fields, names = next(samples[thread])
            convert(fields)
            candidate.update(names, next(new))

    with ThreadPoolExecutor(settings.num_threads) as threads:
        begin = time.perf_counter()
        for _ in threads.map(insert, rollouts, shares(load, settings.num_threads)):
            pass
        candidate.flush()
        insert_s = time.perf_counter() - begin

        for thread in range(settings.num_threads):
            learn(thread, 2)  # the first samples allocate memory
        counts = [settings.num_batches] * settings.num_threads
        begin = time.perf_counter()
        for _ in threads.map(learn, range(settings.num_threads), counts):
            pass
        sample_s = time.perf_counter() - begin
    drawn = settings.num_threads * settings.num_batches * size
    return load.size / insert_s, drawn / sample_s, float(candidate.nbytes())
