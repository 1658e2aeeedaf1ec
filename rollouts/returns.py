# SPDX-License-Identifier: Apache-2.0
"""Return estimators over time-major rollouts, in native code and without the GIL.

`rollouts.returns_torch` has the same functions for tensors. All of them treat ends of episodes in
the same way: where an episode ended at t, later rows do not count. A terminated step has no future,
a truncated one has the future that `bootstrap_value` estimates, and a step that is both counts as
terminated. Sums are in float64, so that long rollouts lose nothing to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollouts import _native
from rollouts.batch import RolloutBatch, check_rollout
from rollouts.checks import share, whole_number
from rollouts.errors import DTypeError, SpecError
from rollouts.support.keywords import explains_fields

FloatArray = NDArray[np.floating[Any]]
Returns = tuple[NDArray[np.float32], NDArray[np.float32]]


def gae(
    reward: FloatArray,
    value: FloatArray,
    *,
    terminated: NDArray[np.bool_],
    truncated: NDArray[np.bool_],
    bootstrap_value: FloatArray,
    last_value: FloatArray,
    gamma: float,
    gae_lambda: float,
) -> Returns:
    """Generalised advantage estimation.

    Args:
      reward           (T, B)
      value            (T, B)   V(obs[t])
      terminated       (T, B) bool
      truncated        (T, B) bool
      bootstrap_value  (T, B)   V(final_obs), read where truncated & ~terminated
      last_value       (B,)     V of the observation after row T - 1
      gamma:           discount per step
      gae_lambda:      0 is the one-step TD error, 1 the discounted return minus the baseline
    Returns:
      advantage        (T, B) float32
      target           (T, B) float32   advantage + value, the value function's regression target
    Raises:
      SpecError: an array has another shape than (T, B) or (B,).
    Source: Schulman et al. 2016, "High-Dimensional Continuous Control Using GAE", equation 16.
    """
    share("gamma", gamma)
    share("gae_lambda", gae_lambda)
    arrays = _checked(reward, value, terminated, truncated, bootstrap_value, last_value)
    return _native.gae(*arrays, gamma=gamma, gae_lambda=gae_lambda)


def nstep(
    reward: FloatArray,
    value: FloatArray,
    *,
    terminated: NDArray[np.bool_],
    truncated: NDArray[np.bool_],
    bootstrap_value: FloatArray,
    last_value: FloatArray,
    gamma: float,
    n: int,
) -> Returns:
    """n-step returns: n rewards and the value after them, or fewer if an episode ends before.

    The last n - 1 rows end with `last_value` after fewer rewards. With n >= T every row has the
    discounted return up to the end of its episode or of the rollout.

    Args:
      n:               steps, at least 1; the time grows with min(n, T)
      the others:      as in `gae`
    Returns:
      advantage        (T, B) float32   target - value
      target           (T, B) float32
    Raises:
      SpecError: an array has another shape than (T, B) or (B,), or n < 1.
    Source: Sutton and Barto 2018, "Reinforcement Learning", equation 7.1.
    """
    share("gamma", gamma)
    whole_number("n", n, 1, 2**63 - 1)
    arrays = _checked(reward, value, terminated, truncated, bootstrap_value, last_value)
    return _native.nstep(*arrays, gamma=gamma, n=n)


def vtrace(
    reward: FloatArray,
    value: FloatArray,
    *,
    behaviour_log_prob: FloatArray,
    target_log_prob: FloatArray,
    terminated: NDArray[np.bool_],
    truncated: NDArray[np.bool_],
    bootstrap_value: FloatArray,
    last_value: FloatArray,
    gamma: float,
    vtrace_lambda: float = 1.0,
    rho_bar: float = 1.0,
    c_bar: float = 1.0,
) -> Returns:
    """V-trace: values and advantages of one policy from the steps of another.

    With equal policies, bounds of at least 1 and vtrace_lambda 1, the target is the n-step return
    to the end of the rollout.

    Args:
      value               (T, B)   V(obs[t]) of the policy that learns; last_value and, where
                                   possible, bootstrap_value should be that policy's, too
      behaviour_log_prob  (T, B)   log-probability of the action under the policy that acted
      target_log_prob     (T, B)   the same under the policy that learns
      vtrace_lambda:      scales the trace, as lambda does in `gae`
      rho_bar:            bound of the probability ratio in each temporal difference; it decides
                          which policy's value is learnt, from the actor's (0) to the learner's
                          (infinity)
      c_bar:              bound of the ratio in the trace, at most rho_bar in the paper
      the others:         as in `gae`
    Returns:
      advantage           (T, B) float32   rho_t (r_t + gamma target[t + 1] - V(obs[t])), the weight
                                           of grad log pi(a_t) in the policy gradient
      target              (T, B) float32
    Raises:
      SpecError: an array has another shape than (T, B) or (B,).
    Source: Espeholt et al. 2018, "IMPALA", equation 1, remark 2 and section 4.2.
    """
    arrays = _checked(
        reward,
        value,
        terminated,
        truncated,
        bootstrap_value,
        last_value,
        behaviour_log_prob=behaviour_log_prob,
        target_log_prob=target_log_prob,
    )
    return _native.vtrace(
        *arrays, gamma=gamma, vtrace_lambda=vtrace_lambda, rho_bar=rho_bar, c_bar=c_bar
    )


def batch_gae(batch: RolloutBatch, *, gamma: float, gae_lambda: float) -> Returns:
    """Returns the result of `gae` for the arrays of a rollout."""
    check_rollout(batch, "batch_gae", on_host=False)
    return gae(batch.reward, batch.value, **_ends(batch), gamma=gamma, gae_lambda=gae_lambda)


def batch_nstep(batch: RolloutBatch, *, gamma: float, n: int) -> Returns:
    """Returns the result of `nstep` for the arrays of a rollout."""
    check_rollout(batch, "batch_nstep", on_host=False)
    return nstep(batch.reward, batch.value, **_ends(batch), gamma=gamma, n=n)


def batch_vtrace(
    batch: RolloutBatch,
    *,
    value: FloatArray,
    last_value: FloatArray,
    target_log_prob: FloatArray,
    gamma: float,
    vtrace_lambda: float = 1.0,
    rho_bar: float = 1.0,
    c_bar: float = 1.0,
) -> Returns:
    """Returns the result of `vtrace` for a rollout and the learner's own numbers.

    The value after a truncation is the acting policy's, because a rollout does not have final_obs.
    """
    check_rollout(batch, "batch_vtrace", on_host=False)
    return vtrace(
        batch.reward,
        value,
        behaviour_log_prob=batch.log_prob,
        target_log_prob=target_log_prob,
        **_ends(batch) | {"last_value": last_value},
        gamma=gamma,
        vtrace_lambda=vtrace_lambda,
        rho_bar=rho_bar,
        c_bar=c_bar,
    )


@explains_fields
@dataclass(frozen=True, slots=True, kw_only=True)
class Gae:
    """Arguments of `gae`, for a `Collector` whose rollouts come with advantages."""

    gamma: float
    gae_lambda: float

    def __post_init__(self) -> None:
        """Raises SpecError unless the factors are from 0 to 1."""
        share("gamma", self.gamma)
        share("gae_lambda", self.gae_lambda)

    @property
    def rule(self) -> tuple[float, float, int]:
        """Arguments for native code: gamma, lambda, and 0 because returns are not of n steps."""
        return self.gamma, self.gae_lambda, 0

    def of(self, batch: RolloutBatch) -> Returns:
        """Returns advantage and target (T, B) float32 of a rollout."""
        return batch_gae(batch, gamma=self.gamma, gae_lambda=self.gae_lambda)


@explains_fields
@dataclass(frozen=True, slots=True, kw_only=True)
class Nstep:
    """Arguments of `nstep`, for a `Collector` whose rollouts come with n-step targets."""

    gamma: float
    n: int

    def __post_init__(self) -> None:
        """Raises SpecError unless gamma is from 0 to 1 and n at least 1."""
        share("gamma", self.gamma)
        whole_number("n", self.n, 1, 2**63 - 1)

    @property
    def rule(self) -> tuple[float, float, int]:
        """Arguments for native code: gamma, lambda 1, and n."""
        return self.gamma, 1.0, self.n

    def of(self, batch: RolloutBatch) -> Returns:
        """Returns advantage and target (T, B) float32 of a rollout."""
        return batch_nstep(batch, gamma=self.gamma, n=self.n)


def _ends(batch: RolloutBatch) -> dict[str, NDArray[Any]]:
    names = ("terminated", "truncated", "bootstrap_value", "last_value")
    return {name: getattr(batch, name) for name in names}


def _checked(
    reward: FloatArray,
    value: FloatArray,
    terminated: NDArray[np.bool_],
    truncated: NDArray[np.bool_],
    bootstrap_value: FloatArray,
    last_value: FloatArray,
    **more: FloatArray,
) -> list[NDArray[Any]]:
    """Returns the arrays in this order, contiguous and of one float type for native code."""
    given = dict(reward=reward, value=value, terminated=terminated, truncated=truncated)
    given |= {"bootstrap_value": bootstrap_value, "last_value": last_value, **more}
    for name, array in given.items():
        if not isinstance(array, np.ndarray) or array.dtype.kind not in "bfiu":
            raise DTypeError(
                f"{name} is a {type(array).__name__}, expected a NumPy array of numbers; for "
                "tensors use rollouts.returns_torch"
            )
    if reward.ndim != 2:
        raise SpecError(f"reward has shape {reward.shape}, expected (T, B): time first")
    time_major: dict[str, NDArray[Any]] = {
        "value": value,
        "terminated": terminated,
        "truncated": truncated,
        "bootstrap_value": bootstrap_value,
        **more,
    }
    for name, array in time_major.items():
        if array.shape != reward.shape:
            raise SpecError(f"{name} has shape {array.shape}, expected {reward.shape} as reward")
    if last_value.shape != reward.shape[1:]:
        raise SpecError(
            f"last_value has shape {last_value.shape}, expected {reward.shape[1:]}: one per column"
        )
    floats = (reward, value, bootstrap_value, last_value, *more.values())
    is_single = all(array.dtype == np.float32 for array in floats)
    dtype = np.float32 if is_single else np.float64
    ends = [np.ascontiguousarray(flags, np.bool_) for flags in (terminated, truncated)]
    first, second, *rest = [np.ascontiguousarray(array, dtype) for array in floats]
    return [first, second, *ends, *rest]
