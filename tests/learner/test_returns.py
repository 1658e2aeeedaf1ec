# SPDX-License-Identifier: Apache-2.0
"""The return estimators, native and in torch, against their papers' formulas and each other."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from returns_reference import make_inputs, make_log_probs, slow_gae, slow_nstep, slow_vtrace

from rollouts import returns, returns_torch
from rollouts.batch import RolloutBatch
from rollouts.errors import SpecError

Arrays = dict[str, NDArray[Any]]

# The formulas add float64 terms in another order than the recursions do, so that a result may
# round to a neighbouring float32; sums of up to 12 terms of size 1 to 10 cancel by that much.
TOLERANCE = {"rtol": 2e-6, "atol": 2e-6}


def on(device: str) -> Any:
    """`rollouts.returns_torch` on NumPy arrays, by way of `device`."""

    def with_tensors(estimator: Callable[..., Any]) -> Callable[..., Any]:
        def call(**options: Any) -> tuple[NDArray[np.float32], ...]:
            tensors = {
                name: torch.from_numpy(option).to(device)
                if isinstance(option, np.ndarray)
                else option
                for name, option in options.items()
            }
            results = estimator(**tensors)
            assert all(result.device.type == device for result in results)
            return tuple(result.cpu().numpy() for result in results)

        return call

    names = ("gae", "nstep", "vtrace")
    return SimpleNamespace(**{n: with_tensors(getattr(returns_torch, n)) for n in names})


NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
IMPLEMENTATIONS = [
    pytest.param(returns, id="native"),
    pytest.param(on("cpu"), id="torch-cpu"),
    pytest.param(on("cuda"), id="torch-cuda", marks=[pytest.mark.cuda, NO_GPU]),
]
every_implementation = pytest.mark.parametrize("estimators", IMPLEMENTATIONS)

rollouts_of_any_shape = {
    "steps": st.integers(1, 12),
    "envs": st.integers(1, 5),
    "seed": st.integers(0, 2**16),
    "gamma": st.floats(0, 1),
    "ending_rate": st.sampled_from([0.0, 0.1, 0.5, 1.0]),
}


def assert_close(results: tuple[Any, ...], expected: tuple[Any, ...]) -> None:
    for result, reference in zip(results, expected, strict=True):
        assert result.dtype == np.float32
        np.testing.assert_allclose(result, reference, **TOLERANCE)


@every_implementation
@settings(deadline=None, max_examples=60)
@given(**rollouts_of_any_shape, gae_lambda=st.floats(0, 1))
def test_gae_is_the_sum_of_the_paper(
    estimators: Any,
    steps: int,
    envs: int,
    seed: int,
    gamma: float,
    ending_rate: float,
    gae_lambda: float,
) -> None:
    inputs = make_inputs(steps, envs, seed, ending_rate)
    results = estimators.gae(**inputs, gamma=gamma, gae_lambda=gae_lambda)
    assert_close(results, slow_gae(inputs, gamma, gae_lambda))


@every_implementation
@settings(deadline=None, max_examples=60)
@given(**rollouts_of_any_shape, n=st.integers(1, 15))
def test_nstep_is_the_sum_of_the_book(
    estimators: Any, steps: int, envs: int, seed: int, gamma: float, ending_rate: float, n: int
) -> None:
    inputs = make_inputs(steps, envs, seed, ending_rate)
    assert_close(estimators.nstep(**inputs, gamma=gamma, n=n), slow_nstep(inputs, gamma, n))


@every_implementation
@settings(deadline=None, max_examples=60)
@given(
    **rollouts_of_any_shape,
    vtrace_lambda=st.floats(0, 1),
    rho_bar=st.sampled_from([0.5, 1.0, 2.0, np.inf]),
    c_bar=st.sampled_from([0.25, 1.0, 1.5]),
)
def test_vtrace_is_the_sum_of_the_paper(
    estimators: Any,
    steps: int,
    envs: int,
    seed: int,
    gamma: float,
    ending_rate: float,
    vtrace_lambda: float,
    rho_bar: float,
    c_bar: float,
) -> None:
    inputs = make_inputs(steps, envs, seed, ending_rate) | make_log_probs(steps, envs, seed)
    bounds = {"vtrace_lambda": vtrace_lambda, "rho_bar": rho_bar, "c_bar": c_bar}
    results = estimators.vtrace(**inputs, gamma=gamma, **bounds)
    assert_close(results, slow_vtrace(inputs, gamma, **bounds))


@every_implementation
def test_vtrace_shows_a_probability_that_is_not_a_number(estimators: Any) -> None:
    inputs = make_inputs(3, 2, seed=1, ending_rate=0.0) | make_log_probs(3, 2, 1)
    inputs["target_log_prob"][1, 0] = np.nan
    for result in estimators.vtrace(**inputs, gamma=0.9):
        assert np.isnan(result[:2, 0]).all()
        assert np.isfinite(result[:, 1]).all()


@pytest.mark.parametrize("device", [p.id.removeprefix("torch-") for p in IMPLEMENTATIONS[1:]])
@pytest.mark.parametrize("envs", [1, 63, 64, 65, 200])
def test_torch_and_native_agree_on_rollouts_of_real_length(device: str, envs: int) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    inputs = make_inputs(257, envs, seed=envs, ending_rate=0.01)
    log_probs = make_log_probs(257, envs, seed=envs)
    calls: list[tuple[str, Arrays, dict[str, Any]]] = [
        ("gae", inputs, {"gae_lambda": 0.95}),
        ("nstep", inputs, {"n": 5}),
        ("nstep", inputs, {"n": 10_000}),
        ("vtrace", inputs | log_probs, {}),
    ]
    for name, arrays, options in calls:
        native = getattr(returns, name)(**arrays, **options, gamma=0.99)
        tensors = getattr(on(device), name)(**arrays, **options, gamma=0.99)
        # float64 sums of 257 terms differ by 1e-14; what is left is the last rounding to float32
        for result, other in zip(native, tensors, strict=True):
            np.testing.assert_allclose(result, other, rtol=2e-7, atol=1e-7)


def test_gae_equals_the_recursion_to_the_bit() -> None:
    inputs = make_inputs(40, 130, seed=7, ending_rate=0.1)
    advantage, target = returns.gae(**inputs, gamma=0.99, gae_lambda=0.95)
    baseline = inputs["value"].astype(np.float64)
    ended = inputs["terminated"] | inputs["truncated"]
    following, next_value = np.zeros(130), inputs["last_value"].astype(np.float64)
    for t in reversed(range(40)):
        end_value = np.where(inputs["terminated"][t], 0.0, inputs["bootstrap_value"][t])
        next_value = np.where(ended[t], end_value, next_value)
        delta = inputs["reward"][t] + 0.99 * next_value - baseline[t]
        following = delta + np.where(ended[t], 0.0, 0.99 * 0.95 * following)
        next_value = baseline[t]
        np.testing.assert_array_equal(advantage[t], following.astype(np.float32))
        np.testing.assert_array_equal(target[t], (following + baseline[t]).astype(np.float32))


def one_env(**changes: Any) -> dict[str, Any]:
    """Three steps of reward 1 that nothing ends, value 0 everywhere."""
    zeros, flags = np.zeros((3, 1), np.float32), np.zeros((3, 1), np.bool_)
    base = {"reward": zeros + 1, "value": zeros, "terminated": flags, "truncated": flags}
    return {**base, "bootstrap_value": zeros, "last_value": np.zeros(1, np.float32), **changes}


def middle(value: Any) -> NDArray[Any]:
    """(3, 1) with `value` in the middle and 0 around it."""
    return np.array([[0], [value], [0]], type(value))


def monte_carlo_targets(estimators: Any, inputs: dict[str, Any]) -> list[list[float]]:
    """The targets of all three, told to sum to the end of the episode with gamma 0.5."""
    log_prob = np.zeros((3, 1), np.float32)
    same_policy = {"behaviour_log_prob": log_prob, "target_log_prob": log_prob}
    results = (
        estimators.gae(**inputs, gamma=0.5, gae_lambda=1.0),
        estimators.nstep(**inputs, gamma=0.5, n=3),
        estimators.vtrace(**inputs, **same_policy, gamma=0.5),
    )
    return [target[:, 0].tolist() for _, target in results]


@every_implementation
def test_an_episode_that_goes_on_is_worth_its_last_value(estimators: Any) -> None:
    inputs = one_env(last_value=np.array([8.0]))
    expected = [1 + 0.5 + 0.25 + 1.0, 1 + 0.5 + 2.0, 1 + 4.0]
    assert monte_carlo_targets(estimators, inputs) == [expected] * 3


@every_implementation
def test_a_terminated_step_has_no_future(estimators: Any) -> None:
    inputs = one_env(terminated=middle(True))
    assert monte_carlo_targets(estimators, inputs) == [[1.5, 1.0, 1.0]] * 3


@every_implementation
def test_a_truncated_step_has_the_future_of_its_final_observation(estimators: Any) -> None:
    inputs = one_env(truncated=middle(True), bootstrap_value=middle(10.0))
    assert monte_carlo_targets(estimators, inputs) == [[1 + 0.5 * 6.0, 6.0, 1.0]] * 3


@every_implementation
def test_a_step_that_both_ends_counts_as_terminated(estimators: Any) -> None:
    ended = middle(True)
    inputs = one_env(terminated=ended, truncated=ended, bootstrap_value=middle(10.0))
    assert monte_carlo_targets(estimators, inputs) == [[1.5, 1.0, 1.0]] * 3


@every_implementation
@pytest.mark.parametrize("name", ["gae", "nstep", "vtrace"])
def test_the_next_episode_does_not_leak_into_the_one_before(estimators: Any, name: str) -> None:
    options = {"gae": {"gae_lambda": 0.95}, "nstep": {"n": 4}, "vtrace": make_log_probs(9, 4, 1)}
    inputs = make_inputs(9, 4, seed=1)
    inputs["truncated"][4] = True
    inputs["bootstrap_value"][4] = np.where(inputs["terminated"][4], np.nan, 1.0)
    changed = {name: array.copy() for name, array in inputs.items()}
    for field in ("reward", "value"):
        changed[field][5:] += 100
    before, after = (
        getattr(estimators, name)(**arrays, **options[name], gamma=0.99)
        for arrays in (inputs, changed)
    )
    for result, other in zip(before, after, strict=True):
        np.testing.assert_array_equal(result[:5], other[:5])
        assert (result[5:] != other[5:]).any()


def test_results_are_float32_and_inputs_stay_as_they_were() -> None:
    inputs = make_inputs(5, 3, seed=2) | make_log_probs(5, 3, seed=2)
    copies = {name: array.copy() for name, array in inputs.items()}
    for array in inputs.values():
        array.flags.writeable = False
    for result in returns.vtrace(**inputs, gamma=0.99):
        assert result.dtype == np.float32 and result.shape == (5, 3)
    for name, copy in copies.items():
        np.testing.assert_array_equal(inputs[name], copy)


def test_strided_and_double_arrays_give_the_same_as_contiguous_single_ones() -> None:
    inputs = make_inputs(6, 8, seed=5)
    expected = returns.gae(**inputs, gamma=0.99, gae_lambda=0.95)
    strided = {n: np.repeat(a, 2, axis=-1)[..., ::2] for n, a in inputs.items()}
    doubles = {n: a.astype(np.float64) if a.dtype == np.float32 else a for n, a in inputs.items()}
    for variant in (strided, doubles, inputs | {"value": doubles["value"]}):
        for result, reference in zip(
            returns.gae(**variant, gamma=0.99, gae_lambda=0.95), expected, strict=True
        ):
            np.testing.assert_array_equal(result, reference)


def test_a_batch_gives_what_its_arrays_give() -> None:
    inputs, log_probs = make_inputs(4, 3, seed=6), make_log_probs(4, 3, seed=6)
    batch = RolloutBatch(
        **inputs,
        obs=np.zeros((4, 3, 1)),
        action=np.zeros((4, 3)),
        log_prob=log_probs["behaviour_log_prob"],
        last_obs=np.zeros((3, 1)),
        policy_version=np.zeros((4, 3), np.int64),
        env_id=np.arange(3, dtype=np.int32),
        episode_return=np.zeros((4, 3)),
        episode_length=np.zeros((4, 3), np.int32),
    )
    learner = {"value": inputs["value"] + 1, "last_value": inputs["last_value"] - 1}
    target_log_prob = log_probs["target_log_prob"]
    pairs = [
        (
            returns.batch_gae(batch, gamma=0.9, gae_lambda=0.8),
            returns.gae(**inputs, gamma=0.9, gae_lambda=0.8),
        ),
        (returns.batch_nstep(batch, gamma=0.9, n=2), returns.nstep(**inputs, gamma=0.9, n=2)),
        (
            returns.batch_vtrace(batch, **learner, target_log_prob=target_log_prob, gamma=0.9),
            returns.vtrace(**inputs | learner, **log_probs, gamma=0.9),
        ),
    ]
    for result, expected in pairs:
        np.testing.assert_array_equal(result, expected)


@every_implementation
def test_shapes_that_do_not_fit_are_named(estimators: Any) -> None:
    inputs = make_inputs(5, 3, seed=3)
    options = {"gamma": 1.0, "gae_lambda": 1.0}
    with pytest.raises(SpecError, match=r"truncated has shape \(4, 3\), expected \(5, 3\)"):
        estimators.gae(**(inputs | {"truncated": inputs["truncated"][1:]}), **options)
    with pytest.raises(SpecError, match=r"last_value has shape \(2,\), expected \(3,\)"):
        estimators.gae(**(inputs | {"last_value": np.zeros(2)}), **options)
    with pytest.raises(SpecError, match="time first"):
        estimators.gae(**(inputs | {"reward": np.zeros(5)}), **options)
    log_probs = make_log_probs(5, 3, 0) | {"target_log_prob": np.zeros((5, 2))}
    with pytest.raises(SpecError, match=r"target_log_prob has shape \(5, 2\)"):
        estimators.vtrace(**inputs, **log_probs, gamma=1.0)


@every_implementation
def test_a_return_of_no_steps_is_refused(estimators: Any) -> None:
    with pytest.raises(SpecError, match="n is 0, expected"):
        estimators.nstep(**make_inputs(5, 3, seed=4), gamma=0.9, n=0)
