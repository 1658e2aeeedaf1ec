# SPDX-License-Identifier: Apache-2.0
"""What a queue between workers and a learner holds: the name of a fragment and a way to it."""

from __future__ import annotations

from typing import Protocol, TypeVar

F_co = TypeVar("F_co", covariant=True)


class FragmentHandle(Protocol[F_co]):
    """A completed fragment whose arrays may still be elsewhere."""

    @property
    def worker_id(self) -> int: ...
    @property
    def incarnation(self) -> int: ...
    @property
    def seq_no(self) -> int: ...
    @property
    def num_steps(self) -> int: ...
    @property
    def min_policy_version(self) -> int: ...
    @property
    def nbytes(self) -> int: ...

    def resolve(self, timeout_s: float) -> F_co:
        """Fetches the fragment; may be called again after a TimeoutError.

        Raises:
          TimeoutError: the arrays did not arrive within timeout_s.
          WorkerError: the arrays are lost for good.
        """
        ...
