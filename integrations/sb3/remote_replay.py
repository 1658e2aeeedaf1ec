# SPDX-License-Identifier: Apache-2.0
"""Steps for a ReplayBuffer from Ray workers, each of which has some of the environments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from rollouts.errors import SpecError
from rollouts.policy import PolicyOutput, as_tensor

from ..shared.missing import needs
from .callbacks import reads_locals
from .native_vec_env import NativeVecEnv
from .random_actions import can_sample_rows, sample_rows
from .remote import (
    check_remote,
    episodes_of,
    no_learning_rate,
    side_by_side,
    start_coordinator,
)

try:
    from stable_baselines3.common.type_aliases import RolloutReturn
except ImportError as error:
    raise needs("sb3", error) from error

if TYPE_CHECKING:
    from rollouts import RolloutCoordinator
    from rollouts.workers import PolicySpec

Array = NDArray[Any]

# prefixes of the names of the weights that actions are computed with
_ACTING = ("q_net.", "actor.")
# name of an array among the weights: [1.0 if all actions are random, DQN's exploration rate]
_EXPLORATION = "rollouts.exploration"


@dataclass(frozen=True, slots=True)
class MakeExplorer:
    """Makes the policy of a worker; can be pickled. Has the attributes of `remote.MakeActor`."""

    policy_class: Callable[..., Any]
    spaces: tuple[spaces.Space[Any], spaces.Space[Any]]
    policy_kwargs: Mapping[str, Any]

    def __call__(self, spec: PolicySpec) -> Explorer:
        """Makes the policy with weights that are replaced before it acts."""
        policy = self.policy_class(*self.spaces, no_learning_rate, **self.policy_kwargs)
        return Explorer(policy, self.spaces[1], spec.seed)


class Explorer:
    """A policy of an off-policy algorithm, with its exploration, as a `rollouts.policy.Policy`."""

    def __init__(self, policy: Any, action_space: Any, seed: int) -> None:
        policy.set_training_mode(False)
        self._module = policy
        self._space = action_space
        self._space.seed(seed % 2**32)
        self._rng = np.random.default_rng(seed)
        torch.manual_seed(seed & (2**63 - 1))
        self._is_random, self._epsilon = True, 0.0
        self.policy_version = 0

    def act(self, obs: Array) -> PolicyOutput:
        """Chooses actions; the extras' "kept" has them in the form that the replay stores."""
        if self._is_random or self._rng.random() < self._epsilon:
            action = sample_rows(self._space, len(obs))
        else:
            action, _ = self._module.predict(obs, deterministic=False)
        kept = action
        if isinstance(self._space, spaces.Box):
            kept = self._module.scale_action(action)
            action = self._module.unscale_action(kept)
        nothing = np.zeros(len(obs), np.float32)
        return PolicyOutput(action, nothing, nothing, {"kept": kept})

    def value(self, obs: Array) -> NDArray[np.float32]:
        """Returns zeros: off-policy algorithms compute values when they learn."""
        return np.zeros(len(obs), np.float32)

    def weights(self) -> dict[str, Array]:
        """A copy of the weights that choose actions, and of the exploration settings."""
        return acting_weights(self._module, self._is_random, self._epsilon)

    def load_weights(self, weights: Mapping[str, Array], version: int) -> None:
        """Copies the weights into the module."""
        given = dict(weights)
        is_random, epsilon = given.pop(_EXPLORATION)
        self._is_random, self._epsilon = bool(is_random), float(epsilon)
        state = {name: as_tensor(np.asarray(array)) for name, array in given.items()}
        self._module.load_state_dict(state, strict=False)
        self.policy_version = version


def acting_weights(policy: Any, is_random: bool, epsilon: float) -> dict[str, Array]:
    """The arrays, copied, that `Explorer.load_weights` takes."""
    arrays = {
        name: np.array(value.cpu().numpy())
        for name, value in policy.state_dict().items()
        if name.startswith(_ACTING)
    }
    return arrays | {_EXPLORATION: np.array([is_random, epsilon], np.float64)}


