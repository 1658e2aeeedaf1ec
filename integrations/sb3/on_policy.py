# SPDX-License-Identifier: Apache-2.0
"""PPO and A2C whose rollouts are written straight into the RolloutBuffer."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from rollouts.batch import StepBatch
from rollouts.collecting.policy_engine import Engine
from rollouts.machine.torch_threads import beside_a_pool

from ..shared.missing import needs
from .callbacks import reads_locals
from .native_rollouts import ModelPolicyReader, check_engine, collect, fits
from .native_train import NativeTraining
from .native_vec_env import NativeVecEnv, final_obs_of, is_direct, truncated_rows
from .policy_forward import ActorCriticForward, env_actions
from .remote import RemoteRollouts, WorkerOptions, closed_by_errors

try:
    from stable_baselines3 import A2C, PPO
    from stable_baselines3.common.utils import obs_as_tensor
except ImportError as error:
    raise needs("sb3", error) from error

Array = NDArray[Any]


class OnPolicyRollouts:
    """A mixin to list before an `OnPolicyAlgorithm`: the same rollouts, collected in less time.

    Native engine: the pool's threads compute the policy, without torch and without Python. Actions
    are drawn from other random streams (torch's generator gives their seed); values and log_probs
    equal torch's within 1e-5; all else is as in the algorithm's own `collect_rollouts` with these
    actions. Callbacks are called for every step, with all its variables, but after the whole
    rollout: their changes of environments or weights take effect in the next rollout, and steps
    after a stop are made but not counted. `rollout_engine="auto"` leaves to torch: layers that
    native code lacks, such as convolutions, gSDE and layers with hooks; large policies on a GPU;
    environments whose infos have is_success or lives; callbacks that may read infos where the
    environments have some of their own, or where failures do not end the training. `engine` and
    `why_not_native` describe the last rollout; before the first one, a rollout without callbacks.

    Torch engine: the buffer's contents, the random numbers drawn, `ep_info_buffer`,
    `num_timesteps` and the callbacks' calls are those of the algorithm's own method on the same
    environment, bit for bit. Infos are built only for callbacks that may read them. The algorithm's
    own method collects where there are: environments behind a VecEnvWrapper (the native engine
    supports VecNormalize), gSDE, buffers other than RolloutBuffer. Torch computes with
    `num_torch_threads`, where None stands for 1 unless the policy is large: see
    `rollouts.machine.torch_threads`. A large policy's last bits depend on that number, in the
    algorithm's own method, too.

    With `num_workers` the environments are divided among Ray actors, each with a copy of the
    policy. All workers collect at the same time with the newest weights, each its columns of the
    buffer: on-policy, with as many steps per update as without workers. Callbacks are called as
    with the native engine, infos have only a Monitor's entries, and actions are drawn from other
    random streams.
    `close` stops the actors, and so does an error that ends `learn`.
    """

    num_torch_threads: int | None = None

    # attributes of the algorithm that this is mixed into
    env: Any
    policy: Any
    rollout_buffer: Any
    n_steps: int
    device: Any
    gamma: float
    action_space: Any
    use_sde: bool
    num_timesteps: int
    ep_info_buffer: Any
    ep_success_buffer: Any
    _last_obs: Any
    _last_episode_starts: Any

    def __init__(
        self,
        *args: Any,
        rollout_engine: Engine = "auto",
        num_workers: int = 0,
        worker_options: WorkerOptions = None,
        **kwargs: Any,
    ) -> None:
        """Takes the algorithm's arguments and three more.

        Args:
          args, kwargs: Arguments of the algorithm, whose env is a NativeVecEnv.
          rollout_engine: "native": the pool's threads compute the policy; "torch": torch does;
            "auto": native where that is possible. See the class.
          num_workers: Ray actors that collect; 0 collects in this process, without Ray.
          worker_options: Further arguments of `rollouts.RolloutCoordinator`, such as ray_address or
            num_threads_per_worker.
        Raises:
          SpecError: rollout_engine is no engine. `learn` raises it where "native" is not possible.
        """
        # set before the algorithm's constructor, because load() overwrites these with saved values
        self.rollout_engine: str = check_engine(rollout_engine)
        self._reader = ModelPolicyReader()
        self.num_workers = num_workers
        self.worker_options = worker_options
        self._remote: RemoteRollouts | None = None
        super().__init__(*args, **kwargs)

    def learn(self, *args: Any, **kwargs: Any) -> Self:
        """Runs the algorithm's own `learn`; an error also stops the Ray actors."""
        with closed_by_errors(self):
            return super().learn(*args, **kwargs)  # type: ignore[misc, no-any-return]

    def collect_rollouts(
        self, env: Any, callback: Any, rollout_buffer: Any, n_rollout_steps: int
    ) -> bool:
        """Fills the buffer; returns False where a callback ended the training."""
        is_known = fits(rollout_buffer, n_rollout_steps)
        if self.num_workers:
            return self._collect_remotely(env, callback, rollout_buffer, n_rollout_steps, is_known)
        native = self._reader.choose(self, env, callback, rollout_buffer, n_rollout_steps)
        if native is not None:
            return collect(native, self, env, callback, rollout_buffer)
        with beside_a_pool(self.policy, env.num_envs, self.num_torch_threads):
            if not is_known or self.use_sde or not is_direct(env):
                ended: bool = super().collect_rollouts(  # type: ignore[misc]
                    env, callback, rollout_buffer, n_rollout_steps
                )
                return ended
            self.policy.set_training_mode(False)
            rollout_buffer.reset()
            callback.on_rollout_start()
            return _Rollout(self, env, callback, rollout_buffer).collect()

    @property
    def engine(self) -> str:
        """The engine that computes the policy: "native", or "torch"."""
        return "torch" if self._engine_choice()[0] is None else "native"

    @property
    def why_not_native(self) -> str:
        """The reason why torch computes the policy; "" where it does not."""
        return self._engine_choice()[1]

    def close(self) -> None:
        """Stops the Ray actors, if there are any; the next rollout starts new ones."""
        if self._remote is not None:
            self._remote.close()
            self._remote = None

    def set_env(self, env: Any, force_reset: bool = True) -> None:
        """Replaces the environment; workers are started anew for it."""
        self.close()
        self._reader = ModelPolicyReader()
        super().set_env(env, force_reset)  # type: ignore[misc]

    def note_episodes(self, env: NativeVecEnv, step: StepBatch, done: NDArray[np.bool_]) -> None:
        """Updates ep_info_buffer as `_update_info_buffer` does, without infos."""
        if not done.any():
            return
        rows = np.flatnonzero(done)
        self.ep_info_buffer.extend(env.ended_episodes(step, rows).values())
        if "is_success" in step.info:
            self.ep_success_buffer.extend(step.info["is_success"][rows].tolist())

    def _engine_choice(self) -> tuple[Any, str]:
        if self._reader.choice is None:
            if self.num_workers:
                self._reader.choose_for_workers(self, self.env)
            else:
                buffer = self.rollout_buffer
                self._reader.choose(self, self.env, None, buffer, self.n_steps)
        assert self._reader.choice is not None
        return self._reader.choice

    def _collect_remotely(
        self, env: Any, callback: Any, buffer: Any, num_steps: int, fits: bool
    ) -> bool:
        if self._remote is None:
            self._remote = RemoteRollouts.start(self, env, num_steps, fits)
        goes_on: bool = self._remote.collect(self, callback, buffer)
        return goes_on

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "_remote", "_reader"]  # type: ignore[misc]


