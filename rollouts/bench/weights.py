# SPDX-License-Identifier: Apache-2.0
"""Measures publishing and pulling weights: `python -m rollouts.bench.weights --help`.

Ways of sending the same model take turns in one Ray session: ours with each option, a pickled
`state_dict` and a plain `ray.put(state_dict)`. Each model is published again and again: one half is
frozen, and the other half changes each time as in a step of Adam.

With --from-learner, the learner is an actor, and the time runs until the last of two workers acts
with the new weights.
"""

from __future__ import annotations

import argparse
import io
import statistics
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import ray as _typed_ray
import torch
from torch import Tensor

from rollouts.bench import direct_weights
from rollouts.support.ray_private import make_tensor_store
from rollouts.workers.on_ray.ray_weights import ray_part
from rollouts.workers.on_ray.shared_ray import enter
from rollouts.workers.weight_store import WeightStore
from rollouts.workers.weight_transport import WeightTransport

# ray annotates only half of what it exports
ray: Any = _typed_ray

_LEARNING_RATE = 3e-4
_WIDTH = 1 << 16  # elements of one array


@dataclass(slots=True)
class WeightRow:
    """The time of one way of sending a model: medians over the repeats."""

    name: str
    publish_s: list[float] = field(default_factory=list)
    pull_s: list[float] = field(default_factory=list)
    stored_bytes: int = 0


class _Puller:
    """A worker that copies the weights that it gets into a model of its own."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self._model = {name: torch.zeros(size) for name, size in sizes.items()}

    def pull(self, message: Any) -> float:
        """Returns the seconds from the call until the model has the weights."""
        start = time.perf_counter()
        state: Any = message.fetch() if hasattr(message, "fetch") else ray.get(message[0])
        if isinstance(state, bytes):
            state = torch.load(io.BytesIO(state), weights_only=True)
        for name, value in state.items():
            self._model[name].copy_(torch.as_tensor(value))
        return time.perf_counter() - start


def main() -> None:
    """Prints one table per model size."""
    parser = argparse.ArgumentParser(prog="python -m rollouts.bench.weights", description=__doc__)
    parser.add_argument("--mb", type=float, nargs="+", default=[1, 200], help="sizes of models")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--from-learner", action="store_true", help="from an actor to workers")
    args = parser.parse_args()
    torch.set_num_threads(1)
    shared = enter(None, num_cpus=1.0, timeout_s=10.0)
    make_tensor_store()
    try:
        for megabytes in args.mb:
            if args.from_learner:
                direct_weights.print_table(megabytes, args.repeats)
                continue
            _print(megabytes, _measure(megabytes, args.repeats))
    finally:
        shared.leave()


def _measure(megabytes: float, repeats: int) -> list[WeightRow]:
    state = _model(megabytes)
    puller = ray.remote(num_cpus=1)(_Puller).remote({n: v.numel() for n, v in state.items()})
    rows = []
    ways = _ways()
    for name, (publish, stored_bytes) in ways.items():
        row = WeightRow(name)
        # the first publication has no earlier version to differ from
        ray.get(puller.pull.remote(publish(state)))
        for _ in range(repeats):
            _train(state)
            before = stored_bytes()
            start = time.perf_counter()
            message = publish(state)
            row.publish_s.append(time.perf_counter() - start)
            row.stored_bytes = stored_bytes() - before
            row.pull_s.append(ray.get(puller.pull.remote(message)))
            del message
        rows.append(row)
    ray.kill(puller)
    rows.append(_xor(state))
    return rows


def _ways() -> dict[str, tuple[Callable[[dict[str, Tensor]], Any], Callable[[], int]]]:
    """Returns each way by name, with its publish function and a count of the bytes it stored."""

    total = 0

    def pickled(state: dict[str, Tensor]) -> list[Any]:
        nonlocal total
        file = io.BytesIO()
        torch.save(state, file)
        total += len(file.getvalue())
        return [ray.put(file.getvalue())]

    def put(state: dict[str, Tensor]) -> list[Any]:
        nonlocal total
        total += sum(value.nbytes for value in state.values())
        return [ray.put(state)]

    ways: dict[str, Any] = {
        "ray.put(torch.save)": (pickled, lambda: total),
        "ray.put(state_dict)": (put, lambda: total),
    }
    for label, transport in (
        ("WeightStore", WeightTransport()),
        ("WeightStore float16", WeightTransport(dtype="float16")),
        ("WeightStore bfloat16", WeightTransport(dtype="bfloat16")),
        ("WeightStore delta", WeightTransport(delta=True)),
        ("WeightStore bfloat16 delta", WeightTransport(dtype="bfloat16", delta=True)),
    ):
        store = WeightStore(ray_part, transport)

        def publish(state: dict[str, Tensor], store: WeightStore = store) -> Any:
            store.publish(state)
            return store.latest

        ways[label] = (publish, lambda store=store: store.published_bytes)
    return ways


def _xor(state: dict[str, Tensor]) -> WeightRow:
    """The time of a compressed exclusive or with the earlier version, for up to 8 arrays."""
    names = [name for name in state if name.startswith("trained")][:8]
    before = {name: state[name].numpy().copy() for name in names}
    _train(state)
    row = WeightRow("compressed xor, no store")
    share = sum(value.nbytes for value in state.values()) / sum(v.nbytes for v in before.values())
    start = time.perf_counter()
    packed = [
        # bytes of equal significance are put side by side, because they compress better
        zlib.compress(
            (state[name].numpy().view(np.uint32) ^ old.view(np.uint32))
            .view(np.uint8)
            .reshape(-1, 4)
            .T.tobytes(),
            1,
        )
        for name, old in before.items()
    ]
    row.publish_s.append((time.perf_counter() - start) * share / 2)
    start = time.perf_counter()
    for data in packed:
        zlib.decompress(data)
    row.pull_s.append((time.perf_counter() - start) * share / 2)
    row.stored_bytes = int(sum(map(len, packed)) * share / 2)
    return row


def _model(megabytes: float) -> dict[str, Tensor]:
    """Arrays of 256 KiB that together have the given size; half of them have "frozen" names."""
    number = max(2, round(megabytes * 1e6 / 4 / _WIDTH))
    generator = torch.Generator().manual_seed(0)
    return {
        f"{'trained' if i % 2 else 'frozen'}.{i}": torch.randn(_WIDTH, generator=generator) * 0.05
        for i in range(number)
    }


def _train(state: dict[str, Tensor]) -> None:
    """Moves every trained number by about the learning rate, as Adam does."""
    for name, value in state.items():
        if name.startswith("trained"):
            value += torch.randn(value.shape).clamp_(-1, 1) * _LEARNING_RATE


def _print(megabytes: float, rows: list[WeightRow]) -> None:
    print(f"\n{megabytes:g} MB, half of it frozen")
    print(f"{'':28} {'publish ms':>12} {'pull ms':>10} {'MB stored':>10}")
    for row in rows:
        publish, pull = statistics.median(row.publish_s), statistics.median(row.pull_s)
        stored = row.stored_bytes / 1e6
        print(f"{row.name:28} {publish * 1e3:12.2f} {pull * 1e3:10.2f} {stored:10.2f}")


if __name__ == "__main__":
    main()
