# SPDX-License-Identifier: Apache-2.0
"""`rollouts report`, `rollouts soak`, and the measures that only the report has."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rollouts import bench
from rollouts.cli.bench import show_progress
from rollouts.cli.values import whole_number
from rollouts.errors import SpecError
from rollouts.machine.cpu_count import usable_cpus


def add_commands(commands: Any, *, positive_float: Callable[[str], Any]) -> None:
    """Declares the commands and their arguments."""
    plan: Any = importlib.import_module("rollouts.report.plan")
    names = [section.name for section in plan.SECTIONS]

    whole = commands.add_parser(
        "report",
        help="measure everything beside every peer that is installed, and write a page",
        description="Runs the commands of every section, each in a process of its own, and writes "
        "report.md, report.html, report.json and plots. Takes less than 45 minutes on two CPUs, "
        "with --quick less than 5.",
    )
    add = whole.add_argument
    add("--out", type=Path, default=Path("runs/report"), metavar="DIR", help="default: runs/report")
    add("--quick", action="store_true", help="fewer measures, shorter turns")
    add("--only", action="append", default=[], choices=names, metavar="SECTION",
        help=f"one of {', '.join(names)}; repeat for several")  # fmt: skip
    add("--soak", type=Path, metavar="FILE", help="show what `rollouts soak` wrote, too")

    soaking = commands.add_parser(
        "soak",
        help="run everything for an hour, killing workers, and write down what it holds",
        description="Pools, hosted environments, Ray workers that are killed, and replay; memory, "
        "files, threads and shared memory after each round. Needs torch and Ray.",
    )
    add = soaking.add_argument
    add("--minutes", type=positive_float, default=60.0, metavar="M", help="default: 60")
    add("--seed", type=int, default=0, help="default: 0")
    add("--out", type=Path, required=True, metavar="FILE", help="JSON file to write")


def add_subjects(
    subjects: Any,
    *,
    positive_int: Callable[[str], Any],
    positive_float: Callable[[str], Any],
    option: Callable[[str], Any],
) -> None:
    """Declares what `bench` measures for the report alone."""
    for name, text, repeats in (
        ("latency", "percentiles of the time of one step, ours and other libraries'", 5),
        ("memory", "memory of a pool and the time to make it, each in a fresh process", 3),
    ):
        parser = subjects.add_parser(name, help=text, description=f"Measures {text}.")
        add = parser.add_argument
        add("--env-id", required=True, metavar="ID")
        add("--num-envs", type=positive_int, default=64, metavar="N", help="default: 64")
        add("--num-threads", type=positive_int, metavar="T",
            help="default: the usable CPUs, at most N")  # fmt: skip
        add("--peer", action="append", default=[], choices=list(bench.PEERS),
            help="library to measure beside ours; repeat for several")  # fmt: skip
        add("--option", action="append", default=[], type=option, metavar="KEY=VALUE",
            help="option of the environment; repeat for several")  # fmt: skip
        if name == "latency":
            add("--calls", type=positive_int, default=2000, metavar="C",
                help="of one turn; default: 2000")  # fmt: skip
            add("--busy-loops", type=whole_number, default=0, metavar="N",
                help="processes that are busy beside each measurement; default: 0")  # fmt: skip
        else:
            add("--timeout-s", type=positive_float, default=300.0, metavar="S",
                help="of one process; default: 300")  # fmt: skip
        _add_common(add, positive_int, repeats)

    parser = subjects.add_parser(
        "states", help="time to save one environment, and to go back to its state"
    )
    parser.add_argument("--env-id", action="append", required=True, metavar="ID",
        help="repeat for several")  # fmt: skip
    _add_common(parser.add_argument, positive_int, 5)

    parser = subjects.add_parser(
        "solve",
        help="time to solve: Stable-Baselines3's PPO over our environments and over its own",
    )
    add = parser.add_argument
    add("--env-id", default="CartPole-v1", metavar="ID", help="default: CartPole-v1")
    add("--target", type=float, default=475.0, metavar="R",
        help="mean return of the last 100 episodes; default: 475")  # fmt: skip
    _add_common(add, positive_int, 3)


def _add_common(add: Callable[..., Any], positive_int: Callable[[str], Any], repeats: int) -> None:
    add("--repeats", type=positive_int, default=repeats, metavar="R", help=f"default: {repeats}")
    add("--seed", type=int, default=0, help="default: 0")
    add("--json", action="store_true", help="print one JSON object, nothing else")


def run(args: argparse.Namespace, *, command: str) -> None:
    """Runs `report` or `soak`; `command` is the text by which it was called."""
    if args.command == "report":
        _report(args)
    else:
        _soak(args, command=command)


def measure(args: argparse.Namespace) -> None:
    """Measures what `add_subjects` declared, and prints it."""
    _print(args, _MEASURES[args.subject](args))


def _report(args: argparse.Namespace) -> None:
    make_report = importlib.import_module("rollouts.report").make_report
    make_report(args.out, quick=args.quick, only=args.only, soak=args.soak, on_progress=_say)
    print(f"written: {args.out / 'report.html'}, report.md, report.json and plots beside it")


def _soak(args: argparse.Namespace, *, command: str) -> None:
    soak: Any = importlib.import_module("rollouts.report.soak")
    try:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.open("a").close()
    except OSError as error:
        raise SpecError(f"{args.out} cannot be written ({error}): give another --out") from error
    samples: list[dict[str, Any]] = []

    def keep(sample: dict[str, Any]) -> None:
        # after each round, so that an end before the time loses nothing
        samples.append(sample)
        args.out.write_text(json.dumps({"command": command, "samples": samples}, indent=1))
        _say(", ".join(f"{name} {value:g}" for name, value in sample.items()))

    soak.run_soak(args.minutes * 60, seed=args.seed, on_round=keep)


def _latency(args: argparse.Namespace) -> list[Any]:
    latency: Any = importlib.import_module("rollouts.report.latency")
    peers = [bench.PEERS[name] for name in dict.fromkeys(args.peer)]
    found: list[Any] = latency.measure_latency(_settings(args), peers, calls=args.calls)
    return found


def _memory(args: argparse.Namespace) -> list[Any]:
    footprint: Any = importlib.import_module("rollouts.report.footprint")
    found: list[Any] = footprint.measure_footprint(
        _settings(args), list(dict.fromkeys(args.peer)), timeout_s=args.timeout_s
    )
    return found


def _states(args: argparse.Namespace) -> list[Any]:
    states: Any = importlib.import_module("rollouts.report.states")
    return [
        row
        for env_id in args.env_id
        for row in states.measure_states(env_id, repeats=args.repeats, seed=args.seed)
    ]


def _solve(args: argparse.Namespace) -> list[Any]:
    solving: Any = importlib.import_module("rollouts.report.solving")
    found: list[Any] = solving.measure_solving(
        args.env_id,
        args.target,
        repeats=args.repeats,
        seed=args.seed,
        on_progress=None if args.json else _say,
    )
    return found


_MEASURES: dict[str, Callable[[argparse.Namespace], list[Any]]] = {
    "latency": _latency,
    "memory": _memory,
    "states": _states,
    "solve": _solve,
}


def _settings(args: argparse.Namespace) -> bench.Settings:
    return bench.Settings(
        env_id=args.env_id,
        num_envs=args.num_envs,
        batch_size=args.num_envs,
        num_threads=args.num_threads or min(usable_cpus(), args.num_envs),
        seed=args.seed,
        repeats=args.repeats,
        env_options=dict(args.option),
        busy_loops=getattr(args, "busy_loops", 0),
    )


def _print(args: argparse.Namespace, rows: list[Any]) -> None:
    found: Any = importlib.import_module("rollouts.report.rows")
    if args.json:
        print(json.dumps(found.to_json(rows), indent=1))
    else:
        print(found.to_text(rows))


def _say(line: str) -> None:
    if sys.stderr.isatty():
        show_progress(line)
    else:
        print(line, file=sys.stderr, flush=True)
