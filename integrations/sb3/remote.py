# SPDX-License-Identifier: Apache-2.0
"""On-policy rollouts from Ray workers, each of which has some columns of the buffer."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from rollouts import _native
from rollouts.errors import SpecError
from rollouts.policies.native import NativePolicy
from rollouts.policy import PolicyOutput, as_tensor

from ..shared.whole_games import Episode
from .finished import FinishedRollout
from .native_vec_env import NativeVecEnv
from .normalize import parted, statistics_of, take_statistics, worker_options
from .policy_forward import ActorCriticForward

if TYPE_CHECKING:
    from stable_baselines3.common.vec_env import VecNormalize

    from rollouts import RolloutCoordinator
    from rollouts.policy import Policy
    from rollouts.workers import Fragment, PolicySpec

Array = NDArray[Any]
WorkerOptions = Mapping[str, Any] | None

# options that the adapter sets itself
_OURS = ("sync_mode", "merge", "queue", "rollout_length", "num_envs_per_worker")


@dataclass(frozen=True, slots=True)
class MakeActor:
    """Makes the policy of a worker; can be pickled.

    Attributes:
      policy_class: One of Stable-Baselines3's actor-critic policies.
      spaces: Spaces of the model: observation, action.
      policy_kwargs: The model's argument of this name.
      engine: Engine that computes the policy; "auto": native code where it can.
    """

    policy_class: Callable[..., Any]
    spaces: tuple[spaces.Space[Any], spaces.Space[Any]]
    policy_kwargs: Mapping[str, Any]
    engine: str

    def __call__(self, spec: PolicySpec) -> Policy:
        """Makes the policy with weights that are replaced before it acts."""
        policy = self.policy_class(*self.spaces, no_learning_rate, **self.policy_kwargs)
        is_slow = _native.policy_kernels_in_use() == "emulated"
        if self.engine == "torch" or (self.engine == "auto" and is_slow):
            return RemoteActor(policy, spec.seed)
        policy.set_training_mode(False)
        obs_space, action_space = self.spaces
        return NativePolicy.from_torch(policy, action_space, obs_space, seed=spec.seed)


class RemoteActor:
    """An actor-critic policy of Stable-Baselines3 as a `rollouts.policy.Policy`."""

    def __init__(self, policy: Any, seed: int) -> None:
        policy.set_training_mode(False)
        self._module = policy
        self._forward = ActorCriticForward(policy)
        self.policy_version = 0
        # its distributions draw from torch's own generator, one in each worker's process
        torch.manual_seed(seed & (2**63 - 1))

    def act(self, obs: Array) -> PolicyOutput:
        """Samples an action for each row of `obs`, not clipped."""
        actions, values, log_probs = self._forward.act(as_tensor(obs))
        return PolicyOutput(actions.numpy(), log_probs.numpy(), values.numpy().reshape(-1))

    def value(self, obs: Array) -> NDArray[np.float32]:
        """Computes the value of each row of `obs`."""
        values: NDArray[np.float32] = self._forward.value(as_tensor(obs)).numpy().reshape(-1)
        return values

    def weights(self) -> dict[str, Array]:
        """A copy of the module's parameters and buffers."""
        return weights_of(self._module)

    def load_weights(self, weights: Mapping[str, Array], version: int) -> None:
        """Copies the weights into the module."""
        self._module.load_state_dict(
            {name: as_tensor(np.asarray(array)) for name, array in weights.items()}
        )
        self.policy_version = version


def weights_of(policy: Any) -> dict[str, Array]:
    """The policy's parameters and buffers as arrays of their own."""
    return {name: np.array(value.cpu().numpy()) for name, value in policy.state_dict().items()}


