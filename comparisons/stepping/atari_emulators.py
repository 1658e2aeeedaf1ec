# SPDX-License-Identifier: Apache-2.0
"""Emulators of the Atari 2600 alone, ours and ALE's, as contestants of `rollouts bench`."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from comparisons.stepping.vector_libraries import Ale, load
from rollouts import _native
from rollouts.bench.measurement import Settings
from rollouts.bench.own_pools import OpenEnv, Rollouts
from rollouts.errors import SpecError
from rollouts.families.atari import PREFIX, rom_path
from rollouts.specs import EnvSpec


class Emulation(Rollouts):
    """An emulator alone: no preprocessing, no resets, no pool, the same actions for each engine."""

    def __init__(self, engine: str) -> None:
        """`engine`: "native" is our own, "ale" the `act` of ale-py's ALEInterface."""
        self.name = f"emulation-{engine}"
        self._engine = engine

    def version(self) -> str:
        return super().version() if self._engine == "native" else Ale().version()

    def make(self, settings: Settings, spec: EnvSpec) -> OpenEnv:
        """Makes one emulator, which plays num_envs times as long.

        Raises:
          SpecError: The id is no Atari game.
        """
        if not spec.id.startswith(PREFIX):
            raise SpecError(
                f"peer {self.name!r} has Atari games only, got id {spec.id!r}: measure an "
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


own_emulation = functools.partial(Emulation, "native")
ale_emulation = functools.partial(Emulation, "ale")
