# SPDX-License-Identifier: Apache-2.0
"""`DeviceReplay`: transitions of a pool on a GPU, which stay there from rollout to sample."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rollouts.batch import RolloutBatch, check_rollout
from rollouts.checks import whole_number
from rollouts.errors import DTypeError, SpecError
from rollouts.replay.arguments import as_batch_size
from rollouts.replay.config import NStep
from rollouts.support.extras import needs

with needs("torch", "DeviceReplay"):
    import torch
    from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DeviceTransitions:
    """B transitions over num_steps = k <= n steps, as tensors: a `TransitionBatch` on a device.

    Attributes:
      obs             (B, *obs_shape)
      action          (B, *action_shape)   of a Box as sampled, before clipping
      reward          (B,) float32   r_0 + discount * r_1 + ... + discount^(k-1) * r_(k-1)
      discount        (B,) float32   discount^k; 0 where the episode terminated
      next_obs        (B, *obs_shape)   k steps later: the true final one where the episode ended
      terminated      (B,) bool      in the last of the k steps
      truncated       (B,) bool      in the last of the k steps
      num_steps       (B,) int32
      policy_version  (B,) int64     version of the policy that chose the action
      env_id          (B,) int32
      weight          (B,) float32   1; 0 where no agent was active in any stored step
    """

    obs: Tensor
    action: Tensor
    reward: Tensor
    discount: Tensor
    next_obs: Tensor
    terminated: Tensor
    truncated: Tensor
    num_steps: Tensor
    policy_version: Tensor
    env_id: Tensor
    weight: Tensor


# arrays of a rollout that are stored as they are
_KEPT = ("obs", "action", "reward", "terminated", "truncated", "policy_version")


class DeviceReplay:
    """The newest steps of all of a device's environments, in its memory.

    Rows form a ring, one for each step, and new ones overwrite the oldest. Nothing is copied to the
    host, and neither `add` nor `sample` waits for the device. Items are those of `ReplayBuffer`: no
    item crosses the end of an episode or a place where the next rollout does not begin with the
    last observation of the one before. Where an episode ended, an item's next observation is the
    true final one. A step in which an agent was not active begins no item.

    A step can be sampled when n - 1 later ones of its environment have come. Observations are
    stored twice, as the one before a step and the one after it: for frames of pixels use
    `ReplayBuffer`.

    Not thread-safe.

    Example:
      collector = Collector(env, policy, 32, keep_final_obs=True)
      replay = DeviceReplay(100_000, NStep(3, 0.99), device=env.device)
      replay.add(collector.collect())
      batch = replay.sample(256)
    """

    def __init__(
        self,
        capacity: int,
        items: NStep | None = None,
        *,
        device: str | torch.device,
        seed: int = 0,
    ) -> None:
        """Makes an empty replay; memory is allocated with the first rollout.

        Args:
          capacity: Steps of all environments together, divided equally among them and rounded down.
          items: The items to sample; None: `NStep(1)`.
          device: The device of the rollouts.
          seed: Seed of the sampling: the same seed and calls give the same samples.

        Raises:
          SpecError: capacity is below 1, or items are not `NStep`.
        """
        self.items = NStep(1) if items is None else items
        if not isinstance(self.items, NStep):
            raise SpecError(
                f"items are {items!r}, expected NStep(...): sequences, episodes and hindsight "
                "are items of rollouts.replay.ReplayBuffer"
            )
        self.capacity = whole_number("capacity", capacity, 1, 2**62)
        self.device = torch.device(device)
        self._generator = torch.Generator(self.device).manual_seed(seed)
        powers = [self.items.discount**k for k in range(self.items.n + 1)]
        self._powers = torch.tensor(powers, dtype=torch.float64, device=self.device)
        self._rows: dict[str, Tensor] = {}  # (capacity // B, B, ...)
        self._env_id = torch.zeros(0, dtype=torch.int32, device=self.device)
        self._next = 0  # the next row to write
        self._size = 0  # rows written
        self._counts: Tensor | None = None  # (rows * B,) running count of active steps

    def __len__(self) -> int:
        """Steps that are stored, including those of inactive agents."""
        return self._size * len(self._env_id)

    @property
    def nbytes(self) -> int:
        """Bytes of the memory that was allocated."""
        return sum(one.nbytes for one in self._rows.values())

    @torch.no_grad()
    def add(self, rollout: RolloutBatch[Tensor]) -> None:
        """Copies a rollout, which continues the last one of the same environments.

        Args:
          rollout: Tensors with final_obs, from a `Collector(..., keep_final_obs=True)`. With groups
            of agents, the rollout of one group.

        Raises:
          DTypeError: It has arrays instead of tensors, or several groups.
          SpecError: It has no final_obs, lies on another device, is longer than the ring or of
            another shape than those before.
        """
        check_rollout(rollout, "a DeviceReplay", on_host=False)
        if not isinstance(rollout.reward, torch.Tensor):
            raise DTypeError(
                f"rollout.reward is of type {type(rollout.reward).__name__}, expected a tensor: "
                "rollouts.replay.ReplayBuffer takes arrays"
            )
        steps = len(rollout.reward)
        if rollout.final_obs is None:
            raise SpecError(
                "the rollout has no final_obs, without which truncated episodes cannot be valued: "
                "make the Collector with keep_final_obs=True"
            )
        if rollout.reward.device.type != self.device.type:
            raise SpecError(
                f"the rollout lies on {rollout.reward.device}, expected {self.device}: make the "
                "replay with device=env.device"
            )
        if not self._rows:
            self._allocate(rollout)
        self._check(rollout)
        if self._size:
            self._cut(rollout.obs[0])
        ended = rollout.terminated | rollout.truncated
        # the observation of the next row, except where that belongs to the next episode
        after = torch.cat([rollout.obs[1:], rollout.last_obs[None]])
        is_final = ended.reshape(ended.shape + (1,) * (after.ndim - 2))
        self._put("next_obs", torch.where(is_final, rollout.final_obs, after))
        for name in _KEPT:
            self._put(name, getattr(rollout, name))
        self._put("last", ended)
        if rollout.active is not None:
            self._put("active", rollout.active)
        self._next = (self._next + steps) % len(self._rows["reward"])
        self._size = min(self._size + steps, len(self._rows["reward"]))
        self._counts = None

    @torch.no_grad()
    def sample(self, batch_size: int) -> DeviceTransitions:
        """Draws transitions uniformly, with replacement.

        Raises:
          SpecError: There are fewer than n steps of each environment, or batch_size is below 1.
        """
        batch_size = as_batch_size(batch_size)
        if self._size < self.items.n:
            raise SpecError(
                f"the replay has {self._size} steps of each environment, expected at least "
                f"{self.items.n}, those of one transition: add rollouts first"
            )
        return self.gather(self._draw(batch_size))

    def drawable(self) -> Tensor:
        """Indices (K,) int64 of all transitions that can be drawn; waits for the device."""
        ages = torch.arange(self._num_drawable, device=self.device)
        index = self._index(ages) if len(ages) else ages
        active = self._rows.get("active")
        return index if active is None else index[active.flatten()[index]]

    @torch.no_grad()
    def gather(self, index: Tensor) -> DeviceTransitions:
        """Returns the transitions that begin at indices (B,) int64 of `drawable`."""
        rows, (length, width) = self._rows, self._rows["reward"].shape
        row, column = index // width, index % width
        reward = rows["reward"][row, column].double()
        end, steps, goes_on = row, torch.ones_like(row), ~rows["last"][row, column]
        for k in range(1, self.items.n):
            after = (row + k) % length
            reward = reward + self._powers[k] * rows["reward"][after, column] * goes_on
            end, steps = torch.where(goes_on, after, end), steps + goes_on
            goes_on = goes_on & ~rows["last"][after, column]
        terminated = rows["terminated"][end, column]
        active = rows.get("active")
        return DeviceTransitions(
            obs=rows["obs"][row, column],
            action=rows["action"][row, column],
            reward=reward.float(),
            discount=self._powers.float()[steps] * ~terminated,
            next_obs=rows["next_obs"][end, column],
            terminated=terminated,
            truncated=rows["truncated"][end, column],
            num_steps=steps.int(),
            policy_version=rows["policy_version"][row, column],
            env_id=self._env_id[column],
            weight=torch.ones_like(reward, dtype=torch.float32)
            if active is None
            else active[row, column].float(),
        )

    def state_dict(self) -> dict[str, Any]:
        """The whole state, as tensors and numbers. The tensors are the replay's own: save or copy
        them before the next `add`."""
        return {
            "items": [self.items.n, self.items.discount],
            "next": self._next,
            "size": self._size,
            "env_id": self._env_id,
            "rows": dict(self._rows),
            "generator": self._generator.get_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over a copy of what `state_dict` returned, from any device.

        Raises:
          SpecError: It has another capacity or other items; nothing has changed.
        """
        rows, env_id = state["rows"], state["env_id"]
        length = self.capacity // max(1, len(env_id))
        held = len(rows["reward"]) if rows else length
        if state["items"] != [self.items.n, self.items.discount] or held != length:
            raise SpecError(
                f"the saved replay has {held} steps of each of {len(env_id)} environments and "
                f"items of (n, discount) = {state['items']}, this one {length} and {self.items}: "
                "make it with the same arguments"
            )
        self._rows = {name: one.to(self.device, copy=True) for name, one in rows.items()}
        self._env_id = env_id.to(self.device, copy=True)
        self._next, self._size, self._counts = state["next"], state["size"], None
        self._generator.set_state(state["generator"].cpu())

    def _allocate(self, rollout: RolloutBatch[Tensor]) -> None:
        num_envs = rollout.reward.shape[1]
        length = self.capacity // num_envs
        if length < self.items.n:
            raise SpecError(
                f"capacity is {self.capacity}, {length} steps of each of {num_envs} environments, "
                f"expected at least {self.items.n} of each"
            )

        def make(like: Tensor) -> Tensor:
            return torch.zeros((length, *like.shape[1:]), dtype=like.dtype, device=self.device)

        self._rows = {name: make(getattr(rollout, name)) for name in _KEPT}
        self._rows |= {"next_obs": make(rollout.obs), "last": make(rollout.terminated)}
        if rollout.active is not None:
            self._rows["active"] = make(rollout.active)
        self._env_id = rollout.env_id.clone()

    def _check(self, rollout: RolloutBatch[Tensor]) -> None:
        for name in ("obs", "action", "reward"):
            given, held = getattr(rollout, name), self._rows[name]
            if given.shape[1:] != held.shape[1:] or given.dtype != held.dtype:
                raise SpecError(
                    f"the rollout's {name} is {given.dtype} {tuple(given.shape)}, expected "
                    f"{held.dtype} (T, {', '.join(map(str, held.shape[1:]))}) as before"
                )
        if len(rollout.reward) > len(self._rows["reward"]):
            raise SpecError(
                f"the rollout has {len(rollout.reward)} steps of each environment, expected at "
                f"most {len(self._rows['reward'])}: capacity {self.capacity} holds no more"
            )

    def _cut(self, obs: Tensor) -> None:
        """Ends the open episodes that do not continue with `obs` (B, ...)."""
        newest = (self._next - 1) % len(self._rows["reward"])
        differs = (self._rows["next_obs"][newest] != obs).flatten(1).any(1)
        self._rows["last"][newest] |= differs

    def _put(self, name: str, values: Tensor) -> None:
        """Writes the new rows, in two parts where the ring ends between them."""
        ring = self._rows[name]
        before = min(len(values), len(ring) - self._next)
        ring[self._next : self._next + before].copy_(values[:before])
        ring[: len(values) - before].copy_(values[before:])

    @property
    def _num_drawable(self) -> int:
        """The number of steps that n - 1 later ones follow."""
        return max(0, self._size - self.items.n + 1) * len(self._env_id)

    def _index(self, ages: Tensor) -> Tensor:
        """Flat indices into the ring, of steps that are counted row by row from the oldest row
        on."""
        length, width = self._rows["reward"].shape
        return (ages + (self._next - self._size) % length * width) % (length * width)

    def _draw(self, count: int) -> Tensor:
        active = self._rows.get("active")
        options: dict[str, Any] = {"generator": self._generator, "device": self.device}
        if active is None:
            return self._index(torch.randint(self._num_drawable, (count,), **options))
        # draws the n-th of the active steps and looks up its place, without a copy to the host
        if self._counts is None:
            ages = torch.arange(self._num_drawable, device=self.device)
            self._counts = active.flatten()[self._index(ages)].cumsum(0)
        total = self._counts[-1]
        drawn = torch.rand(count, dtype=torch.float64, **options) * total
        number = torch.minimum(drawn.long(), total - 1)
        return self._index(torch.searchsorted(self._counts, number, right=True))
