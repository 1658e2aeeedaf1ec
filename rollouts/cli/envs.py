# SPDX-License-Identifier: Apache-2.0
"""`rollouts envs`: lists environments, and explains their options."""

from __future__ import annotations

import json
import math
import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

from gymnasium import spaces

from rollouts.envs.make import make_vec
from rollouts.envs.physics.supported import PHYSICS_IDS
from rollouts.envs.registry import close_ids, env_ids, env_spec, multi_agent_ids
from rollouts.envs.unknown_option import did_you_mean
from rollouts.errors import EngineError, SpecError
from rollouts.families.table import family_of
from rollouts.own_env.registrations import HEADERS, env_source
from rollouts.specs import EnvSpec, OptionValue


def show(chosen: Sequence[str], text: str, *, as_json: bool) -> None:
    """Prints a table of ids, or all details of some.

    Args:
      chosen: Ids to describe; none: list all.
      text: Only ids that contain this text are shown.
      as_json: Whether to print a JSON array.

    Raises:
      SpecError: There is no such id.
    """
    ids = [one for one in chosen or [*env_ids(), *multi_agent_ids()] if text.lower() in one.lower()]
    if not ids:
        raise SpecError(
            f"no id has {text!r} in it.{did_you_mean(close_ids(text))} "
            "`rollouts envs` lists all of them"
        )
    missing: Counter[str] = Counter()  # numbers of ids whose engine is missing, by error
    if as_json:
        specs = [_try_spec(env_id, missing) for env_id in ids]
        print(json.dumps([_spec_to_json(spec) for spec in specs if spec is not None], indent=1))
    elif chosen:
        for env_id in ids:
            _describe(env_spec(env_id))
    else:
        _list(ids, missing)
    _report_missing(missing)


def _list(ids: Sequence[str], missing: Counter[str]) -> None:
    # printed row by row with fixed widths, because an Atari game must be loaded to know its actions
    width = max((len(env_id) for env_id in ids), default=2)
    line = f"{{:<{width}}}  {{:>9}}  {{:<27}}  {{}}"
    # output to a pipe has no width
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None

    def show(*cells: str) -> None:
        text = line.format(*cells).rstrip()
        if columns is not None and len(text) > columns:
            text = f"{text[: columns - 3]}..."
        print(text, flush=True)

    show("id", "max_steps", "action space", "observation space")
    family = None
    for env_id in ids:
        spec = _try_spec(env_id, missing)
        if spec is None:
            continue
        if (found := _family(spec.header)) != family:
            family = found
            print(f"\n{family}")
        limit = "none" if spec.max_episode_steps is None else str(spec.max_episode_steps)
        rows = [
            (f"{group.num_agents} {group.name}", group.single_action_space, group)
            for group in spec.groups
        ]
        if not rows:
            actions, obs = spec.single_action_space, spec.single_observation_space
            show(env_id, limit, space_text(actions), space_text(obs))
        # each group of agents has a row
        for index, (agents, actions, group) in enumerate(rows):
            obs = group.single_observation_space
            text = f"{agents}: {space_text(actions)}"
            named = (env_id, limit) if index == 0 else ("", "")
            show(*named, text, f"{agents}: {space_text(obs)}")


# folder of the headers -> heading; every other folder's heading is its name
_HEADINGS = {
    "atari": "Atari",
    "babyai": "BabyAI",
    "box2d": "Box2D",
    "classic": "Classic control",
    "dm_control": "DeepMind Control Suite",
    "minigrid": "MiniGrid",
    "mpe": "MPE2, several agents",
    "mujoco": "MuJoCo",
    "multi_agent": "Several agents",
    "toy_text": "Toy text",
    "vizdoom": "ViZDoom",
}


def _family(header: str) -> str:
    folder = "own" if header.startswith(HEADERS) else header.split("/")[-2]
    return _HEADINGS.get(folder, "Your own" if folder == "own" else folder)


