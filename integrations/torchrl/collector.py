# SPDX-License-Identifier: Apache-2.0
"""`RolloutsCollector`: TorchRL's Collector, whose policy the pool's threads compute."""

from __future__ import annotations

import functools
import logging
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from tensordict import TensorDict, TensorDictBase
from torchrl.collectors import Collector
from torchrl.envs.utils import ExplorationType

from rollouts.checks import one_of
from rollouts.collecting.policy_engine import Engine, check_pool
from rollouts.errors import SpecError
from rollouts.machine.torch_threads import beside_a_pool

from ..shared.native_arrays import rollout_arrays
from .known_transforms import KnownTransforms, known_transforms
from .native import NativeActor
from .shared_parts import FLAGS

Array = npt.NDArray[Any]
_log = logging.getLogger(__name__)


class RolloutsCollector(Collector):
    """Collects as TorchRL's Collector does: the same arguments, keys and shapes.

    Over a `RolloutsEnv` the pool's threads compute the policy between the steps of their
    environments, without torch, where native code can read it: a ProbabilisticActor or an
    ActorValueOperator of TensorDictModules, whose actions are of a OneHotCategorical or Categorical
    of logits, an IndependentNormal, or a TanhNormal between -1 and 1. The transforms RewardSum(),
    StepCounter() and DoubleToFloat() are allowed. Actions are drawn from other random streams
    (torch's generator gives their seed); all else in a batch is what policy and environment return
    for these actions, within 1e-5.

    `rollout_engine`, an attribute that may be set, is "auto" for native where possible, "torch" for
    TorchRL's own loop, or "native", which raises SpecError where it is not possible. `engine` and
    `why_not_native` describe how the last batch was made. Otherwise torch computes with
    `num_torch_threads`: None stands for 1 unless the policy is large, see
    `rollouts.machine.torch_threads`.
    """

    rollout_engine: Engine = "auto"
    num_torch_threads: int | None = None
    # Collector's own: where the next rollout begins
    _carrier: Any

    @property
    def engine(self) -> str:
        """The engine that computed the policy for the last batch: "native", or "torch"."""
        return "torch" if self.why_not_native else "native"

    @property
    def why_not_native(self) -> str:
        """The reason why torch computes the policy; "" where it does not."""
        return self._reading.why_not

    def rollout(self) -> Any:
        """See Collector.rollout."""
        actor = self._reading.choose(self)
        if actor is None:
            policy, env = self._wrapped_policy_uncompiled, self.env
            with beside_a_pool(policy, env.batch_size[0], self.num_torch_threads):
                return super().rollout()
        if self.pre_collect_hook is not None:
            self.pre_collect_hook()
        known = known_transforms(self.env)
        if self.reset_at_each_iter or not known.env.goes_on_by_itself:
            self._carrier.update(self.env.reset())
            self._start_new_trajectories()
        return self._maybe_set_truncated(self._collect(actor, known))

    @functools.cached_property
    def _reading(self) -> _Reading:
        return _Reading()

    def _collect(self, actor: NativeActor, known: KnownTransforms) -> TensorDictBase:
        first = self._carrier
        arrays = rollout_arrays(known.env.pool, self.frames_per_batch, actor.num_inputs)
        arrays["obs"][0] = known.env._obs
        final_obs = known.env.collect(actor.policy, arrays)
        ended = arrays["terminated"] | arrays["truncated"]
        after = arrays["obs"][1:].copy()
        after[ended] = final_obs
        root, following = known.columns(arrays, first)
        obs, next_obs = (_by_env(each) for each in (arrays["obs"][:-1], after))
        if known.casts:
            obs, next_obs = obs.float(), next_obs.float()
        flags = {name: _by_env(arrays[name]).unsqueeze(-1) for name in FLAGS[1:]}
        flags["done"] = flags["terminated"] | flags["truncated"]
        none = torch.zeros_like(flags["done"])
        batch = {
            "observation": obs,
            **actor.outputs(obs, arrays),
            **{name: none.clone() for name in FLAGS},
            **root,
        }
        shape = torch.Size((known.env.batch_size[0], self.frames_per_batch))
        device = self.storing_device
        if device is None and not self._carrier_has_no_device:
            device = first.device
        result = TensorDict(batch, shape, device=device, names=[None, "time"])
        result["next"] = TensorDict(
            {
                "observation": next_obs,
                "reward": _by_env(arrays["reward"]).unsqueeze(-1),
                **flags,
                **following,
            },
            shape,
            device=device,
        )
        if self.track_traj_ids:
            result["collector"] = TensorDict(
                {"traj_ids": self._trajectories(ended)}, shape, device=device
            )
        self._go_on(known, following, torch.from_numpy(ended[-1]))
        return result

    def _trajectories(self, ended: Array) -> torch.Tensor:
        """Returns ids of trajectories (N, T) int64; the carrier keeps the ids (N,) that go on."""
        now = self._carrier["collector", "traj_ids"].numpy()
        ids = np.empty((len(ended) + 1, len(now)), np.int64)
        ids[0], ids[1:] = now, -1
        count = int(ended.sum())
        if count:
            ids[1:][ended] = self._traj_pool.get_traj_and_increment(count).numpy()
        # later ids are larger
        ids = np.maximum.accumulate(ids)
        self._carrier["collector", "traj_ids"] = torch.from_numpy(ids[-1].copy())
        return _by_env(ids[:-1])

    def _go_on(
        self, known: KnownTransforms, following: dict[str, torch.Tensor], ended: torch.Tensor
    ) -> None:
        """Stores where the next rollout begins, in TorchRL's form, which both engines use."""
        env = known.env
        obs = torch.from_numpy(env._obs.copy())
        carrier = {
            "observation": obs.float() if known.casts else obs,
            **{name: torch.zeros((len(ended), 1), dtype=torch.bool) for name in FLAGS},
            **known.carried(following, ended),
        }
        before = self._carrier
        self._carrier = TensorDict(carrier, env.batch_size, device=before.device)
        if self.track_traj_ids:
            self._carrier["collector"] = before["collector"]


