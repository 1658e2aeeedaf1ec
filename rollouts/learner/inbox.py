# SPDX-License-Identifier: Apache-2.0
"""FragmentInbox: receives fragments of `RolloutCoordinator.hand_over` in a learner's actor."""

from __future__ import annotations

import contextlib
import importlib
import threading
from collections import deque
from typing import TYPE_CHECKING

from rollouts.learner.fragment import Fragment, FragmentInfo
from rollouts.support.ray_private import make_tensor_store

if TYPE_CHECKING:
    from rollouts.collecting.frame_stacks import Payload


class FragmentInbox:
    """Base class of learners in actors: keeps fragments until the learner takes them.

    A fragment is handed over in two calls of the coordinator, so that it is delivered once even if
    something fails in between. `receive` gets its arrays. `settle` reports whether the coordinator
    counts it as delivered, or took it back after waiting too long. Only settled fragments can be
    taken.

    Thread-safe. A subclass with an `__init__` calls `super().__init__()`.

    Example:
      @ray.remote(num_gpus=0.5, enable_tensor_transport=True)
      class Learner(rollouts.FragmentInbox):
          def update(self):
              rollout = self.take().payload
    """

    def __init__(self) -> None:
        """Begins empty."""
        # imported before Ray does so on a thread of its own, because two imports at once fail
        with contextlib.suppress(ImportError):
            importlib.import_module("torch")
        make_tensor_store()
        self._changed = threading.Condition(threading.Lock())
        self._arrived: dict[str, Fragment] = {}
        self._taken_back: set[str] = set()
        self._settled: deque[Fragment] = deque()

    @property
    def num_fragments(self) -> int:
        """Number of fragments that can be taken."""
        with self._changed:
            return len(self._settled)

    def take(self, timeout_s: float = 0.0) -> Fragment:
        """Takes the oldest fragment; its `payload` is a RolloutBatch or the like.

        Args:
          timeout_s: Seconds to wait; in an actor with one thread nothing arrives meanwhile.
        Raises:
          TimeoutError: nothing was handed over in time.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._settled, timeout_s):
                raise TimeoutError(
                    f"no fragment was handed over within {timeout_s} s: call "
                    "RolloutCoordinator.hand_over(learner) first"
                )
            return self._settled.popleft()

    def receive(
        self, ticket: str, info: FragmentInfo, payload: Payload, copies: bool
    ) -> str | None:
        """Keeps a fragment until it is settled.

        Args:
          ticket: Name of this attempt to hand it over.
          info: Its description.
          payload: Its arrays.
          copies: Whether the worker will overwrite their memory, so that they must be copied.
        Returns:
          What went wrong here; the call raises only if the arrays did not arrive.
        """
        try:
            if copies:
                payload = payload.copied()  # type: ignore[union-attr]
            with self._changed:
                if ticket in self._taken_back:
                    self._taken_back.discard(ticket)
                else:
                    self._arrived[ticket] = Fragment(info, payload)
        except Exception as error:
            return repr(error)
        return None

    def settle(self, ticket: str, is_delivered: bool) -> None:
        """Lets a fragment be taken, or drops it, even if it arrives later."""
        with self._changed:
            fragment = self._arrived.pop(ticket, None)
            if is_delivered and fragment is not None:
                self._settled.append(fragment)
                self._changed.notify_all()
            elif not is_delivered and fragment is None:
                self._taken_back.add(ticket)
