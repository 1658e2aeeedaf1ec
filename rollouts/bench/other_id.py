# SPDX-License-Identifier: Apache-2.0
"""Ours once more, as a peer: another id, engine or host; an emulator alone, without environments.

Another id may be one header compiled in two ways, say.
"""

from __future__ import annotations

import dataclasses
import importlib
import time
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from rollouts import _native
from rollouts.bench.measurement import Settings
from rollouts.bench.peers import LIBRARIES, OpenEnv, Peer, Rollouts, gymnasium_maker, load
from rollouts.errors import SpecError
from rollouts.families.atari import PREFIX, rom_path
from rollouts.pool.registry import env_spec
from rollouts.specs import EnvSpec


class OtherId(Rollouts):
    """Environments of an id of ours whose spaces are those of what is measured."""

    def __init__(self, env_id: str) -> None:
        """`env_id`: any id of `make_vec`."""
        self.name = env_id

    def make(self, settings: Settings, spec: EnvSpec) -> OpenEnv:
        """Makes it with the same settings. Raises SpecError where its spaces differ."""
        own = env_spec(
            self.name, max_episode_steps=settings.max_episode_steps, **dict(settings.env_options)
        )
        for space in ("single_observation_space", "single_action_space"):
            ours, theirs = getattr(own, space), getattr(spec, space)
            if ours != theirs:
                raise SpecError(
                    f"{self.name} cannot be measured beside {spec.id}: its {space} is {ours}, not "
                    f"{theirs}"
                )
        return super().make(settings, dataclasses.replace(own, id=self.name))


class OneEngine(Rollouts):
    """This library once more, with `engine` set, for ids that have several."""

    def __init__(self, engine: str) -> None:
        """`engine`: of Atari "native" or "ale", of MuJoCo "lanes" or "mujoco"."""
        self.name = f"rollouts-{engine}"
        self._engine = engine

    def make(self, settings: Settings, spec: EnvSpec) -> OpenEnv:
        """Makes it with the same settings. Raises SpecError for ids without this engine."""
        return super().make(*self.instead(settings, spec))

    def instead(self, settings: Settings, spec: EnvSpec) -> tuple[Settings, EnvSpec]:
        """The same settings and spec with this engine. Raises SpecError where there is none."""
        if "engine" not in spec.options:
            raise SpecError(
                f"peer {self.name!r} has ids with several engines only, and {spec.id!r} has one: "
                "measure an 'ALE/...-v5' id, say, or leave this peer out"
            )
        options = {**settings.env_options, "engine": self._engine}
        try:
            own = env_spec(spec.id, max_episode_steps=settings.max_episode_steps, **options)
        except SpecError as error:
            raise SpecError(
                f"peer {self.name!r} cannot make {spec.id!r}: {error}. Leave this peer out"
            ) from error
        return dataclasses.replace(settings, env_options=options), own


class Hosted(Rollouts):
    """`from_env_fns` over Gymnasium's Python environments, as another vectoriser steps them."""

    name = "rollouts-hosted"

    def make(self, settings: Settings, spec: EnvSpec) -> OpenEnv:
        """Makes them in num_threads processes at most; for one thread in this process.

        Raises:
          SpecError: Gymnasium does not have the environment, or not with these options.
          EngineError: A library it needs is missing.
        """
        make_one, options, differs = gymnasium_maker(settings, spec)
        # brings multiprocessing
        hosts = importlib.import_module("rollouts.env_fns")
        num_processes = min(settings.num_threads, settings.num_envs)
        if num_processes == 1 and not settings.is_async:
            num_processes = 0
        where = f"in {num_processes} of our processes" if num_processes else "in this process"
        env = hosts.from_env_fns(
            [make_one] * settings.num_envs,
            num_processes=num_processes,
            batch_size=settings.batch_size,
            seed=settings.seed,
            copy=False,
        )
        return OpenEnv(
            self.name,
            self.version(),
            env,
            num_envs=settings.num_envs,
            batch_size=settings.batch_size,
            num_threads=max(1, num_processes),
            start=env.async_reset if settings.is_async else env.reset,
            close=env.close,
            options=options,
            notes=(
                f"Gymnasium's Python environments {where}.",
                *differs,
            ),
        )


class Emulation(Rollouts):
    """An emulator alone: no preprocessing, no resets, no pool, the same actions for each engine."""

    def __init__(self, engine: str) -> None:
        """`engine`: "native" is our own, "ale" the `act` of ale-py's ALEInterface."""
        self.name = f"emulation-{engine}"
        self._engine = engine

    def version(self) -> str:
        return super().version() if self._engine == "native" else LIBRARIES["ale"].version()

    def make(self, settings: Settings, spec: EnvSpec) -> OpenEnv:
        """Makes one emulator, which plays num_envs times as long. Raises SpecError: no game."""
        if not spec.id.startswith(PREFIX):
            raise SpecError(
                f"peer {self.name!r} has Atari games only, got env_id {spec.id!r}: measure an "
                "'ALE/...-v5' id, or leave this peer out"
            )
        make = _own_emulation if self._engine == "native" else _ale_emulation
        play = make(str(rom_path(spec.id)), int(str(spec.options["frameskip"])))
        rng = np.random.default_rng(settings.seed)

        def run(calls: int) -> float:
            return play(rng.integers(18, size=calls * settings.num_envs, dtype=np.int32))

        return OpenEnv(
            self.name,
            self.version(),
            None,
            num_envs=settings.num_envs,
            batch_size=settings.num_envs,
            num_threads=1,
            start=lambda: None,
            close=lambda: None,
            options={"frameskip": spec.options["frameskip"]},
            notes=("One emulator without preprocessing; resets are not counted.",),
            run=run,
        )


# from actions (T,) to the seconds that their frames took
Play = Callable[[npt.NDArray[np.int32]], float]


def _own_emulation(rom: str, frameskip: int) -> Play:
    return _native.AtariEmulation(rom, frameskip).run


def _ale_emulation(rom: str, frameskip: int) -> Play:
    ale_py = load("ale_py", "ale-py", peer="emulation-ale")
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    ale = ale_py.ALEInterface()
    ale.setFloat("repeat_action_probability", 0.0)
    ale.setInt("frame_skip", frameskip)
    ale.loadROM(rom)
    legal = set(ale.getLegalActionSet())
    known = [
        action if action in legal else ale_py.Action(0) for action in map(ale_py.Action, range(18))
    ]

    def play(actions: npt.NDArray[np.int32]) -> float:
        elapsed, started = 0.0, time.perf_counter()
        for action in actions.tolist():
            ale.act(known[action])
            if ale.game_over():
                elapsed += time.perf_counter() - started
                ale.reset_game()
                started = time.perf_counter()
        return elapsed + time.perf_counter() - started

    return play


ENGINES_OF_OURS = {one.name: one for one in map(OneEngine, ("native", "ale", "lanes", "mujoco"))}
OTHERS_OF_OURS: Mapping[str, Peer] = {
    **ENGINES_OF_OURS,
    **{one.name: one for one in (Hosted(), Emulation("native"), Emulation("ale"))},
}
