# SPDX-License-Identifier: Apache-2.0
"""Random rollouts, and the return estimators written out from their papers.

The references take one environment at a time and know no recursion: each row is the sum that the
paper's equation has, up to the end of the episode or of the rollout, in Python floats (binary64).
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]
Column = dict[str, Any]


def make_inputs(steps: int, envs: int, seed: int, ending_rate: float = 0.3) -> Arrays:
    """Random arguments of `gae` and `nstep`; what must not be read is nan."""
    rng = np.random.default_rng(seed)
    shape = (steps, envs)
    terminated = rng.random(shape) < ending_rate
    truncated = rng.random(shape) < ending_rate
    stand_in = rng.normal(size=shape).astype(np.float32)
    return {
        "reward": rng.normal(size=shape).astype(np.float32),
        "value": rng.normal(size=shape).astype(np.float32),
        "terminated": terminated,
        "truncated": truncated,
        "bootstrap_value": np.where(truncated & ~terminated, stand_in, np.float32(np.nan)),
        "last_value": rng.normal(size=envs).astype(np.float32),
    }


def make_log_probs(steps: int, envs: int, seed: int) -> Arrays:
    """Log-probabilities of two policies whose ratio lies on both sides of 1."""
    rng = np.random.default_rng((seed, 1))
    names = ("behaviour_log_prob", "target_log_prob")
    return {name: -rng.exponential(size=(steps, envs)).astype(np.float32) for name in names}


def by_column(
    inputs: Arrays, estimate: Callable[[Column, int], tuple[float, float]]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Calls `estimate(column, t)` for each row of each environment; returns (T, B) twice."""
    steps, envs = inputs["reward"].shape
    results = np.zeros((2, steps, envs), np.float32)
    for b in range(envs):
        column = {name: array[..., b].tolist() for name, array in inputs.items()}
        for t in range(steps):
            results[:, t, b] = estimate(column, t)
    return results[0], results[1]


def goes_on(column: Column, t: int) -> bool:
    return not (column["terminated"][t] or column["truncated"][t])


def value_after(column: Column, t: int) -> float:
    """V of what follows row t: nothing, the final observation, or the next row."""
    if column["terminated"][t]:
        return 0.0
    if column["truncated"][t]:
        return float(column["bootstrap_value"][t])
    return float([*column["value"], column["last_value"]][t + 1])


def rows_of_episode(column: Column, t: int) -> range:
    """The rows from t to the end of its episode or of the rollout."""
    end = t
    while goes_on(column, end) and end + 1 < len(column["reward"]):
        end += 1
    return range(t, end + 1)


def td_error(column: Column, t: int, gamma: float) -> float:
    return float(column["reward"][t] + gamma * value_after(column, t) - column["value"][t])


def slow_gae(inputs: Arrays, gamma: float, gae_lambda: float) -> Any:
    """Equation 16: the sum of (gamma lambda)^l delta_{t + l}."""

    def estimate(column: Column, t: int) -> tuple[float, float]:
        rows = rows_of_episode(column, t)
        terms = [(gamma * gae_lambda) ** (k - t) * td_error(column, k, gamma) for k in rows]
        return sum(terms), sum(terms) + column["value"][t]

    return by_column(inputs, estimate)


def slow_nstep(inputs: Arrays, gamma: float, n: int) -> Any:
    """Equation 7.1: n discounted rewards and the discounted value after them."""

    def estimate(column: Column, t: int) -> tuple[float, float]:
        rows = rows_of_episode(column, t)[:n]
        rewards = sum(gamma ** (k - t) * column["reward"][k] for k in rows)
        target = rewards + gamma ** len(rows) * value_after(column, rows[-1])
        return target - column["value"][t], target

    return by_column(inputs, estimate)


def slow_vtrace(
    inputs: Arrays, gamma: float, vtrace_lambda: float, rho_bar: float, c_bar: float
) -> Any:
    """Equation 1: V + the sum of gamma^k (c_s ... c_{k-1}) rho_k delta_k; then section 4.2."""

    def ratio(column: Column, t: int) -> float:
        return exp(column["target_log_prob"][t] - column["behaviour_log_prob"][t])

    def target(column: Column, t: int) -> float:
        result = column["value"][t]
        for k in rows_of_episode(column, t):
            trace = prod(vtrace_lambda * min(c_bar, ratio(column, i)) for i in range(t, k))
            rho = min(rho_bar, ratio(column, k))
            result += gamma ** (k - t) * trace * rho * td_error(column, k, gamma)
        return float(result)

    def estimate(column: Column, t: int) -> tuple[float, float]:
        is_inside = goes_on(column, t) and t + 1 < len(column["reward"])
        after = target(column, t + 1) if is_inside else value_after(column, t)
        rho = min(rho_bar, ratio(column, t))
        advantage = rho * (column["reward"][t] + gamma * after - column["value"][t])
        return advantage, target(column, t)

    return by_column(inputs, estimate)
