# SPDX-License-Identifier: Apache-2.0
"""Commands that a checkout adds to `rollouts`: comparisons, the report and the soak.

`rollouts.bench.checkout` names these commands and subjects, so that an installed wheel can say
where to find them.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from comparisons.adapters import command as adapter
from comparisons.training import whole_trainings as training
from comparisons.verify_atari import command as verify_atari
from comparisons.verify_mujoco import command as verify_mujoco
from rollouts import bench
from rollouts.cli.bench import show_progress
from rollouts.cli.values import option, positive_float, positive_int, whole_number
from rollouts.errors import SpecError
from rollouts.machine.cpu_count import usable_cpus


def add_to(commands: Any, subjects: Any) -> None:
    """Declares all of them: `commands` of `rollouts`, `subjects` of `rollouts bench`."""
    _add_adapter(subjects)
    _add_report_subjects(subjects)
    _add_train(subjects)
    _add_report(commands)
    _add_soak(commands)
    _add_verifying(commands)


def _add_adapter(subjects: Any) -> None:
    adapting = subjects.add_parser(
        "adapter",
        help="measure another library through our adapter and as it is by itself",
        description="Collects the same rollouts through our adapter and with what the library has "
        "itself, without learning. They take turns in one run.",
    )
    adapter.add_arguments(adapting)
    adapting.set_defaults(compare=_runs(adapter.measure))


def _add_verifying(commands: Any) -> None:
    atari = commands.add_parser(
        "verify-atari",
        help="compare our own Atari 2600 with ale-py, frame by frame",
        description="Plays games in both with the same actions and compares memory, screen, "
        "reward, lives and end of each frame. Exit status: 0, or 1 where a game differs.",
    )
    verify_atari.add_arguments(atari, positive_int=positive_int)
    atari.set_defaults(compare=lambda args, command: 0 if verify_atari.verify(args) else 1)
    mujoco = commands.add_parser(
        "verify-mujoco",
        help="compare our vector lanes with MuJoCo, step by step",
        description="Steps the same states in both, which MuJoCo's steps then move on, and "
        "compares each stage of an evaluation, the solver's iterations, the next state and all "
        "that a step leaves; then lets both run freely. Exit status: 0, or 1 where a model "
        "differs.",
    )
    verify_mujoco.add_arguments(mujoco, positive_int=positive_int)
    mujoco.set_defaults(compare=lambda args, command: 0 if verify_mujoco.verify(args) else 1)


def _runs(work: Callable[[argparse.Namespace], None]) -> Callable[..., int]:
    """A command whose status is 0 unless it raises."""

    def run(args: argparse.Namespace, *, command: str) -> int:
        work(args)
        return 0

    return run


def _add_report(commands: Any) -> None:
    plan: Any = importlib.import_module("comparisons.report.plan")
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
    whole.set_defaults(compare=_runs(_report))


def _add_soak(commands: Any) -> None:
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
    soaking.set_defaults(compare=_soak)


def _add_report_subjects(subjects: Any) -> None:
    """Declares subjects of `bench` that only the report measures."""
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
        add("--peer", action="append", default=[], choices=bench.names("step"),
            help="library to measure next to ours; repeat for several")  # fmt: skip
        add("--option", action="append", default=[], type=option, metavar="KEY=VALUE",
            help="option of the environment; repeat for several")  # fmt: skip
        if name == "latency":
            add("--calls", type=positive_int, default=2000, metavar="C",
                help="of one turn; default: 2000")  # fmt: skip
            add("--busy-loops", type=whole_number, default=0, metavar="N",
                help="processes that are busy during each measurement; default: 0")  # fmt: skip
        else:
            add("--timeout-s", type=positive_float, default=300.0, metavar="S",
                help="of one process; default: 300")  # fmt: skip
        _add_common(parser, repeats)

    parser = subjects.add_parser(
        "states", help="time to save one environment, and to go back to its state"
    )
    parser.add_argument("--env-id", action="append", required=True, metavar="ID",
        help="repeat for several")  # fmt: skip
    _add_common(parser, 5)

    parser = subjects.add_parser(
        "solve",
        help="time to solve: Stable-Baselines3's PPO over our environments and over its own",
    )
    add = parser.add_argument
    add("--env-id", default="CartPole-v1", metavar="ID", help="default: CartPole-v1")
    add("--target", type=float, default=475.0, metavar="R",
        help="mean return of the last 100 episodes; default: 475")  # fmt: skip
    _add_common(parser, 3)


def _add_train(subjects: Any) -> None:
    parser = subjects.add_parser(
        "train",
        help="whole trainings: another library's algorithm over our pool and as it is by itself",
        description="Trains with the algorithm's default arguments, with the same seeds and in "
        "turns, and says env-steps per second of everything: collecting and gradient steps.",
    )
    add = parser.add_argument
    add("library", choices=training.LIBRARIES, help="whose algorithm to train with")
    add("--algorithm", default="ppo", metavar="NAME", help="default: ppo")
    add("--env-id", default="CartPole-v1", metavar="ID", help="default: CartPole-v1")
    add("--num-envs", type=positive_int, default=8, metavar="N", help="default: 8")
    add("--total-steps", type=positive_int, metavar="N",
        help="default: 100000; of DQN, SAC, TD3 and DDPG 10000")  # fmt: skip
    add("--peer", action="append", default=[], metavar="NAME",
        help="what to train next to ours; repeat for several; default: all there are")  # fmt: skip
    add("--plot", type=Path, metavar="PATH",
        help="also draw returns by env-steps: the repeats' mean and deviation")  # fmt: skip
    _add_common(parser, 3)


def _add_common(parser: argparse.ArgumentParser, repeats: int) -> None:
    add = parser.add_argument
    add("--repeats", type=positive_int, default=repeats, metavar="R", help=f"default: {repeats}")
    add("--seed", type=int, default=0, help="default: 0")
    add("--json", action="store_true", help="print one JSON object, nothing else")
    parser.set_defaults(compare=_runs(_measure))


def _measure(args: argparse.Namespace) -> None:
    """Measures a subject of `_add_report_subjects`, and prints its rows."""
    _print(args, _MEASURES[args.subject](args))


def _report(args: argparse.Namespace) -> None:
    make_report = importlib.import_module("comparisons.report").make_report
    make_report(args.out, quick=args.quick, only=args.only, soak=args.soak, on_progress=_say)
    print(f"written: {args.out / 'report.html'}, report.md, report.json and plots beside it")


def _soak(args: argparse.Namespace, *, command: str) -> int:
    soak: Any = importlib.import_module("comparisons.report.soak")
    try:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.open("a").close()
    except OSError as error:
        raise SpecError(f"{args.out} cannot be written ({error}): give another --out") from error
    samples: list[dict[str, Any]] = []

    def keep(sample: dict[str, Any]) -> None:
        # written after each round, so that an early end loses nothing
        samples.append(sample)
        args.out.write_text(json.dumps({"command": command, "samples": samples}, indent=1))
        _say(", ".join(f"{name} {value:g}" for name, value in sample.items()))

    soak.run_soak(args.minutes * 60, seed=args.seed, on_round=keep)
    return 0


def _latency(args: argparse.Namespace) -> list[Any]:
    latency: Any = importlib.import_module("comparisons.report.latency")
    peers = [bench.stepper(name) for name in dict.fromkeys(args.peer)]
    found: list[Any] = latency.measure_latency(_settings(args), peers, calls=args.calls)
    return found


def _memory(args: argparse.Namespace) -> list[Any]:
    footprint: Any = importlib.import_module("comparisons.report.footprint")
    found: list[Any] = footprint.measure_footprint(
        _settings(args), list(dict.fromkeys(args.peer)), timeout_s=args.timeout_s
    )
    return found


def _states(args: argparse.Namespace) -> list[Any]:
    states: Any = importlib.import_module("comparisons.report.state_times")
    return [
        row
        for env_id in args.env_id
        for row in states.measure_states(env_id, repeats=args.repeats, seed=args.seed)
    ]


def _solve(args: argparse.Namespace) -> list[Any]:
    solving: Any = importlib.import_module("comparisons.report.solving")
    found: list[Any] = solving.measure_solving(
        args.env_id,
        args.target,
        repeats=args.repeats,
        seed=args.seed,
        on_progress=None if args.json else _say,
    )
    return found


def _train(args: argparse.Namespace) -> list[Any]:
    task = training.TrainingTask(
        algorithm=args.algorithm,
        id=args.env_id,
        num_envs=args.num_envs,
        total_steps=args.total_steps or training.default_steps(args.algorithm),
        seed=args.seed,
    )
    say = None if args.json else _say
    return list(
        training.measure_training(
            args.library,
            task,
            peers=args.peer,
            repeats=args.repeats,
            plot=args.plot,
            on_progress=say,
        )
    )


_MEASURES: dict[str, Callable[[argparse.Namespace], list[Any]]] = {
    "latency": _latency,
    "memory": _memory,
    "states": _states,
    "solve": _solve,
    "train": _train,
}


def _settings(args: argparse.Namespace) -> bench.Settings:
    return bench.Settings(
        id=args.env_id,
        num_envs=args.num_envs,
        batch_size=args.num_envs,
        num_threads=args.num_threads or min(usable_cpus(), args.num_envs),
        seed=args.seed,
        repeats=args.repeats,
        env_options=dict(args.option),
        busy_loops=getattr(args, "busy_loops", 0),
    )


def _print(args: argparse.Namespace, rows: list[Any]) -> None:
    found: Any = importlib.import_module("comparisons.report.report_rows")
    if args.json:
        print(json.dumps(found.to_json(rows), indent=1))
    else:
        print(found.to_text(rows))


def _say(line: str) -> None:
    if sys.stderr.isatty():
        show_progress(line)
    else:
        print(line, file=sys.stderr, flush=True)
