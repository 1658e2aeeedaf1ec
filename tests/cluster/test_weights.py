# SPDX-License-Identifier: Apache-2.0
"""The weight store: versions, 16-bit transport, parts that changed, and what Ray keeps of it."""

from __future__ import annotations

import re
import threading
import time
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from rollouts.errors import SpecError
from rollouts.workers import WeightTransport
from rollouts.workers.offers import Loader, WeightOffer
from rollouts.workers.on_ray.ray_weights import ray_part
from rollouts.workers.weight_store import MAX_PARTS, WeightStore
from rollouts.workers.weight_transport import ONLY, Narrowed, from_stored, to_stored

CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")


def fetched(store: WeightStore) -> dict[str, np.ndarray]:
    assert store.latest is not None
    return dict(store.latest.fetch())


def assert_equal(got: Any, expected: dict[str, np.ndarray]) -> None:
    assert got.keys() == expected.keys()
    for name, array in expected.items():
        assert got[name].dtype == array.dtype and got[name].shape == array.shape, name
        assert got[name].tobytes() == array.tobytes(), name


def test_torch_tensors_come_back_as_arrays_of_their_dtype() -> None:
    weights = {
        "matrix": torch.arange(6.0).reshape(2, 3),
        "transposed": torch.arange(6.0).reshape(2, 3).t(),
        "scalar": torch.tensor(7, dtype=torch.int64),
        "flag": torch.tensor([True, False]),
        "parameter": nn.Parameter(torch.ones(2, dtype=torch.float64)),
    }
    store = WeightStore()
    store.publish(weights)
    assert_equal(fetched(store), {k: np.array(v.detach().numpy()) for k, v in weights.items()})


def test_cpu_tensors_are_not_copied_on_their_way_to_the_store() -> None:
    tensor = torch.arange(6.0)
    assert np.shares_memory(to_stored({"w": tensor}, None)["w"], tensor.numpy())


@pytest.mark.parametrize("settings", [{}, {"dtype": "bfloat16"}, {"delta": True}])
def test_what_was_published_does_not_follow_the_learner(settings: dict[str, Any]) -> None:
    weights = {"a": torch.ones(3), "b": torch.ones(3, dtype=torch.bfloat16)}
    store = WeightStore(transport=WeightTransport(**settings))
    store.publish(weights)
    for tensor in weights.values():
        tensor += 1
    assert_equal(fetched(store), {"a": np.ones(3, np.float32), "b": np.ones(3, np.float32)})


def test_bfloat16_tensors_travel_in_two_bytes_and_come_back_as_float32() -> None:
    tensor = torch.randn(100).to(torch.bfloat16)
    store = WeightStore()
    store.publish({"w": tensor})
    assert store.published_bytes == 200
    assert_equal(fetched(store), {"w": tensor.float().numpy()})


@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize("original", [np.float32, np.float64])
@pytest.mark.parametrize(("dtype", "bits"), [("float16", 11), ("bfloat16", 8)])
def test_narrowed_floats_come_back_rounded_in_their_dtype(
    dtype: str, bits: int, original: Any, kind: str
) -> None:
    # normal numbers of both types
    values = np.random.default_rng(0).uniform(1e-4, 6e4, (50, 3)).astype(original)
    values[0] = [0.0, -np.inf, np.nan]
    store = WeightStore(transport=WeightTransport(dtype=dtype))
    store.publish({"w": torch.from_numpy(values) if kind == "torch" else values})
    assert store.published_bytes == 2 * values.size
    got = fetched(store)["w"]
    assert got.dtype == original
    np.testing.assert_array_equal(got[0], values[0])
    # rounding to nearest errs by half of the last of `bits` significant bits
    error = np.abs(got[1:] - values[1:]) / values[1:]
    assert 0 < error.max() <= 2.0**-bits


def test_float16_rounds_as_numpy_does() -> None:
    values = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    store = WeightStore(transport=WeightTransport(dtype="float16"))
    store.publish({"w": values})
    assert_equal(fetched(store), {"w": values.astype(np.float16).astype(np.float32)})


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_arrays_other_than_float32_and_float64_are_not_touched(dtype: str) -> None:
    weights = {
        "int": np.array([2**40 + 1]),
        "uint16": np.array([65535, 0x7F80], np.uint16),
        "int16": np.array([-1], np.int16),
        "bool": np.array([True]),
        "float16": np.array([0.1], np.float16),
        "complex": np.array([0.1 + 0.2j]),
    }
    store = WeightStore(transport=WeightTransport(dtype=dtype))
    store.publish(weights)
    assert_equal(fetched(store), weights)


