# SPDX-License-Identifier: Apache-2.0
"""Runner: the methods of LocalRunner and RayRunner that the coordinator calls."""

from __future__ import annotations

from typing import Any, Protocol

from rollouts.learner.fragment import Fragment, FragmentHandle
from rollouts.learner.queue import LearnerQueue
from rollouts.workers.weight_store import TakeSnapshots


class Runner(Protocol):
    """The source of fragments: the RayRunner's workers or the LocalRunner."""

    queue: LearnerQueue

    def get(self, num_fragments: int, timeout_s: float | None) -> list[Fragment]: ...

    def get_pending(self, num_fragments: int, timeout_s: float | None) -> list[FragmentHandle]: ...

    def hand_over(
        self, learner: Any, num_fragments: int, timeout_s: float | None
    ) -> list[FragmentHandle]: ...

    def weights_of(self, learner: Any, method: str, timeout_s: float | None) -> TakeSnapshots: ...

    def published(self) -> None: ...

    def scale_to(self, num_workers: int) -> None: ...

    def drain(self, timeout_s: float | None) -> None: ...

    def stats(self) -> dict[str, Any]: ...

    def close(self) -> None: ...
