# SPDX-License-Identifier: Apache-2.0
"""`rollouts check-env`: whether a user's own environment keeps the rules that a pool relies on."""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from rollouts.cli.check_kernel import check_kernel
from rollouts.cli.check_rows import check_rows
from rollouts.cli.env_trials import (
    Located,
    Trials,
    check_equal,
    differ,
    find_not_finite,
    located,
)
from rollouts.envs.register import register_env
from rollouts.envs.registry import env_spec
from rollouts.errors import EnvError, SpecError
from rollouts.own_env.header_files import HeaderFiles, read_header
from rollouts.specs import OptionValue

_STRUCT = re.compile(
    r"^(?:namespace (?P<space>[\w:]+) \{|struct (?P<name>\w+)[^;{]*\{)", flags=re.MULTILINE
)
ENV_ID = "checked-v0"
NUM_ENVS = 70  # more than one block of environments that vector instructions step


def add_arguments(
    parser: argparse.ArgumentParser,
    *,
    positive_int: Callable[[str], int],
    option: Callable[[str], tuple[str, OptionValue]],
) -> None:
    """Adds the arguments of the command; `positive_int` and `option` parse their texts."""
    add = parser.add_argument
    add("header", type=Path, metavar="FILE.h")
    add("--type", metavar="TYPE", help="the struct in it; default: the one there is")
    add("--option", action="append", default=[], type=option, metavar="KEY=VALUE",
        help="option of the environment; repeat for several")  # fmt: skip
    add("--steps", type=positive_int, default=200, metavar="N",
        help="actions that each environment gets in a check; default: 200")  # fmt: skip
    add("--max-episode-steps", type=positive_int, metavar="M", help="time limit; default: none")
    add("--seed", type=int, default=1, help="default: 1")


def check(args: argparse.Namespace) -> bool:
    """Compiles and tries an environment, and prints a line for each check.

    Args:
      args: The arguments of `add_arguments`.

    Returns:
      Whether all checks were passed.

    Raises:
      SpecError: It does not compile, or options do not fit. EngineError: no compiler.
    """
    files = read_header(args.header)
    env_type = args.type or find_type(files)
    began = time.perf_counter()
    register_env(ENV_ID, header=files, type=env_type, max_episode_steps=args.max_episode_steps)
    print(f"ok    contract: {env_type} compiles ({time.perf_counter() - began:.1f} s)")
    print(f"      for {NUM_ENVS} environments, {args.steps} steps and seed {args.seed}")
    trials = Trials(ENV_ID, dict(args.option), num_envs=NUM_ENVS, steps=args.steps, seed=args.seed)
    passed = True
    for name, one in CHECKS.items():
        try:
            print(f"ok    {name}: {one(trials)}")
        except (SpecError, EnvError) as error:
            passed = False
            print(f"FAIL  {name}: {_place(files, error)}{error}")
            if one is check_rows:
                print("      the rest is not tried: what it found would follow from this")
                break
    return passed


def find_type(files: HeaderFiles) -> str:
    """The environment's type: the only struct of the header, or the one with the file's name.

    Raises:
      SpecError: There are several structs.
    """
    space, names = "", []
    for found in _STRUCT.finditer(files.files[files.name]):
        if found["space"]:
            space = "" if found["space"] == "rollouts" else f"{found['space']}::"
        else:
            names.append(f"{space}{found['name']}")
    stem = "".join(re.split(r"[^a-z0-9]+", Path(files.name).stem.lower()))
    fitting = [one for one in names if one.split("::")[-1].lower() == stem]
    if len(names) == 1 or len(fitting) == 1:
        return (fitting or names)[0]
    raise SpecError(f"which type of {files.name} is the environment? say --type, one of {names}")


def _numbers(trials: Trials) -> str:
    """Checks that numbers are finite, and observations in their space."""
    with trials.pool() as env:
        obs, _ = env.reset()
        for step in range(trials.steps + 1):
            if obs not in env.observation_space:
                _complain(env.observation_space, obs, f"after step {step}")
            if step == trials.steps:
                break
            (found,) = trials.play(env, 1, first=step)
            name, sentence = find_not_finite(found)
            if name:
                raise located(
                    "Observe" if name.startswith("obs") else "Step", f"{sentence} in step {step}"
                )
            obs = _obs_of(found)
    return (
        f"observations are in their space and rewards finite in {trials.steps} steps of {NUM_ENVS}"
    )


def _obs_of(step: dict[str, Any]) -> Any:
    parts = {name: array for name, array in step.items() if name.startswith("observation")}
    if list(parts) == ["observation"]:
        return parts["observation"]
    return {name.removeprefix("observation of "): array for name, array in parts.items()}


def _complain(space: Any, obs: Any, when: str) -> None:
    """Raises SpecError that names an element outside its bounds."""
    if isinstance(obs, dict):
        for group, array in obs.items():
            if array not in space[group]:
                _complain(space[group], array, f"of {group} {when}")
    low, high = getattr(space, "low", 0), getattr(space, "high", None)
    high = getattr(space, "nvec", 1) - 1 if high is None else high
    outside = ~((obs >= low) & (obs <= high))
    place = tuple(int(i) for i in np.argwhere(outside)[0])
    raise located(
        "Observe",
        f"observation{list(place[1:])} of env_id {place[0]} {when} is {obs[place]}, beyond "
        f"[{np.broadcast_to(low, obs.shape)[place]}, {np.broadcast_to(high, obs.shape)[place]}] "
        "of its space",
    )