@pytest.mark.parametrize(
    ("dtype", "value"), [("float16", np.float32(65520)), ("bfloat16", np.float64(-1e39))]
)
def test_number_that_would_become_infinite_is_refused(dtype: str, value: Any) -> None:
    store = WeightStore(transport=WeightTransport(dtype=dtype))
    with pytest.raises(SpecError, match=rf"value {re.escape(f'{abs(value):g}')}, .*{dtype}"):
        store.publish({"w": np.array([1, value, np.inf])})
    assert store.latest is None


@pytest.mark.parametrize(
    "value", [np.array(["text"]), np.array([object()]), [1.0], None, np.array([0], "M8[s]")]
)
def test_what_is_no_numeric_array_is_refused(value: Any) -> None:
    with pytest.raises(SpecError, match=r"'w'.*expected a numeric numpy array or a torch tensor"):
        WeightStore().publish({"w": value})


def test_unknown_dtype_is_refused() -> None:
    with pytest.raises(SpecError, match=r"'int8'.*float16"):
        WeightStore(transport=WeightTransport(dtype="int8"))


histories = st.lists(
    # per version: new values of some of the arrays, and how many arrays there are
    st.tuples(st.dictionaries(st.integers(0, 5), st.integers(0, 3)), st.integers(0, 6)),
    min_size=1,
    max_size=25,
)


@settings(max_examples=150, deadline=None)
@given(histories, st.sampled_from([None, "float16", "bfloat16"]))
def test_parts_give_the_full_weights_of_every_version(
    history: list[tuple[dict[int, int], int]], dtype: str | None
) -> None:
    store, plain = (
        WeightStore(transport=WeightTransport(dtype=dtype, delta=True)),
        WeightStore(transport=WeightTransport(dtype=dtype)),
    )
    values = {i: np.full(1 << i, i, np.float32 if i % 2 else np.int64) for i in range(6)}
    offers = []
    for changes, number in history:
        for i, value in changes.items():
            values[i] = np.full_like(values[i], value)
        weights = {f"array{i}": values[i] for i in range(number)}
        assert store.publish(weights) == plain.publish(weights)
        assert_equal(fetched(store), fetched(plain))
        offers.append((store.latest, fetched(plain)))
    # a holder of an old version's offer gets that version
    for offer, expected in offers:
        assert offer is not None
        assert_equal(offer.fetch(), expected)


def test_only_what_changed_is_stored_again() -> None:
    store = WeightStore(transport=WeightTransport(delta=True))
    frozen, head = np.zeros(1000), np.zeros(10)
    store.publish({"frozen": frozen, "head": head})
    for version in range(2, 30):
        head += 1
        assert store.publish({"frozen": frozen, "head": head}) == version
        assert_equal(fetched(store), {"frozen": frozen, "head": head})
    assert store.published_bytes == frozen.nbytes + 29 * head.nbytes
    published = store.published_bytes
    assert store.publish({"frozen": frozen, "head": head}) == 30
    assert store.published_bytes == published


def test_a_change_of_the_sign_of_zero_or_of_a_nan_is_a_change() -> None:
    store = WeightStore(transport=WeightTransport(delta=True))
    for value in (0.0, -0.0, np.nan, -np.nan):
        store.publish({"w": np.array([value])})
        assert_equal(fetched(store), {"w": np.array([value])})


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sets(st.integers(0, 11)), min_size=1, max_size=40))
def test_parts_stay_few_and_small(changes: list[set[int]]) -> None:
    store = WeightStore(transport=WeightTransport(delta=True))
    values = {f"{i}": np.zeros(100 * (i + 1), np.uint8) for i in range(12)}
    full = sum(array.nbytes for array in values.values())
    for changed in changes:
        for i in changed:
            values[f"{i}"] = values[f"{i}"] + np.uint8(1)
        store.publish(values)
        assert store.latest is not None
        parts = store.latest.policies[ONLY].parts
        stored = sum(array.nbytes for part in parts for array in part.fetch().values())
        assert len(parts) <= MAX_PARTS and stored <= 2 * full


