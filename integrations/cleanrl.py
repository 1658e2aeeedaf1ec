# SPDX-License-Identifier: Apache-2.0
"""CleanRL's scripts for Gymnasium's vector environments (ppo.py, dqn.py, ppo_atari.py, ...).

What to change:

    -envs = gym.vector.SyncVectorEnv([make_env(args.env_id, i, ...) for i in range(args.num_envs)])
    +envs = rollouts.integrations.cleanrl.make_vec(args.env_id, args.num_envs, seed=args.seed)

The scripts read `infos` as Gymnasium 0.29 wrote them, and stay silent, or train on the wrong
observation, with what Gymnasium 1.0 and later write:

  * `infos["final_info"]` is an array of N dicts or None, with "episode": {"r", "l", "t"} as of
    RecordEpisodeStatistics, from unclipped rewards;
  * `infos["final_observation"]` is an array of N observations or None, which dqn.py and its kin
    put into the replay where an episode was truncated;
  * both are there in a step in which an episode ended, and in no other.

The observation of such a row is the next episode's first (same-step autoreset). For Atari games
the wrappers of the scripts' make_env are options here: see `atari_options`.

For the scripts named *_envpool*.py see `rollouts.integrations.envpool`.

Cost: nothing in steps without an end; else a dict for each episode that ended.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt

from rollouts.errors import SpecError
from rollouts.vector_env import VectorEnv

Array = npt.NDArray[Any]


def make_vec(env_id: str, num_envs: int, *, seed: int | None = None, **kwargs: Any) -> VectorEnv:
    """Makes environments with the infos of Gymnasium 0.29.

    Args:
      env_id: One of `rollouts.env_ids()`; also Gymnasium's "...NoFrameskip-v4", which is the
        game with `atari_options()`.
      num_envs: Number of environments N.
      seed: Of the random streams; the scripts' `envs.reset(seed=...)` begins them anew.
      kwargs: As of `rollouts.make_vec`.

    Raises:
      SpecError: Another autoreset mode than "same_step", or an asynchronous pool.
    """
    if env_id.endswith("NoFrameskip-v4"):
        env_id = f"ALE/{env_id.removesuffix('NoFrameskip-v4')}-v5"
        kwargs = {**atari_options(), **kwargs}
    for name, value in (("autoreset_mode", "same_step"), ("batch_size", num_envs)):
        if kwargs.pop(name, value) != value:
            raise SpecError(
                f"{name} must be {value!r}: CleanRL's scripts step all environments and take "
                "the observation of a row that is done for the next episode's first"
            )
    own = {"num_threads", "env_id_offset", "max_episode_steps", "on_env_error", "pin_threads"}
    options = {name: value for name, value in kwargs.items() if name not in own}
    arguments = {name: value for name, value in kwargs.items() if name in own}
    return Gymnasium029VectorEnv(
        env_id, num_envs, seed=seed, autoreset_mode="same_step", env_options=options, **arguments
    )


def atari_options() -> dict[str, Any]:
    """What the wrappers in ppo_atari.py's and dqn_atari.py's make_env do, as our options."""
    return {
        "repeat_action_probability": 0.0,
        "noop_max": 30,
        "frameskip": 4,
        "episodic_life": True,
        "use_fire_reset": True,
        "reward_clipping": True,
        "img_height": 84,
        "img_width": 84,
        "grayscale": True,
        "stack_num": 4,
    }


class Gymnasium029VectorEnv(VectorEnv):
    """A same-step `rollouts.VectorEnv` whose infos are Gymnasium 0.29's."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """As `rollouts.VectorEnv`."""
        super().__init__(*args, **kwargs)
        self._began = time.perf_counter()
        self._episodic_life = bool(self.env_spec.options.get("episodic_life", False))
        self._earlier_return = np.zeros(self.num_envs)
        self._earlier_length = np.zeros(self.num_envs, np.int64)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the arguments, not the state."""
        return _remake, (self._env_id, self.num_envs, self._recipe)

    def reset(self, **kwargs: Any) -> tuple[Array, dict[str, Any]]:
        """As `rollouts.VectorEnv.reset`."""
        self._earlier_return[:] = 0
        self._earlier_length[:] = 0
        return super().reset(**kwargs)

    def _five(self, arrays: tuple[Array, ...]) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        obs, reward, terminated, truncated, info = super()._five(arrays)
        if "final_obs" in info:
            ended = info.pop("_final_obs")
            final_info, _ = info.pop("final_info"), info.pop("_final_info")
            info["final_observation"], info["_final_observation"] = info.pop("final_obs"), ended
            info["final_info"] = self._final_infos(final_info, ended, truncated)
            info["_final_info"] = ended
        return obs, reward, terminated, truncated, info

    def _final_infos(self, final: dict[str, Any], ended: Array, truncated: Array) -> Array:
        """An array of dicts, None where no episode ended."""
        infos = np.full(len(ended), None, dtype=object)
        names = [name for name in final if not name.startswith("_")]
        seconds = np.float32(time.perf_counter() - self._began)
        for row in np.flatnonzero(ended):
            infos[row] = one = {name: final[name][row] for name in names}
            env = one["env_id"] - self.env_id_offset
            self._earlier_return[env] += one.pop("episode_return")
            self._earlier_length[env] += one.pop("episode_length")
            if self._episodic_life and one["lives"] > 0 and not truncated[row]:
                continue  # a life ended and not the game, whose statistics go on
            one["episode"] = {
                "r": np.array([self._earlier_return[env]], np.float32),
                "l": np.array([self._earlier_length[env]], np.int32),
                "t": np.array([seconds], np.float32),
            }
            self._earlier_return[env] = self._earlier_length[env] = 0
        return infos


def _remake(env_id: Any, num_envs: int, recipe: dict[str, Any]) -> Gymnasium029VectorEnv:
    return Gymnasium029VectorEnv(env_id, num_envs, **recipe)
