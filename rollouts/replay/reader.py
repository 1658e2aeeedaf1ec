# SPDX-License-Identifier: Apache-2.0
"""The sampling side of a ReplayBuffer: gathers items and counts the learner's waits and ages."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollouts import _native
from rollouts.errors import ProtocolError
from rollouts.replay.alone import is_only_adder
from rollouts.replay.columns import Columns
from rollouts.replay.config import TableConfig
from rollouts.replay.sampling import ItemReader, ReplayBatch, importance_weights
from rollouts.replay.writer import Writer

Array = NDArray[Any]

# how often an endless wait checks whether a thread is left that could add
_LOOK_S = 1.0


class Reader:
    """Samples from the store. Thread-safe: `_lock` guards the figures for `stats`."""

    def __init__(
        self,
        store: _native.ReplayStore,
        columns: Columns,
        tables: Mapping[str, TableConfig],
        writer: Writer,
    ) -> None:
        """Plans the gathering of each table."""
        self._store = store
        self._writer = writer
        self._items = {n: ItemReader(store, columns, table.items) for n, table in tables.items()}
        self._lock = threading.Lock()
        self._wait_s = dict.fromkeys(tables, 0.0)
        self._last: dict[str, tuple[Array, Array]] = {}  # age and policy_lag of the last batch

    def sample(
        self, table: str, batch_size: int, beta: float, timeout_s: float | None
    ) -> ReplayBatch:
        """See ReplayBuffer.sample."""
        items = self._items[table]
        raw = None
        with suppress(TimeoutError):
            raw = self._store.sample(table, items.plan, batch_size, timeout_s=0.0)
        if raw is None:
            raw = self._sample_later(table, batch_size, timeout_s)
        info = self._info(items, raw)
        info["weight"] = importance_weights(raw["probability"], raw["table_size"], beta)
        with self._lock:
            self._last[table] = info["age"], info["policy_lag"]
        return items.to_batch(raw, info)

    def _sample_later(
        self, table: str, batch_size: int, timeout_s: float | None
    ) -> dict[str, Array]:
        """Samples what was not admitted at once."""
        items, begin = self._items[table], time.monotonic()
        try:
            if timeout_s is not None:
                return self._store.sample(table, items.plan, batch_size, timeout_s=timeout_s)
            while True:
                # checked before the table: a thread may add the missing items and then end
                is_alone = is_only_adder()
                look_s = 0.0 if is_alone else _LOOK_S
                with suppress(TimeoutError):
                    return self._store.sample(table, items.plan, batch_size, timeout_s=look_s)
                if is_alone:
                    raise self._error_alone(table, batch_size)
        finally:
            with self._lock:
                self._wait_s[table] += time.monotonic() - begin

    def sample_ahead(
        self, table: str, batch_size: int, beta: float, timeout_s: float, takers: Collection[int]
    ) -> ReplayBatch:
        """Samples for the threads `takers`, which wait for it without a timeout."""
        # checked before the table: a thread may add the missing items and then end
        is_alone = bool(takers) and is_only_adder(takers)
        try:
            return self.sample(table, batch_size, beta, timeout_s)
        except TimeoutError:
            if is_alone:
                raise self._error_alone(table, batch_size) from None
            raise

    def _error_alone(self, table: str, batch_size: int) -> ProtocolError:
        info, added = self._store.info(table), self._writer.stats()
        return ProtocolError(
            f"sample: the rate limiter of table {table!r} does not admit {batch_size} samples, and "
            "no other thread is there that could add what is missing, so this one would wait for "
            f"itself: the table has {info['size']} items after {info['num_inserts']} inserts and "
            f"{info['num_samples']} samples, expected at least {info['min_size']} items; "
            f"{added['steps']['produced']} steps were added, and {added['pending'][table]} items "
            "are pending. Add steps first (an environment's last step waits for the next one, or "
            "for end_episodes), call flush() for what is pending, or give timeout_s"
        )

    def gather(self, table: str, keys: Array) -> ReplayBatch:
        """See ReplayBuffer.gather."""
        items = self._items[table]
        raw = self._store.gather(table, items.plan, keys)
        info = self._info(items, raw)
        info["weight"] = np.ones(len(keys), np.float32)
        return items.to_batch(raw, info)

    def stats(self, table: str) -> dict[str, Any]:
        """Returns this side's part of ReplayBuffer.stats for one table."""
        info = self._store.info(table)
        with self._lock:
            wait_s, last = self._wait_s[table], self._last.get(table)
        inserts, samples = int(info["num_inserts"]), int(info["num_samples"])
        result: dict[str, Any] = {
            "size": int(info["size"]),
            "max_size": int(info["max_size"]),
            "occupancy": info["size"] / info["max_size"],
            "inserts": inserts,
            "samples": samples,
            "deletes": int(info["num_deletes"]),
            "samples_per_insert": samples / inserts if inserts else 0.0,
            "sample_wait_s": wait_s,
        }
        if last is not None:
            result |= {"age": summary(last[0]), "policy_lag": summary(last[1])}
        return result

    def _info(self, items: ItemReader, raw: Mapping[str, Array]) -> dict[str, Array]:
        lag = self._writer.policy_version - items.first_version(raw)
        return {
            "key": raw["key"],
            "probability": raw["probability"],
            "priority": raw["priority"],
            "times_sampled": raw["times_sampled"],
            "table_size": raw["table_size"],
            "age": raw["num_inserts"] - raw["insert_index"] - 1,
            "policy_lag": lag,
            "env_id": self._writer.env_id[raw["stream_id"]],
            "num_steps": raw["length"] - 1,
        }


def summary(values: Array) -> dict[str, float]:
    return {
        "min": float(values.min()),
        "mean": float(values.mean()),
        "max": float(values.max()),
    }
