# SPDX-License-Identifier: Apache-2.0
"""`rollouts record`: writes a video of a policy's episode."""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rollouts.checkpoint import Checkpoint
from rollouts.cli.bench import show_progress
from rollouts.cli.checkpoint_policy import load_policy, read_policy
from rollouts.cli.checkpoint_program import PolicyFile, add_trust, load_program, options_of
from rollouts.cli.record_actors import (
    Actor,
    PolicyActor,
    PolicyAgents,
    RandomActor,
    RandomAgents,
)
from rollouts.envs.make import make_pool
from rollouts.envs.multi_agent_env import MultiAgentVectorEnv
from rollouts.envs.vector_env import VectorEnv
from rollouts.errors import SpecError
from rollouts.rendering.video import VideoWriter, check_path

RANDOM = "random"


@dataclass(frozen=True, slots=True)
class FilmedEpisode:
    """The result of a recorded episode.

    Attributes:
      steps: Length of the episode.
      returned: Its return; with several agents, the mean of each group.
      ending: The reason for its end.
    """

    steps: int
    returned: str
    ending: str


def add_arguments(
    parser: argparse.ArgumentParser,
    *,
    positive_int: Callable[[str], int],
    positive_float: Callable[[str], float],
    option: Callable[[str], Any],
) -> None:
    """Adds the arguments of the command; the types are those of the other commands."""
    add = parser.add_argument
    add("--env-id", metavar="ID",
        help="of MuJoCo, Box2D, Atari, ViZDoom, MiniGrid, BabyAI, classic control or several "
             "agents; default: what the checkpoint was trained in")  # fmt: skip
    add("--policy", default=RANDOM, metavar="random|CHECKPOINT",
        help="random actions, or a checkpoint of an example, its run's directory, or a file with "
        "the state_dict of a policy's module; default: random")  # fmt: skip
    add_trust(parser)
    add("--sample", action="store_true",
        help="draw actions as in training instead of taking the most likely one")  # fmt: skip
    add("--out", type=Path, required=True, metavar="FILE", help="ends in .mp4 or .gif")
    add("--num-episodes", type=positive_int, default=1, metavar="N", help="default: 1")
    add("--max-steps", type=positive_int, metavar="N",
        help="of an episode; default: the environment's limit")  # fmt: skip
    add("--fps", type=positive_float, metavar="F",
        help="frames per second; default: as fast as the environment's time passes")  # fmt: skip
    for side in ("--width", "--height"):
        add(side, type=positive_int, metavar="PIXELS", help="of MuJoCo and Tag; default: 480")
    add("--camera", metavar="NAME|NUMBER",
        help="of the MuJoCo model, -1 is the free one; default: track if there is one")  # fmt: skip
    add("--option", action="append", default=[], type=option, metavar="KEY=VALUE",
        help="option of the environment, such as frameskip=4; repeat for several")  # fmt: skip
    add("--seed", type=int, default=0, help="of the environment and the policy; default: 0")


def record(args: argparse.Namespace, *, quiet: bool = False) -> None:
    """Plays, writes the video and, unless `quiet`, prints the result.

    Raises:
      SpecError, EngineError: Unknown id, nothing can be written or drawn, a checkpoint of
        another network, or a package is missing.
    """
    # errors are found before anything is loaded
    check_path(args.out)
    policy, options = _policy(args), _options(args)
    env_id = args.env_id
    if policy is not None:
        env_id, options = policy.checkpoint.id, policy.options
    with make_pool(
        env_id,
        1,
        num_threads=1,
        seed=args.seed,
        autoreset_mode="disabled",
        max_episode_steps=options.pop("max_episode_steps", None),
        render_mode="rgb_array",
        env_options=options,
    ) as env:
        if args.max_steps is None and env.env_spec.max_episode_steps is None:
            raise SpecError(
                f"episodes of {env_id} have no time limit here and may never end: "
                "say with --max-steps how long they shall be"
            )
        pace = args.fps or env.metadata["render_fps"]
        actor = _actor(args, env, policy)
        with VideoWriter(args.out, pace) as video, _progress() as show:
            episodes = []
            for number in range(1, args.num_episodes + 1):
                head = f"episode {number}/{args.num_episodes}"
                episodes.append(_play(env, actor, video, args.max_steps, head, show))
    if not quiet:
        _report(video, episodes)


