# SPDX-License-Identifier: Apache-2.0
"""EnvPool, Gymnasium and ale-py: makers of the same environment as ours, option for option."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import wrappers

from comparisons.stepping.atari_options import (
    ale_atari_options,
    envpool_atari_options,
    gymnasium_atari_options,
)
from comparisons.stepping.grid_options import PREFIXES, gymnasium_grid_options, wrapped
from rollouts.bench.measurement import Settings
from rollouts.bench.own_pools import OpenEnv, notes_without_recv
from rollouts.errors import EngineError, SpecError
from rollouts.families.atari import PREFIX, rom_path
from rollouts.specs import EnvSpec, OptionValue

# options that choose the engine of a step, and not its result
_OURS_ALONE = frozenset({"engine"})


class EnvPool:
    """EnvPool's Gymnasium interface."""

    name = "envpool"

    def version(self) -> str:
        load("envpool", "envpool", peer=self.name)
        return importlib.metadata.version("envpool")

    def make(self, settings: Settings, spec: EnvSpec) -> OpenEnv:
        version = self.version()
        envpool = importlib.import_module("envpool")
        if spec.id.startswith(PREFIX):
            options = envpool_atari_options(spec.options)
        else:
            options = _no_options(settings, peer=self.name)
        if spec.max_episode_steps is not None:
            options["max_episode_steps"] = spec.max_episode_steps
        elif settings.max_episode_steps is not None:
            options["max_episode_steps"] = 2**31 - 1  # EnvPool cannot express no limit
        task_id = _task_id(spec.id, envpool.list_all_envs())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            env = envpool.make_gymnasium(
                task_id,
                num_envs=settings.num_envs,
                batch_size=settings.batch_size,
                num_threads=settings.num_threads,
                seed=settings.seed % 2**31,
                **options,
            )
            # EnvPool makes its spaces at the first use, with warnings
            _ = env.observation_space, env.action_space
        return OpenEnv(
            self.name,
            version,
            env,
            num_envs=settings.num_envs,
            batch_size=settings.batch_size,
            num_threads=settings.num_threads,
            start=env.async_reset if settings.is_async else env.reset,
            close=env.close,
            options=options,
        )


class Gymnasium:
    """Gymnasium's SyncVectorEnv: one thread, one environment after the other."""

    name = "gymnasium"

    def version(self) -> str:
        return importlib.metadata.version("gymnasium")

    def make(self, settings: Settings, spec: EnvSpec) -> OpenEnv:
        notes = ["SyncVectorEnv: one thread."]
        notes += notes_without_recv(settings)
        make, options, differences = gymnasium_maker(settings, spec)
        notes += differences
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            env = gymnasium.vector.SyncVectorEnv([make] * settings.num_envs)
        return OpenEnv(
            self.name,
            self.version(),
            env,
            num_envs=settings.num_envs,
            batch_size=settings.num_envs,
            num_threads=1,
            start=lambda: env.reset(seed=settings.seed % 2**31),
            close=env.close,
            options=options,
            notes=tuple(notes),
        )


class Ale:
    """ale-py's own C++ vector environment; Atari only."""

    name = "ale"

    def version(self) -> str:
        load("ale_py.vector_env", "ale-py>=0.11", peer=self.name)
        return importlib.metadata.version("ale-py")

    def make(self, settings: Settings, spec: EnvSpec) -> OpenEnv:
        version = self.version()
        if not spec.id.startswith(PREFIX):
            raise SpecError(
                f"peer 'ale' has Atari games only, got id {spec.id!r}: "
                "measure an 'ALE/...-v5' id, or leave this peer out"
            )
        options = ale_atari_options(spec.options)
        if spec.max_episode_steps is not None:
            frames = spec.max_episode_steps * int(options["frameskip"])
            options["max_num_frames_per_episode"] = frames
        env = importlib.import_module("ale_py.vector_env").AtariVectorEnv(
            rom_path(spec.id).stem,  # ale-py's name of the game
            settings.num_envs,
            batch_size=settings.batch_size,
            num_threads=settings.num_threads,
            **options,
        )
        driver = _AleDriver(env, seed=settings.seed % 2**31)
        return OpenEnv(
            self.name,
            version,
            driver,
            num_envs=settings.num_envs,
            batch_size=settings.batch_size,
            num_threads=settings.num_threads,
            start=driver.async_reset if settings.is_async else driver.reset,
            close=env.close,
            options=options,
        )


