# SPDX-License-Identifier: Apache-2.0
"""`rollouts eval`: measures the returns of a checkpoint's policy."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rollouts.checkpoint import Checkpoint, load_checkpoint
from rollouts.cli import record as cli_record
from rollouts.cli.checkpoint_policy import load_policy
from rollouts.cli.checkpoint_program import PolicyFile, add_trust, load_program, options_of
from rollouts.collecting.evaluation import Evaluation, evaluate, evaluate_agents
from rollouts.envs.make import make_pool
from rollouts.errors import SpecError
from rollouts.exporting.deployment import is_exported
from rollouts.rendering.video import check_path

_NUM_ENVS = 16


@dataclass(frozen=True, slots=True)
class Report:
    """The result, as it is printed, or shown as an object with --json."""

    checkpoint: str
    id: str
    env_options: dict[str, Any]
    env_steps: int  # steps of the training
    num_episodes: int
    num_envs: int
    deterministic: bool
    seed: int
    groups: dict[str, dict[str, Any]]  # one agent is a group without a name


def add_arguments(
    parser: argparse.ArgumentParser,
    *,
    positive_int: Callable[[str], int],
    option: Callable[[str], Any],
) -> None:
    """Adds the arguments of the command; the types are those of the other commands."""
    add = parser.add_argument
    add("run", type=Path, metavar="RUN",
        help="the directory of a run, a checkpoint, or a file of rollouts export")  # fmt: skip
    add("--episodes", type=positive_int, default=100, metavar="N", help="default: 100")
    add("--num-envs", type=positive_int, metavar="N",
        help=f"that play them; default: {_NUM_ENVS}, or the episodes if fewer")  # fmt: skip
    add("--seed", type=int, default=0, help="of environments and actions; default: 0")
    add("--deterministic", action="store_true",
        help="take the most likely action instead of drawing as in training")  # fmt: skip
    add("--option", action="append", default=[], type=option, metavar="KEY=VALUE",
        help="option of the environment, in place of the training's; repeatable")  # fmt: skip
    add_trust(parser)
    add("--record", type=Path, metavar="FILE", help="film one episode; ends in .mp4 or .gif")
    add("--json", action="store_true", help="print one JSON object, nothing else")


def run(args: argparse.Namespace) -> None:
    """Plays the episodes and prints their returns.

    Raises:
      SpecError, EngineError: There is no checkpoint or no program for it, options do not fit, or a
        package is missing.
    """
    if args.record is not None:
        check_path(args.record)  # errors are found before anything is played
    if is_exported(args.run):
        return _run_exported(args)
    checkpoint = load_checkpoint(args.run)
    options = options_of(checkpoint, args.run, dict(args.option))
    # before the environment is made, because the program may register its id
    program = load_program(checkpoint, args.run, network=args.network, trust=args.trust)
    num_envs = args.num_envs or min(_NUM_ENVS, args.episodes)
    found = _play(args, checkpoint, program, dict(options), num_envs)
    report = Report(
        str(args.run), checkpoint.id, options, checkpoint.env_steps, args.episodes, num_envs,
        args.deterministic, args.seed, _by_group(found),
    )  # fmt: skip
    print(json.dumps(asdict(report)) if args.json else _table(report))
    if args.record is not None:
        _film(args, checkpoint, quiet=args.json)


def _run_exported(args: argparse.Namespace) -> None:
    """Plays and reports episodes with a file of `rollouts export`, which describes how it acts."""
    from rollouts.exporting.exported_policy import ExportedPolicy

    if args.record is not None or args.network is not None:
        raise SpecError(
            f"{args.run} is an exported policy, expected neither --record nor --network: give the "
            "run that it was exported from, or leave them out"
        )
    policy = ExportedPolicy(args.run, seed=args.seed)
    about = policy.about
    if about.group:
        raise SpecError(
            f"{args.run} acts for the group {about.group!r} alone, expected a policy for every "
            "agent of an environment: evaluate the run that it was exported from"
        )
    takes_noise = any(one.name == "noise" for one in about.inputs)
    if takes_noise and args.deterministic:
        raise SpecError(
            f"{args.run} draws actions by noise: leave --deterministic out, or export the policy "
            "without --noise"
        )
    # as with checkpoints, a stranger's file must not choose files of this machine
    options = options_of(about, args.run, dict(args.option))
    num_envs = args.num_envs or min(_NUM_ENVS, args.episodes)
    with _pool(about.id, num_envs, args.seed, dict(options)) as env:
        found = {"": evaluate(env, policy, args.episodes)}
    report = Report(
        str(args.run), about.id, options, 0, args.episodes, num_envs, not takes_noise, args.seed,
        _by_group(found),
    )  # fmt: skip
    print(json.dumps(asdict(report)) if args.json else _table(report))


def _by_group(found: dict[str, Evaluation]) -> dict[str, dict[str, Any]]:
    return {
        name: {**one.summary(), "returns": one.returns.tolist(), "lengths": one.lengths.tolist()}
        for name, one in found.items()
    }


def _pool(id: str, num_envs: int, seed: int, options: dict[str, Any]) -> Any:
    """A pool whose episodes end.

    Raises:
      SpecError: The episodes have no time limit.
    """
    env: Any = make_pool(
        id,
        num_envs,
        seed=seed,
        autoreset_mode="same_step",
        max_episode_steps=options.pop("max_episode_steps", None),
        env_options=options,
    )
    if env.env_spec.max_episode_steps is None:
        env.close()
        raise SpecError(
            f"episodes of {id} have no time limit here and may never end: say with --option "
            "max_episode_steps=N how long they shall be at most"
        )
    return env


def _play(
    args: argparse.Namespace,
    checkpoint: Checkpoint,
    program: PolicyFile,
    options: dict[str, Any],
    num_envs: int,
) -> dict[str, Evaluation]:
    how: dict[str, Any] = {
        "program": program,
        "samples": not args.deterministic,
        "seed": args.seed,
        "num_envs": num_envs,
    }
    with _pool(checkpoint.id, num_envs, args.seed, options) as env:
        spec = env.env_spec
        if spec.groups:
            policies = {
                name: load_policy(checkpoint, args.run, spec, group=group, **how)
                for name, group in env.groups.items()
            }
            return evaluate_agents(env, policies, args.episodes)
        checkpoint.freeze_statistics(env)
        policy = load_policy(checkpoint, args.run, spec, **how)
        return {"": evaluate(env, policy, args.episodes)}


def _table(report: Report) -> str:
    how = "most likely actions" if report.deterministic else "drawn actions"
    trained = f" after {report.env_steps:,} env-steps of training" if report.env_steps else ""
    lines = [
        f"{report.checkpoint}: {report.id}{trained}; "
        f"{report.num_episodes} episodes in {report.num_envs} environments, {how}, seed "
        f"{report.seed}"
    ]
    for name, group in report.groups.items():
        for what, unit in (("return", ""), ("length", " steps")):
            found = group[what]
            lines.append(
                f"{f'{name}: ' if name else ''}{what} mean {found['mean']:.2f}  "
                f"std {found['std']:.2f}  min {found['min']:.2f}  max {found['max']:.2f}{unit}"
            )
    return "\n".join(lines)


def _film(args: argparse.Namespace, checkpoint: Checkpoint, *, quiet: bool) -> None:
    cli_record.record(
        argparse.Namespace(
            env_id=checkpoint.id,
            policy=str(args.run),
            network=args.network,
            trust=args.trust,
            sample=not args.deterministic,
            out=args.record,
            num_episodes=1,
            max_steps=None,
            fps=None,
            width=None,
            height=None,
            camera=None,
            option=args.option,
            seed=args.seed,
        ),
        quiet=quiet,
    )
