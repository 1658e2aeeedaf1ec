# SPDX-License-Identifier: Apache-2.0
"""EnvPool's ids and options, translated to ours."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rollouts import env_ids, env_spec
from rollouts.checks import flag, whole_number
from rollouts.envs.registry import close_ids
from rollouts.envs.unknown_option import did_you_mean
from rollouts.errors import SpecError
from rollouts.machine.cpu_count import usable_cpus

PREFIX = "ALE/"
NO_LIMIT = 2**31 - 1  # max_episode_steps in EnvPool of episodes without a time limit
OLD_ALIASES = {"CliffWalking-v0": "CliffWalking-v1"}

# EnvPool's name -> ours; options that are not listed have the same name
_ATARI_NAMES = {
    "frame_skip": "frameskip",
    "gray_scale": "grayscale",
    "reward_clip": "reward_clipping",
}
# EnvPool's defaults that differ from ours
_ATARI_DEFAULTS = {"repeat_action_probability": 0.0, "reward_clip": False}
# our options that EnvPool lacks
_NOT_IN_ENVPOOL = {"maxpool", "life_loss_info", "ram_info", "engine", "obs_type"}
_NOT_IN_ENVPOOL |= {"continuous", "continuous_action_threshold"}

_COMMON: dict[str, Any] = {
    "num_envs": 1,
    "batch_size": 0,
    "num_threads": 0,
    "max_num_players": 1,
    "thread_affinity_offset": -1,
    "base_path": "",
    "seed": 42,
    "env_seed": (),
    "gym_reset_return_info": True,
    "max_episode_steps": NO_LIMIT,
    "reward_threshold": None,
}
# keywords of EnvPool's wrappers; not part of its config
_RENDERING: dict[str, Any] = {
    "render_mode": None,
    "render_env_id": 0,
    "render_width": None,
    "render_height": None,
    "render_camera_id": -1,
    "from_pixels": False,
}
# our option for the structure of observations
_FLATTEN = "flatten_observation"


@dataclass(slots=True)
class GymDefault:
    """Meaning of env_type="gym", set by `install` for callers whose code stays unchanged."""

    returns_info: bool = False


gym_default = GymDefault()


@dataclass(frozen=True, slots=True)
class AskedTask:
    """A task that `make` was asked for, in EnvPool's terms and in ours.

    Attributes:
      task_id: As given.
      id: Our id.
      config: All of EnvPool's options, in its order.
      env_options: Our options.
      frames: All of EnvPool's options of rendering.
      header: See `rollouts.EnvSpec.header`.
      flatten_observation: True: rows in place of dicts; False: dicts, or an error; None: dicts
        where observations have named parts, as in EnvPool.
    """

    task_id: str
    id: str
    config: dict[str, Any]
    env_options: dict[str, Any]
    frames: dict[str, Any]
    header: str
    flatten_observation: bool | None = None

    @property
    def is_atari(self) -> bool:
        return self.id.startswith(PREFIX)


def read_task(task_id: str, given: Mapping[str, Any]) -> AskedTask:
    """Reads the arguments of `make`.

    Raises:
      SpecError: Unknown id or option, or a value that is not possible.
    """
    env_id = _our_id(task_id)
    spec = env_spec(env_id)
    is_atari = env_id.startswith(PREFIX)
    limit = NO_LIMIT if spec.max_episode_steps is None else spec.max_episode_steps
    options = _atari_defaults(spec.options) if is_atari else dict(spec.options)
    defaults = {
        **_COMMON,
        "max_episode_steps": limit,
        "reward_threshold": spec.reward_threshold,
        **options,
        **_structure(spec.header),
    }
    known = defaults.keys() | _RENDERING.keys() | {_FLATTEN}
    unknown = sorted(set(given) - known)
    if unknown:
        raise SpecError(
            f"{task_id} has no options {', '.join(unknown)}; it takes {', '.join(sorted(known))}"
        )
    if given.get("from_pixels", False):
        raise SpecError(
            f"from_pixels is {given['from_pixels']!r}, expected False: observations here are not "
            "rendered, call render() for frames"
        )
    frames = {name: given.get(name, default) for name, default in _RENDERING.items()}
    config = {name: given.get(name, default) for name, default in defaults.items()}
    _check_common(config)
    flat = given.get(_FLATTEN)
    flat = None if flat is None else flag(_FLATTEN, flat)
    chosen = {name: config[name] for name in options}
    chosen = (_our_options(chosen) if is_atari else chosen) | _our_wrappers(config)
    return AskedTask(task_id, env_id, config, chosen, frames, spec.header, flat)


def is_mujoco(header: str) -> bool:
    """Tells if an environment's actions go to MuJoCo."""
    return header.startswith(("envs/mujoco/", "envs/dm_control/"))


