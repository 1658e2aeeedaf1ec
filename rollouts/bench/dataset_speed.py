# SPDX-License-Identifier: Apache-2.0
"""Costs of recording: `python -m rollouts.bench.dataset_speed --env-id HalfCheetah-v5`.

The same collector collects with and without a `Recorder`, in turns; the ratio of env-steps per
second is taken for each pair of turns.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import rollouts
from rollouts.bench.policies import make_policy
from rollouts.bench.policy_kinds import default_policy, read_policy
from rollouts.datasets.recorder import Compression, Recorder
from rollouts.workers.worker_config import PolicySpec


@dataclass(frozen=True, slots=True)
class Turn:
    """One pair of measurements.

    Attributes:
      bare: Env-steps per second without a recorder.
      recorded: Env-steps per second with one, including the completion of the set.
      bytes_per_step: Size of the set on the disk, divided by its steps.
      bare_cpu_s, recorded_cpu_s: CPU seconds of the process for a million steps.
    """

    bare: float
    recorded: float
    bytes_per_step: float
    bare_cpu_s: float
    recorded_cpu_s: float


def measure(
    collector: rollouts.Collector, to: str, num_steps: int, compression: Compression
) -> Turn:
    """Collects the same number of steps twice: without a set, and into a new set."""

    def bare() -> int:
        collected = 0
        while collected < num_steps:
            collected += collector.collect().num_steps
        return collected

    def recorded() -> int:
        collected = 0
        with recorder:
            while collected < num_steps:
                batch = collector.collect()
                recorder.add(batch)
                collected += batch.num_steps
        return collected

    bare_rate, bare_cpu_s = _rate(bare)
    collector.reset()
    recorder = Recorder(collector, to, compression=compression)
    rate, cpu_s = _rate(recorded)
    steps = int(recorder.stats()["num_steps"])
    path = recorder.paths[""]
    files = [path] if path.is_file() else list(path.rglob("*"))
    size = sum(file.stat().st_size for file in files)
    return Turn(bare_rate, rate, size / max(steps, 1), bare_cpu_s, cpu_s)


def _rate(collect: Callable[[], int]) -> tuple[float, float]:
    start_s, start_cpu_s = time.perf_counter(), time.process_time()
    steps = collect()
    cpu_s = (time.process_time() - start_cpu_s) / steps * 1e6
    return steps / (time.perf_counter() - start_s), cpu_s


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures and prints a row for each format and compression."""
    parser = argparse.ArgumentParser(
        prog="python -m rollouts.bench.dataset_speed", description=__doc__
    )
    add = parser.add_argument
    add("--env-id", required=True, metavar="ID")
    add("--steps", type=int, default=1_000_000, metavar="N", help="of a turn")
    add("--repeats", type=int, default=3, metavar="R", help="pairs; default: 3")
    add("--num-envs", type=int, default=64, metavar="N")
    add("--num-threads", type=int, metavar="T")
    add("--rollout-length", type=int, default=128, metavar="T")
    add("--policy", metavar="P", help="as of rollouts bench collect")
    add("--format", nargs="+", choices=["hdf5", "parquet", "minari"], default=["hdf5", "parquet"])
    add("--compression", nargs="+", choices=["auto", "gzip", "none"], default=["auto"])
    add("--folder", type=Path, help="where sets are written; default: a temporary one")
    args = parser.parse_args(arguments)
    env = rollouts.make_vec(
        args.env_id, args.num_envs, seed=0, autoreset_mode="same_step",
        num_threads=args.num_threads,
    )  # fmt: skip
    space = env.single_observation_space
    asked = PolicySpec.here(args.env_id, env, num_envs=env.num_envs, seed=0)
    kind = default_policy(space) if args.policy is None else read_policy(args.policy)
    policy = make_policy(asked, kind=kind)
    collector = rollouts.Collector(env, policy, args.rollout_length, keep_final_obs=True)
    print(f"{env!r}, {collector.engine} policy, {os.cpu_count()} CPUs")
    print("| format | compression | bare steps/s | recorded | ratio | bytes/step | CPU s / 1e6 |")
    print("|---|---|---|---|---|---|---|")
    for format in args.format:
        for compression in args.compression:
            with tempfile.TemporaryDirectory(dir=args.folder) as folder:
                os.environ["MINARI_DATASETS_PATH"] = folder
                turns = [
                    measure(collector, _place(format, Path(folder), turn), args.steps, compression)
                    for turn in range(args.repeats)
                ]
            print(_row(format, compression, turns))
    collector.close()


def _place(format: str, folder: Path, turn: int) -> str:
    return (
        f"minari:bench/turn-v{turn}" if format == "minari" else str(folder / f"set{turn}.{format}")
    )


def _row(kind: str, compression: str, turns: Sequence[Turn]) -> str:
    ratio = statistics.median(turn.recorded / turn.bare for turn in turns)
    bare, recorded, size, bare_cpu_s, cpu_s = (
        statistics.median(getattr(turn, name) for turn in turns)
        for name in ("bare", "recorded", "bytes_per_step", "bare_cpu_s", "recorded_cpu_s")
    )
    return (
        f"| {kind} | {compression} | {bare:,.0f} | {recorded:,.0f} | {ratio:.2f} | {size:,.0f} | "
        f"{bare_cpu_s:.2f} -> {cpu_s:.2f} |"
    )


if __name__ == "__main__":
    main()
