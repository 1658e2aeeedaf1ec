# SPDX-License-Identifier: Apache-2.0
"""Fragment and its handle: names, arrays, and what pickles."""

from __future__ import annotations

import pickle
from dataclasses import fields

import numpy as np
import pytest
from acted_worker import worker_config
from counter_world import make_policy, weights
from fragments import fragment_info

from rollouts.learner.fragment import FragmentHandle
from rollouts.workers import Fragment, FragmentInfo, RolloutWorker
from rollouts.workers.offers import WeightOffer


@pytest.fixture
def fragment() -> Fragment:
    worker = RolloutWorker(worker_config(), make_policy)
    return worker.collect(WeightOffer.of(3, weights()))


def test_a_fragment_has_each_field_of_its_info(fragment: Fragment) -> None:
    for field in fields(FragmentInfo):
        assert getattr(fragment, field.name) == getattr(fragment.info, field.name)


def test_a_fragment_pickles_with_its_arrays(fragment: Fragment) -> None:
    again = pickle.loads(pickle.dumps(fragment))
    assert again.info == fragment.info
    np.testing.assert_array_equal(again.batch.obs, fragment.batch.obs)
    np.testing.assert_array_equal(again.policy_version, np.full((4, 2), 3))


def test_a_handle_resolves_to_the_fragment_that_it_names(fragment: Fragment) -> None:
    waited = []

    def fetch(timeout_s: float) -> object:
        waited.append(timeout_s)
        return fragment.payload

    resolved = FragmentHandle(fragment_info(7), fetch).resolve(1.5)
    assert (resolved.seq_no, waited) == (7, [1.5])
    assert resolved.batch is fragment.payload