def pinned_cpus(config: Mapping[str, Any]) -> bool | list[int]:
    """The CPUs of the worker threads, for `make_vec(pin_threads=...)`.

    EnvPool keeps worker i on CPU (offset + i) modulo the number of all CPUs, even where this
    process may not use that one; here only the CPUs that the process may use are counted.
    """
    offset = config["thread_affinity_offset"]
    if offset < 0 or not hasattr(os, "sched_getaffinity"):
        return False
    cpus = sorted(os.sched_getaffinity(0))
    workers = num_threads(config) - (config["batch_size"] == config["num_envs"])
    return [cpus[(offset + worker) % len(cpus)] for worker in range(min(workers, len(cpus)))]


def num_threads(config: Mapping[str, Any]) -> int:
    """Threads that step; if they are pinned, at most as many as there are CPUs."""
    usual = min(usable_cpus(), config["num_envs"])
    threads = config["num_threads"] or usual
    if config["thread_affinity_offset"] < 0 or not hasattr(os, "sched_getaffinity"):
        return int(threads)
    caller = config["batch_size"] == config["num_envs"]
    return int(min(threads, len(os.sched_getaffinity(0)) + caller))


def first_seeds(config: Mapping[str, Any]) -> tuple[int | None, list[int] | None]:
    """The seed of the pool, or else one for each environment."""
    seeds = config["env_seed"] if len(config["env_seed"]) else config["seed"]
    if isinstance(seeds, Sequence) or getattr(seeds, "shape", ()) != ():
        return None, [int(seed) for seed in seeds]
    return int(seeds), None


def _our_id(task_id: str) -> str:
    ids = env_ids()
    wanted = OLD_ALIASES.get(task_id, task_id)
    # EnvPool capitalises some games' names differently
    by_name = {name.removeprefix(PREFIX).lower(): name for name in ids}
    found = by_name.get(str(wanted).removeprefix(PREFIX).lower())
    if found is None:
        close = did_you_mean([one.removeprefix(PREFIX) for one in close_ids(str(wanted))])
        raise SpecError(f"unknown task_id {task_id!r}.{close} `list_all_envs()` has all of them.")
    return found


def _structure(header: str) -> dict[str, Any]:
    """EnvPool's options of the structure of observations, which we lack."""
    if is_mujoco(header):
        return {"frame_stack": 1}
    if header.startswith("envs/minigrid/"):
        return {"mission_bytes": 96}
    if header.startswith("envs/babyai/"):
        return {"mission_bytes": 512}
    return {}


def _atari_defaults(ours: Mapping[str, Any]) -> dict[str, Any]:
    theirs = {our: their for their, our in _ATARI_NAMES.items()}
    options = {
        theirs.get(name, name): value for name, value in ours.items() if name not in _NOT_IN_ENVPOOL
    }
    return {
        **options,
        **_ATARI_DEFAULTS,
        "zero_discount_on_life_loss": False,
    }


def _our_options(chosen: Mapping[str, Any]) -> dict[str, Any]:
    faces = ("zero_discount_on_life_loss",)
    ours = {
        _ATARI_NAMES.get(name, name): value for name, value in chosen.items() if name not in faces
    }
    return {**ours, "ram_info": True}


def _our_wrappers(config: Mapping[str, Any]) -> dict[str, Any]:
    # with one frame there is no axis of frames
    if config.get("frame_stack", 1) == 1:
        return {}
    return {"frame_stack": whole_number("frame_stack", config["frame_stack"], 1, NO_LIMIT)}


def _check_common(config: dict[str, Any]) -> None:
    config["batch_size"] = config["batch_size"] or config["num_envs"]
    if not 1 <= config["batch_size"] <= config["num_envs"]:
        raise SpecError(
            f"batch_size is {config['batch_size']!r}, expected 0 (num_envs) to "
            f"num_envs={config['num_envs']!r}: a batch has an environment once at most"
        )
    if config["max_num_players"] != 1:
        raise SpecError(
            f"max_num_players is {config['max_num_players']!r}, expected 1: environments here "
            "have one player"
        )
    if "mission_bytes" in config:
        whole_number("mission_bytes", config["mission_bytes"], 1, NO_LIMIT)
    _, seeds = first_seeds(config)
    if seeds is not None and len(seeds) != config["num_envs"]:
        raise SpecError(
            f"got {len(seeds)} seeds for num_envs={config['num_envs']}: give one number, or one "
            "for each environment"
        )