class RemoteReplay:
    """The coordinator of a model's workers; writes their fragments into a replay buffer.

    Each call of `collect` takes one fragment of each worker, made with the weights and the
    exploration rate at its beginning. Callbacks are called for every step, after the fragments.
    """

    def __init__(self, coordinator: RolloutCoordinator, env: NativeVecEnv) -> None:
        self._coordinator = coordinator
        self._env = env
        self._tells = True

    @classmethod
    def start(cls, model: Any, env: Any, num_steps: int, fits: bool) -> RemoteReplay:
        """Starts the workers of a model; does not wait for them.

        Raises:
          SpecError: The environment, the buffer or the exploration is not possible with workers.
        """
        check_remote(model, env, fits)
        if model.action_noise is not None:
            raise SpecError(
                "num_workers cannot carry action_noise to the workers: use DQN or SAC, whose "
                "policies explore by themselves, or num_workers=0"
            )
        if not can_sample_rows(model.action_space):
            raise SpecError(f"num_workers needs Discrete or Box actions, got {model.action_space}")
        make_policy = MakeExplorer(
            model.policy_class,
            (model.observation_space, model.action_space),
            {**model.policy_kwargs},
        )
        return cls(start_coordinator(model, env, num_steps, make_policy, keep_final_obs=True), env)

    def collect(
        self, model: Any, callback: Any, buffer: Any, learning_starts: int, log_interval: int | None
    ) -> Any:
        """Fills rows of the buffer; see `OffPolicyAlgorithm.collect_rollouts`."""
        callback.on_rollout_start()
        self._tells = reads_locals(callback)
        is_random = model.num_timesteps < learning_starts
        epsilon = getattr(model, "exploration_rate", 0.0)
        self._coordinator.publish_weights(acting_weights(model.policy, is_random, epsilon))
        fragments = self._coordinator.get_fragments(self._coordinator.num_workers)
        rollout = _Rollout.of([fragment.batch for fragment in fragments], self._env)
        num_steps = len(rollout.reward)
        for t in range(num_steps):
            if not self._take(model, callback, buffer, rollout, t, log_interval):
                return RolloutReturn((t + 1) * buffer.n_envs, rollout.ends_until(t), False)
        model._last_obs = rollout.obs[-1]
        callback.on_rollout_end()
        return RolloutReturn(num_steps * buffer.n_envs, rollout.ends_until(num_steps), True)

    def close(self) -> None:
        """Stops the workers."""
        self._coordinator.close()

    def _take(
        self,
        model: Any,
        callback: Any,
        buffer: Any,
        rollout: _Rollout,
        t: int,
        log_interval: int | None,
    ) -> bool:
        """Makes the updates of step t that a step of the algorithm's own loop makes."""
        model.num_timesteps += buffer.n_envs
        infos = rollout.infos(t)
        if self._tells:
            names = {"infos": infos, "dones": rollout.ended[t], "env": self._env, "self": model}
            names |= {"rewards": rollout.reward[t], "actions": rollout.action[t]}
            callback.update_locals(names | {"replay_buffer": buffer})
        if not callback.on_step():
            return False
        model._update_info_buffer(infos, rollout.ended[t])
        buffer.add(
            rollout.obs[t],
            rollout.next_obs(t),
            rollout.kept[t],
            rollout.reward[t],
            rollout.ended[t],
            infos,
        )
        model._update_current_progress_remaining(model.num_timesteps, model._total_timesteps)
        model._on_step()
        for _ in range(int(rollout.ended[t].sum())):
            model._episode_num += 1
            if log_interval is not None and model._episode_num % log_interval == 0:
                model.dump_logs()
        return True


@dataclass(frozen=True, slots=True)
class _Rollout:
    """The fragments side by side: (T, N, ...), obs (T + 1, N, ...), and ends by (t, env)."""

    obs: Array
    action: Array
    kept: Array
    reward: NDArray[np.float32]
    ended: NDArray[np.bool_]
    cut: NDArray[np.bool_]
    final_obs: dict[tuple[int, int], Array]
    episodes: dict[tuple[int, int], dict[str, float]]

    @classmethod
    def of(cls, batches: list[Any], env: NativeVecEnv) -> _Rollout:
        ended = side_by_side([b.terminated | b.truncated for b in batches])
        final_obs: dict[tuple[int, int], Array] = {}
        first = 0
        for b in batches:
            cells = np.argwhere(b.terminated | b.truncated)
            for (t, row), last in zip(cells.tolist(), b.final_obs, strict=True):
                final_obs[t, row + first] = last
            first += b.env_id.size
        ends = [(t, row) for t, row in np.argwhere(ended).tolist()]
        return cls(
            side_by_side([np.concatenate([b.obs, b.last_obs[None]]) for b in batches]),
            side_by_side([b.action for b in batches]),
            side_by_side([b.extras["kept"] for b in batches]),
            side_by_side([b.reward for b in batches]),
            ended,
            side_by_side([b.truncated & ~b.terminated for b in batches]),
            final_obs,
            # empty without monitor
            dict(zip(ends, episodes_of(env, batches), strict=False)),
        )

    def next_obs(self, t: int) -> Array:
        """The observations that followed step t; where an episode ended, its last one."""
        following = np.array(self.obs[t + 1])
        for row in np.flatnonzero(self.ended[t]).tolist():
            following[row] = self.final_obs[t, row]
        return following

    def infos(self, t: int) -> list[dict[str, Any]]:
        """The infos of step t."""
        infos: list[dict[str, Any]] = [{"TimeLimit.truncated": c} for c in self.cut[t].tolist()]
        for row in np.flatnonzero(self.ended[t]).tolist():
            infos[row]["terminal_observation"] = self.final_obs[t, row]
            if self.episodes:
                infos[row]["episode"] = self.episodes[t, row]
        return infos

    def ends_until(self, t: int) -> int:
        """Episodes that ended before step t."""
        return int(self.ended[:t].sum())
