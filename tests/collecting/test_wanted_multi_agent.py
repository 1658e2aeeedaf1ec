# SPDX-License-Identifier: Apache-2.0
"""Outputs and returns of each group, by `Collector(outputs=, returns=)` with either engine."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch
from test_native_multi_agent import CASES, FIELDS, STEPS, make, policies_of

from rollouts import Collector
from rollouts.errors import CallTimeoutError, SpecError
from rollouts.returns import Gae, Nstep, batch_gae, batch_nstep

GAE = Gae(gamma=0.97, gae_lambda=0.9)
NSTEP = Nstep(gamma=0.97, n=4)


@pytest.mark.parametrize("engine", ["native", "torch"])
@pytest.mark.parametrize("case", CASES)
def test_returns_and_entropies_of_each_group(case: str, engine: Any) -> None:
    for num_threads in (1, 2, 4):
        with make(case, 23, num_threads=num_threads) as env:
            policies = policies_of(env)
            collect = Collector(
                env, policies, STEPS, engine=engine, outputs=("entropy",), returns=GAE
            )
            for _ in range(2):
                for name, batch in collect.collect().items():
                    assert {*batch.extras} == {"active", "entropy", "advantage", "target"}
                    advantage, target = batch_gae(batch, gamma=0.97, gae_lambda=0.9)
                    np.testing.assert_array_equal(batch.extras["advantage"], advantage)
                    np.testing.assert_array_equal(batch.extras["target"], target)
                    flat = (batch.num_steps, -1)
                    obs = torch.from_numpy(batch.obs.reshape(flat).copy())
                    action = torch.from_numpy(batch.action.copy()).flatten(0, 1)
                    with torch.no_grad():
                        *params, _ = policies[name].module(obs)
                        entropy = policies[name].head.evaluate(params, action)[1]
                    found = batch.extras["entropy"].ravel()
                    np.testing.assert_allclose(found, entropy, rtol=1e-5, atol=1e-5)


def test_agents_that_leave_have_the_returns_of_their_own_episodes() -> None:
    with make("tag", 31, num_threads=2) as env:
        collect = Collector(env, policies_of(env), STEPS, engine="native", returns=NSTEP)
        left = 0
        for _ in range(4):
            for batch in collect.collect().values():
                left += int((~batch.extras["active"]).sum())
                advantage, target = batch_nstep(batch, gamma=0.97, n=4)
                np.testing.assert_array_equal(batch.extras["advantage"], advantage)
                np.testing.assert_array_equal(batch.extras["target"], target)
        assert left > 0


@pytest.mark.parametrize("engine", ["native", "torch"])
@pytest.mark.parametrize("case", ["tag", "grid"])
def test_a_rollout_that_took_too_long_is_returned_later(case: str, engine: Any) -> None:
    """The same bits as of a caller that waits for ever."""
    with make(case, 5, num_threads=2) as env, make(case, 5) as other:
        hurried, waiting = (
            Collector(each, policies_of(each), STEPS, engine=engine) for each in (env, other)
        )
        for _ in range(3):
            begin = threading.Event()
            hurried._strategy._in_pool.ahead.begin().submit(begin.wait, 60)
            late = 0
            while True:
                try:
                    rollout = hurried.collect(timeout_s=0)
                    break
                except CallTimeoutError:
                    late += 1
                    begin.set()
            assert late >= (1 if engine == "native" else STEPS - 1)
            for name, expected in waiting.collect().items():
                for field in FIELDS:
                    found = getattr(rollout[name], field)
                    np.testing.assert_array_equal(found, getattr(expected, field), field)
        hurried.close()


def test_an_output_that_a_group_does_not_have_is_told_of() -> None:
    with make("tag", 2) as env, pytest.raises(SpecError, match="outputs are \\['values'\\]"):
        Collector(env, policies_of(env), STEPS, outputs=("values",))
