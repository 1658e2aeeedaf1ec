# SPDX-License-Identifier: Apache-2.0
"""DQN, SAC, TD3 and DDPG whose steps are written straight into the ReplayBuffer."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rollouts.batch import StepBatch
from rollouts.machine.torch_threads import beside_a_pool

from ..shared.missing import needs
from .callbacks import reads_locals
from .native_train import NativeTraining
from .native_vec_env import NativeVecEnv, final_obs_of, is_direct, truncated_rows
from .random_actions import can_sample_rows, sample_rows
from .remote import WorkerOptions, closed_by_errors
from .remote_replay import RemoteReplay

try:
    from stable_baselines3 import DDPG, DQN, SAC, TD3
    from stable_baselines3.common.buffers import ReplayBuffer
    from stable_baselines3.common.type_aliases import RolloutReturn
    from stable_baselines3.common.utils import should_collect_more_steps
except ImportError as error:
    raise needs("sb3", error) from error

Array = NDArray[Any]


class OffPolicyRollouts:
    """A mixin to list before an `OffPolicyAlgorithm`: the same steps, collected in less time.

    The replay's contents, the random numbers drawn, `ep_info_buffer`, the counters and the
    callbacks' calls are those of the algorithm's own `collect_rollouts` on the same environment,
    bit for bit. Infos are built only for callbacks that may read them, and random actions are drawn
    for all environments at once. The algorithm's own method collects in the other cases:
    environments behind a VecEnvWrapper, gSDE, and buffers other than ReplayBuffer such as those of
    HER and of n-step returns. `num_torch_threads` is as in `OnPolicyRollouts`.

    Torch computes the policy here, even where native code could read it, because measurements
    showed no gain. For SAC, TD3 and DDPG, computing a step's actions takes some 2 % of the time of
    the gradient step that follows. DQN's `learn` was faster in some runs and slower in others.

    With `num_workers` the environments are divided among Ray actors, each with a copy of the
    policy; see `RemoteReplay`. A call to a worker costs about a millisecond, so train_freq should
    give it 10 ms of work. `close` stops the actors, and so does an error that ends `learn`.
    """

    num_torch_threads: int | None = None

    # attributes of the algorithm that this is mixed into
    policy: Any
    action_space: Any
    use_sde: bool
    num_timesteps: int
    exploration_rate: float
    _last_obs: Any

    def __init__(
        self, *args: Any, num_workers: int = 0, worker_options: WorkerOptions = None, **kwargs: Any
    ) -> None:
        """Takes the algorithm's arguments and two more.

        Args:
          args, kwargs: Arguments of the algorithm, whose env is a NativeVecEnv.
          num_workers: Ray actors that collect; 0 collects in this process, without Ray.
          worker_options: Further arguments of `rollouts.RolloutCoordinator`.
        """
        # set before the algorithm's constructor, because load() overwrites these with saved values
        self.num_workers = num_workers
        self.worker_options = worker_options
        self._remote: RemoteReplay | None = None
        super().__init__(*args, **kwargs)

    def learn(self, *args: Any, **kwargs: Any) -> Self:
        """Runs the algorithm's own `learn`; an error also stops the Ray actors."""
        with closed_by_errors(self):
            return super().learn(*args, **kwargs)  # type: ignore[misc, no-any-return]

    def collect_rollouts(
        self,
        env: Any,
        callback: Any,
        train_freq: Any,
        replay_buffer: Any,
        action_noise: Any = None,
        learning_starts: int = 0,
        log_interval: int | None = None,
    ) -> Any:
        """Steps the environments train_freq times and stores the steps; returns a RolloutReturn."""
        known = is_direct(env) and not self.use_sde and type(replay_buffer) is ReplayBuffer
        if self.num_workers:
            if self._remote is None:
                fits = known and train_freq.unit.value == "step"
                self._remote = RemoteReplay.start(self, env, train_freq.frequency, fits)
            return self._remote.collect(
                self, callback, replay_buffer, learning_starts, log_interval
            )
        with beside_a_pool(self.policy, env.num_envs, self.num_torch_threads):
            if known and train_freq.unit.value == "step":
                steps = _Steps(self, env, callback, replay_buffer, action_noise, log_interval)
                return self._collect_here(steps, callback, train_freq, learning_starts)
            return super().collect_rollouts(  # type: ignore[misc]
                env,
                callback,
                train_freq,
                replay_buffer,
                action_noise=action_noise,
                learning_starts=learning_starts,
                log_interval=log_interval,
            )

    def _collect_here(
        self, steps: _Steps, callback: Any, train_freq: Any, learning_starts: int
    ) -> Any:
        self.policy.set_training_mode(False)
        callback.on_rollout_start()
        goes_on = True
        while goes_on and should_collect_more_steps(
            train_freq, steps.num_steps, steps.num_episodes
        ):
            goes_on = steps.take(learning_starts)
        if goes_on:
            callback.on_rollout_end()
        num_env_steps = steps.num_steps * steps.num_envs
        return RolloutReturn(num_env_steps, steps.num_episodes, goes_on)

    def close(self) -> None:
        """Stops the Ray actors, if there are any; the next steps start new ones."""
        if self._remote is not None:
            self._remote.close()
            self._remote = None

    def set_env(self, env: Any, force_reset: bool = True) -> None:
        """Replaces the environment; workers are started anew for it."""
        self.close()
        super().set_env(env, force_reset)  # type: ignore[misc]

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "_remote"]  # type: ignore[misc]

    def _sample_action(
        self, learning_starts: int, action_noise: Any = None, n_envs: int = 1
    ) -> tuple[Array, Array]:
        """Samples as the algorithm does, with random actions drawn for all environments at once."""
        is_random = self.num_timesteps < learning_starts
        if not is_random and is_plain_dqn(self):
            # the generator that DQN.predict draws from
            if np.random.rand() < self.exploration_rate:  # noqa: NPY002
                is_random = True
            else:
                actions = self.policy.predict(self._last_obs, None, None, False)[0]
                return actions, actions
        if self.use_sde or not is_random or not can_sample_rows(self.action_space):
            chosen: tuple[Array, Array] = super()._sample_action(  # type: ignore[misc]
                learning_starts, action_noise, n_envs
            )
            return chosen
        actions = sample_rows(self.action_space, n_envs)
        if not isinstance(self.action_space, spaces.Box):
            return actions, actions
        scaled = self.policy.scale_action(actions)
        if action_noise is not None:
            scaled = np.clip(scaled + action_noise(), -1, 1)
        return self.policy.unscale_action(scaled), scaled


