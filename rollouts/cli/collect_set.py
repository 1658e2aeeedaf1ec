# SPDX-License-Identifier: Apache-2.0
"""`rollouts collect`: a data set of a policy's whole episodes.

The set has the environment's unscaled observations and rewards. A network that was trained with
scaled observations gets them scaled by the statistics of its checkpoint.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from rollouts.checkpoint import Checkpoint
from rollouts.cli.checkpoint_policy import load_policy, read_policy
from rollouts.cli.checkpoint_program import PolicyFile, add_trust, load_program, options_of
from rollouts.collecting.collector import Collector
from rollouts.datasets.recorder import Recorder
from rollouts.envs.make import make_pool
from rollouts.envs.registry import env_spec
from rollouts.envs.wrappers import OF_TRAINING, read_wrappers
from rollouts.errors import SpecError
from rollouts.policies.uniform import UniformPolicy
from rollouts.workers.worker_config import CollectOptions

RANDOM = "random"
_ROLLOUT_LENGTH = 128
_COUNTED = ("normalize_observation", "normalize_reward")  # options that use running statistics


def add_arguments(
    parser: argparse.ArgumentParser,
    *,
    positive_int: Callable[[str], int],
    option: Callable[[str], Any],
) -> None:
    """Adds the arguments of the command; the types are those of the other commands."""
    add = parser.add_argument
    add("--env-id", metavar="ID", help="default: what the checkpoint was trained in")
    add("--policy", default=RANDOM, metavar="random|RUN",
        help="random actions, or a run's directory or checkpoint; default: random")  # fmt: skip
    add_trust(parser)
    add("--deterministic", action="store_true",
        help="take the most likely action instead of drawing as in training")  # fmt: skip
    much = parser.add_mutually_exclusive_group(required=True)
    much.add_argument("--episodes", type=positive_int, metavar="N",
        help="as many in each environment, whatever their length")  # fmt: skip
    much.add_argument("--steps", type=positive_int, metavar="N", help="of whole episodes, at least")
    add("--to", required=True, metavar="TO",
        help="minari:NAME-v0, FOLDER.parquet or FILE.hdf5")  # fmt: skip
    add("--info", action="append", default=[], metavar="NAME",
        help="kept of each step: log_prob, value or policy_version; repeatable")  # fmt: skip
    add("--states", action="store_true", help="keep saved states as episodes begin")
    add("--num-envs", type=positive_int, default=16, metavar="N", help="of a worker; default: 16")
    add("--num-workers", type=positive_int, metavar="K",
        help="processes of Ray that collect; default: none, this process does")  # fmt: skip
    add("--compression", choices=["auto", "gzip", "none"], default="auto", help="of frames")
    add("--if-full", choices=["stop", "drop"], default="stop",
        help="what a full disk does: stop, or drop episodes and go on; default: stop")  # fmt: skip
    add("--option", action="append", default=[], type=option, metavar="KEY=VALUE",
        help="option of the environment, in place of the training's; repeatable")  # fmt: skip
    add("--seed", type=int, default=0, help="of environments and actions; default: 0")


def run(args: argparse.Namespace) -> None:
    """Collects, writes the set and prints what is in it.

    Raises:
      SpecError, EngineError, FileError: No checkpoint, a set that is there already, no room.
    """
    played = _played(args)
    start_s = time.perf_counter()
    with _source(args, played) as source, _recorder(args, source) as recorder:
        recorder.record(num_steps=args.steps, num_episodes=args.episodes)
    took_s = time.perf_counter() - start_s
    told = recorder.stats()
    for name, path in recorder.paths.items():
        print(f"{f'{name}: ' if name else ''}{path}")
    print(
        f"{told['num_episodes']:,} episodes, {told['num_steps']:,} steps of {played.id} in "
        f"{took_s:.1f} s"
        + (f"; {told['num_dropped']:,} had no room" if told["num_dropped"] else "")
    )


@dataclass(frozen=True, slots=True)
class _Played:
    """The policy that acts, and its environment: from a checkpoint, or random.

    Attributes:
      scale: Epsilon and limit with which the policy scales observations; None: it takes them
        unscaled.
    """

    id: str
    options: dict[str, Any]
    path: Path
    checkpoint: Checkpoint | None = None
    program: PolicyFile | None = None
    scale: tuple[float, float] | None = None


def _played(args: argparse.Namespace) -> _Played:
    path = Path(args.policy)
    if args.policy == RANDOM:
        if args.env_id is None:
            raise SpecError(
                "random actions need an environment: give --env-id ID, or --policy RUN, which says "
                "what it was trained in"
            )
        return _Played(args.env_id, dict(args.option), path)
    checkpoint = read_policy(path, args.env_id)
    given = dict(args.option)
    options = options_of(checkpoint, path, given)
    options = {k: v for k, v in options.items() if k in given or k not in OF_TRAINING}
    scale = None
    if "observation" in checkpoint.statistics and "normalize_observation" not in given:
        wanted = options.pop("normalize_observation", True)
        scale = read_wrappers({"normalize_observation": wanted}).normalize_observation
    # before the environment is made, because the program may register its id
    program = load_program(checkpoint, path, network=args.network, trust=args.trust)
    return _Played(checkpoint.id, options, path, checkpoint, program, scale)


def _recorder(args: argparse.Namespace, source: Any) -> Recorder:
    return Recorder(
        source, args.to, infos=args.info, states=args.states, compression=args.compression,
        if_full=args.if_full,
    )  # fmt: skip


def _source(args: argparse.Namespace, played: _Played) -> Any:
    if args.num_workers is not None:
        return _coordinator(args, played)
    options = dict(played.options)
    env: Any = make_pool(
        played.id, args.num_envs, seed=args.seed, autoreset_mode="same_step",
        max_episode_steps=options.pop("max_episode_steps", None), env_options=options,
    )  # fmt: skip
    try:
        groups = getattr(env, "groups", None)
        if played.checkpoint is not None and not groups:
            kept = {k: v for k, v in played.checkpoint.statistics.items() if k in env.normalizes}
            replace(played.checkpoint, statistics=kept).freeze_statistics(env)
        make = partial(_policy, played, env.env_spec, args.seed, args.num_envs, args.deterministic)
        policy = {name: make(group) for name, group in groups.items()} if groups else make(None)
        return _Closing(env, policy, _ROLLOUT_LENGTH, keep_final_obs=True)
    except BaseException:
        env.close()
        raise


class _Closing:
    """A Collector for a `with` block."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._collector: Any = Collector(*args, **options)

    def __enter__(self) -> Any:
        return self._collector

    def __exit__(self, *exc_info: object) -> None:
        self._collector.close()


