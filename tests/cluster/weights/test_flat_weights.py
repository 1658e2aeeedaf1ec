# SPDX-License-Identifier: Apache-2.0
"""Weights as one buffer: the same arrays come out, to the bit, on a host and on a device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rollouts.workers.on_ray.flat_weights import _on_device, lay_out, pack, unpack
from rollouts.workers.weight_transport import from_stored, narrowed, to_host

DTYPES = ("?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16")


def make_weights() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    weights: dict[str, Any] = {}
    for dtype in DTYPES:
        # an odd number of bytes before each, so that places must be aligned
        weights[f"odd before {dtype}"] = rng.integers(0, 2, 3).astype("u1")
        weights[dtype] = rng.uniform(-9, 9, (3, 5)).astype(dtype)
    return weights | {
        "scalar": np.array(1.5, np.float32),
        "empty": np.zeros((0, 4), np.float64),
        "turned": torch.randn(4, 3).t(),
        "bfloat16": torch.randn(2, 3).to(torch.bfloat16),
        "odd": torch.tensor([True]),
        "parameter": torch.nn.Parameter(torch.randn(3)),
    }


@pytest.mark.parametrize("dtype", [None, "float16", "bfloat16"])
def test_what_is_packed_comes_out_again(dtype: str | None) -> None:
    weights = make_weights()
    values, originals = narrowed(weights, dtype)
    stored = to_host(values, originals, weights)
    expected = from_stored(stored)
    layout = lay_out(stored, sorted(stored))
    buffer = pack(layout, values, "cpu")
    # what the learner does to its own afterwards is not seen
    weights["turned"].add_(1.0)
    for name, array in unpack(layout, buffer).items():
        assert isinstance(array, np.ndarray)
        assert (array.dtype, array.shape) == (expected[name].dtype, expected[name].shape), name
        if name != "turned":
            assert array.tobytes() == expected[name].tobytes(), name
    # what a GPU would do, whose tensors are not brought to the host
    for place in layout:
        tensor = _on_device(place, buffer[place.offset : place.end])
        array = unpack((place,), buffer)[place.name]
        assert tensor.numpy().dtype == array.dtype and tuple(tensor.shape) == array.shape
        assert tensor.numpy().tobytes() == array.tobytes(), place.name  # type: ignore[union-attr]


def test_named_arrays_alone_are_packed() -> None:
    weights = {"a": np.ones(3), "b": np.zeros(5, np.float32)}
    layout = lay_out(weights, ["b"])
    assert unpack(layout, pack(layout, weights, "cpu")).keys() == {"b"}
    assert pack((), weights, "cpu").numel() == 0


@pytest.mark.parametrize("make", ["torch", "native"])
def test_policies_take_tensors_over(make: str) -> None:
    import rollouts

    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh())

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.actor, self.critic = net, torch.nn.Linear(8, 2), torch.nn.Linear(8, 1)

        def forward(self, obs: Any) -> Any:
            hidden = self.body(obs)
            return self.actor(hidden), self.critic(hidden)

    space = rollouts.env_spec("CartPole-v1").single_action_space
    policy: Any = rollouts.TorchPolicy(Net(), space)
    if make == "native":
        policy = rollouts.NativePolicy.from_torch(Net(), space, 4)
    fresh = {name: torch.randn(array.shape) for name, array in policy.weights().items()}
    policy.load_weights(fresh, 4)
    assert policy.policy_version == 4
    for name, array in policy.weights().items():
        np.testing.assert_array_equal(array, fresh[name].numpy())
