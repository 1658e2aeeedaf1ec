# SPDX-License-Identifier: Apache-2.0
"""Environments that count, sample, fail, hang or die, for tests of `rollouts.from_env_fns`."""

from __future__ import annotations

import copy
import os
import signal
import threading
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Counter(gymnasium.Env):
    """Observes its steps; an episode has `length` of them, the reward is the action."""

    def __init__(self, length: int = 3, spaces_n: int = 100) -> None:
        self.length = length
        self.observation_space = spaces.Box(0, spaces_n, (2,), np.float32)
        self.action_space = spaces.Discrete(spaces_n)
        self.episodes = -1
        self.closed_file: str | None = None
        self.options: Any = "never reset"

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        self.steps = 0
        self.episodes += 1
        self.options = options
        return self._obs(), {"seed": -1 if seed is None else seed}

    def step(self, action: Any):
        self.act(int(action))
        self.steps += 1
        ended = self.steps == self.length
        return self._obs(), float(action), ended, False, {"steps": self.steps}

    def act(self, action: int) -> None:
        """Acts; for subclasses."""

    def pid_of(self) -> int:
        """Id of the process that this environment is in."""
        return os.getpid()

    def close(self) -> None:
        if self.closed_file is not None:
            with open(self.closed_file, "a") as file:
                file.write("closed\n")

    def _obs(self) -> np.ndarray:
        return np.array([self.steps, self.episodes], np.float32)


RAISE, EXIT, KILL, HANG, NO_PICKLE = 90, 91, 92, 93, 94


class Moody(Counter):
    """Obeys the action: fails, ends its process, or never comes back."""

    def act(self, action: int) -> None:
        if action == RAISE:
            raise ValueError(f"moody at step {self.steps}")
        if action == EXIT:
            os._exit(7)
        if action == KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        if action == HANG:
            threading.Event().wait()

    def step(self, action: Any):
        row = super().step(action)
        if int(action) == NO_PICKLE:
            row[-1]["lock"] = threading.Lock()
        return row


class BadReset(Counter):
    """Its first object fails at every reset but the first; later objects work."""

    made = 0

    def __init__(self) -> None:
        super().__init__(length=2)
        type(self).made += 1
        self.serial = type(self).made

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        if self.serial == 1 and self.episodes >= 0:
            raise RuntimeError("reset is broken")
        return super().reset(seed=seed, options=options)


class Sampler(gymnasium.Env):
    """Observes samples of its space, and reports the action it got."""

    def __init__(self, space: gymnasium.Space, action_space: gymnasium.Space | None = None) -> None:
        self.observation_space = copy.deepcopy(space)  # with a generator of its own
        self.action_space = space if action_space is None else action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any):
        self.steps += 1
        known = action in self.action_space
        return self.observation_space.sample(), 1.0, self.steps == 3, not known, {}


class Talker(Counter):
    """Reports infos of many kinds, not all of them at every step."""

    def step(self, action: Any):
        obs, reward, ended, truncated, info = super().step(action)
        info["float"] = self.steps / 2
        info["array"] = np.full((2, 2), self.steps)
        info["text"] = f"step {self.steps}"
        info["nested"] = {"steps": self.steps, "deep": {"bool": bool(action % 2)}}
        if action % 2:
            info["odd"] = np.float32(action)
            info["none"] = None
        return obs, reward, ended, truncated, info
