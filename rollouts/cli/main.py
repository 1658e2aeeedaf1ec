# SPDX-License-Identifier: Apache-2.0
"""The command `rollouts`.

`envs` lists environments, `new-env` writes one to begin with and `check-env` tries it, `bench
SUBJECT` measures, `simulate` says how far a cluster goes, `tune-batch` finds the best number of
environments, `top` watches a job, `eval` plays episodes with the policy of a checkpoint, `collect`
writes a data set of them, `record` films one, `export` writes the policy for use elsewhere, and
`replay-run` shows a step of a recorded run.
A source checkout adds the commands of `comparisons/commands.py`, which compare with other
libraries.
"""

from __future__ import annotations

import argparse
import io
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import rollouts
from rollouts import bench
from rollouts.bench import checkout, plot
from rollouts.bench.peer import Measure
from rollouts.cli import bench as cli_bench
from rollouts.cli import bench_coordinator as cli_bench_coordinator
from rollouts.cli import bench_device as cli_bench_device
from rollouts.cli import bench_learner as cli_bench_learner
from rollouts.cli import bench_prediction as cli_bench_prediction
from rollouts.cli import bench_record as cli_bench_record
from rollouts.cli import check_cluster as cli_check_cluster
from rollouts.cli import check_env as cli_check_env
from rollouts.cli import collect_set as cli_collect
from rollouts.cli import envs as cli_envs
from rollouts.cli import evaluate as cli_evaluate
from rollouts.cli import export_policy as cli_export
from rollouts.cli import new_env as cli_new_env
from rollouts.cli import record as cli_record
from rollouts.cli import replay_run as cli_replay_run
from rollouts.cli import simulate_job as cli_simulate_job
from rollouts.cli import tune_batch as cli_tune_batch
from rollouts.cli.parser import CommandParser
from rollouts.cli.subjects import with_subject
from rollouts.cli.values import batch_size as _batch_size
from rollouts.cli.values import option as _option
from rollouts.cli.values import positive_float as _positive_float
from rollouts.cli.values import positive_int as _positive_int
from rollouts.cli.values import whole_number as _whole_number
from rollouts.errors import RolloutsError
from rollouts.metrics import top

