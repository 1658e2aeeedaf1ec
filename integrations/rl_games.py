# SPDX-License-Identifier: Apache-2.0
"""rl_games: a `vecenv` type "ROLLOUTS".

What to change: call `register()` before the Runner is made, and in the configuration

    config:
      env_name: rollouts          # was: CartPole-v1
      env_config:
        env_name: CartPole-v1     # any of rollouts.env_ids(); options of make_vec may follow

Batches stay arrays of N rows from the pool to rl_games' tensors: no lists of per-environment
infos, no Ray workers with one environment each.

Traps handled.
  * rl_games expects same-step autoreset: the observation of a row that is done is the next
    episode's. Another mode is refused, because rl_games would train on a next-step pool's reset
    rows.
  * With `value_bootstrap` rl_games adds gamma * V(observation before the step) where `time_outs` is
    true: where the episode was truncated and did not terminate in the same step.
  * Its observer averages `scores` of environments that are done or, where infos have `lives`, that
    have no lives left. With episodic_life or life_loss_info in a game with lives, scores continue
    across lives, and infos have `lives`. Elsewhere `lives` is left out, since games without lives
    would count as over in each step.
  * Scores are unclipped.
  * Players restore running statistics of normalize_observation and do not change them. A player
    with `use_vecenv` needs
    `player: {use_vecenv: True, env_config: {..., update_statistics: False}}`.

Cost: a conversion of the reward to float32, and two vectors for the scores.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from rollouts.integrations.shared.missing import needs

from rollouts import RunningStatistics, make_vec
from rollouts.envs.face import on_host
from rollouts.envs.vector_env import VectorEnv
from rollouts.errors import SpecError

try:
    from rl_games.common import env_configurations, vecenv
    from rl_games.common.ivecenv import IVecEnv
except ImportError as error:
    raise needs("rl-games", error) from error

Array = npt.NDArray[Any]

VECENV_TYPE = "ROLLOUTS"


def register(name: str = "rollouts") -> None:
    """Makes `env_name: <name>` of a configuration stand for our environments.

    Args:
      name: Value of env_name; env_config then has the id. May be called again.
    """
    vecenv.register(
        VECENV_TYPE,
        lambda config_name, num_actors, **kwargs: RolloutsVecEnv(config_name, num_actors, **kwargs),
    )
    env_configurations.register(
        name,
        {
            "vecenv_type": VECENV_TYPE,
            # makes the one environment of rl_games' players
            "env_creator": lambda **kwargs: RolloutsVecEnv(
                name, 1, **{"update_statistics": False, **kwargs}
            ),
        },
    )


class RolloutsVecEnv(IVecEnv):
    """N environments with same-step autoreset, as rl_games steps them.

    Attributes:
      env: The `rollouts.VectorEnv` within.
      observation_space, action_space: Spaces of one environment; rl_games' players read them.
    """

    env: VectorEnv

    def __init__(
        self,
        config_name: str,
        num_actors: int,
        *,
        env_name: str,
        update_statistics: bool = True,
        **kwargs: Any,
    ) -> None:
        """Makes the environments.

        Args:
          config_name: The name in rl_games' table; not used.
          num_actors: Number of environments N.
          env_name: One of `rollouts.env_ids()`.
          update_statistics: False for players: running statistics are those of a checkpoint, and do
            not change. `env_creator` passes False by default.
          kwargs: As for `rollouts.make_vec`: seed, num_threads, options of the environment.

        Raises:
          SpecError: Another autoreset mode or batch_size, or an observation that rl_games' networks
            do not take.
        """
        mode = kwargs.pop("autoreset_mode", "same_step")
        if str(getattr(mode, "name", mode)).lower() != "same_step":
            raise SpecError(
                f"autoreset_mode is {mode!r}, expected 'same_step': rl_games takes the observation "
                "of a row that is done for the next episode's first"
            )
        if kwargs.pop("batch_size", None) not in (None, num_actors):
            raise SpecError(f"batch_size must be num_actors ({num_actors}): rl_games steps all")
        self.env = on_host(make_vec(env_name, num_actors, autoreset_mode="same_step", **kwargs))
        if not isinstance(self.env.single_observation_space, spaces.Box):
            space = self.env.single_observation_space
            self.env.close()
            raise SpecError(f"{env_name} has the observation space {space}, expected a Box")
        self.observation_space = self.env.single_observation_space
        self.action_space = self.env.single_action_space
        self._is_player = not update_statistics
        if self._is_player and self.env.normalizes:
            self.env.update_statistics = False
        self._scores = np.zeros(num_actors)
        options = self.env.env_spec.options
        # whether a lost life sets `terminated` while the game goes on
        self._marks_lives = options.get("episodic_life", False) != "restart" and (
            bool(options.get("episodic_life")) or bool(options.get("life_loss_info"))
        )
        self._has_lives = False

    def reset(self) -> Array:
        """Starts new episodes; returns obs (N, *obs_shape)."""
        obs, info = self.env.reset()
        self._scores[:] = 0
        self._has_lives = self._marks_lives and bool((info["lives"] > 0).any())
        return obs

    def step(self, actions: npt.ArrayLike) -> tuple[Array, Array, Array, dict[str, Array]]:
        """Steps all environments.

        Args:
          actions: (N, *action_shape), on the host; players with N = 1 leave the axis N out.

        Returns:
          obs (N, *obs_shape); rewards (N,) float32; dones (N,) bool; infos with time_outs (N,)
          bool, scores (N,) float64 and, in games with lives, lives (N,) int32.
        """
        if self.env.num_envs == 1:
            actions = np.reshape(actions, (1, *(self.action_space.shape or ())))
        self.env.send(np.asarray(actions))
        batch = self.env.recv_batch()
        dones = batch.terminated | batch.truncated
        infos: dict[str, Array] = {"time_outs": batch.truncated & ~batch.terminated}
        over = dones
        self._scores += batch.info.get("raw_reward", batch.reward)
        if self._has_lives:
            infos["lives"] = batch.info["lives"].astype(np.int32)
            # a time limit ends the game too
            infos["lives"][batch.truncated] = 0
            over = dones & (infos["lives"] == 0)
        infos["scores"] = self._scores.copy()
        self._scores[over] = 0
        return batch.obs, batch.reward.astype(np.float32), dones, infos

    def get_env_info(self) -> dict[str, Any]:
        """Spaces of one environment."""
        return {
            "observation_space": self.observation_space,
            "action_space": self.action_space,
        }

    def get_number_of_agents(self) -> int:
        """One agent in each environment."""
        return 1

    def has_action_masks(self) -> bool:
        """Tells if infos say which actions are allowed, as Taxi's do."""
        return "action_mask" in getattr(self.env, "info_names", ())

    def get_action_masks(self) -> Array:
        """The actions (N, A) that the last observations allow, for use_action_masks of a config."""
        masks: Array = self.env.action_masks()
        return masks

    def seed(self, seed: int) -> None:
        """Begins every random stream anew; the next call must be `reset`."""
        self.env.reset(seed=seed)

    def get_env_state(self) -> dict[str, Any] | None:
        """States of all environments for rl_games' checkpoints; None before the first reset."""
        try:
            state = {"states": self.env.get_state(), "scores": self._scores.copy()}
        except RuntimeError:
            return None
        for kind in self.env.normalizes:
            name = f"{kind}_statistics"
            state[name] = getattr(self.env, name).state_dict()
        return state

    def set_env_state(self, env_state: dict[str, Any] | None) -> None:
        """Puts states of `get_env_state` back.

        A player, or a state of another number of environments, takes the running statistics alone;
        episodes begin anew.
        """
        if env_state is not None:
            if not self._is_player and len(env_state["states"]) == self.env.num_envs:
                self.env.set_state(None, env_state["states"])
                self._scores[:] = env_state["scores"]
            for kind in self.env.normalizes:
                name = f"{kind}_statistics"
                if name in env_state:
                    setattr(self.env, name, RunningStatistics.from_state_dict(env_state[name]))

    def close(self) -> None:
        """Stops the threads and frees the environments."""
        self.env.close()
