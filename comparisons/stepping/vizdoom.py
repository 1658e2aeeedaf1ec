# SPDX-License-Identifier: Apache-2.0
"""ViZDoom's engine alone: games in vizdoom's own binding, on as many threads as our pool."""

from __future__ import annotations

import contextlib
import importlib.metadata
import itertools
import tempfile
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from rollouts.bench.measurement import Settings
from rollouts.bench.own_pools import OpenEnv, notes_without_recv
from rollouts.errors import SpecError
from rollouts.families.table import family_of
from rollouts.families.vizdoom import FAMILY as VIZDOOM
from rollouts.families.vizdoom import load_engine, scenarios
from rollouts.specs import EnvSpec

Array = npt.NDArray[Any]

# options for work that our pool does after the engine, with the values that leave this work out
_OURS = {"img_height": 0, "img_width": 0, "stack_num": 1}


class VizdoomEngine:
    """`DoomGame.make_action` and `get_state`: no batches, no infos."""

    name = "vizdoom"

    def version(self) -> str:
        load_engine()
        return importlib.metadata.version("vizdoom")

    def make(self, settings: Settings, spec: EnvSpec) -> OpenEnv:
        version = self.version()
        if family_of(spec.header) is not VIZDOOM or spec.id not in scenarios():
            raise SpecError(
                f"peer {self.name!r} has ViZDoom's scenarios only, got id {spec.id!r}: "
                "measure an id such as 'VizdoomBasic-v1', or leave this peer out"
            )
        if isinstance(spec.single_action_space, spaces.Box):
            raise SpecError(
                f"peer {self.name!r} presses buttons only, and those of {spec.id!r} have amounts: "
                "leave this peer out"
            )
        ours = [name for name, plain in _OURS.items() if spec.options[name] != plain]
        if ours:
            raise SpecError(
                f"peer {self.name!r} has the game's own screens: leave out {', '.join(ours)}, "
                "or this peer"
            )
        games = _Games(settings, spec)
        return OpenEnv(
            self.name,
            version,
            games,
            num_envs=settings.num_envs,
            batch_size=settings.num_envs,
            num_threads=settings.num_threads,
            start=games.start,
            close=games.close,
            notes=(
                "Each thread steps its own games; no batches, no infos.",
                *notes_without_recv(settings),
            ),
            translate=games.buttons_of,
        )


class _Games:
    """Steps games, each by one of the threads; an ended one begins anew in its next step."""

    def __init__(self, settings: Settings, spec: EnvSpec) -> None:
        import vizdoom

        options = spec.options
        scenario = scenarios()[spec.id]
        self._skip = int(options["frame_skip"])
        self._games = []
        # a game writes its settings into this folder, and makes a folder in the working directory
        self._folder = tempfile.TemporaryDirectory(prefix="rollouts-vizdoom-")
        for number in range(settings.num_envs):
            game = vizdoom.DoomGame()
            game.load_config(f"{scenario.cfg}.cfg")
            game.set_doom_config_path(f"{self._folder.name}/{number}.ini")
            game.set_window_visible(False)
            if format_name := options["screen_format"]:
                game.set_screen_format(getattr(vizdoom.ScreenFormat, str(format_name)))
            elif game.get_screen_format() != vizdoom.ScreenFormat.GRAY8:
                game.set_screen_format(vizdoom.ScreenFormat.RGB24)
            if resolution := options["screen_resolution"]:
                game.set_screen_resolution(getattr(vizdoom.ScreenResolution, str(resolution)))
            # our flat observations contain the screen alone
            game.set_depth_buffer_enabled(False)
            game.set_labels_buffer_enabled(False)
            game.set_automap_buffer_enabled(False)
            game.set_audio_buffer_enabled(False)
            game.set_notifications_buffer_enabled(False)
            game.set_seed((settings.seed + number) % 2**31)
            self._games.append(game)
        num_buttons = self._games[0].get_available_buttons_size()
        given = int(options["max_buttons_pressed"])
        most = given if given >= 0 else scenario.max_buttons_pressed
        # in the order of vizdoom's own environments
        self._presses = [
            [bool(button) for button in buttons]
            for buttons in itertools.product((0, 1), repeat=num_buttons)
            if sum(buttons) <= most
        ]
        self._threads = ThreadPoolExecutor(settings.num_threads)
        self._parts = [
            range(first, settings.num_envs, settings.num_threads)
            for first in range(settings.num_threads)
        ]

    def start(self) -> None:
        """Starts games that are not running."""
        with contextlib.chdir(self._folder.name):
            for game in self._games:
                if not game.is_running():
                    game.init()

    def buttons_of(self, actions: Array) -> list[list[bool]]:
        """The buttons that each row of a batch of our actions presses."""
        if actions.ndim == 1:
            return [self._presses[int(action)] for action in actions]
        return [[bool(button) for button in row] for row in np.asarray(actions)]

    def step(self, buttons: list[list[bool]]) -> list[Any]:
        """Steps all; returns the states' screens, None at the end of an episode."""
        screens: list[Any] = [None] * len(self._games)

        def step_part(part: range) -> None:
            for number in part:
                game = self._games[number]
                if game.is_episode_finished():
                    game.new_episode()
                else:
                    game.make_action(buttons[number], self._skip)
                state = game.get_state()
                screens[number] = None if state is None else state.screen_buffer

        for done in [self._threads.submit(step_part, part) for part in self._parts]:
            done.result()
        return screens

    def close(self) -> None:
        for game in self._games:
            game.close()
        self._threads.shutdown()
        self._folder.cleanup()