def _options(args: argparse.Namespace) -> dict[str, Any]:
    options = dict(args.option)
    for name in ("width", "height"):
        if getattr(args, name) is not None:
            options[name] = getattr(args, name)
    if args.camera is not None:
        is_number = args.camera.removeprefix("-").isdecimal()
        options["camera_id" if is_number else "camera_name"] = (
            int(args.camera) if is_number else args.camera
        )
    return options


@dataclass(frozen=True, slots=True)
class _Policy:
    checkpoint: Checkpoint
    program: PolicyFile
    options: dict[str, Any]  # the environment's


def _policy(args: argparse.Namespace) -> _Policy | None:
    """Reads the policy that acts; None: actions are random."""
    if args.policy == RANDOM:
        if args.env_id is None:
            raise SpecError(
                "random actions need an environment: give --env-id ID, or --policy CHECKPOINT, "
                "which says what it was trained in"
            )
        return None
    path = Path(args.policy)
    checkpoint = read_policy(path, args.env_id)
    options = options_of(checkpoint, path, _options(args))
    # before the environment is made, because the program may register its id
    program = load_program(checkpoint, path, network=args.network, trust=args.trust)
    return _Policy(checkpoint, program, options)


def _actor(args: argparse.Namespace, env: Any, policy: _Policy | None) -> Any:
    groups = getattr(env, "groups", None)
    if policy is None:
        if groups:
            return RandomAgents(env.action_space, args.seed)
        return RandomActor(env.single_action_space, args.seed)
    make = functools.partial(
        load_policy,
        policy.checkpoint,
        Path(args.policy),
        env.env_spec,
        program=policy.program,
        samples=args.sample,
        seed=args.seed,
        num_envs=1,
    )
    if groups:
        return PolicyAgents({name: make(group=group) for name, group in groups.items()})
    policy.checkpoint.freeze_statistics(env)
    return PolicyActor(make(), env.single_action_space)


def _play(
    env: VectorEnv | MultiAgentVectorEnv,
    actor: Actor,
    video: VideoWriter,
    max_steps: int | None,
    head: str,
    show: Callable[[str], None],
) -> FilmedEpisode:
    """Plays one episode; a frame for every observation."""
    obs, _ = env.reset()
    video.write(env.render()[0])
    steps, returned, ending = 0, "", ""
    while not ending:
        step: Any = env.step(actor.act(obs, steps == 0))
        obs, info = step[0], step[4]
        video.write(env.render()[0])
        steps, returned = steps + 1, _returned(info["episode_return"])
        show(f"{head}, {steps:,} steps, return {returned}")
        ending = _ending(step)
        if not ending and steps == max_steps:
            ending = "stopped by --max-steps"
    return FilmedEpisode(steps, returned, ending)


def _returned(returns: Any) -> str:
    if isinstance(returns, Mapping):
        return ", ".join(f"{name} {_returned(each)}" for name, each in returns.items())
    return f"{returns[0].mean():.2f}"


def _ending(step: Any) -> str:
    """The reason why the episode ended with a step; empty if it did not."""
    _, _, terminated, truncated, info = step
    # an episode does not end when one agent leaves
    ended = info["ended"] if "ended" in info else terminated | truncated
    if not ended[0]:
        return ""
    groups = truncated if isinstance(truncated, Mapping) else {"": truncated}
    left = terminated if isinstance(terminated, Mapping) else {"": terminated}
    cut = any((groups[name] & ~left[name]).any() for name in groups)
    return "truncated" if cut else "terminated"


def _report(video: VideoWriter, episodes: list[FilmedEpisode]) -> None:
    assert video.size is not None
    height, width = video.size
    for number, episode in enumerate(episodes, start=1):
        print(
            f"episode {number}: return {episode.returned}, {episode.steps:,} steps, "
            f"{episode.ending}"
        )
    print(
        f"{video.path}: {video.num_frames:,} frames of {width} x {height} pixels at "
        f"{video.frames_per_s:g} frames/s, {video.path.stat().st_size:,} bytes"
    )


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """Yields a function that shows the recording's progress on a terminal."""
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    try:
        yield show_progress
    finally:
        show_progress("")