class _AleDriver:
    """AtariVectorEnv with `async_reset`, and with a `send` that takes env_id."""

    def __init__(self, env: Any, *, seed: int) -> None:
        self._env = env
        self._seed = seed
        self.step = env.step
        self.recv = env.recv

    def reset(self) -> None:
        self._env.reset(seed=self._seed)

    def async_reset(self) -> None:
        # AtariVectorEnv's reset also receives the first batch: that is sent back at once
        self._env.reset(seed=self._seed)
        self._env.send(np.zeros_like(self._env.action_space.sample()))

    def send(self, actions: Any, env_id: Any) -> None:
        self._env.send(actions)


def gymnasium_maker(
    settings: Settings, spec: EnvSpec
) -> tuple[Callable[[], gymnasium.Env[Any, Any]], dict[str, Any], list[str]]:
    """A maker of one environment of Gymnasium's, its options, and what differs from ours.

    Raises:
      SpecError: Gymnasium does not have it, or not with these options.
      EngineError: A library it needs for Atari is missing.
    """
    if spec.id.startswith(PREFIX):
        options = gymnasium_atari_options(spec.options)
        differs = ["AtariPreprocessing presses no FIRE after a reset."]
        return _gymnasium_atari_maker(spec, options), options, differs
    limit = spec.max_episode_steps or -1  # Gymnasium's -1 is no limit
    if spec.id.startswith(PREFIXES):
        # minigrid registers its environments when it is imported
        load("minigrid", "minigrid", peer="gymnasium")
        options = gymnasium_grid_options(settings.env_options)
        return functools.partial(_grid_env, spec.id, limit, options), options, []
    none = _no_options(settings, peer="gymnasium")
    return functools.partial(_gymnasium_env, spec.id, limit), none, []


def _gymnasium_atari_maker(
    spec: EnvSpec, options: Mapping[str, Any]
) -> Callable[[], gymnasium.Env[Any, Any]]:
    gymnasium.register_envs(load("ale_py", "ale-py", peer="gymnasium"))
    load("cv2", "opencv-python-headless", peer="gymnasium")

    def make() -> gymnasium.Env[Any, Any]:
        env: gymnasium.Env[Any, Any] = gymnasium.make(spec.id, **options["make"])
        env = wrappers.AtariPreprocessing(env, **options["AtariPreprocessing"])
        if spec.max_episode_steps is not None:
            env = wrappers.TimeLimit(env, spec.max_episode_steps)
        if options["ClipReward"]:
            env = wrappers.ClipReward(env, *options["ClipReward"])
        return wrappers.FrameStackObservation(
            env, options["FrameStackObservation"], padding_type="zero"
        )

    return make


def _grid_env(id: str, limit: int, options: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
    return wrapped(_gymnasium_env(id, limit, **options["make"]), options)


def _gymnasium_env(id: str, limit: int, **options: Any) -> gymnasium.Env[Any, Any]:
    try:
        return gymnasium.make(id, max_episode_steps=limit, **options)
    except gymnasium.error.UnregisteredEnv as error:
        raise SpecError(f"peer 'gymnasium' has no environment {id!r}: {error}") from error
    except gymnasium.error.DependencyNotInstalled as error:
        raise EngineError(
            f"peer 'gymnasium' cannot make {id!r}: {error}; or leave this peer out"
        ) from error


def load(module: str, requirement: str, *, peer: str) -> Any:
    """Imports a peer's module. Raises EngineError, which names the package to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise EngineError(
            f"peer {peer!r} needs the module {module!r}, which cannot be imported ({error}): "
            f"run `pip install {requirement!r}`, or leave this peer out"
        ) from error


def _task_id(id: str, task_ids: list[str]) -> str:
    """EnvPool's name of one of our ids; it writes some games in another case."""
    wanted = id.removeprefix(PREFIX)
    for task_id in task_ids:
        if task_id.lower() == wanted.lower():
            return task_id
    raise SpecError(f"peer 'envpool' has no environment {wanted!r}: leave this peer out")


def _no_options(settings: Settings, *, peer: str) -> dict[str, OptionValue]:
    """Returns no options; raises an error where the user gave options that the peer lacks."""
    given = sorted(settings.env_options.keys() - _OURS_ALONE)
    if given:
        raise SpecError(
            f"peer {peer!r} has no equal of the options {given} of "
            f"{settings.id}: leave out the options, or this peer"
        )
    return {}
