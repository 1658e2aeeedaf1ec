# SPDX-License-Identifier: Apache-2.0
"""dm_env: batches of `TimeStep`s, and one environment for code such as Acme's loops.

What to change:

    env = rollouts.integrations.dm_env.Environment("CartPole-v1", seed=1)   # a dm_env.Environment
    envs = rollouts.integrations.dm_env.BatchedEnvironment("CartPole-v1", 64, seed=1)

The step after an episode's LAST step ignores its action and returns a FIRST step, which is
next-step autoreset: an environment made with another mode is refused, because its LAST would carry
the observation of another episode. The discount is 0 where the episode terminated and 1 everywhere
else, at a truncation too; where both happen in one step it is 0.

dm_env has no standard for batches: here each field is an array of B rows, reward is 0 and the
discount 1 in rows of step type FIRST (in a single environment's FIRST step both are None, as dm_env
demands).

Tasks of the DeepMind Control Suite hand out dicts of arrays by dm_control's names, as
`dm_control.suite.load` does; flatten_observation=True gives their flat rows.

Cost: two comparisons and a conversion of the reward per batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from rollouts.integrations.shared.missing import needs

from rollouts import make_vec
from rollouts.batch import StepBatch
from rollouts.envs.face import check_on_host
from rollouts.envs.vector_env import VectorEnv
from rollouts.errors import SpecError
from rollouts.families import dm_control

try:
    import dm_env
    import dm_env.specs
except ImportError as error:
    raise needs("dm-env", error) from error

Array = npt.NDArray[Any]

FIRST, MID, LAST = 0, 1, 2  # values of dm_env.StepType


def step_types(batch: StepBatch) -> Any:
    """(B,) int32: FIRST where the episode has no step yet, LAST where it ended, else MID."""
    ended = (batch.terminated | batch.truncated).astype(np.int32)
    begun = (batch.episode_length > 0).astype(np.int32)
    return begun + begun * ended


_NO_LIMIT = 1e10  # mjMAXVAL; dm_control/suite mujoco.action_spec


def spec_of_space(space: spaces.Space[Any], name: str) -> Any:
    """The spec of dm_env that describes one environment's observation or action."""
    if isinstance(space, spaces.Discrete):
        return dm_env.specs.DiscreteArray(int(space.n), dtype=np.int32, name=name)
    if isinstance(space, spaces.MultiDiscrete):
        return dm_env.specs.BoundedArray(space.shape, np.int64, 0, space.nvec - 1, name)
    if isinstance(space, spaces.Box):
        low, high = space.low, space.high
        if name == "action":
            # finite limits, as in dm_control, for agents that sample actions between them
            low, high = np.clip(low, -_NO_LIMIT, _NO_LIMIT), np.clip(high, -_NO_LIMIT, _NO_LIMIT)
        if low.size and np.all(low == low.flat[0]) and np.all(high == high.flat[0]):
            low, high = low.flat[0], high.flat[0]
        return dm_env.specs.BoundedArray(space.shape, space.dtype, low, high, name)
    if isinstance(space, spaces.Dict):
        return {key: spec_of_space(each, key) for key, each in space.items()}
    raise SpecError(f"{name} has the space {space}, expected Discrete, MultiDiscrete, Box or Dict")