# exit statuses that shells know: 128 + the number of SIGINT, SIGPIPE
_INTERRUPTED = 130
_BROKEN_PIPE = 141


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command.

    Args:
      argv: Arguments without the program's name; None: those of this process.

    Returns:
      Exit status: 0; 1 where `top` found the run dead, `check-env` or `check-cluster` a fault, or a
      comparison a difference; 2 for a mistake in the arguments or something not installed.
    """
    given = sys.argv[1:] if argv is None else list(argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # a character that the terminal cannot show must not fail a command that has done its
            # work
            stream.reconfigure(errors="backslashreplace")
    given_subject = with_subject(given)
    if (missing := _only_in_a_checkout(given_subject)) and not checkout.from_checkout("commands"):
        print(f"rollouts {missing}: error: {checkout.WHERE_TO_GET_IT}", file=sys.stderr)
        return 2
    args = _parser().parse_args(given_subject)
    name = " ".join(one for one in (args.command, getattr(args, "subject", None)) if one)
    status = 0
    try:
        if "compare" in args:
            status = int(args.compare(args, command=shlex.join(["rollouts", *given])))
        elif args.command == "envs":
            cli_envs.show(args.env_id, args.filter, as_json=args.json)
        elif args.command == "top":
            status = top.show(args.run_dir, once=args.once, interval_s=args.interval_s)
        elif args.command == "new-env":
            cli_new_env.write(args.header, agents=args.agents)
        elif args.command == "check-env":
            status = 0 if cli_check_env.check(args) else 1
        elif args.command == "check-cluster":
            status = 0 if cli_check_cluster.check(args) else 1
        elif args.command == "simulate":
            cli_simulate_job.run(args)
        elif args.command == "eval":
            cli_evaluate.run(args)
        elif args.command == "export":
            cli_export.run(args)
        elif args.command == "collect":
            cli_collect.run(args)
        elif args.command == "record":
            cli_record.record(args)
        elif args.command == "replay-run":
            cli_replay_run.run(args)
        elif args.command == "tune-batch":
            cli_tune_batch.tune(args)
        else:
            _measure(args, command=shlex.join(["rollouts", *given]))
        sys.stdout.flush()
    except RolloutsError as error:
        print(f"rollouts {name}: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return _INTERRUPTED
    except BrokenPipeError:
        # output that is still buffered must not fail again when Python exits
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE
    return status


def _measure(args: argparse.Namespace, *, command: str) -> None:
    """Runs the benchmark that `bench SUBJECT` names."""
    if args.subject == "pool":
        cli_bench.measure_stepping(args, command=command)
    elif args.subject == "collect":
        cli_bench.measure_collecting(args, command=command)
    elif args.subject == "replay":
        cli_bench.measure_replay(args)
    elif args.subject == "learner":
        cli_bench_learner.measure(args)
    elif args.subject == "coordinator":
        cli_bench_coordinator.measure(args)
    elif args.subject == "prediction":
        cli_bench_prediction.measure(args)
    elif args.subject == "record":
        cli_bench_record.measure(args)
    else:
        cli_bench_device.measure(args)


def _only_in_a_checkout(given: Sequence[str]) -> str:
    """The given command, or subject of `bench`, if installed wheels lack it; else ""."""
    first, second = [*given, "", ""][:2]
    if first == "bench" and second in checkout.SUBJECTS:
        return f"{first} {second}"
    return first if first in checkout.COMMANDS else ""


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(prog="rollouts", description=rollouts.__doc__)
    parser.add_argument("--version", action="version", version=f"rollouts {rollouts.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    envs = commands.add_parser("envs", help="list the environments, or describe some of them")
    envs.add_argument("env_id", nargs="*", metavar="ID",
        help="describe these, with what each of their options means")  # fmt: skip
    envs.add_argument("--filter", default="", metavar="TEXT", help="only ids with TEXT in them")
    envs.add_argument("--json", action="store_true", help="print a JSON array instead of a table")

    begin = commands.add_parser(
        "new-env",
        help="write a C++ header to begin an environment of one's own with",
        description="Writes a commented environment that compiles: a small game to replace.",
    )
    begin.add_argument("header", type=Path, metavar="FILE.h")
    begin.add_argument("--agents", action="store_true", help="with several agents in two groups")

    trying = commands.add_parser(
        "check-env",
        help="compile an environment of one's own and try whether it keeps the contract",
        description="Compiles the header and plays it with random actions: numbers, determinism "
        "over threads and batches, resets, saved states, options. Exit status: 0, 1 where a check "
        "failed, 2 where it does not compile.",
    )
    cli_check_env.add_arguments(trying, positive_int=_positive_int, option=_option)

    cluster = commands.add_parser(
        "check-cluster",
        help="try every node of a Ray cluster before a run",
        description="Asks every node for its release, Python, CPUs, GPUs, shared memory and clock, "
        "and lets a worker on each collect a fragment. Exit status: 0, 1 where something is wrong "
        "or nodes are missing, 2 where there is no cluster.",
    )
    cli_check_cluster.add_arguments(
        cluster, positive_int=_positive_int, positive_float=_positive_float, option=_option
    )

    simulating = commands.add_parser(
        "simulate",
        help="simulate a job of any size: throughput, lag, driver load, deaths of nodes",
        description="Runs the coordinator's own state machine, queue and rules in simulated time, "
        "with workers, nodes, links and learners that are given by numbers. Needs no Ray.",
    )
    cli_simulate_job.add_arguments(
        simulating,
        positive_int=_positive_int,
        positive_float=_positive_float,
        whole_number=_whole_number,
    )

    benches = commands.add_parser(
        "bench",
        help="measure a pool, or what SUBJECT names",
        description="Without a SUBJECT, `rollouts bench --env-id ID ...` is `rollouts bench pool "
        "--env-id ID ...`.",
    )
    subjects = benches.add_subparsers(dest="subject", required=True, metavar="SUBJECT")
    measure = subjects.add_parser(
        "pool",
        help="measure env-steps per second, ours and other libraries', in one run",
        description="Measures stepping with random actions and autoreset. The libraries take "
        "turns in one process, with the same actions, options and number of threads. Of "
        "settings with several values every combination is measured.",
    )
    _add_bench_arguments(measure)

    collecting = subjects.add_parser(
        "collect",
        help="measure what a learner receives: our collector, a Ray worker, other libraries",
        description="Measures the env-steps per second that a learner receives from a Collector "
        "whose policy native code computes, or torch, from one Ray worker and its queue, and from "
        "other libraries' loops and runners; and those of the environments alone, without a "
        "policy. They take turns in one run; while one works the others rest.",
    )
    _add_bench_collect_arguments(collecting)

    replaying = subjects.add_parser(
        "replay",
        help="measure the replay buffer: inserts, prioritised samples, bytes per transition",
        description="Inserts the same transitions into each library's prioritised buffer, samples "
        "from it and sets priorities anew; or (--workload add_step) adds one step of B "
        "environments at a time and samples uniformly. The libraries take turns in one process.",
    )
    _add_bench_replay_arguments(replaying)

    learning = subjects.add_parser(
        "learner",
        help="measure gradient steps of PPO, DQN or SAC: native code against torch",
        description="Makes gradient steps of PPO's, DQN's or SAC's loss with Adam, in "
        "native code and in torch, which take turns in one process.",
    )
    cli_bench_learner.add_arguments(learning, positive_int=_positive_int)

    driving = subjects.add_parser(
        "coordinator",
        help="measure what a fragment costs the driver, beside a bare loop of Ray calls",
        description="Counts the driver's CPU time per fragment, by stage, with Ray workers whose "
        "fragments are tiny. RolloutCoordinator and a loop of ray.wait and ray.get over the same "
        "actors take turns in one Ray.",
    )
    cli_bench_coordinator.add_arguments(
        driving, positive_int=_positive_int, whole_number=_whole_number
    )
    predicting = subjects.add_parser(
        "prediction",
        help="compare the predictions of `rollouts simulate` with real runs of Ray workers",
        description="Runs real workers whose fragments take a known time for a learner that does, "
        "measures the times of fragments and what the driver spends, simulates the same job from "
        "them, and prints both: fragments/s, driver load, queue depth, mean lag.",
    )
    cli_bench_prediction.add_arguments(
        predicting, positive_int=_positive_int, positive_float=_positive_float
    )
    recording = subjects.add_parser(
        "record",
        help="measure what a log of the run costs: collecting with and without record=",
        description="Collects by turns with two collectors of equal pools, of which one records, "
        "and prints the ratio of their times, and bytes of the log for each step.",
    )
    cli_bench_record.add_arguments(
        recording, positive_int=_positive_int, positive_float=_positive_float, option=_option
    )

    on_device = subjects.add_parser(
        "device",
        help="measure a pool of a GPU next to the C++ pool or mujoco_warp alone",
        description="Measures stepping by a launch for each step, from a CUDA graph, and many "
        "steps of one launch, with autoreset and statistics. They take turns in one run. MuJoCo's "
        "tasks are measured next to mujoco_warp alone, on the same worlds.",
    )
    cli_bench_device.add_arguments(
        on_device, positive_int=_positive_int, positive_float=_positive_float, option=_option
    )

    tuning = commands.add_parser(
        "tune-batch",
        help="find the number of environments from which a policy collects fastest",
        description="Doubles the number of environments while that makes collecting faster and is "
        "expected to fit in memory; each size in a process of its own. Nothing is learned "
        "meanwhile.",
    )
    cli_tune_batch.add_arguments(
        tuning, positive_int=_positive_int, positive_float=_positive_float, option=_option
    )

    evaluating = commands.add_parser(
        "eval",
        help="play episodes with the policy of a checkpoint, or with an exported file",
        description="Plays the same number of episodes in each environment, however long they "
        "are, and prints mean, standard deviation, least and greatest of returns and lengths.",
    )
    cli_evaluate.add_arguments(evaluating, positive_int=_positive_int, option=_option)

    exporting = commands.add_parser(
        "export",
        help="write the policy of a checkpoint as ONNX, torch.export, TorchScript or C",
        description="Writes a file that acts without this library: network, observation normaliser "
        "and action scaling in one graph. The file is compared with the policy before it is there.",
    )
    cli_export.add_arguments(exporting, option=_option)

    collecting_set = commands.add_parser(
        "collect",
        help="write a data set of whole episodes: Minari, Parquet or HDF5",
        description="Plays whole episodes and writes them while the environments go on. What is on "
        "the disk are whole episodes at any time. Needs the extra datasets.",
    )
    cli_collect.add_arguments(collecting_set, positive_int=_positive_int, option=_option)

    filming = commands.add_parser(
        "record",
        help="write a video of a policy",
        description="Plays episodes of one environment with a policy and writes a frame for every "
        "observation. Needs the extra render.",
    )
    cli_record.add_arguments(
        filming, positive_int=_positive_int, positive_float=_positive_float, option=_option
    )

    again = commands.add_parser(
        "replay-run",
        help="make a step of a recorded run again, bit for bit",
        description="Makes the fragment with the step again from the log that Collector(record=...)"
        " or RolloutCoordinator(record=...) wrote, compares its checksum, and prints, draws or "
        "dumps what one environment did.",
    )
    cli_replay_run.add_arguments(
        again, whole_number=_whole_number, positive_float=_positive_float, option=_option
    )

    if (comparing := checkout.from_checkout("commands")) is not None:
        comparing.add_to(commands, subjects)

    watch = commands.add_parser(
        "top",
        help="show a running job in the terminal",
        description="Shows the throughput, the workers, the queue, waits, policy lag and losses "
        "of a run whose MetricsReporter has a StatusFileSink, such as examples/ppo.py. Reads the "
        "run's status.json on this machine. Exit status: 0, or 1 where the run's process is gone.",
    )
    watch.add_argument("--run-dir", type=Path, default=Path(), metavar="DIR",
        help="a run, or a directory of runs of which the newest is shown; "
        "default: the working directory and its runs/")  # fmt: skip
    watch.add_argument("--once", action="store_true", help="print one frame and end")
    watch.add_argument("--interval-s", type=_positive_float, default=1.0, metavar="S",
        help="seconds between frames; default: 1")  # fmt: skip
    return parser


def _add_bench_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--env-id", nargs="+", action="extend", required=True, metavar="ID", help="one or several")
    several: dict[str, Any] = {"nargs": "+", "action": "extend"}
    add("--num-envs", **several, type=_positive_int, metavar="N",
        help=f"one or several; default: {cli_bench.NUM_ENVS}")  # fmt: skip
    add("--num-threads", **several, type=_positive_int, metavar="T",
        help="one or several, for every library that has threads; "
        "default: the usable CPUs, at most N")  # fmt: skip
    add("--batch-size", **several, type=_batch_size, metavar="B",
        help="one or several, as numbers or as N, N/2, N/4...; below N: measure recv and send; "
        "default: N, measure step")  # fmt: skip
    _add_peer(parser, "step")
    add("--beside", action="append", default=[], metavar="ID",
        help="another id with equal spaces to measure beside it; repeat for several")  # fmt: skip
    add("--header", type=Path, metavar="FILE.h",
        help="an environment of your own, which --env-id then names")  # fmt: skip
    add("--type", metavar="TYPE", help="the struct in it; default: the one there is")
    add("--max-episode-steps", type=int, metavar="M",
        help="time limit, of every library that has one; 0: none; default: the id's")  # fmt: skip
    _add_common_arguments(parser)
    add("--plot", type=Path, metavar="FILE",
        help=f"draw the results too; FILE ends in {', '.join(plot.SUFFIXES)}")  # fmt: skip


def _add_bench_collect_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--env-id", nargs="+", action="extend", required=True, metavar="ID", help="one or several")
    add("--num-envs", nargs="+", action="extend", type=_positive_int, metavar="N",
        help=f"one or several; default: {cli_bench.NUM_ENVS}")  # fmt: skip
    add("--num-threads", type=_positive_int, default=1, metavar="T",
        help="of the pool, in the worker and in process, and of EnvPool's; default: 1")  # fmt: skip
    add("--rollout-length", type=_positive_int, default=128, metavar="T",
        help="steps of each environment per rollout; default: 128")  # fmt: skip
    add("--policy", metavar="P",
        help="64x64, 256x256 or other widths: tanh layers for vectors; cnn: for images; gru: with "
        "memory; random: actions drawn before, which costs nothing; default: cnn for images, "
        "64x64 for others")  # fmt: skip
    add("--in-process", action="store_true",
        help="leave the Ray worker out, and do not start Ray")  # fmt: skip
    _add_peer(parser, "collect")
    add("--peer-num-envs", type=_positive_int, metavar="N",
        help="environments of a peer; an actor for each takes memory; default: N")  # fmt: skip
    _add_common_arguments(parser)


def _add_bench_replay_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    peers = [*bench.names("replay"), *bench.names("add_step")]
    add("--workload", choices=["rollouts", "add_step", "hindsight"], default="rollouts",
        help="how steps are added, or goals relabelled; default: rollouts")  # fmt: skip
    add("--peer", action="append", default=[], choices=peers or None, metavar="NAME",
        help=f"to measure next to ours: {', '.join(peers) or 'none here'}; repeat for several; "
        "sb3: add_step, hindsight")  # fmt: skip
    add("--num-envs", nargs="+", action="extend", type=_positive_int, metavar="B",
        help="of add_step and hindsight; several ok; default: 16 256")  # fmt: skip
    add("--num-threads", nargs="+", action="extend", type=_positive_int, metavar="T",
        help="that insert, then sample, at the same time; several ok; default: 1 2")  # fmt: skip
    add("--batch-size", type=_positive_int, default=256, metavar="B", help="default: 256")
    add("--num-batches", type=_positive_int, default=100, metavar="N",
        help="of one repeat and thread; default: 100")  # fmt: skip
    add("--repeats", type=_positive_int, default=3, metavar="R", help="default: 3")
    add("--seed", type=int, default=0, help="of the data; default: 0")
    add("--output", choices=["torch", "numpy"], default="torch",
        help="what the values of every library's batches are made; default: torch")  # fmt: skip
    add("--json", action="store_true", help="print one JSON object, nothing else")


def _add_peer(parser: argparse.ArgumentParser, measure: Measure) -> None:
    """Adds the arguments for peers; the measure refuses those that a wheel lacks."""
    parser.add_argument("--peer", action="append", default=[],
        choices=bench.names(measure) if checkout.from_checkout("others") else None,
        metavar=None if checkout.from_checkout("others") else "NAME",
        help=f"to measure next to ours: {', '.join(bench.names(measure))}; repeat for "
        "several")  # fmt: skip
    own = [peer for peer in bench.peers().values() if peer.has_own_interpreter()]
    found = [peer for peer in own if peer.measures(measure)]
    parser.set_defaults(peer_python=None)
    if found:
        parser.add_argument("--peer-python", type=Path, metavar="PYTHON",
            help=f"the interpreter that has {' or '.join(peer.name for peer in found)}, whose pins "
            f"clash with ours; default: {' or '.join(peer.module for peer in found)}, which "
            "`make peers` makes")  # fmt: skip


def _add_common_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that `bench pool` and `bench collect` share."""
    add = parser.add_argument
    add("--option", action="append", default=[], type=_option, metavar="KEY=VALUE",
        help="option of the environment, such as frameskip=4; repeat for several")  # fmt: skip
    add("--duration-s", type=float, default=1.0, metavar="S",
        help="of one repeat of one library, about; default: 1")  # fmt: skip
    add("--repeats", type=_positive_int, default=5, metavar="R", help="default: 5")
    add("--seed", type=int, default=0, help="of environments and actions; default: 0")
    add("--busy-loops", nargs="+", action="extend", type=_whole_number, metavar="N",
        help="processes that are busy during each measurement; several ok; default: 0")  # fmt: skip
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON object, nothing else")
    form.add_argument("--markdown", action="store_true", help="print a table in Markdown")
