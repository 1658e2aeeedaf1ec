# SPDX-License-Identifier: Apache-2.0
"""`rollouts export`: the policy of a checkpoint as a file that needs no `rollouts`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rollouts.checkpoint import load_checkpoint
from rollouts.cli.checkpoint_policy import load_policy
from rollouts.cli.checkpoint_program import add_trust, load_program, options_of
from rollouts.envs.make import make_pool
from rollouts.errors import SpecError


def add_arguments(parser: argparse.ArgumentParser, *, option: Callable[[str], Any]) -> None:
    """Adds the arguments of the command."""
    add = parser.add_argument
    add("run", type=Path, metavar="RUN", help="the directory of a run, or a checkpoint")
    add("--to", type=Path, required=True, metavar="FILE",
        help="file to write: .onnx, .pt2 (torch.export), .pt (TorchScript) or .h (C)")  # fmt: skip
    add("--noise", action="store_true",
        help="let the file take noise, by which it draws actions as in training")  # fmt: skip
    add("--action-mask", action="store_true", help="let the file take masks of actions")
    add(
        "--group",
        metavar="NAME",
        help="group of agents whose policy it is, where there are several",
    )
    add("--option", action="append", default=[], type=option, metavar="KEY=VALUE",
        help="option of the environment, in place of the training's; repeatable")  # fmt: skip
    add_trust(parser)


def run(args: argparse.Namespace) -> None:
    """Writes the file and prints its inputs and outputs.

    Raises:
      SpecError, EngineError, FileError: No checkpoint, a policy that cannot be exported, a package
        that is missing, or no room.
    """
    from rollouts.exporting.writing import export

    checkpoint = load_checkpoint(args.run)
    options = options_of(checkpoint, args.run, dict(args.option))
    program = load_program(checkpoint, args.run, network=args.network, trust=args.trust)
    limit = options.pop("max_episode_steps", None)
    env: Any = make_pool(
        checkpoint.id, 1, seed=0, autoreset_mode="same_step", max_episode_steps=limit,
        env_options=options,
    )  # fmt: skip
    with env:
        groups = getattr(env, "groups", None) or {}
        if bool(groups) != (args.group is not None) or args.group not in (None, *groups):
            known = ", ".join(groups) or "leave it out, there is one agent"
            raise SpecError(f"--group is {args.group}, expected for {checkpoint.id}: {known}")
        if not groups:
            checkpoint.freeze_statistics(env)
        policy = load_policy(
            checkpoint, args.run, env.env_spec, program=program, samples=True, seed=0, num_envs=1,
            group=groups.get(args.group),
        )  # fmt: skip
        about = export(
            policy, args.to, env, noise=args.noise, action_mask=args.action_mask, group=args.group
        )
    size = args.to.stat().st_size
    print(f"{args.to}: the policy of {about.id}, {size / 1024:,.0f} KiB")
    for kind, ports in (("takes", about.inputs), ("gives", about.outputs)):
        for port in ports:
            shape = ", ".join(["B", *map(str, port.shape)])
            print(f"  {kind} {port.name} ({shape}) {port.dtype}: {port.meaning}")