class BatchedEnvironment:
    """N environments whose steps are TimeSteps of arrays.

    Attributes:
      env: The `rollouts.VectorEnv` within, with next-step autoreset.
    """

    def __init__(self, env: str | VectorEnv, num_envs: int = 1, **kwargs: Any) -> None:
        """Makes the environments, or takes existing ones.

        Args:
          env: An id for `rollouts.make_vec`, or its result.
          num_envs, kwargs: Arguments of `rollouts.make_vec`, where `env` is an id.

        Raises:
          SpecError: Autoreset is not next-step, or arguments are given for an existing environment.
        """
        if isinstance(env, str):
            kwargs.setdefault("flatten_observation", env not in dm_control.task_ids())
            env = make_vec(env, num_envs, **kwargs)
        elif kwargs or num_envs != 1:
            raise SpecError("num_envs and options are for environments made here: give an id")
        check_on_host(env)
        if env.autoreset_mode is not AutoresetMode.NEXT_STEP:
            raise SpecError(
                f"the environment has autoreset_mode {env.autoreset_mode.name}, expected "
                "NEXT_STEP: dm_env returns FIRST from the step after LAST"
            )
        self.env = env

    def observation_spec(self) -> Any:
        """One environment's spec: `BoundedArray` or `DiscreteArray`, or a dict of them by name."""
        return spec_of_space(self.env.single_observation_space, "observation")

    def action_spec(self) -> Any:
        """The spec of one environment's action."""
        return spec_of_space(self.env.single_action_space, "action")

    def reward_spec(self) -> Any:
        """The spec of one environment's reward: a float64."""
        return dm_env.specs.Array((), np.float64, "reward")

    def discount_spec(self) -> Any:
        """The spec of one environment's discount: a float64 from 0 to 1."""
        return dm_env.specs.BoundedArray((), np.float64, 0.0, 1.0, "discount")

    def reset(self) -> Any:
        """Starts new episodes everywhere; returns the first B rows, all of step type FIRST."""
        self.env.async_reset()
        return self.recv()

    def step(self, action: npt.ArrayLike) -> Any:
        """Steps the environments.

        Args:
          action: (B, *action_shape); rows whose last TimeStep was LAST are ignored.

        Returns:
          TimeStep of step_type (B,) int32, reward (B,) float64, discount (B,) float64 and
          observation (B, *obs_shape), or a dict of such arrays.
        """
        self.send(action)
        return self.recv()

    def send(self, action: npt.ArrayLike, env_id: npt.ArrayLike | None = None) -> None:
        """As `rollouts.VectorEnv.send`."""
        self.env.send(action, env_id)

    def recv(self) -> Any:
        """Waits for the next batch; `env_id` has its rows' environments."""
        batch = self.env.recv_batch()
        self._env_id = batch.env_id
        return dm_env.TimeStep(
            step_type=step_types(batch),
            reward=batch.reward,
            discount=1.0 - batch.terminated.astype(np.float64),
            observation=batch.obs,
        )

    @property
    def env_id(self) -> Array:
        """(B,) int32: the environments of the last batch."""
        return self._env_id

    def close(self) -> None:
        """Stops the threads and frees the environments. May be called twice."""
        self.env.close()

    def __enter__(self) -> BatchedEnvironment:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Environment(dm_env.Environment):
    """One environment as `dm_env.Environment`.

    Attributes:
      env: The `rollouts.VectorEnv` within, of one environment.

    Example:
      env = Environment("CartPole-v1", seed=1)
      step = env.reset()
      while not step.last():
          step = env.step(1)
    """

    def __init__(self, id: str, **kwargs: Any) -> None:
        """Makes the environment; arguments as of `rollouts.make_vec`, without num_envs."""
        self._batch = BatchedEnvironment(id, 1, **kwargs)
        self.env = self._batch.env
        self._started = False

    def reset(self) -> Any:
        """Starts a new episode; returns its first TimeStep."""
        self._started = True
        return self._single(self._batch.reset())

    def step(self, action: Any) -> Any:
        """Steps; after a LAST step, and at the very first call, does what `reset` does."""
        if not self._started:
            return self.reset()
        return self._single(self._batch.step(np.asarray(action)[None]))

    def observation_spec(self) -> Any:
        """The spec of an observation."""
        return self._batch.observation_spec()

    def action_spec(self) -> Any:
        """The spec of an action."""
        return self._batch.action_spec()

    def reward_spec(self) -> Any:
        """A float64."""
        return self._batch.reward_spec()

    def discount_spec(self) -> Any:
        """A float64 from 0 to 1."""
        return self._batch.discount_spec()

    def close(self) -> None:
        """Stops the threads and frees the environment."""
        self._batch.close()

    def _single(self, step: Any) -> Any:
        if isinstance(step.observation, dict):
            observation: Any = {name: one[0, ...] for name, one in step.observation.items()}
        else:
            observation = step.observation[0]
        if isinstance(self._batch.env.single_observation_space, spaces.Discrete):
            # the spec's dtype
            observation = np.int32(observation)
        if step.step_type[0] == FIRST:
            return dm_env.restart(observation)
        return dm_env.TimeStep(
            dm_env.StepType(int(step.step_type[0])),
            np.float64(step.reward[0]),
            np.float64(step.discount[0]),
            observation,
        )