class RemoteRollouts:
    """The coordinator of a model's workers; turns their fragments into rollouts."""

    def __init__(self, coordinator: RolloutCoordinator, env: Any) -> None:
        direct, self._normalizer = parted(env)
        assert direct is not None
        self._coordinator = coordinator
        self._env = env
        self._direct = direct
        self._incarnations = [-1] * coordinator.num_workers

    @classmethod
    def start(cls, model: Any, env: Any, num_steps: int, fits: bool) -> RemoteRollouts:
        """Starts the workers of a model; does not wait for them.

        Raises:
          SpecError: The environment, the buffer or the policy cannot be collected remotely.
        """
        direct, normalizer = parted(env)
        check_remote(model, direct or env, fits)
        assert direct is not None
        options: dict[str, Any] = {}
        if normalizer:
            check_counts(normalizer)
            options = worker_options(normalizer)
        is_native = model._reader.choose_for_workers(model, env) is not None
        make_policy = MakeActor(
            model.policy_class,
            (model.observation_space, model.action_space),
            {**model.policy_kwargs, "use_sde": False},
            model.rollout_engine if is_native else "torch",
        )
        coordinator = start_coordinator(model, direct, num_steps, make_policy, options=options)
        return cls(coordinator, env)

    def collect(self, model: Any, callback: Any, buffer: Any) -> bool:
        """Fills the buffer with one fragment of each worker; see `collect_rollouts`."""
        buffer.reset()
        callback.on_rollout_start()
        # the statistics are set first, because they are sent with the weights
        if self._normalizer:
            check_counts(self._normalizer)
            self._coordinator.statistics = statistics_of(self._normalizer)
        self._coordinator.publish_weights(weights_of(model.policy))
        fragments = self._coordinator.get_fragments(self._coordinator.num_workers)
        if self._normalizer:
            take_statistics(self._normalizer, self._coordinator.statistics)
        self._write(model, buffer, fragments)
        batches = [fragment.batch for fragment in fragments]
        bootstrap = side_by_side([b.bootstrap_value for b in batches])
        return FinishedRollout(
            last_obs=np.concatenate([b.last_obs for b in batches]),
            last_value=np.concatenate([b.last_value for b in batches]),
            ended=side_by_side([b.terminated | b.truncated for b in batches]),
            cut=side_by_side([b.truncated & ~b.terminated for b in batches]),
            bootstrap=np.float32(model.gamma) * bootstrap,
            episodes=episodes_of(self._direct, batches),
        ).finish(model, self._env, callback, buffer)

    def close(self) -> None:
        """Stops the workers."""
        self._coordinator.close()

    def _write(self, model: Any, buffer: Any, fragments: list[Fragment]) -> None:
        column = 0
        for fragment in fragments:
            batch = fragment.batch
            columns = slice(column, column + batch.env_id.size)
            column = columns.stop
            shape = buffer.observations[:, columns].shape
            buffer.observations[:, columns] = batch.obs.reshape(shape)
            buffer.actions[:, columns] = batch.action.reshape(*shape[:2], -1)
            buffer.rewards[:, columns] = batch.reward
            buffer.values[:, columns] = batch.value
            buffer.log_probs[:, columns] = batch.log_prob
            ended = batch.terminated | batch.truncated
            buffer.episode_starts[1:, columns] = ended[:-1]
            # a worker that was started again began new episodes
            is_new = self._incarnations[fragment.worker_id] != fragment.incarnation
            before = True if is_new else model._last_episode_starts[columns]
            buffer.episode_starts[0, columns] = before
            self._incarnations[fragment.worker_id] = fragment.incarnation


@contextmanager
def closed_by_errors(model: Any) -> Iterator[None]:
    """Closes a model's workers where an error ends its training.

    Otherwise the actors would keep their CPUs as long as the error's traceback exists, and later
    actors of the same Ray would wait for these CPUs. The workers could not go on either: fragments
    of the interrupted rollout may still be on their way.
    """
    try:
        yield
    except BaseException:
        model.close()
        raise


def side_by_side(arrays: list[Array]) -> Array:
    """Joins (T, B, ...) arrays of several workers."""
    return np.concatenate(arrays, axis=1)


def episodes_of(env: NativeVecEnv, batches: list[Any]) -> list[Episode]:
    """A Monitor's records of the episodes that ended, by time and then by environment."""
    ended = side_by_side([b.terminated | b.truncated for b in batches])
    returns = side_by_side([b.episode_return for b in batches])[ended]
    lengths = side_by_side([b.episode_length for b in batches])[ended]
    return env.episode_records(returns, lengths.astype(np.int64))