class _Reading:
    """A collector's policy for native code, read again when it is replaced.

    Attributes:
      why_not: Why torch computes the policy; "" where the pool's threads do.
    """

    def __init__(self) -> None:
        self.why_not = "nothing was collected yet"
        self._seen: tuple[Any, ...] = ()
        self._read: NativeActor | str = ""

    def choose(self, collector: Any) -> NativeActor | None:
        """Returns the actor of the pool's threads; None, with `why_not` set, where torch acts.

        Raises:
          SpecError: rollout_engine is no engine, or it is "native" and not possible.
        """
        wanted = collector.rollout_engine
        one_of("rollout_engine", wanted, ("auto", "native", "torch"))
        before = self.why_not
        try:
            if wanted == "torch":
                raise SpecError("rollout_engine='torch' was asked for")
            _check(collector)
            known = known_transforms(collector.env)
            if known.env.has_action_mask:
                raise SpecError("the environment has action masks in its tensordicts")
            check_pool(known.env.pool, must=wanted == "native")
            actor = self._actor(collector, known)
            actor.policy.refresh()
        except SpecError as error:
            if wanted == "native":
                raise SpecError(f"rollout_engine='native' is not possible: {error}") from error
            self.why_not = str(error)
            if self.why_not != before:
                _log.info("torch computes the policy: %s", self.why_not)
            return None
        self.why_not = ""
        return actor

    def _actor(self, collector: Any, known: KnownTransforms) -> NativeActor:
        policy = collector._wrapped_policy_uncompiled
        likeliest = collector.exploration_type is ExplorationType.DETERMINISTIC
        modules = policy.modules() if isinstance(policy, torch.nn.Module) else ()
        seen = (known, likeliest, policy, *modules)
        if seen != self._seen:
            self._seen = seen
            try:
                self._read = NativeActor(
                    policy,
                    known.env.pool,
                    one_hot=known.env.is_one_hot,
                    casts=known.casts,
                    deterministic=likeliest,
                )
            except SpecError as error:
                self._read = str(error)
        if isinstance(self._read, str):
            raise SpecError(self._read)
        return self._read


def _check(collector: Any) -> None:
    """Raises SpecError where a collector has a setting that a native rollout cannot follow."""
    own_loop = {
        "init_random_frames": collector._should_use_random_frames(),
        "replay_buffer with extend_buffer=False": collector.replay_buffer is not None
        and not collector._ignore_rb
        and not collector.extend_buffer,
        "interruptor": collector.interruptor is not None,
        "return_same_td": collector.return_same_td,
        "compact_obs": collector.compact_obs,
        "compile_policy": collector.compiled_policy,
        "cudagraph_policy": collector.cudagraphed_policy,
    }
    for name, is_asked in own_loop.items():
        if is_asked:
            raise SpecError(f"{name} needs TorchRL's own loop")
    known = (ExplorationType.RANDOM, ExplorationType.DETERMINISTIC)
    if collector.exploration_type not in known:
        raise SpecError(
            f"exploration_type is {collector.exploration_type}, expected one of {known}"
        )
    devices = (
        collector.storing_device, collector.policy_device, collector.env_device,
        collector.env.device,
    )  # fmt: skip
    if any(device is not None and device.type != "cpu" for device in devices):
        raise SpecError("tensors are not on the CPU")


def _by_env(array: Array) -> torch.Tensor:
    """Copies (T, N, ...) to a tensor (N, T, ...)."""
    return torch.from_numpy(array).transpose(0, 1).contiguous()