def _describe(spec: EnvSpec) -> None:
    limit = "none" if spec.max_episode_steps is None else f"{spec.max_episode_steps:,} steps"
    threshold = "not defined" if spec.reward_threshold is None else f"{spec.reward_threshold:g}"
    print(spec.id)
    for group in spec.groups:
        print(
            f"  {group.num_agents} agents of group {group.name!r}\n"
            f"    observation space  {space_text(group.single_observation_space)}\n"
            f"    action space       {space_text(group.single_action_space)}"
        )
    if not spec.groups:
        print(
            f"  observation space  {space_text(spec.single_observation_space)}\n"
            f"  action space       {space_text(spec.single_action_space)}"
        )
    print(
        f"  time limit         {limit}\n"
        f"  reward threshold   {threshold}\n"
        f"  runs on            {_devices(spec)}\n"
        f"  rules              {_rules(spec)}"
    )
    if family_of(spec.header).drawer == "mujoco":
        print(f"  stepped by         {_engine(spec)}")
    help_of = spec.option_help
    rows = [(name, str(value), help_of[name]) for name, value in spec.options.items()]
    if not rows:
        print("  no options")
        return
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    print("  options of make_vec, with their defaults:")
    for name, value, meaning in rows:
        print(f"    {name:<{widths[0]}}  {value:<{widths[1]}}  {meaning}")


def _devices(spec: EnvSpec) -> str:
    if spec.id in PHYSICS_IDS:
        return "the CPU, a GPU (extra mujoco-warp)"
    return "the CPU, a GPU" if spec.runs_on_gpu else "the CPU"


def _engine(spec: EnvSpec) -> str:
    """The engine that steps an environment with default options."""
    with make_vec(spec.id, 1, num_threads=1) as env:
        return f"mujoco, for {env.why_not_lanes}" if env.why_not_lanes else f"{env.mujoco_engine}"


def _rules(spec: EnvSpec) -> str:
    own = env_source(spec.id).files if spec.header.startswith(HEADERS) else None
    return f"rollouts/include/rollouts/{spec.header}" if own is None else f"{own.folder}/{own.name}"


def _try_spec(id: str, missing: Counter[str]) -> EnvSpec | None:
    """The spec, or None if the engine is missing, which is counted by the error's message."""
    try:
        return env_spec(id)
    except EngineError as error:
        missing[str(error)] += 1
        return None


def _report_missing(missing: Counter[str]) -> None:
    for reason, count in missing.items():
        print(f"{count} more of these ids are not described: {reason}", file=sys.stderr)


def space_text(space: spaces.Space[Any]) -> str:
    """A short text for a space; with bounds only if all elements share them."""
    if not isinstance(space, spaces.Box):
        return str(space)
    text = f"Box {space.shape} {space.dtype}"
    low, high = space.low.flat[0], space.high.flat[0]
    if (space.low == low).all() and (space.high == high).all():
        text += f" in [{low:g}, {high:g}]"
    return text


def _spec_to_json(spec: EnvSpec) -> dict[str, Any]:
    return {
        "id": spec.id,
        "observation_space": _space_to_json(spec.single_observation_space),
        "action_space": _space_to_json(spec.single_action_space),
        "groups": [
            {
                "name": group.name,
                "num_agents": group.num_agents,
                "observation_space": _space_to_json(group.single_observation_space),
                "action_space": _space_to_json(group.single_action_space),
            }
            for group in spec.groups
        ],
        "max_episode_steps": spec.max_episode_steps,
        "reward_threshold": spec.reward_threshold,
        "options": {name: _option_to_json(value) for name, value in spec.options.items()},
        "option_help": spec.option_help,
        "cpu_only": spec.cpu_only,
        "runs_on_gpu": spec.runs_on_gpu or spec.id in PHYSICS_IDS,
    }


def _option_to_json(value: OptionValue) -> OptionValue:
    # JSON has no infinity, so it becomes a text
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _space_to_json(space: spaces.Space[Any]) -> dict[str, Any]:
    # JSON has no infinity, so bounds are shown in a text
    result = {
        "type": type(space).__name__,
        "shape": list(space.shape or ()),
        "dtype": str(space.dtype),
        "text": " ".join(str(space).split()),
    }
    return result | ({"n": int(space.n)} if isinstance(space, spaces.Discrete) else {})
