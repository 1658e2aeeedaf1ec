# SPDX-License-Identifier: Apache-2.0
"""Gloo's transfers beside each other: who does not come holds up nobody else."""

from __future__ import annotations

import threading

import pytest
import torch

ray = pytest.importorskip("ray")
pytest.importorskip("ray.experimental.rdt", reason="a Ray without direct transports")

from rollouts.cluster import gloo_transport  # noqa: E402
from rollouts.cluster.gloo_transport import PairwiseGloo  # noqa: E402

# what a hang is told from
LIMIT_S = 300.0


def test_a_receiver_that_does_not_come_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    # no wait of a transfer ends by itself within the test
    monkeypatch.setattr(gloo_transport, "_timeout_s", lambda: LIMIT_S)
    monkeypatch.setattr(ray.util, "get_node_ip_address", lambda: "127.0.0.1")
    sender, receiver = PairwiseGloo(), PairwiseGloo()
    tensors = [torch.arange(1000), torch.empty(0), torch.tensor([True])]
    meta = sender.extract_tensor_transport_metadata("id", tensors)
    late, prompt = (sender.get_communicator_metadata(None, None) for _ in range(2))
    sender.send_multiple_tensors(tensors, meta, late)
    sender.send_multiple_tensors(tensors, meta, prompt)
    for meeting in (prompt, late):
        got = receiver.recv_multiple_tensors("id", meta, meeting)
        assert all(torch.equal(a, b) for a, b in zip(got, tensors, strict=True))
    for thread in threading.enumerate():
        if thread.name == gloo_transport.THREAD:
            thread.join(LIMIT_S)
            assert not thread.is_alive()


def test_a_sender_that_died_is_an_error_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gloo_transport, "_timeout_s", lambda: LIMIT_S)
    monkeypatch.setattr(ray.util, "get_node_ip_address", lambda: "127.0.0.1")
    meta = PairwiseGloo().extract_tensor_transport_metadata("id", [torch.ones(1)])
    # a store that is gone with its process: the object was its only owner
    receiver = PairwiseGloo()
    with pytest.raises(OSError, match="refused"):
        receiver.recv_multiple_tensors("id", meta, receiver.get_communicator_metadata(None, None))
