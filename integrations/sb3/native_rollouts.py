# SPDX-License-Identifier: Apache-2.0
"""On-policy rollouts whose policy the pool's own threads compute, and when they can."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from rollouts.checks import one_of
from rollouts.collecting.policy_engine import check_pool
from rollouts.errors import SpecError
from rollouts.policies.native import NativePolicy

from ..shared.missing import needs
from ..shared.native_training import has_hooks
from .callbacks import reads_locals
from .finished import FinishedRollout
from .normalize import from_native, parted, to_native

try:
    from stable_baselines3.common.buffers import RolloutBuffer
except ImportError as error:
    raise needs("sb3", error) from error

Array = NDArray[Any]

# Multiply-adds that one thread makes in about 0.4 ms: the time that torch's own loop takes for a
# step of a small policy, also on a GPU.
_WORK_BESIDE_A_GPU = 6_000_000

_TORCH = "rollout_engine='torch' was asked for"


class ModelPolicyReader:
    """A model's policy for native code, read again when the model has another policy."""

    def __init__(self) -> None:
        # engine of the last rollout: (policy, "") or (None, reason)
        self.choice: tuple[NativePolicy | None, str] | None = None
        self._seen: tuple[Any, ...] = ()
        self._native: NativePolicy | None = None
        self._why_not = ""

    def __reduce__(self) -> Any:
        """Pickles as a new reader: a copied model has its own policy, which is read anew."""
        return ModelPolicyReader, ()

    def choose(
        self, model: Any, env: Any, callback: Any, buffer: Any, num_steps: int
    ) -> NativePolicy | None:
        """Returns the policy for the next rollout in this process; None where torch computes it.

        Raises:
          SpecError: model.rollout_engine is no engine, or it is "native" and not possible.
        """
        engine = check_engine(model.rollout_engine)
        why_not = _TORCH if engine == "torch" else ""
        why_not = why_not or _why_not_collected(model, env, buffer, num_steps)
        why_not = why_not or _why_not_told(env, callback, must=engine == "native")
        if not why_not and engine == "auto":
            why_not = _why_not_from_a_gpu(model, env)
        direct, _ = parted(env)
        return self._decide(engine, why_not, model, direct.pool if direct else None)

    def choose_for_workers(self, model: Any, env: Any) -> NativePolicy | None:
        """Chooses the engine of workers after `check_remote`; they read their own policies."""
        engine = check_engine(model.rollout_engine)
        why_not = _TORCH if engine == "torch" else ""
        collect = (model.worker_options or {}).get("collect")
        if not why_not and getattr(collect, "engine", "auto") == "torch":
            why_not = "worker_options has collect.engine='torch'"
        return self._decide(engine, why_not, model, env.pool)

    def _decide(self, engine: str, why_not: str, model: Any, pool: Any) -> NativePolicy | None:
        native: NativePolicy | None = None
        if not why_not:
            native, why_not = self._read(model.policy, pool, must=engine == "native")
        if why_not and engine == "native":
            raise SpecError(f"rollout_engine='native' is not possible: {why_not}")
        self.choice = native, why_not
        return native

    def _read(self, policy: Any, pool: Any, *, must: bool) -> tuple[NativePolicy | None, str]:
        layers = list(policy.modules())
        is_hooked = any(map(has_hooks, layers))
        seen = (pool, must, policy, len(vars(policy)), is_hooked, *layers)
        if seen != self._seen:
            self._seen, self._native, self._why_not = seen, None, ""
            try:
                if is_hooked:
                    raise SpecError("a layer has hooks, which native code would not call")
                check_pool(pool, must=must)
                # in training mode the policy's dropout, for example, would be read, too
                policy.set_training_mode(False)
                self._native = NativePolicy.from_torch(
                    policy, pool.single_action_space, pool.single_observation_space
                )
                # the seed is drawn from torch's random numbers, so that the model's seed decides it
                self._native.seed(int(torch.randint(2**63 - 1, ()).item()))
            except SpecError as error:
                self._why_not = str(error)
        elif self._native is not None:
            policy.set_training_mode(False)
            try:
                # the policy is read again where more than weights has changed
                if not self._native.agrees():
                    self._native.refresh()
            except SpecError as error:
                self._native, self._why_not = None, str(error)
        return self._native, self._why_not


def check_engine(engine: str, name: str = "rollout_engine") -> str:
    """Returns `engine`; raises SpecError, which names the argument, where it is no engine."""
    one_of(name, engine, ("auto", "native", "torch"))
    return engine


