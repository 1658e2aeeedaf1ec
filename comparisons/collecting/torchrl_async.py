# SPDX-License-Identifier: Apache-2.0
"""TorchRL's asynchronous collector, for `rollouts bench collect`."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import logging
import math
import warnings
from typing import Any

from gymnasium import spaces

from comparisons.stepping.vector_libraries import gymnasium_maker
from rollouts.bench.collect_task import Task
from rollouts.errors import SpecError
from rollouts.support.extras import needs

with needs("torchrl", "peer 'torchrl-async'"):
    import torch
    from tensordict.nn import TensorDictModule
    from torch import Tensor, nn
    from torchrl.collectors import AsyncBatchedCollector
    from torchrl.envs import GymWrapper
    from torchrl.modules import IndependentNormal, ProbabilisticActor

    from rollouts.policy import TorchPolicy


class TorchrlAsync:
    """AsyncBatchedCollector over GymWrapper: observations that are ready go to a policy server."""

    name = "TorchRL AsyncBatchedCollector"
    api = "next"

    def __init__(self, task: Task, num_envs: int) -> None:
        """Makes the collector; its threads begin with the first rollout.

        Raises:
          SpecError: Gymnasium does not have the environment, or not with these options.
          EngineError: A library it needs is missing.
        """
        policy = task.local_policy(num_envs)
        if not isinstance(policy, TorchPolicy):
            raise SpecError(f"peer 'torchrl-async' has no policy {task.policy.name!r}")
        make, _, differs = gymnasium_maker(task.settings, task.spec)
        workers = min(task.settings.num_threads, num_envs)
        self.num_envs, self.num_threads = num_envs, workers
        where = f"in {workers} processes" if workers > 1 else "in a thread each, its default"
        self.notes: tuple[str, ...] = (
            f"Environments {where}, and a thread of this process that computes the policy; a "
            "rollout has as many steps as ours, of whichever environments were ready.",
            *differs,
        )
        backend: dict[str, Any] = {"env_backend": "threading"}
        if workers > 1:
            each = math.ceil(num_envs / workers)
            backend = {"env_backend": "multiprocessing", "envs_per_worker": each}
        is_box = isinstance(task.spec.single_action_space, spaces.Box)
        logging.getLogger("torchrl").setLevel(logging.WARNING)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings of defaults that will change
            self._collector = AsyncBatchedCollector(
                [functools.partial(_wrap, make)] * num_envs,
                policy=_actor(policy.module, is_box),
                frames_per_batch=num_envs * task.rollout_length,
                total_frames=-1,
                max_batch_size=num_envs,
                transport="driver",
                **backend,
            )
        self._collector.set_seed(task.settings.seed % 2**31)
        self._rollouts = iter(self._collector)
        self._paused = contextlib.ExitStack()

    def version(self) -> str:
        return importlib.metadata.version("torchrl")

    def resume(self) -> None:
        self._paused.close()
        # drops what was buffered before the pause, which would seem to take no time
        self.collect()

    def collect(self) -> int:
        return int(next(self._rollouts).numel())

    def pause(self) -> None:
        self._paused.enter_context(self._collector.pause())

    def close(self) -> None:
        self._paused.close()
        self._collector.shutdown()


def _wrap(make: Any) -> Any:
    return GymWrapper(make(), categorical_action_encoding=True)


def _actor(module: nn.Module, is_box: bool) -> Any:
    """Our network as TorchRL's actor, which also returns log_prob and value."""
    names = ["loc", "scale"] if is_box else ["logits"]
    return ProbabilisticActor(
        TensorDictModule(
            _Scaled(module) if is_box else module,
            in_keys=["observation"],
            out_keys=[*names, "state_value"],
        ),
        in_keys=names,
        distribution_class=IndependentNormal if is_box else torch.distributions.Categorical,
        return_log_prob=True,
    )


class _Scaled(nn.Module):
    """Our network with a deviation for each mean."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, log_std, value = self.module(obs)
        return mean, log_std.exp().expand_as(mean), value
