# SPDX-License-Identifier: Apache-2.0
"""Emulators with a game: ours, ours behind our environment, and ale-py's."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

import rollouts
from rollouts import _native
from rollouts.families.atari import rom_path


class Setting(NamedTuple):
    """Settings of a game.

    mode, difficulty: -1 is the game's own. sticky: probability that a frame repeats the action
    before. seed: seed of these repetitions.
    """

    mode: int = -1
    difficulty: int = -1
    sticky: float = 0.0
    seed: int = 0


class Frame(NamedTuple):
    """The parts of a frame that are compared.

    ram (128,) uint8; screen (height, 160) palette indices or (height, 160, 3) colours, uint8;
    environments return no screen of a game's last frame.
    """

    ram: npt.NDArray[np.uint8]
    screen: npt.NDArray[np.uint8] | None
    reward: int
    lives: int
    over: bool


class Player(Protocol):
    """An emulator with a game."""

    def restart(self) -> None:
        """Begins the game anew."""

    def act(self, action: int) -> Frame:
        """Plays a frame with an action, given by its place among the game's legal ones in ALE."""

    def poke(self, address: int, value: int) -> None:
        """Changes a byte of memory; address is 0..127."""


class ConsolePlayer:
    """Our emulator as in the environment, without observations: screens are palette indices."""

    def __init__(self, id: str, setting: Setting, *, resets: bool = False) -> None:
        """`resets`: keeps memory, as ale-py's resets do; else games begin as in an environment."""
        self._console = _native.AtariConsole(
            str(rom_path(id)),
            setting.mode,
            setting.difficulty,
            repeat_action_probability=setting.sticky,
            random_seed=setting.seed,
        )
        self._actions = self._console.legal_actions()
        self._resets = resets

    def restart(self) -> None:
        # as in ale-py, `reset` advances the random numbers of sticky actions; an environment has
        # random numbers of its own
        if self._resets:
            self._console.reset()
        else:
            self._console.restart()

    def act(self, action: int) -> Frame:
        console = self._console
        reward = console.act(self._actions[action])
        return Frame(console.ram(), console.screen(), reward, console.lives(), console.game_over())

    def poke(self, address: int, value: int) -> None:
        self._console.poke(address, value)


class EnvPlayer:
    """Our emulator in the environment: one frame per step, in colour, without preprocessing."""

    def __init__(self, id: str, size: tuple[int, int], setting: Setting) -> None:
        """`size`: (height, width) of the screen."""
        with warnings.catch_warnings():
            # warnings of known differences are dropped, because this command reports differences
            warnings.simplefilter("ignore", UserWarning)
            self._env = rollouts.make_vec(
                id, 1, engine="native", autoreset_mode="disabled", max_episode_steps=0,
                frameskip=1, stack_num=1, maxpool=False, grayscale=False, img_height=size[0],
                img_width=size[1], noop_max=0, use_fire_reset=False, reward_clipping=False,
                repeat_action_probability=0.0, full_action_space=True, ram_info=True,
                mode=setting.mode, difficulty=setting.difficulty,
            )  # fmt: skip
        self.restart()

    def restart(self) -> None:
        self._env.reset()

    def act(self, action: int) -> Frame:
        obs, _, terminated, _, info = self._env.step(np.array([action]))
        over = bool(terminated[0])
        ram = info["ram"][0].astype(np.uint8)
        screen = None if over else obs[0, 0].copy()
        return Frame(ram, screen, int(info["raw_reward"][0]), int(info["lives"][0]), over)

    def poke(self, address: int, value: int) -> None:
        raise NotImplementedError("an environment's memory is not to be changed")

    def save(self) -> list[bytes]:
        """Saves a state, from which `load` goes on."""
        return self._env.get_state()

    def load(self, saved: list[bytes]) -> None:
        """Goes on from a state of `save`."""
        self._env.set_state(None, saved)


def modes_and_difficulties(id: str) -> tuple[list[int], list[int]]:
    """Returns the modes and difficulties that ale-py has for a game."""
    import ale_py

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    ale: Any = ale_py.ALEInterface()
    ale.loadROM(str(rom_path(id)))
    return list(ale.getAvailableModes()), list(ale.getAvailableDifficulties())


class AlePlayer:
    """ale-py's emulator; like ours, it begins every game from the state of its second reset."""

    def __init__(
        self, id: str, setting: Setting, *, colours: bool = False, resets: bool = False
    ) -> None:
        """`colours`: screens are RGB, not palette indices. `resets`: as in ConsolePlayer."""
        import ale_py

        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        ale: Any = ale_py.ALEInterface()
        # the same seed as ours; otherwise the clock seeds ALE, and Adventure's draws would differ
        ale.setInt("random_seed", setting.seed if setting.sticky else 0)
        ale.setFloat("repeat_action_probability", setting.sticky)
        ale.setInt("max_num_frames_per_episode", 0)
        ale.loadROM(str(rom_path(id)))
        if setting.mode >= 0:
            ale.setMode(setting.mode)
        if setting.difficulty >= 0:
            ale.setDifficulty(setting.difficulty)
        ale.reset_game()
        self._ale, self._start = ale, ale.cloneState()
        self._resets = resets
        self._screen = ale.getScreenRGB if colours else ale.getScreen
        self._actions = ale.getLegalActionSet()
        self.num_actions = len(self._actions)
        self.size: tuple[int, int] = ale.getScreenDims()

    def restart(self) -> None:
        # a reset does not clear the console's memory, and a state does not have the frame buffers;
        # only both together begin the game anew
        self._ale.reset_game()
        if not self._resets:
            self._ale.restoreState(self._start)

    def act(self, action: int) -> Frame:
        ale = self._ale
        reward = ale.act(self._actions[action])
        return Frame(ale.getRAM(), self._screen(), reward, ale.lives(), ale.game_over())

    def poke(self, address: int, value: int) -> None:
        self._ale.setRAM(address, value)

    def save(self) -> Any:
        """Saves a state, from which `load` goes on; as always in ale-py, without frame buffers."""
        return self._ale.cloneState()

    def load(self, saved: Any) -> None:
        """Goes on from a state of `save`."""
        self._ale.restoreState(saved)
