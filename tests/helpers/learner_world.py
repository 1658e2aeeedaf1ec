# SPDX-License-Identifier: Apache-2.0
"""Learners in other processes that check all that they sample through a ReplayClient."""

from __future__ import annotations

import os
import pickle
import sys
from typing import Any

import numpy as np

TIMEOUT_S = 300.0


def start_learners(*clients: Any) -> list[Any]:
    """Starts one actor for each client."""
    import ray

    learner = ray.remote(num_cpus=0)(_make_learner_class())
    return [learner.remote(list(sys.path), pickle.dumps(client)) for client in clients]


def _make_learner_class() -> type:
    """Makes the class; local, so that Ray ships it and its process takes over our path first."""

    class Learner:
        def __init__(self, sys_path: list[str], client: bytes) -> None:
            import pickle

            sys.path[:] = sys_path
            self.client = pickle.loads(client)
            self.batches: Any = None

        def pid(self) -> int:
            return os.getpid()

        def learn(self, num_batches: int, batch_size: int) -> dict[str, int]:
            """Samples, checks and writes priorities back; returns what was done."""
            from replay_world import STEP, assert_whole_transitions

            found = {"items": 0, "updated": 0}
            for _ in range(num_batches):
                batch = self.client.sample(batch_size, timeout_s=TIMEOUT_S)
                assert_whole_transitions(batch)
                assert batch.obs.shape == (batch_size, 5)
                found["items"] += len(batch.key)
                values = 1.0 + batch.obs[:, STEP] % 3
                found["updated"] += self.client.update_priorities(batch.key, values)
            return found

        def learn_tensors(self, num_batches: int) -> int:
            """Takes batches from a prefetcher and from a dataset."""
            import torch
            from torch.utils.data import DataLoader

            from rollouts.replay import ReplayDataset

            num_items = 0
            with self.client.prefetch(16, beta=1.0) as batches:
                for _ in range(num_batches):
                    batch = batches.get(TIMEOUT_S)
                    assert isinstance(batch.obs, torch.Tensor)
                    num_items += len(batch.reward)
                    self.client.update_priorities(batch.key, batch.reward.abs())
            dataset = ReplayDataset(self.client, 8, num_batches=3, timeout_s=TIMEOUT_S)
            for batch in DataLoader(dataset, batch_size=None):
                num_items += len(batch.reward)
            return num_items

        def keep_keys(self, batch_size: int) -> Any:
            self.keys = np.array(self.client.sample(batch_size, timeout_s=TIMEOUT_S).key)
            return self.keys

        def update_kept(self) -> int:
            updated: int = self.client.update_priorities(self.keys, np.ones(len(self.keys)))
            return updated

        def sample(self, batch_size: int, timeout_s: float | None) -> int:
            return len(self.client.sample(batch_size, timeout_s=timeout_s).key)

        def die_with_an_admission(self, batch_size: int) -> None:
            """Ends this process between the service's answer and the shards'."""
            import signal

            def draw(draft: Any, grant: Any) -> None:
                os.kill(os.getpid(), signal.SIGKILL)

            self.client._draw = draw
            self.client.sample(batch_size, timeout_s=TIMEOUT_S)

        def stats(self) -> Any:
            return self.client.stats(timeout_s=TIMEOUT_S)

        def close(self) -> None:
            self.client.close()

    return Learner
