# SPDX-License-Identifier: Apache-2.0
"""Parts that environments with one agent and with several share: pools, specs and actions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from tensordict import TensorDictBase
from torchrl.data import (
    Bounded,
    Categorical,
    MultiCategorical,
    MultiOneHot,
    OneHot,
    Unbounded,
)
from torchrl.envs import EnvBase

import rollouts
from rollouts.envs.face import check_on_host
from rollouts.errors import ProtocolError, SpecError

Array = npt.NDArray[Any]

FLAGS = ("done", "terminated", "truncated")


def open_pool(envs: Any, made: dict[str, Any]) -> Any:
    """Makes a pool from ids, or checks that a pool given steps as TorchRL needs it.

    Raises:
      SpecError: Arguments for ids together with a pool, or a pool in another mode.
    """
    if isinstance(envs, str) or (
        isinstance(envs, Sequence) and all(isinstance(one, str) for one in envs)
    ):
        return rollouts.make_vec(envs, autoreset_mode="same_step", **made)
    given = {name: value for name, value in made.items() if value is not None}
    if given:
        raise SpecError(f"{given} are for ids; a pool that exists has its own, got {envs!r}")
    check_on_host(envs)
    if not hasattr(envs, "recv_batch"):
        raise SpecError(f"envs is {envs!r}, expected ids or a rollouts.VectorEnv")
    if envs.autoreset_mode is not AutoresetMode.SAME_STEP:
        raise SpecError(
            f"the pool's autoreset_mode is {envs.autoreset_mode.name.lower()}, expected same_step: "
            "TorchRL resets in the step in which an episode ends, and takes what a next-step pool "
            "returns for its reset as the outcome of an action"
        )
    if envs.batch_size != envs.num_envs:
        raise SpecError(
            f"the pool has batch_size {envs.batch_size} and num_envs {envs.num_envs}, expected "
            "them equal: TorchRL steps all environments together"
        )
    return envs


def stepping_rows(tensordict: TensorDictBase, ended: npt.NDArray[np.bool_]) -> Array | None:
    """The environments that step: those marked by "_step" (N, 1) bool; None for all.

    Raises:
      ProtocolError: An episode of one of these has ended.
    """
    marked = tensordict.get("_step", None)
    rows = None if marked is None else np.flatnonzero(marked_rows(marked))
    if rows is not None and len(rows) == len(ended):
        rows = None
    over = ended if rows is None else ended & np.isin(np.arange(len(ended)), rows)
    if over.any():
        raise ProtocolError(
            f"the episodes of environments {np.flatnonzero(over).tolist()} have ended; "
            'reset them ("_reset" in the tensordict, or step_and_maybe_reset) before they step'
        )
    return rows


def with_skipped(env: EnvBase, tensordict: TensorDictBase, rows: Any, part: TensorDictBase) -> Any:
    """Joins the new results of some environments with the earlier results of the others."""
    whole = env._skip_tensordict(tensordict).select(*part.keys(True, True))
    whole[torch.from_numpy(np.array(rows)).to(whole.device or "cpu").long()] = part
    return whole


def space_spec(space: spaces.Space[Any], batch: torch.Size, device: Any, *, one_hot: bool) -> Any:
    """The spec of a batch of values of a space, as in GymEnv.

    Raises:
      SpecError: A space that is no Box, Discrete or MultiDiscrete.
    """
    if isinstance(space, spaces.Discrete) and space.start == 0:
        count = int(space.n)
        if one_hot:
            return OneHot(count, shape=(*batch, count), dtype=torch.int64, device=device)
        return Categorical(count, shape=batch, dtype=torch.int64, device=device)
    if isinstance(space, spaces.MultiDiscrete):
        nvec = torch.as_tensor(space.nvec, dtype=torch.int64)
        if one_hot:
            total = int(nvec.sum())
            return MultiOneHot(
                nvec.tolist(), shape=(*batch, total), dtype=torch.int64, device=device
            )
        dtype = _torch_dtype(space.dtype)
        return MultiCategorical(nvec, dtype=dtype, device=device).expand(*batch, len(nvec))
    if isinstance(space, spaces.Box):
        shape, dtype = (*batch, *space.shape), _torch_dtype(space.dtype)
        if not (space.bounded_below.any() or space.bounded_above.any()):
            return Unbounded(shape=shape, dtype=dtype, device=device)
        low, high = torch.from_numpy(space.low), torch.from_numpy(space.high)
        return Bounded(
            low.expand(shape), high.expand(shape), shape=shape, dtype=dtype, device=device
        )
    raise SpecError(f"space is {space}, expected Box, Discrete or MultiDiscrete")


def _torch_dtype(dtype: Any) -> torch.dtype:
    return torch.from_numpy(np.zeros(0, dtype)).dtype


def to_actions(action: torch.Tensor, space: spaces.Space[Any], *, one_hot: bool) -> Array:
    """Converts tensors that fit the spec of `space_spec` to the pool's actions."""
    if one_hot and isinstance(space, spaces.Discrete):
        action = action.to(torch.int8).argmax(-1)
    elif one_hot and isinstance(space, spaces.MultiDiscrete):
        parts = torch.split(action.to(torch.int8), space.nvec.tolist(), dim=-1)
        action = torch.stack([part.argmax(-1) for part in parts], -1)
    actions: Array = action.detach().cpu().numpy()
    return actions


def marked_rows(marked: torch.Tensor) -> Array:
    """Converts a "_reset" tensor (N, 1) to (N,) bool."""
    flags: Array = marked.detach().cpu().numpy().reshape(-1)
    return flags
