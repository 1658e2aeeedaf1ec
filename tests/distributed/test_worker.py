# SPDX-License-Identifier: Apache-2.0
"""RolloutWorker and its configuration, without Ray."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from acted_worker import worker_config
from counter_world import make_policy, weights

from rollouts.errors import ProtocolError, SpecError
from rollouts.learner.fragment import FragmentInfo
from rollouts.workers import RolloutWorker, WeightStore, WorkerConfig
from rollouts.workers.call_size import WORTH_S
from rollouts.workers.offers import WeightOffer
from rollouts.workers.worker_failure import WorkerFailure


def config(**changes: Any) -> WorkerConfig:
    return replace(worker_config(), **{"worker_id": 1, "seed": 5, **changes})


def worker(**changes: Any) -> RolloutWorker:
    return RolloutWorker(config(**changes), make_policy)


def test_fragments_are_numbered_and_say_where_they_come_from() -> None:
    each = worker(incarnation=3)
    offer = WeightOffer.of(7, weights())
    infos = [each.collect(offer).info for _ in range(3)]
    assert [info.seq_no for info in infos] == [0, 1, 2]
    assert (infos[0].worker_id, infos[0].incarnation, infos[0].num_steps) == (1, 3, 8)
    assert infos[0].min_policy_version == infos[0].max_policy_version == 7


def test_weights_that_are_not_newer_are_not_fetched() -> None:
    class Unfetchable:
        version = 7

        def fetch(self) -> Any:
            raise AssertionError("fetched")

    each = worker()
    each.collect(WeightOffer.of(7, weights()))
    info = each.collect(Unfetchable()).info
    assert info.max_policy_version == 7


def test_a_call_without_an_offer_goes_on_with_the_one_before() -> None:
    each = worker()
    first = each.collect(WeightOffer.of(7, weights())).info
    second = each.collect(None).info
    assert (first.seq_no, second.seq_no) == (0, 1)
    assert first.max_policy_version == second.min_policy_version == 7


def test_nothing_follows_a_failed_fragment() -> None:
    each = worker(env_options={"fail": ((0,), 1)})
    offer = WeightOffer.of(1, weights())
    each.collect(offer)
    with pytest.raises(ValueError, match="the counter broke"):
        each.collect(offer)
    with pytest.raises(ProtocolError, match="start a new one"):
        each.collect(offer)


def test_fragments_of_one_call_have_its_weights_and_numbers_in_a_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rollouts.workers.worker.WORTH_S", 60.0)
    each = worker()
    each.collect(WeightOffer.of(6, weights()))
    infos, payloads = each.collect_several(WeightOffer.of(7, weights()), 3)
    assert [info.seq_no for info in infos if isinstance(info, FragmentInfo)] == [1, 2, 3]
    assert [batch.policy_version.min() for batch in payloads] == [7, 7, 7]
    assert [batch.obs[0, 0, 4] for batch in payloads] == [4, 8, 12]


def test_a_call_ends_when_it_has_lasted_as_long_as_is_worth_one() -> None:
    # 4 steps: more than `WORTH_S`
    infos, payloads = worker(env_options={"sleep_s": WORTH_S / 3}).collect_several(
        WeightOffer.of(1, weights()), 9
    )
    assert len(infos) == len(payloads) == 1


def test_an_error_ends_a_call_and_keeps_what_was_completed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rollouts.workers.worker.WORTH_S", 60.0)
    each = worker(env_options={"fail": ((0,), 2)})
    answers, payloads = each.collect_several(WeightOffer.of(1, weights()), 9)
    *infos, failure = answers
    assert [info.seq_no for info in infos if isinstance(info, FragmentInfo)] == [0, 1]
    assert isinstance(failure, WorkerFailure) and "the counter broke" in failure.traceback
    assert len(payloads) == 2
    (failure,), payloads = each.collect_several(None, 9)
    assert isinstance(failure, WorkerFailure) and "start a new one" in failure.message
    assert payloads == []


def test_seed_of_the_first_life_is_the_run_s_own() -> None:
    assert config(worker_id=0).env_seed == config(worker_id=9).env_seed == 5


def test_seeds_of_later_lives_and_of_policies_all_differ() -> None:
    configs = [config(seed=s, incarnation=i) for s in range(20) for i in range(1, 20)]
    assert len({each.env_seed for each in configs} | set(range(20))) == 20 * 19 + 20
    configs = [config(worker_id=w, incarnation=i) for w in range(20) for i in range(20)]
    assert len({each.policy_seed for each in configs}) == 400


def test_env_ids_of_workers_follow_each_other() -> None:
    assert [config(worker_id=w, num_envs=8).env_id_offset for w in range(3)] == [0, 8, 16]


def test_pin_threads_are_shared_out_by_worker() -> None:
    cores = ((0, 1), (2, 3), True)
    assert [config(worker_id=w, pin_threads=cores).own_pin_threads for w in range(4)] == [
        (0, 1),
        (2, 3),
        True,
        (0, 1),
    ]
    assert config(pin_threads=False).own_pin_threads is False
    assert config().own_pin_threads is None


def test_close_closes_the_environment() -> None:
    each = worker()
    each.close()
    assert each._collector.env.is_closed


def test_versions_count_up_and_the_newest_is_kept() -> None:
    store = WeightStore()
    assert store.latest is None
    assert [store.publish(weights(offset)) for offset in (10, 20)] == [1, 2]
    assert store.version == 2
    assert store.latest is not None
    assert store.latest.fetch()["offset"][0] == 20


def test_published_weights_do_not_follow_later_training() -> None:
    store, values = WeightStore(), weights(1)
    store.publish(values)
    values["offset"][0] = 99
    assert store.latest is not None
    assert store.latest.fetch()["offset"][0] == 1


def test_weights_that_are_not_arrays_are_an_error() -> None:
    with pytest.raises(SpecError, match="expected a numeric numpy array"):
        WeightStore().publish({"w": np.array([object()])})
