# SPDX-License-Identifier: Apache-2.0
"""The Atari environment once more, slow and obvious: Python over ale_py.ALEInterface.

Every new game loads the ROM afresh, every random number comes from own_numbers.py, and frames are
not resized (the resize has tests of its own).
"""

from __future__ import annotations

from collections import deque
from typing import Any

import ale_py
import numpy as np
from ale_py.env import AtariEnv
from own_numbers import Rng

ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)


def load_emulator(rom: str) -> ale_py.ALEInterface:
    """An ALE at the start of a game, as ale-py's vector environment starts it."""
    ale = ale_py.ALEInterface()
    ale.setInt("random_seed", 0)
    ale.setFloat("repeat_action_probability", 0.0)
    ale.loadROM(str(ale_py.roms.get_rom_path(rom)))
    ale.reset_game()
    return ale


def press_of(axes: np.ndarray, threshold: np.float32) -> tuple[int, float]:
    """The action of a continuous one, as in `ale_py.env.AtariEnv.step`, and its strength."""
    radius, theta, fire = axes

    def side(value: np.float32) -> int:
        return int(value > threshold) - int(value < -threshold)

    x, y = radius * np.cos(theta), radius * np.sin(theta)
    action = AtariEnv.map_action_idx(side(x), side(y), bool(fire > threshold))
    return action.value, float(radius)


class SlowAtari:
    """Gray, unresized frames; options as the native environment's."""

    def __init__(
        self,
        rom: str,
        *,
        frameskip: int = 4,
        stack_num: int = 4,
        noop_max: int = 30,
        repeat_action_probability: float = 0.25,
        episodic_life: bool = False,
        continuous: bool = False,
        continuous_action_threshold: float = 0.5,
    ) -> None:
        self.rom, self.frameskip, self.noop_max = rom, frameskip, noop_max
        self.probability, self.episodic_life = repeat_action_probability, episodic_life
        self.continuous, self.threshold = continuous, np.float32(continuous_action_threshold)
        self.frames: deque[np.ndarray] = deque(maxlen=stack_num)
        self.life_lost = False

    def reset(self, rng: Rng) -> np.ndarray:
        if self.episodic_life and self.life_lost:
            self._skip(0, 1.0, rng)
            if self.fires and not self.ale.game_over():
                self._skip(1, 1.0, rng)
            if not self.ale.game_over():
                self.life_lost = False
                return self.obs()
        noops = rng.below(self.noop_max) if self.noop_max > 0 else 0
        self._load()
        if self.fires:
            self._frame(1, 1.0, rng)
        for _ in range(noops - self.fires):
            self._frame(0, 1.0, rng)
            if self.ale.game_over():
                self._load()
        blank = np.zeros_like(self.ale.getScreenGrayscale())
        self.frames.extend([blank] * (self.frames.maxlen - 1))
        self.last, self.earlier = self.ale.getScreenGrayscale(), blank
        self.frames.append(self.last)
        self.lives, self.life_lost = self.ale.lives(), False
        return self.obs()

    def step(
        self, action: int | np.ndarray, rng: Rng
    ) -> tuple[np.ndarray, float, bool, dict[str, Any]]:
        if self.continuous:
            raw = self._skip(*press_of(action, self.threshold), rng)
        else:
            raw = self._skip(self.actions[action], 1.0, rng)
        terminated = self.ale.game_over() or (self.episodic_life and self.life_lost)
        info = {
            "lives": self.lives,
            "raw_reward": raw,
            "episode_frame_number": self.ale.getEpisodeFrameNumber(),
        }
        return self.obs(), float(np.clip(raw, -1, 1)), terminated, info

    def obs(self) -> np.ndarray:
        return np.stack(self.frames)

    def _load(self) -> None:
        self.ale = load_emulator(self.rom)
        self.actions = [action.value for action in self.ale.getMinimalActionSet()]
        self.fires = self.continuous or 1 in self.actions
        self.pressed = (0, 1.0)

    def _frame(self, action: int, strength: float, rng: Rng) -> int:
        if self.probability == 0 or rng.uniform() >= self.probability:
            self.pressed = (action, strength)
        button, turn = self.pressed
        return self.ale.act(ale_py.Action(button), turn)

    def _skip(self, action: int, strength: float, rng: Rng) -> int:
        reward = 0
        for left in range(self.frameskip, 0, -1):
            reward += self._frame(action, strength, rng)
            self.life_lost = 0 < self.ale.lives() < self.lives
            if self.ale.game_over() or (self.episodic_life and self.life_lost):
                break
            if left == 2:
                self.earlier = self.ale.getScreenGrayscale()
            if left == 1:
                self.last = self.ale.getScreenGrayscale()
        # a frame not taken is the pooled one of the step before
        self.last = np.maximum(self.last, self.earlier)
        self.frames.append(self.last)
        self.lives = self.ale.lives()
        return reward