def start_coordinator(
    model: Any,
    env: NativeVecEnv,
    num_steps: int,
    make_policy: Any,
    *,
    keep_final_obs: bool = False,
    options: Mapping[str, Any] | None = None,
) -> RolloutCoordinator:
    """Starts the workers of a model, each with its share of the environments.

    Args:
      model: Its num_workers, worker_options and seed are used.
      env: The environments that the workers make again.
      num_steps: Steps T of a rollout.
      make_policy: Argument of `rollouts.RolloutCoordinator`.
      keep_final_obs: Field of `rollouts.workers.CollectOptions`.
      options: Wrappers that workers put around their environments.
    """
    from rollouts import RolloutCoordinator
    from rollouts.workers import CollectOptions, QueueLimits

    env_id, num_envs, recipe = env.pool.engine.recipe
    assert isinstance(env_id, str)  # lists were refused before
    given = dict(model.worker_options or {})
    collect = given.pop("collect", CollectOptions())
    if keep_final_obs:
        collect = replace(collect, keep_final_obs=True)
    seed = recipe["seed"] if model.seed is None else model.seed
    if seed is None:
        seed = secrets.randbits(31)
    return RolloutCoordinator(
        env_id,
        make_policy,
        num_workers=model.num_workers,
        num_envs_per_worker=num_envs // model.num_workers,
        rollout_length=num_steps,
        seed=int(given.pop("seed", seed)),
        env_options={
            **recipe["env_options"],
            "max_episode_steps": recipe["max_episode_steps"],
            **(options or {}),
        },
        sync_mode="synchronous",
        # one fragment of each worker, in their order: column i is always environment i
        queue=QueueLimits(credits_per_worker=1, merge="ordered"),
        collect=collect,
        **given,
    )


def check_counts(normalizer: VecNormalize) -> None:
    """Raises SpecError where workers would update statistics that are frozen here."""
    if not normalizer.training:
        raise SpecError(
            "VecNormalize has training=False, and workers count what they scale by: collect with "
            "num_workers=0, or set training to True"
        )


def check_remote(model: Any, env: Any, fits: bool) -> None:
    """Raises SpecError where workers cannot collect for a model.

    Args:
      model: The algorithm.
      env: Its environment.
      fits: Whether its buffer has a type that is filled here.
    """
    if type(env) is not NativeVecEnv or not env.counts_from_zero:
        raise SpecError(
            f"num_workers={model.num_workers} needs a NativeVecEnv without wrappers, or with a "
            f"VecNormalize for on-policy algorithms, which workers can make again; got {env!r}"
        )
    env_id, num_envs, recipe = env.pool.engine.recipe
    if not isinstance(env_id, str) or any(
        isinstance(v, list) for v in recipe["env_options"].values()
    ):
        raise SpecError(
            f"num_workers={model.num_workers} needs environments of one id with the same options; "
            f"got {env.pool!r}, whose environments differ"
        )
    if num_envs % model.num_workers:
        raise SpecError(
            f"{num_envs} environments cannot be divided among {model.num_workers} workers: "
            "make num_envs a multiple of num_workers"
        )
    if not fits or model.use_sde:
        raise SpecError(
            "num_workers needs Stable-Baselines3's own RolloutBuffer or ReplayBuffer and "
            "use_sde=False: collect with num_workers=0"
        )
    options = model.worker_options or {}
    taken = sorted(set(_OURS) & set(options))
    if getattr(options.get("collect"), "batch_size", None) is not None:
        taken.append("collect.batch_size")
    if taken:
        raise SpecError(f"worker_options has {taken}, which the model's env and n_steps decide")
    assert env.pool.autoreset_mode is AutoresetMode.SAME_STEP


def no_learning_rate(progress_remaining: float) -> float:
    """Returns 0 as the learning rate of a worker's optimiser, which is made but never used."""
    return 0.0