def collect(native: NativePolicy, model: Any, env: Any, callback: Any, buffer: Any) -> bool:
    """Fills the buffer; see `OnPolicyRollouts.collect_rollouts`."""
    direct, normalizer = parted(env)
    assert direct is not None
    model.policy.set_training_mode(False)
    buffer.reset()
    callback.on_rollout_start()
    obs = _obs_of(buffer)
    obs[0] = np.asarray(model._last_obs).reshape(obs.shape[1:])
    arrays = _arrays(buffer, obs)
    scale = to_native(normalizer) if normalizer else None
    try:
        final_obs = direct.collect(
            native, arrays, keep_final_obs=reads_locals(callback), normalize=scale
        )
    except BaseException:
        # the environments are somewhere in the rollout, so that `learn` begins new episodes
        model._last_obs = None
        raise
    if normalizer and scale is not None:
        from_native(normalizer, direct, scale)
    ended = arrays["terminated"] | arrays["truncated"]
    buffer.episode_starts[0] = model._last_episode_starts
    buffer.episode_starts[1:] = ended[:-1]
    shape = env.observation_space.shape or ()
    if final_obs is not None:
        final_obs = final_obs.reshape(-1).view(obs.dtype).reshape(-1, *shape)
    return FinishedRollout(
        last_obs=obs[-1].reshape(-1, *shape).copy(),
        last_value=arrays["last_value"],
        ended=ended,
        cut=arrays["truncated"] & ~arrays["terminated"],
        bootstrap=np.float32(model.gamma) * arrays["bootstrap_value"],
        episodes=direct.episode_records(
            arrays["episode_return"][ended], arrays["episode_length"][ended]
        ),
        final_obs=final_obs,
    ).finish(model, env, callback, buffer)


def fits(buffer: Any, num_steps: int) -> bool:
    """Tells if the buffer has a type that is filled here, and as many rows as there are steps."""
    return type(buffer) is RolloutBuffer and buffer.buffer_size == num_steps


def _obs_of(buffer: Any) -> Array:
    """Returns new observations (T + 1, N, ...), of which the buffer gets the first T."""
    shape, dtype = buffer.observations.shape, buffer.observations.dtype
    obs: Array = np.empty((shape[0] + 1, *shape[1:]), dtype)
    buffer.observations = obs[:-1]
    return obs


def _arrays(buffer: Any, obs: Array) -> dict[str, Array]:
    """Returns the arrays that `VectorEnv.collect` writes; most are the buffer's own."""
    shape = buffer.rewards.shape
    return {
        "obs": obs,
        "action": buffer.actions,
        "log_prob": buffer.log_probs,
        "value": buffer.values,
        "reward": buffer.rewards,
        "terminated": np.empty(shape, np.bool_),
        "truncated": np.empty(shape, np.bool_),
        "bootstrap_value": np.empty(shape, np.float32),
        "episode_return": np.empty(shape, np.float64),
        "episode_length": np.empty(shape, np.int32),
        "last_value": np.empty(shape[1], np.float32),
    }


def _why_not_collected(model: Any, env: Any, buffer: Any, num_steps: int) -> str:
    """The part of model and environments that native code lacks; "" for none."""
    direct, normalizer = parted(env)
    if direct is None:
        return (
            f"the environment is a {type(env).__name__}, expected a NativeVecEnv by itself or in a "
            "VecNormalize"
        )
    if normalizer and normalizer.norm_obs:
        space = direct.observation_space
        if not isinstance(space, spaces.Box) or space.dtype not in (np.float32, np.float64):
            return f"VecNormalize scales observations of {space}, expected a Box of floats"
    if not fits(buffer, num_steps):
        return (
            f"the rollout buffer is a {type(buffer).__name__}, expected Stable-Baselines3's own "
            "RolloutBuffer with n_steps rows"
        )
    if model.use_sde:
        return "use_sde=True draws noise that native code does not have"
    if direct.episodes.has_lives:
        return "games go on after a lost life, which the infos of every step tell"
    if "is_success" in direct.info_names:
        return "infos have is_success, which Stable-Baselines3 counts"
    return ""


def _why_not_told(env: Any, callback: Any, *, must: bool) -> str:
    """Names infos that a callback may read but a finished rollout lacks; "" for none."""
    if callback is None or not reads_locals(callback):
        return ""
    direct, _ = parted(env)
    assert direct is not None
    _, _, recipe = direct.pool.engine.recipe
    if recipe["on_env_error"] == "reset":
        return "a callback may read infos, which say where an environment failed"
    if direct.info_names and not must:
        return (
            f"a callback may read infos, which have {', '.join(direct.info_names)}: with "
            "rollout_engine='native' they are left out"
        )
    return ""


def _why_not_from_a_gpu(model: Any, env: Any) -> str:
    """The reason why torch computes a large policy on its GPU; "" where native code may."""
    if model.device.type == "cpu":
        return ""
    multiply_adds = sum(p.numel() for p in model.policy.parameters()) * env.num_envs
    if multiply_adds <= _WORK_BESIDE_A_GPU * env.pool.num_threads:
        return ""
    return f"the policy is on {model.device} and large enough for it"