class _Steps:
    """The steps of one call of collect_rollouts."""

    def __init__(
        self,
        model: Any,
        env: NativeVecEnv,
        callback: Any,
        buffer: Any,
        action_noise: Any,
        log_interval: int | None,
    ) -> None:
        self._model = model
        self._env = env
        self._callback = callback
        self._buffer = buffer
        self._action_noise = action_noise
        self._log_interval = log_interval
        self._tells = reads_locals(callback)
        self.num_envs = env.num_envs
        self.num_steps = 0
        self.num_episodes = 0

    def take(self, learning_starts: int) -> bool:
        """Takes a step of every environment; returns False where a callback stops the training."""
        model, env = self._model, self._env
        obs = model._last_obs
        actions, kept = model._sample_action(learning_starts, self._action_noise, env.num_envs)
        env.send(actions)
        step = env.recv()
        done = step.terminated | step.truncated
        rewards = step.reward.astype(np.float32)
        model.num_timesteps += env.num_envs
        self.num_steps += 1
        if self._tells:
            self._tell(locals(), step, obs)
        if not self._callback.on_step():
            return False
        self._note_episodes(step, done)
        self._store(step, obs, kept, rewards, done)
        model._last_obs = step.obs
        model._update_current_progress_remaining(model.num_timesteps, model._total_timesteps)
        model._on_step()
        self._end_episodes(done)
        return True

    def _tell(self, collected: dict[str, Any], step: StepBatch, obs: Array) -> None:
        """Sets the callbacks' variables under the names that they have in the algorithm."""
        self._callback.update_locals(
            {
                "self": self._model,
                "env": self._env,
                "callback": self._callback,
                "replay_buffer": self._buffer,
                "action_noise": self._action_noise,
                "learning_starts": collected["learning_starts"],
                "log_interval": self._log_interval,
                "num_collected_steps": self.num_steps,
                "num_collected_episodes": self.num_episodes,
                "actions": collected["actions"],
                "buffer_actions": collected["kept"],
                "new_obs": step.obs,
                "rewards": collected["rewards"],
                "dones": collected["done"],
                "infos": self._env.make_infos(step, collected["done"], obs),
            }
        )

    def _note_episodes(self, step: StepBatch, done: NDArray[np.bool_]) -> None:
        if not done.any():
            return
        rows = np.flatnonzero(done)
        self._model.ep_info_buffer.extend(self._env.ended_episodes(step, rows).values())
        if "is_success" in step.info:
            self._model.ep_success_buffer.extend(step.info["is_success"][rows].tolist())

    def _store(
        self,
        step: StepBatch,
        obs: Array,
        actions: Array,
        rewards: NDArray[np.float32],
        done: NDArray[np.bool_],
    ) -> None:
        """Writes row `pos` of the replay as its `add` does."""
        buffer = self._buffer
        pos, size = buffer.pos, buffer.buffer_size
        shape = buffer.observations.shape[1:]
        buffer.observations[pos] = obs.reshape(shape)
        # the row that stores the next observation
        if buffer.optimize_memory_usage:
            after = buffer.observations[(pos + 1) % size]
        else:
            after = buffer.next_observations[pos]
        after[:] = step.obs.reshape(shape)
        for row in np.flatnonzero(done).tolist():
            after[row] = final_obs_of(step, row, obs)
        buffer.actions[pos] = actions.reshape(buffer.actions.shape[1:])
        buffer.rewards[pos] = rewards
        buffer.dones[pos] = done
        if buffer.handle_timeout_termination:
            buffer.timeouts[pos] = truncated_rows(step)
        buffer.pos = (pos + 1) % size
        buffer.full |= buffer.pos == 0

    def _end_episodes(self, done: NDArray[np.bool_]) -> None:
        model = self._model
        for row in np.flatnonzero(done).tolist():
            self.num_episodes += 1
            model._episode_num += 1
            if self._action_noise is not None:
                several = self._env.num_envs > 1
                self._action_noise.reset(**({"indices": [row]} if several else {}))
            if self._log_interval is not None and model._episode_num % self._log_interval == 0:
                model.dump_logs()


def is_plain_dqn(model: Any) -> bool:
    """Tells if the model explores by DQN's own epsilon-greedy `predict`."""
    return isinstance(model, DQN) and type(model).predict is DQN.predict


class RolloutsDQN(NativeTraining, OffPolicyRollouts, DQN):
    """Stable-Baselines3's DQN with the steps of `OffPolicyRollouts` and `NativeTraining`."""


class RolloutsSAC(NativeTraining, OffPolicyRollouts, SAC):
    """Stable-Baselines3's SAC with the steps of `OffPolicyRollouts` and `NativeTraining`."""


class RolloutsTD3(NativeTraining, OffPolicyRollouts, TD3):
    """Stable-Baselines3's TD3 with the steps of `OffPolicyRollouts` and `NativeTraining`."""


class RolloutsDDPG(NativeTraining, OffPolicyRollouts, DDPG):
    """Stable-Baselines3's DDPG with the steps of `OffPolicyRollouts` and `NativeTraining`."""
