# SPDX-License-Identifier: Apache-2.0
"""The return estimators of `rollouts.returns` for tensors, which stay on their device.

Arguments, meaning and results are the same, up to the rounding of float64 sums, which are added in
another order. Nothing waits for the device and no loop runs over T or B: a recursion x[t] = a[t] +
d[t] x[t + 1] is solved in log2(T) doublings. The functions are not differentiable.
"""

from __future__ import annotations

from rollouts.errors import SpecError
from rollouts.support.extras import needs

with needs("torch", "rollouts.returns_torch"):
    import torch
    from torch import Tensor

Returns = tuple[Tensor, Tensor]


@torch.no_grad()
def gae(
    reward: Tensor,
    value: Tensor,
    *,
    terminated: Tensor,
    truncated: Tensor,
    bootstrap_value: Tensor,
    last_value: Tensor,
    gamma: float,
    gae_lambda: float,
) -> Returns:
    """Generalised advantage estimation; see `rollouts.returns.gae`.

    Args:
      (T, B) tensors of any float type, terminated and truncated of bool; last_value (B,).
    Returns:
      advantage, target  (T, B) float32
    Raises:
      SpecError: a tensor has another shape than (T, B) or (B,).
    """
    _check_shapes(reward, value, terminated, truncated, bootstrap_value, last_value)
    ended = terminated | truncated
    baseline = value.double()
    end_value = _end_value(terminated, bootstrap_value)
    following = torch.where(ended, end_value, _shifted(baseline, last_value.double()))
    delta = reward + gamma * following - baseline
    advantage = _solve(delta, _unless(ended, gamma * gae_lambda))
    return advantage.float(), (advantage + baseline).float()


@torch.no_grad()
def nstep(
    reward: Tensor,
    value: Tensor,
    *,
    terminated: Tensor,
    truncated: Tensor,
    bootstrap_value: Tensor,
    last_value: Tensor,
    gamma: float,
    n: int,
) -> Returns:
    """n-step returns; see `rollouts.returns.nstep`. One pass over the tensors for each of n steps.

    Args, Returns, Raises: as in `gae`; SpecError for n < 1 too.
    """
    _check_shapes(reward, value, terminated, truncated, bootstrap_value, last_value)
    if n < 1:
        raise SpecError(f"n is {n}, expected at least 1 step")
    ended = terminated | truncated
    end_value = _end_value(terminated, bootstrap_value)
    last = last_value.double()
    # after k passes row t has its k-step return
    target = value.double()
    for _ in range(min(n, len(reward))):
        target = reward + gamma * torch.where(ended, end_value, _shifted(target, last))
    return (target - value).float(), target.float()


@torch.no_grad()
def vtrace(
    reward: Tensor,
    value: Tensor,
    *,
    behaviour_log_prob: Tensor,
    target_log_prob: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    bootstrap_value: Tensor,
    last_value: Tensor,
    gamma: float,
    vtrace_lambda: float = 1.0,
    rho_bar: float = 1.0,
    c_bar: float = 1.0,
) -> Returns:
    """V-trace; see `rollouts.returns.vtrace`.

    Args, Returns, Raises: as in `gae`, the log-probabilities (T, B) too.
    """
    log_probs = {"behaviour_log_prob": behaviour_log_prob, "target_log_prob": target_log_prob}
    _check_shapes(reward, value, terminated, truncated, bootstrap_value, last_value, **log_probs)
    ended = terminated | truncated
    baseline, last = value.double(), last_value.double()
    end_value = _end_value(terminated, bootstrap_value)
    ratio = (target_log_prob.double() - behaviour_log_prob.double()).exp()
    rho = ratio.clamp(max=rho_bar)
    trace = _unless(ended, gamma * vtrace_lambda) * ratio.clamp(max=c_bar)

    following = torch.where(ended, end_value, _shifted(baseline, last))
    target = baseline + _solve(rho * (reward + gamma * following - baseline), trace)
    corrected = torch.where(ended, end_value, _shifted(target, last))
    advantage = rho * (reward + gamma * corrected - baseline)
    return advantage.float(), target.float()


def _solve(constant: Tensor, factor: Tensor) -> Tensor:
    """Returns x (T, B) with x[t] = constant[t] + factor[t] * x[t + 1] and x[T] = 0."""
    # invariant: x[t] = total[t] + factor[t] * x[t + reach], so each round doubles the reach
    total, reach = constant, 1
    while reach < len(total):
        ahead = total[:-reach] + factor[:-reach] * total[reach:]
        total = torch.cat([ahead, total[-reach:]])
        factor = torch.cat([factor[:-reach] * factor[reach:], torch.zeros_like(factor[-reach:])])
        reach *= 2
    return total


def _shifted(rows: Tensor, last: Tensor) -> Tensor:
    """Returns (T, B) with the row after each row, and `last` (B,) at the end."""
    return torch.cat([rows[1:], last[None]])


def _end_value(terminated: Tensor, bootstrap_value: Tensor) -> Tensor:
    return torch.where(terminated, 0.0, bootstrap_value.double())


def _unless(ended: Tensor, factor: float) -> Tensor:
    """Returns (T, B) float64 with `factor` where an episode continues and 0 where it ended."""
    return (~ended).double() * factor


def _check_shapes(
    reward: Tensor,
    value: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    bootstrap_value: Tensor,
    last_value: Tensor,
    **more: Tensor,
) -> None:
    if reward.ndim != 2:
        raise SpecError(f"reward has shape {tuple(reward.shape)}, expected (T, B): time first")
    time_major = {
        "value": value,
        "terminated": terminated,
        "truncated": truncated,
        "bootstrap_value": bootstrap_value,
        **more,
    }
    for name, tensor in time_major.items():
        if tensor.shape != reward.shape:
            raise SpecError(
                f"{name} has shape {tuple(tensor.shape)}, expected {tuple(reward.shape)} as reward"
            )
    if last_value.shape != reward.shape[1:]:
        raise SpecError(
            f"last_value has shape {tuple(last_value.shape)}, expected "
            f"{tuple(reward.shape[1:])}: one per column"
        )