class Recorder:
    """Keeps what it is given."""

    policy_version = 0
    loaded: Any = None

    def load_weights(self, weights: Any, version: int) -> None:
        self.loaded, self.policy_version = weights, version


def test_loading_prefers_the_offer_where_the_policy_can_use_it() -> None:
    class Lazy(Recorder):
        def load_offer(self, offer: Any) -> None:
            self.loaded = offer

    offer = WeightOffer.of(3, {"w": np.ones(1)})
    policy: Any = Recorder()
    Loader({ONLY: policy}).load(offer)
    assert (policy.loaded, policy.policy_version) == (offer.fetch(), 3)
    policy = Lazy()
    Loader({ONLY: policy}).load(offer)
    assert policy.loaded.fetch() == offer.fetch()
    # a policy in a group is told of its own weights
    policy = Lazy()
    other = WeightOffer(4, {"taggers": offer.policies[ONLY]})
    Loader({"taggers": policy}).load(other)
    assert (policy.loaded.version, policy.loaded.fetch()) == (4, offer.fetch())


@pytest.mark.cuda
@CUDA
@pytest.mark.parametrize("dtype", [None, "float16", "bfloat16"])
def test_weights_of_a_gpu_are_those_of_the_cpu(dtype: str | None) -> None:
    module = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64)).cuda()
    expected = from_stored(to_stored({k: v.cpu() for k, v in module.state_dict().items()}, dtype))
    assert_equal(from_stored(to_stored(module.state_dict(), dtype)), expected)


def object_store_bytes(ray: Any) -> int:
    from ray._private.internal_api import node_stats

    node = ray.nodes()[0]
    stats = node_stats(node["NodeManagerAddress"], node["NodeManagerPort"])
    return int(stats.store_stats.object_store_bytes_used)


@pytest.mark.parametrize("settings", [{}, {"dtype": "float16"}, {"delta": True}])
def test_ray_holds_only_the_newest_version(ray_session: Any, settings: dict[str, Any]) -> None:
    import ray

    @ray.remote(num_cpus=0)
    class Puller:
        def pull(self, offer: Any) -> float:
            return float(offer.fetch()["w"][-1])

    puller = Puller.remote()
    before = object_store_bytes(ray)
    store = WeightStore(ray_part, WeightTransport(**settings))
    weights = {"w": np.zeros(1 << 20, np.float32), "frozen": np.zeros(1 << 18)}
    full = sum(array.nbytes for array in weights.values())
    for version in range(1, 31):
        weights["w"][:] = version
        assert store.publish(weights) == version
        assert ray.get(puller.pull.remote(store.latest)) == version
    # Ray frees what nobody refers to any more a little later, on a thread of its own
    deadline = time.monotonic() + 300
    bound = (2 if settings.get("delta") else 1) * full + (1 << 16)
    while (held := object_store_bytes(ray) - before) > bound:
        assert time.monotonic() < deadline, f"{held} bytes, expected at most {bound}"
        threading.Event().wait(0.05)
    ray.kill(puller)


def test_ray_gives_narrowed_weights_and_parts_to_another_process(ray_session: Any) -> None:
    import ray

    @ray.remote(num_cpus=0)
    def pull(offer: Any) -> Any:
        return {name: np.array(value) for name, value in offer.fetch().items()}

    store = WeightStore(ray_part, WeightTransport(dtype="bfloat16", delta=True))
    plain = WeightStore(transport=WeightTransport(dtype="bfloat16"))
    weights = {"a": torch.randn(50, 50), "b": torch.randn(50), "n": torch.tensor(3)}
    for _ in range(3):
        store.publish(weights)
        plain.publish(weights)
        assert_equal(ray.get(pull.remote(store.latest)), fetched(plain))
        weights["b"] += 1


def test_narrowed_arrays_know_what_they_were() -> None:
    stored = to_stored({"w": np.ones(2)}, "float16")["w"]
    assert isinstance(stored, Narrowed) and stored.dtype == "<f8"
