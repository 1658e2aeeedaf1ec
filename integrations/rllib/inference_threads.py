# SPDX-License-Identifier: Apache-2.0
"""Inference on the CPU by threads that sleep between two batches.

PyTorch shares an operation among OpenMP's threads, which go on spinning for milliseconds after it.
Spinning speeds up the next operation; where a step of the environments comes next, it takes the
cores that the pool's threads need: 16 Pong environments on 2 cores took 4.0 ms for a step after
an inference, 1.6 ms without one. The threads here use no threads of OpenMP: each computes its share
of the rows alone. Their caller, too, computes without OpenMP's threads while it samples.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from ray.rllib.algorithms.ppo.torch.default_ppo_torch_rl_module import DefaultPPOTorchRLModule
from torch import Tensor

from rollouts.support.no_room import started_executor

from .images import ByteCNNEncoder

# fewer rows than this are not worth a thread
_LEAST_ROWS = 4

Batch = dict[str, Tensor]


def can_split(module: Any) -> bool:
    """Tells if threads may share a module's rows, and if the module takes long enough for that.

    That is so for the modules of PPO, APPO and IMPALA with our CNN, on the CPU: they draw no
    random numbers and keep nothing between two calls, unlike some modules of users.
    """
    if type(module).__module__.partition(".")[0] != "ray" or torch.get_num_threads() < 2:
        return False
    return isinstance(module, DefaultPPOTorchRLModule) and any(
        isinstance(part, ByteCNNEncoder) and next(part.parameters()).device.type == "cpu"
        for part in module.modules()
    )


class InferenceThreads:
    """A pool of as many threads as PyTorch uses; each computes its operations alone."""

    def __init__(self) -> None:
        """Starts the threads.

        Raises:
          SpecError: The system starts too few threads.
        """
        self._num_threads = before = torch.get_num_threads()

        def compute_alone() -> None:
            # at its first use of PyTorch, a thread takes over the number set for later threads
            torch.get_num_threads()
            torch.set_num_threads(1)

        self._executor = started_executor(before, "inference", compute_alone)
        # `set_num_threads` in one thread also sets the number with which later threads begin
        torch.set_num_threads(before)

    def __call__(self, forward: Callable[[Batch], Batch], batch: Batch) -> Batch:
        """Returns forward(batch) without gradients.

        Args:
          forward: From rows to rows, to be called by several threads at once.
          batch: (B, ...) by name.
        """
        num_rows = len(next(iter(batch.values())))
        shares = max(1, min(self._num_threads, num_rows // _LEAST_ROWS))
        parts = [
            dict(zip(batch, part, strict=True))
            for part in zip(*(rows.tensor_split(shares) for rows in batch.values()), strict=True)
        ]

        def run(part: Batch) -> Batch:
            with torch.no_grad():
                return forward(part)

        outputs = list(self._executor.map(run, parts))
        return {name: torch.cat([output[name] for output in outputs]) for name in outputs[0]}

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Makes the caller compute alone, too, while it waits for steps and inferences."""
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(before)

    def close(self) -> None:
        """Ends the threads."""
        self._executor.shutdown()
