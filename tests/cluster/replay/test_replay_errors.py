# SPDX-License-Identifier: Apache-2.0
"""Errors that a shard raises in its process arrive as they are, not in Ray's wrapping."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from counter_world import weights
from replay_world import TIMEOUT_S, Start, make_coordinator, make_service

from rollouts.errors import DTypeError, ProtocolError, SpecError, WorkerError

pytestmark = pytest.mark.system


def test_errors_of_shards_and_of_arguments_are_ours(start: Start, tmp_path: Path) -> None:
    _, replay = start()
    (tmp_path / "damaged").write_bytes(b"no replay")
    handle = replay._driver._shards.shards[0].handle
    cases = [
        ("load", (str(tmp_path / "damaged"), {}), SpecError, "not a saved replay buffer"),
        ("load", (str(tmp_path / "none"), {}), FileNotFoundError, "none"),
        ("no_such_method", (), WorkerError, "a shard failed with AttributeError"),
    ]
    for method, arguments, expected, message in cases:
        error = handle.call(method, *arguments).exception(TIMEOUT_S)
        assert type(error) is expected
        assert message in str(error)
        assert "ray::" not in str(error)

    batch = replay.sample(8, timeout_s=TIMEOUT_S)
    for junk in ([1.5], ["a"], [2**70], None):
        with pytest.raises((DTypeError, SpecError), match="keys"):
            replay.update_priorities(junk, [1.0])
    for priority in (-1.0, float("nan"), float("inf")):
        with pytest.raises(SpecError, match="finite number"):
            replay.update_priorities(batch.key[:1], [priority])
    for junk in (1.5, "a", None, 0, 2**31):
        with pytest.raises(SpecError, match="batch_size"):
            replay.sample(junk)  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="beta"):
        replay.sample(8, beta=float("nan"))
    with pytest.raises(SpecError, match="timeout_s"):
        replay.sample(8, timeout_s=-1.0)
    with pytest.raises(DTypeError, match="path"):
        replay.load(3)  # type: ignore[arg-type]
    client = replay.client()
    with pytest.raises(SpecError, match="batch_size"):
        client.sample(1.5)  # type: ignore[arg-type]
    with pytest.raises(DTypeError, match="keys"):
        client.update_priorities([1.5], [1.0])
    client.close()


def test_a_sample_that_waits_for_weights_that_nobody_published_raises(ray_session: object) -> None:
    with make_coordinator() as coordinator, make_service(coordinator) as replay:
        with pytest.raises(ProtocolError, match="publish_weights"):
            replay.sample(8)
        with pytest.raises(TimeoutError):
            replay.sample(8, timeout_s=0.1)
        with replay.client() as client, client.prefetch(8) as ahead:
            with pytest.raises(ProtocolError, match="publish_weights"):
                client.sample(8)
            with pytest.raises(ProtocolError, match="publish_weights"):
                ahead.get()
            # in another process it waits: this one may publish some
            with pickle.loads(pickle.dumps(client)) as elsewhere, pytest.raises(TimeoutError):
                elsewhere.prefetch(8).get(timeout_s=2.0)
        with replay.prefetch(8) as ahead:
            with pytest.raises(ProtocolError, match="publish_weights"):
                ahead.get()
            coordinator.publish_weights(weights())
            assert len(ahead.get().key) == 8
        coordinator.publish_weights(weights())
        # at once: that there were none before is no reason
        assert len(replay.sample(8).key) == 8
