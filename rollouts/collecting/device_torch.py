# SPDX-License-Identifier: Apache-2.0
"""`TorchForward`: a torch module instead of a kernel's network; the kernel draws the actions."""

from __future__ import annotations

import copy
import math
from functools import partial
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from rollouts.collecting.actor_rows import ActorRows
from rollouts.collecting.device_memory import TorchMemory
from rollouts.collecting.policy_engine import head_of, parts_of
from rollouts.envs.kernel.emulation import run_or_record
from rollouts.errors import SpecError
from rollouts.policies.inputs import call_module
from rollouts.policies.native import NativePolicy
from rollouts.policies.output_checks import check_module_outputs, head_inputs, output_names
from rollouts.policies.program import Op, Program
from rollouts.policies.sources import Sources, tensors_of
from rollouts.policies.tracing.reads import Reads
from rollouts.policy import TorchPolicy
from rollouts.recurrent import RecurrentTorchPolicy, State, initial_state


class TorchForward:
    """Calls a policy's module for all rows of a group, and makes a kernel do the rest.

    Attributes:
      native: The kernel's program: an empty one, whose observations are the module's outputs.
      inputs: (rows, native.program.obs_size) float32: the module's outputs.
      no_inputs: Zeros of the same shape.
      memory: The states of a `RecurrentTorchPolicy`; None for other policies.
    """

    def __init__(
        self, policy: Any, rows: ActorRows, device: torch.device, *, is_copied: bool = False
    ) -> None:
        """Makes the tensors; does not call the module yet.

        Args:
          policy: The policy that acts.
          rows: The rows that the policy acts for.
          device: The device of the rows.
          is_copied: Whether to call a copy of the module, with the weights of the last `refresh`.

        Raises:
          SpecError: It is no torch policy with a head of this library, does not handle its module's
            memory, acts in another space, or lies on another device.
        """
        has_memory = hasattr(getattr(policy, "module", None), "initial_state")
        fits = RecurrentTorchPolicy if has_memory else TorchPolicy
        if type(policy) is not fits:
            raise SpecError(
                f"engine='torch' got a {type(policy).__name__} of a module "
                f"{'with' if has_memory else 'without'} memory, expected a {fits.__name__}"
            )
        if policy.action_space != rows.action_space:
            raise SpecError(
                f"the policy acts in {policy.action_space}, which does not fit actions of "
                f"{rows.action_space}"
            )
        head = head_of(policy)
        if head is None:
            raise SpecError(
                f"the policy's head is a {type(policy.head).__name__} of its own, and a kernel "
                "draws actions: use a head of rollouts.policy"
            )
        self._policy, self._rows = policy, rows
        self._module, self._is_copied = policy.module, is_copied
        # how often the module was found to read other values than before
        self._changes = 0
        self._sizes = _sizes(rows.action_space)
        count = sum(self._sizes)
        self.inputs = torch.zeros(rows.num_rows, count, device=device)
        self.no_inputs = torch.zeros_like(self.inputs)
        here = {one.device.type for one in policy.module.parameters()}
        if here - {device.type}:
            raise SpecError(
                f"the module lies on {', '.join(sorted(here))}, the environments on {device}: make "
                f"the policy with device={str(device)!r}"
            )
        self.memory = TorchMemory(self._module, rows, device) if has_memory else None
        self._look(device)
        starts = [sum(self._sizes[:i]) for i in range(len(self._sizes))]
        ops = tuple(
            Op("slice", (0,), numbers=(start,), size=size)
            for start, size in zip(starts, self._sizes, strict=True)
        )
        program = Program(count, ops, (), tuple(range(1, len(ops) + 1)))
        self.native = NativePolicy(program, Sources(nn.Identity()), rows.action_space, head)
        self.native.seed_with(policy.noise_seed)
        self.native.made_of = parts_of(policy)

    @torch.no_grad()
    def refresh(self) -> None:
        """Takes over the module's weights, if a copy acts; does not wait for the device."""
        module = self._policy.module
        if not self._reads.are_as_seen():
            self._changes += 1
            self._look(self.inputs.device)
        elif self._is_copied:
            self._module.load_state_dict(module.state_dict())
            self._module.train(module.training)

    def _look(self, device: torch.device) -> None:
        """Finds out what the module reads besides its weights; makes the copy, if a copy acts."""
        module, rows = self._policy.module, self._rows
        self._module = module
        obs = torch.zeros((2, *rows.obs_shape), dtype=getattr(torch, rows.obs_dtype), device=device)
        first = [] if self.memory is None else initial_state(module)
        state = [tuple(torch.stack([one, one]) for one in first)] if first else []
        before = [(one, one.clone()) for one in module.buffers()]
        reads = Reads(module, tensors_of(module))
        cuda = [device] if device.type == "cuda" else []
        with torch.no_grad(), torch.random.fork_rng(devices=cuda):
            with reads.watching():
                call_module(module, obs, *state)
            call_module(module, obs, *state)
            # restores running statistics and other buffers, which only real steps may change
            for one, was in before:
                one.copy_(was)
        reads.forget_changed()
        self._reads = reads
        if self._is_copied:
            self._module = copy.deepcopy(module).requires_grad_(False)

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal as long as `run` does the same: addresses of the weights, and the mode."""
        module = self._module
        tensors = [*module.parameters(), *module.buffers()]
        return (self._changes, module.training, *(one.data_ptr() for one in tensors))

    def run(self, rollout: dict[str, Tensor], t: int, world_ended: Tensor) -> None:
        """Writes the module's outputs for row t of a rollout into `inputs`.

        Args:
          rollout: obs (T + 1, N, [A,] *obs_shape), and what `TorchMemory.meet` reads.
          t: From 0 to T; of row T, only the value is used.
          world_ended: (T, N) bool: of environments with agents.

        Raises:
          SpecError: The module's outputs are not those that `TorchPolicy` describes.
        """
        run_or_record(partial(self._run, rollout, t, world_ended))

    @torch.inference_mode()
    def _run(self, rollout: dict[str, Tensor], t: int, world_ended: Tensor) -> None:
        state = None if self.memory is None else self.memory.meet(rollout, t, world_ended)
        obs = rollout["obs"][t].reshape(-1, *self._rows.obs_shape)
        outputs, state = self._outputs(obs, state)
        self.inputs.copy_(outputs)
        if self.memory is not None and state is not None and t < len(rollout["reward"]):
            self.memory.keep(state)

    @torch.inference_mode()
    def bootstrap(self, rollout: dict[str, Tensor], final_obs: Tensor) -> None:
        """Writes bootstrap_value where episodes were truncated; waits for the device.

        Args:
          rollout: terminated, truncated, active where there are agents, and bootstrap_value:
            (T, N, ...) each.
          final_obs: (T, N, ..., *obs_shape).
        """
        cut = rollout["truncated"] & ~rollout["terminated"]
        if "active" in rollout:
            cut = cut & rollout["active"]
        index = cut.nonzero(as_tuple=True)
        if len(index[0]):
            state = None
            if self.memory is not None:
                step, env, *agent = index
                row = env * self._rows.num_agents + (agent[0] if agent else 0)
                state = self.memory.after(step, row)
            outputs, _ = self._outputs(final_obs[index], state)
            rollout["bootstrap_value"][index] = outputs[:, -1]

    def _outputs(self, obs: Tensor, state: State | None) -> tuple[Tensor, State | None]:
        """(B, sizes): the head's inputs side by side, then the value; and the new states."""
        outputs = call_module(self._module, obs, *([] if state is None else [state]))
        after: State | None = None
        if state is not None:
            *outputs, after = outputs
        check_module_outputs(outputs, output_names(self._policy.head), len(obs))
        first, *others, value = outputs
        parts = [first, *(one.expand_as(first) for one in others), value]
        flat = [one.float().reshape(len(obs), -1) for one in parts]
        if [one.shape[1] for one in flat] != self._sizes:
            raise SpecError(
                f"the module gives {[one.shape[1] for one in flat]} numbers for a row, expected "
                f"{self._sizes} for actions of {self._rows.action_space} and a value"
            )
        return torch.cat(flat, 1), after


def _sizes(space: Any) -> list[int]:
    """Sizes of the head's inputs, and of the value."""
    if isinstance(space, spaces.Discrete):
        size = int(space.n)
    elif isinstance(space, spaces.MultiDiscrete):
        size = int(space.nvec.sum())
    else:
        size = math.prod(space.shape or ())
    return [size] * len(head_inputs(space)) + [1]
