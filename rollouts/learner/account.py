# SPDX-License-Identifier: Apache-2.0
"""Account: counts what was produced, delivered or discarded."""

from __future__ import annotations

from collections import Counter
from typing import Any


class Account:
    """Counts env-steps or fragments until delivered or discarded; the owner must hold a lock."""

    def __init__(self) -> None:
        self.produced = 0
        self.queued = 0
        self.delivered = 0
        self.discarded: Counter[str] = Counter()

    def produce(self, amount: int) -> None:
        self.produced += amount
        self.queued += amount

    def deliver(self, amount: int) -> None:
        self.queued -= amount
        self.delivered += amount

    def discard(self, amount: int, reason: str) -> None:
        self.queued -= amount
        self.discarded[reason] += amount

    def as_dict(self) -> dict[str, Any]:
        return {
            "produced": self.produced,
            "delivered": self.delivered,
            "queued": self.queued,
            "discarded": dict(self.discarded),
        }