def _policy(
    played: _Played, spec: Any, seed: int, num_envs: int, deterministic: bool, group: Any
) -> Any:
    if played.checkpoint is None:
        return UniformPolicy((group or spec).single_action_space, seed)
    assert played.program is not None
    policy = load_policy(
        played.checkpoint, played.path, spec, program=played.program, samples=not deterministic,
        seed=seed, num_envs=num_envs, group=group,
    )  # fmt: skip
    return policy if played.scale is None else _scaling(policy, played)


def _scaling(policy: Any, played: _Played) -> Any:
    """Makes a policy scale its observations; returns it.

    Raises:
      SpecError: It is of a user's class, whose network is not known.
    """
    from rollouts.policies.normalized import NormalizedModule

    assert played.checkpoint is not None and played.scale is not None
    if not hasattr(policy, "module"):
        raise SpecError(
            f"{played.path} was trained with normalize_observation, and its policy is a "
            f"{type(policy).__name__} without an attribute `module` that could scale for it: add "
            "--option normalize_observation=true, which records scaled observations"
        )
    epsilon, limit = played.scale
    mean, deviation = played.checkpoint.statistics["observation"].scale(epsilon)
    policy.module = NormalizedModule(policy.module, mean, deviation, limit)
    return policy


def _make_worker_policy(played: _Played, deterministic: bool, asked: Any) -> Any:
    """Makes a worker's policy, from its PolicySpec."""
    spec = env_spec(played.id, **played.options)
    group = next((one for one in spec.groups if one.name == asked.group), None)
    return _policy(played, spec, asked.seed, asked.num_envs, deterministic, group)


def _coordinator(args: argparse.Namespace, played: _Played) -> Any:
    from rollouts.workers.on_ray.coordinator import RolloutCoordinator

    scaled = [name for name in _COUNTED if played.options.get(name)]
    if played.checkpoint is not None and scaled:
        raise SpecError(
            f"--num-workers with {scaled[0]} of a run: each worker would count statistics of its "
            "own in place of the checkpoint's; leave --num-workers out, or that option, without "
            "which the set has the environment's own data"
        )
    make = partial(_make_worker_policy, played, args.deterministic)
    coordinator: Any = RolloutCoordinator(
        played.id, make,
        num_workers=args.num_workers, num_envs_per_worker=args.num_envs,
        rollout_length=_ROLLOUT_LENGTH, seed=args.seed, env_options=played.options,
        collect=CollectOptions(keep_final_obs=True),
    )  # fmt: skip
    # each worker's policy also reads its weights from the checkpoint
    spec = env_spec(played.id, **played.options)
    weights: dict[str, Any] = {}
    for group in spec.groups or [None]:
        policy = _policy(played, spec, args.seed, args.num_envs, args.deterministic, group)
        weights[group.name if group else ""] = getattr(policy, "weights", dict)()
    coordinator.publish_weights(weights if spec.groups else weights[""])
    return coordinator
