# SPDX-License-Identifier: Apache-2.0
"""Contestants for Stable-Baselines3: PPO's `collect_rollouts`, with its default 2x64 networks.

All fill the same RolloutBuffer, with advantages, and with infos and callbacks as in `learn`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rollouts.integrations.sb3 import NativeVecEnv, RolloutsPPO
from rollouts.integrations.shared.missing import needs

from comparisons.adapters.measuring import Case, Contestant

try:
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv
except ImportError as error:
    raise needs("sb3", error) from error

# SubprocVecEnv starts a process for each environment
_MAX_PROCESSES = 64


class PpoCollects:
    """PPO that collects rollout after rollout and does not learn."""

    def __init__(
        self,
        algorithm: Callable[..., Any],
        env: Any,
        case: Case,
        note: str = "",
        **settings: Any,
    ) -> None:
        self.note = note
        self._steps = case.rollout_length
        self._env = env
        self._model = algorithm(
            "MlpPolicy",
            env,
            n_steps=case.rollout_length,
            seed=case.seed,
            device="cpu",
            **settings,
        )
        # does what `learn` does first: resets the environments, makes callback and logger
        _, self._callback = self._model._setup_learn(2**40)

    def collect(self) -> int:
        """Fills the rollout buffer."""
        model = self._model
        model.collect_rollouts(model.env, self._callback, model.rollout_buffer, self._steps)
        return self._steps * int(model.n_envs)

    def close(self) -> None:
        """Closes the environments."""
        self._env.close()


def _ours(case: Case) -> Contestant:
    return PpoCollects(RolloutsPPO, _pool(case), case)


def _torch(case: Case) -> Contestant:
    env, note = _pool(case), "torch computes the policy"
    return PpoCollects(RolloutsPPO, env, case, note, rollout_engine="torch")


def _vec_env(case: Case) -> Contestant:
    return PpoCollects(PPO, _pool(case), case, "stock PPO on RolloutsVecEnv")


def _subproc(case: Case) -> Contestant:
    count = min(case.num_envs, _MAX_PROCESSES)
    note = "a process per environment"
    if count < case.num_envs:
        note += f": {count} environments, {case.num_envs} processes are too many"
    env = make_vec_env(
        case.id,
        count,
        seed=case.seed,
        vec_env_cls=SubprocVecEnv,
        # otherwise every process imports torch anew
        vec_env_kwargs={"start_method": "fork"},
    )
    return PpoCollects(PPO, env, case, note)


def _dummy(case: Case) -> Contestant:
    env = make_vec_env(case.id, case.num_envs, seed=case.seed, vec_env_cls=DummyVecEnv)
    return PpoCollects(PPO, env, case, "one process")


def _pool(case: Case) -> NativeVecEnv:
    return NativeVecEnv(case.id, case.num_envs, num_threads=case.num_threads, seed=case.seed)


CONTESTANTS: dict[str, Callable[[Case], Contestant]] = {
    "rollouts": _ours,
    "sb3-subproc": _subproc,
    "sb3-dummy": _dummy,
    "rollouts-torch": _torch,
    "rollouts-vecenv": _vec_env,
}