class _Rollout:
    """One call of collect_rollouts, with its local variables, which callbacks may read."""

    def __init__(self, model: Any, env: NativeVecEnv, callback: Any, buffer: Any) -> None:
        self._model = model
        self._env = env
        self._callback = callback
        self._buffer = buffer
        self._tells = reads_locals(callback)
        self._forward = ActorCriticForward(model.policy)
        # Discrete observations are (T, N, 1) in the buffer and (N,) everywhere else
        shape = (buffer.buffer_size, env.num_envs, *(env.observation_space.shape or ()))
        self._obs = buffer.observations.reshape(shape)

    def collect(self) -> bool:
        model, buffer = self._model, self._buffer
        self._obs[0] = model._last_obs
        obs = self._obs[0]
        done: NDArray[np.bool_] = np.zeros(0, np.bool_)
        for t in range(buffer.buffer_size):
            obs_tensor = obs_as_tensor(obs, model.device)
            actions, values, log_probs = self._forward.act(obs_tensor)
            chosen = actions.cpu().numpy()
            clipped = env_actions(model, chosen)
            # the environments write into the buffer, except the observation after the last row
            is_last = t + 1 == buffer.buffer_size
            self._env.send(clipped, None if is_last else {"obs": self._obs[t + 1]})
            self._write_choice(t, chosen, values, log_probs)
            step = self._env.recv()
            done = step.terminated | step.truncated
            rewards = step.reward.astype(np.float32)
            model.num_timesteps += self._env.num_envs
            if self._tells:
                self._tell(locals(), step, obs)
            if not self._callback.on_step():
                return False
            model.note_episodes(self._env, step, done)
            self._bootstrap(step, obs, rewards)
            buffer.rewards[t] = rewards
            buffer.pos = t + 1
            obs = model._last_obs = step.obs
            model._last_episode_starts = done
        buffer.full = True
        return self._finish(obs, done)

    def _write_choice(self, t: int, actions: Array, values: Any, log_probs: Any) -> None:
        buffer, model = self._buffer, self._model
        buffer.actions[t] = actions.reshape(buffer.actions.shape[1:])
        buffer.values[t] = values.cpu().numpy().reshape(-1)
        buffer.log_probs[t] = log_probs.cpu().numpy()
        buffer.episode_starts[t] = model._last_episode_starts

    def _tell(self, collected: dict[str, Any], step: StepBatch, obs: Array) -> None:
        """Sets the callbacks' variables under the names that they have in the algorithm."""
        self._callback.update_locals(
            {
                "self": self._model,
                "env": self._env,
                "callback": self._callback,
                "rollout_buffer": self._buffer,
                "n_rollout_steps": self._buffer.buffer_size,
                "n_steps": collected["t"],
                "obs_tensor": collected["obs_tensor"],
                "actions": collected["chosen"],
                "values": collected["values"],
                "log_probs": collected["log_probs"],
                "clipped_actions": collected["clipped"],
                "new_obs": step.obs,
                "rewards": collected["rewards"],
                "dones": collected["done"],
                "infos": self._env.make_infos(step, collected["done"], obs),
            }
        )

    def _bootstrap(self, step: StepBatch, obs: Array, rewards: NDArray[np.float32]) -> None:
        """Adds the values of truncated episodes row by row, as a batch would round differently."""
        cut = truncated_rows(step)
        if not cut.any():
            return
        for row in np.flatnonzero(cut).tolist():
            final = obs_as_tensor(final_obs_of(step, row, obs)[None], self._model.device)
            rewards[row] += self._model.gamma * self._forward.value(final)[0]

    def _finish(self, obs: Array, done: NDArray[np.bool_]) -> bool:
        buffer = self._buffer
        with torch.no_grad():
            values = self._model.policy.predict_values(obs_as_tensor(obs, self._model.device))
        if not np.isfinite(buffer.log_probs).all():
            raise ValueError(
                f"the policy gave log_probs that are not finite, values up to "
                f"{np.abs(buffer.values).max()}: training has diverged, lower the learning rate"
            )
        buffer.compute_returns_and_advantage(last_values=values, dones=done)
        self._callback.update_locals({"new_obs": obs, "values": values, "dones": done})
        self._callback.on_rollout_end()
        return True


class RolloutsPPO(NativeTraining, OnPolicyRollouts, PPO):
    """Stable-Baselines3's PPO with the rollouts of `OnPolicyRollouts`, and the gradient steps of
    `NativeTraining`."""


class RolloutsA2C(NativeTraining, OnPolicyRollouts, A2C):
    """Stable-Baselines3's A2C with the rollouts of `OnPolicyRollouts`, and the gradient steps of
    `NativeTraining`."""
