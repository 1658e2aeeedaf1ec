# SPDX-License-Identifier: Apache-2.0
"""The command `rollouts bench SUBJECT`."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import itertools
import json
import math
import sys
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from rollouts import bench
from rollouts.bench import collect, plot, replay, replay_steps, report
from rollouts.bench.all_peers import find, stepper
from rollouts.bench.own_pools import OtherId
from rollouts.bench.peer import Measure
from rollouts.bench.policy_kinds import read_policy
from rollouts.cli.check_env import find_type
from rollouts.envs.register import register_env
from rollouts.envs.registry import env_spec
from rollouts.errors import SpecError
from rollouts.machine.cpu_count import usable_cpus
from rollouts.own_env.header_files import read_header

NUM_ENVS = 64  # where no number is given


def measure_stepping(args: argparse.Namespace, *, command: str) -> None:
    """Runs `bench`: measures, prints and draws; `command` is the command in the report."""
    # errors in the arguments are found before anything is measured
    peers = [stepper(name, args.peer_python) for name in dict.fromkeys(args.peer)]
    peers += [OtherId(env_id) for env_id in dict.fromkeys(args.beside)]
    if args.header is not None:
        _register(args)
    points, skipped = _points(args)
    machine = report.describe_machine(peers)
    for env_id in args.env_id:
        spec = env_spec(env_id, **dict(args.option))
        for name in args.peer:
            find(name, "step").check_agents(spec)
    if args.plot is not None:
        plot.check(args.plot)

    comparisons = _measure(
        points, lambda point, show: bench.compare(point, peers, on_progress=show)
    )
    _print_report(
        args,
        comparisons,
        machine,
        command=command,
        counting=report.COUNTING,
        skipped=skipped,
    )
    # last, so that a full disk affects only the plot
    if args.plot is not None:
        plot.save(plot.draw(comparisons, title=report.header(machine)), args.plot)
        # on stderr, because the report may be JSON
        print(f"written: {args.plot}", file=sys.stderr)


def _register(args: argparse.Namespace) -> None:
    """Registers the environment of --header under the id that --env-id gives."""
    files = read_header(args.header)
    if len(set(args.env_id)) > 1:
        raise SpecError(
            "--header makes one environment: give --env-id once, as the id to call it by"
        )
    register_env(
        args.env_id[0],
        header=files,
        type=args.type or find_type(files),
        max_episode_steps=args.max_episode_steps or None,
    )


def measure_collecting(args: argparse.Namespace, *, command: str) -> None:
    """Runs `bench collect`: measures and prints; `command` is the command in the report."""
    # errors in the arguments are found before anything is started
    policy = None if args.policy is None else read_policy(args.policy)
    points = [
        bench.Settings(
            id=env_id,
            num_envs=num_envs,
            batch_size=num_envs,
            num_threads=args.num_threads,
            seed=args.seed,
            duration_s=args.duration_s,
            repeats=args.repeats,
            env_options=dict(args.option),
            busy_loops=busy,
        )
        for env_id in dict.fromkeys(args.env_id)
        for num_envs in dict.fromkeys(args.num_envs or [NUM_ENVS])
        for busy in dict.fromkeys(args.busy_loops or [0])
    ]
    for env_id in args.env_id:
        env_spec(env_id, **dict(args.option))
    for peer in (find(name, "collect") for name in args.peer):
        if peer.has_own_interpreter():
            peer.interpreter(args.peer_python)
    machine = report.describe_machine([])

    def measure(
        settings: bench.Settings, on_progress: Callable[[str], None] | None
    ) -> bench.Comparison:
        return collect.compare_collecting(
            settings,
            rollout_length=args.rollout_length,
            policy=policy,
            in_process=args.in_process,
            peers=args.peer,
            peer_num_envs=args.peer_num_envs,
            peer_python=args.peer_python,
            on_progress=on_progress,
        )

    _print_report(
        args, _measure(points, measure), machine, command=command, counting=collect.COUNTING
    )


def measure_replay(args: argparse.Namespace) -> None:
    """Runs `bench replay`: measures and prints."""
    peers = list(dict.fromkeys(args.peer))
    measure: Measure = "replay" if args.workload == "rollouts" else args.workload
    for name in peers:
        find(name, measure)
    if args.workload != "rollouts":
        _measure_steps(args, peers)
        return
    settings = replay.ReplaySettings(
        batch_size=args.batch_size,
        num_batches=args.num_batches,
        repeats=args.repeats,
        seed=args.seed,
        output=args.output,
    )
    results: list[replay.ReplayMeasurement] = []
    missing: dict[str, None] = {}  # in order, each once
    for load, threads in itertools.product(replay.WORKLOADS, args.num_threads or [1, 2]):
        found, lacking = replay.compare(
            load,
            peers,
            dataclasses.replace(settings, num_threads=threads),
        )
        results += found
        missing |= dict.fromkeys(lacking)
    if args.json:
        print(json.dumps(replay.to_json(results, list(missing), settings), indent=1))
    else:
        print(replay.to_text(results, list(missing), settings))


def _measure_steps(args: argparse.Namespace, peers: list[str]) -> None:
    results: list[replay_steps.StepMeasurement] = []
    missing: dict[str, None] = {}
    for num_envs in args.num_envs or [16, 256]:
        found, lacking = replay_steps.compare(
            args.workload,
            num_envs,
            peers,
            batch_size=args.batch_size,
            num_calls=args.num_batches,
            repeats=args.repeats,
            seed=args.seed,
        )
        results += found
        missing |= dict.fromkeys(lacking)
    if args.json:
        print(json.dumps(replay_steps.to_json(results, list(missing)), indent=1))
    else:
        print(replay_steps.to_text(results, list(missing), args.batch_size, args.workload))


def _print_report(
    args: argparse.Namespace,
    comparisons: Sequence[bench.Comparison],
    machine: report.Machine,
    *,
    command: str,
    counting: str,
    skipped: Sequence[str] = (),
) -> None:
    """Prints the measurements in the form that was asked for."""
    texts: dict[str, Any] = {"command": command, "counting": counting, "skipped": skipped}
    if args.json:
        print(json.dumps(report.to_json(comparisons, machine, **texts), indent=1))
        return
    gap = "\n\n"
    print(report.header(machine), end=gap)
    print(report.table(comparisons, markdown=args.markdown), end=gap)
    print(report.footer(comparisons, **texts))


def _points(args: argparse.Namespace) -> tuple[list[bench.Settings], list[str]]:
    """Every combination that was asked for, once, and a sentence for each impossible one."""
    possible: dict[tuple[str, int, int, int], None] = {}
    skipped: dict[str, None] = {}
    for env_id, num_envs, size, threads in itertools.product(
        args.env_id,
        args.num_envs or [NUM_ENVS],
        args.batch_size or [Fraction(1)],
        args.num_threads or [None],
    ):
        batch_size = size if isinstance(size, int) else math.ceil(num_envs * size)
        if batch_size > num_envs:
            skipped[
                f"Not measured: batch_size {batch_size} with num_envs {num_envs}, since a batch "
                "has at most num_envs rows."
            ] = None
            continue
        num_threads = threads or min(usable_cpus(), num_envs)
        possible[env_id, num_envs, batch_size, num_threads] = None
    if not possible:
        raise SpecError(
            f"batch_size must be from 1 to num_envs, got {min(args.batch_size)} and num_envs "
            f"{max(args.num_envs or [NUM_ENVS])}: give a smaller batch_size, or N/2"
        )
    points = [
        bench.Settings(
            id=env_id,
            num_envs=num_envs,
            batch_size=batch_size,
            num_threads=num_threads,
            seed=args.seed,
            duration_s=args.duration_s,
            repeats=args.repeats,
            env_options=dict(args.option),
            max_episode_steps=args.max_episode_steps,
            busy_loops=busy,
        )
        for env_id, num_envs, batch_size, num_threads in possible
        for busy in dict.fromkeys(args.busy_loops or [0])
    ]
    return points, list(skipped)


def _measure(
    points: Sequence[bench.Settings],
    measure: Callable[[bench.Settings, Callable[[str], None] | None], bench.Comparison],
) -> list[bench.Comparison]:
    """Measures one point after the other; shows the progress on a terminal."""
    shows_progress = sys.stderr.isatty()
    comparisons = []
    try:
        for number, point in enumerate(points, start=1):
            prefix = f"{number}/{len(points)} "
            show = functools.partial(show_progress, prefix=prefix) if shows_progress else None
            comparisons.append(measure(point, show))
    finally:
        if shows_progress:
            show_progress("")
    return comparisons


def show_progress(line: str, *, prefix: str = "") -> None:
    """Replaces the last line of the terminal; on stderr, so that stdout can be piped."""
    print(f"\r\x1b[K{prefix}{line}", end="", file=sys.stderr, flush=True)