def _threads_and_batches(trials: Trials) -> str:
    """Checks that data do not depend on threads and batch sizes."""
    expected = trials.begun_and_played()
    rule = (
        "an environment is a function of its state, options, action and Rng alone: no static or "
        "global variables, nothing that Reset or a constructor leaves as it was"
    )
    for num_threads in (2, 3):
        check_equal(differ(expected, trials.begun_and_played(num_threads=num_threads)), rule)
    few = trials.begun_and_played(7, env_id_offset=5)
    check_equal(differ(expected, few, slice(5, 12)), rule)
    for batch_size in (1, 9):
        check_equal(differ(expected, trials.received(batch_size, 2)), rule)
    return "the same with 1, 2 and 3 threads, batches of 1 and 9, and in a smaller pool"


def _resets(trials: Trials) -> str:
    """Checks that a reset leaves nothing of the previous state."""
    with trials.pool() as env:
        first, _ = env.reset()
        first = {"observation": first} if not isinstance(first, dict) else first
        played = [{name: np.array(array) for name, array in first.items()}, *trials.play(env)]
        again, _ = env.reset(seed=trials.seed)
        again = {"observation": again} if not isinstance(again, dict) else again
        replayed = [{name: np.array(array) for name, array in again.items()}, *trials.play(env)]
    rule = "Reset must write all of the state (agents' arrays begin as zeros)"
    found = differ(played, replayed)
    if found:
        raise located("Reset", f"{found} in episodes of one seed; {rule}")
    return "an episode is the same whatever was before it"


def _states(trials: Trials) -> str:
    """Checks that the future depends only on saved states and actions."""
    half = trials.steps // 2
    rule = "all that the future depends on must be in State, or in World and Agents"
    with trials.pool() as env, trials.pool() as other:
        env.reset()
        trials.play(env, half)
        saved = env.get_state()
        rest = trials.play(env, first=half)
        env.set_state(None, saved)
        check_equal(differ(rest, trials.play(env, first=half)), rule)
        other.reset(seed=trials.seed + 1)
        other.set_state(None, saved)
        check_equal(differ(rest, trials.play(other, first=half)), rule)
        num_bytes = len(saved[0])
    return f"it goes on as it would have, in another pool too ({num_bytes} bytes)"


def _options(trials: Trials) -> str:
    """Checks that options are read under the names that are shown."""
    spec = env_spec(ENV_ID, **trials.options)
    expected = trials.begun_and_played()
    rule = "VisitConfig must visit each field of Config once, under one name"
    for name, value in spec.options.items():
        changed: dict[str, Any] = {name: value}
        check_equal(differ(expected, trials.begun_and_played(**changed)), f"option {name}: {rule}")
        if not spec.groups:
            changed = {name: [value] * NUM_ENVS}
            check_equal(differ(expected, trials.begun_and_played(**changed)), f"{name}: {rule}")
    silent = [name for name, text in spec.option_help.items() if not text]
    unsaid = f"; the header has no comment beside {', '.join(silent)}" if silent else ""
    return f"{len(spec.options)} of them{unsaid}"


def _episodes(trials: Trials) -> str:
    """Returns the lengths of the episodes."""
    spec = env_spec(ENV_ID, **trials.options)
    limit = spec.max_episode_steps
    lengths: list[int] = []
    with trials.pool(autoreset_mode="same_step") as env:
        env.reset()
        for action in trials.actions:
            _, _, terminated, truncated, info = env.step(action)
            ended = info["ended"] if spec.groups else terminated | truncated
            lengths += info["episode_length"][ended].tolist()
    if lengths:
        return f"{len(lengths)} ended, after {np.mean(lengths):.1f} steps on average"
    return f"none ended in {trials.steps} steps of random actions" + (
        "" if limit else ", and there is no max_episode_steps"
    )


def _speed(trials: Trials) -> str:
    """Measures the speed, roughly."""
    num_envs = 256
    with trials.pool(num_envs) as env:
        env.reset()
        env.action_space.seed(1)
        actions = [env.action_space.sample() for _ in range(8)]
        best = float("inf")
        for _ in range(5):
            began = time.perf_counter()
            for action in actions:
                env.step(action)
            best = min(best, (time.perf_counter() - began) / (len(actions) * num_envs))
        declared = env_spec(ENV_ID, **trials.options)
    return (
        f"{best * 1e9:.0f} ns per step and environment of {declared.id!r} in a pool of {num_envs} "
        "on one thread; step_cost_ns should be near that"
    )


# in the order of their runs; a check returns its finding, or raises SpecError
CHECKS: dict[str, Callable[[Trials], str]] = {
    "rows": check_rows,
    "numbers": _numbers,
    "determinism": _threads_and_batches,
    "resets": _resets,
    "states": _states,
    "kernel": check_kernel,
    "options": _options,
    "episodes": _episodes,
    "speed": _speed,
}


def _place(files: HeaderFiles, error: Exception) -> str:
    """The place "file:line: " of the function in an error; "" if the error names none."""
    if not isinstance(error, Located):
        return ""
    begins = re.compile(rf"\bstatic\b.*\b{error.function}\(")
    for number, line in enumerate(files.files[files.name].splitlines(), 1):
        if begins.search(line):
            return f"{Path(files.folder) / files.name}:{number}: "
    return ""
