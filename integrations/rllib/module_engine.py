# SPDX-License-Identifier: Apache-2.0
"""Choice of the engine that computes a runner's module in the bulk loop: native, or torch."""

from __future__ import annotations

import torch
from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule

from rollouts import _native
from rollouts.checks import one_of
from rollouts.collecting.policy_engine import Engine
from rollouts.errors import SpecError

from .actions import ActionScaling
from .env import RolloutsVectorEnv
from .native import NativeActor


class ModuleEngine:
    """Reads a module at its first use, and again when the runner has another one.

    Attributes:
      reason: Why torch computes the module; "" where the pool's threads do.
    """

    def __init__(self, wanted: Engine, worker_index: int) -> None:
        """Raises SpecError where `wanted` is no engine. Each worker index draws different random
        numbers."""
        one_of("rollout_engine", wanted, ("auto", "native", "torch"))
        self._wanted = wanted
        self._worker_index = worker_index
        self.reason = ""
        self._to_seed: set[bool] = set()
        self._read: dict[bool, tuple[TorchRLModule, NativeActor | str]] = {}

    def choose(
        self,
        env: RolloutsVectorEnv,
        module: TorchRLModule,
        scaling: ActionScaling,
        *,
        explore: bool,
        keep_infos: bool,
    ) -> NativeActor | None:
        """Returns what the pool's threads act with; None, and `reason`, where torch does.

        Raises:
          SpecError: `wanted` is "native", and native code cannot compute the module.
        """
        try:
            self._check(env, keep_infos=keep_infos)
            actor = self._actor(env, module, scaling, explore=explore)
            actor.refresh()
        except SpecError as error:
            self.give_up(error)
            return None
        self.reason = ""
        return actor

    def give_up(self, error: SpecError) -> None:
        """Leaves the module to torch; raises `error` where native code has to compute it."""
        if self._wanted == "native":
            raise SpecError(f"rollout_engine='native' is not possible: {error}") from error
        self.reason = str(error)

    def draw_anew(self) -> None:
        """Seeds the noise again at the next use, since the pool's seed has begun its noise anew."""
        self._to_seed = set(self._read)

    def forget(self) -> None:
        """Makes the next use read the module again, for another pool."""
        self._read.clear()

    def _check(self, env: RolloutsVectorEnv, *, keep_infos: bool) -> None:
        if self._wanted == "torch":
            raise SpecError("rollout_engine='torch' was asked for")
        if keep_infos and env.has_infos:
            raise SpecError("a learner connector is configured, and infos are kept for it")
        if self._wanted == "auto" and _native.policy_kernels_in_use() == "emulated":
            raise SpecError("this machine has no fused multiply-add, without which torch is faster")

    def _actor(
        self,
        env: RolloutsVectorEnv,
        module: TorchRLModule,
        scaling: ActionScaling,
        *,
        explore: bool,
    ) -> NativeActor:
        of, actor = self._read.get(explore, (None, ""))
        if of is not module:
            try:
                actor = NativeActor(env, module, scaling, explore=explore, seed=self._draw_seed())
            except SpecError as error:
                # only the text is kept: a traceback would keep the runner alive
                actor = str(error)
            self._read[explore] = module, actor
            self._to_seed.discard(explore)
        if isinstance(actor, str):
            raise SpecError(actor)
        if explore in self._to_seed:
            self._to_seed.remove(explore)
            actor.seed(self._draw_seed())
        return actor

    def _draw_seed(self) -> tuple[int, int]:
        # torch's seed decides; RLlib seeds torch, if at all, differently in each runner
        return int(torch.randint(2**62, ())), self._worker_index
