# SPDX-License-Identifier: Apache-2.0
"""`ExportedPolicy`: the `Policy` that a policy's file computes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollouts.errors import FileError, ProtocolError, SpecError
from rollouts.exporting.deployment import ENDINGS, Deployment
from rollouts.policies.protocol import PolicyOutput, Rows
from rollouts.support.extras import needs
from rollouts.support.plain_values import plain_path

Array = NDArray[Any]


def read_exported(path: str | os.PathLike[str]) -> tuple[Deployment, Any]:
    """Reads a file with the runtime for its ending; see `rollouts.exporting.graph_files`.

    Raises:
      FileError: There is no such file.
      SpecError: It has another ending, or was not written by `rollouts.export`.
    """
    expected = f"a file of rollouts.export that ends in {', '.join(ENDINGS)}"
    path = Path(plain_path("path", path, expected))
    if path.suffix not in ENDINGS:
        raise SpecError(
            f"{path} ends in {path.suffix!r}, expected {expected}: rollouts.export, or the command "
            "`rollouts export`, writes one"
        )
    if path.exists() and not path.is_file():
        raise FileError(f"{path} is no regular file, expected one that rollouts.export wrote")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise FileError(
            f"{path} cannot be read ({error.strerror or error}), expected {expected}"
        ) from error
    with needs("torch", "reading an exported policy"):
        from rollouts.exporting import graph_files
    readers = (graph_files.from_onnx, graph_files.from_pt2, graph_files.from_torchscript)
    return dict(zip(ENDINGS, readers, strict=True))[path.suffix](data, path)


class ExportedPolicy:
    """A `rollouts.policy.Policy` that a file computes: `.onnx`, `.pt2` or `.pt`.

    A file with states is a `RecurrentPolicy`, and belongs to one pool. The pool is made with
    `make_vec(policy.about.id, ..., **policy.about.env_options)`.

    Attributes:
      about: The description in the file.
      policy_version: 1.
    """

    def __init__(self, path: str | os.PathLike[str], *, seed: int = 0) -> None:
        """Reads a file. Of files from untrusted sources, only ONNX files are safe to read.

        Args:
          path: The file.
          seed: Seed of the noise, if the file takes noise.

        Raises:
          FileError: There is no such file.
          SpecError: The file is not from `rollouts.export`, or a package that reads it is missing.
        """
        self.about, self._run = read_exported(path)
        self.policy_version = 1
        self._rng = np.random.default_rng(seed)
        ports = [one for one in self.about.inputs if one.name.startswith("state_")]
        self._shapes = [one.shape for one in ports]
        self._states = [np.zeros((0, *shape), np.float32) for shape in self._shapes]
        self._initial = [
            np.asarray(numbers, np.float32).reshape(shape)
            for numbers, shape in zip(self.about.initial_states, self._shapes, strict=True)
        ]
        names = {one.name: one for one in self.about.inputs}
        self._obs, self._noise = names["obs"], names.get("noise")
        self._mask = names.get("action_mask")
        if self._shapes:
            # a Collector recognises a RecurrentPolicy by these methods
            self.act_rows, self.value_rows, self.states = (
                self._act_rows,
                self._value_rows,
                self._copies,
            )

    def act(self, obs: Array, action_mask: Array | None = None) -> PolicyOutput:
        """Acts for obs (B, *obs_shape).

        Args:
          action_mask: (B, A) bool, for a file that takes masks; None: all actions are allowed.

        Raises:
          ProtocolError: The file has states: call `act_rows`.
        """
        if self._shapes:
            raise ProtocolError("the file remembers episodes: call act_rows, as a Collector does")
        action = self._call(obs, [], action_mask)[0]
        return self._output(action, len(action))

    def value(self, obs: Array) -> NDArray[np.float32]:
        """Zeros (B,): the file has no critic."""
        return np.zeros(len(obs), np.float32)

    def weights(self) -> dict[str, Array]:
        """Returns an empty dict: the file includes its weights."""
        return {}

    def load_weights(self, weights: Mapping[str, Array], version: int) -> None:
        """Takes no weights.

        Raises: SpecError: `weights` is not empty.
        """
        if weights:
            raise SpecError("an exported policy takes no weights: export the newer one instead")

    def _act_rows(
        self, obs: Array, rows: Rows, begins: NDArray[np.bool_], action_mask: Array | None = None
    ) -> PolicyOutput:
        found = self._call(obs, self._copies(rows, begins), action_mask)
        index = slice(len(begins)) if rows is None else rows
        for kept, new in zip(self._states, found[len(found) - len(self._shapes) :], strict=True):
            kept[index] = new
        return self._output(found[0], len(obs))

    def _value_rows(self, obs: Array, rows: Rows, begins: NDArray[np.bool_]) -> NDArray[np.float32]:
        return np.zeros(len(obs), np.float32)

    def _copies(self, rows: Rows, begins: NDArray[np.bool_]) -> tuple[Array, ...]:
        wanted = len(begins) if rows is None else int(rows.max(initial=-1)) + 1
        missing = wanted - len(self._states[0])
        if missing > 0:
            self._states = [
                np.concatenate([old, np.broadcast_to(first, (missing, *first.shape))])
                for old, first in zip(self._states, self._initial, strict=True)
            ]
        index = slice(len(begins)) if rows is None else rows
        found = [state[index].copy() for state in self._states]
        for state, first in zip(found, self._initial, strict=True):
            state[begins] = first
        return tuple(found)

    def _call(self, obs: Array, states: Sequence[Array], action_mask: Array | None) -> list[Array]:
        arrays = [_checked("obs", np.asarray(obs, self._obs.dtype), self._obs.shape), *states]
        if self._mask is not None:
            shape = (len(arrays[0]), *self._mask.shape)
            mask = np.ones(shape, np.bool_) if action_mask is None else action_mask
            allowed = np.asarray(mask, np.bool_)
            if allowed.shape != shape:
                raise SpecError(f"action_mask has shape {allowed.shape}, expected {shape}")
            arrays.append(allowed)
        elif action_mask is not None:
            raise SpecError("the file takes no masks: export it with action_mask=True")
        if self._noise is not None:
            shape = (len(obs), *self._noise.shape)
            is_logits = any(one.name == "logits" for one in self.about.outputs)
            noise = self._rng.gumbel(size=shape) if is_logits else self._rng.normal(size=shape)
            arrays.append(noise.astype(np.float32))
        found: list[Array] = self._run(arrays)
        return found

    def _output(self, action: Array, count: int) -> PolicyOutput:
        nothing = np.zeros(count, np.float32)
        return PolicyOutput(action, nothing, nothing.copy())


def _checked(name: str, array: Array, shape: tuple[int, ...]) -> Array:
    if array.ndim == 0 or array.shape[1:] != shape:
        raise SpecError(
            f"{name} has shape {array.shape}, expected (B{''.join(f', {n}' for n in shape)}): one "
            "row for each environment, as make_vec(about.id, ..., **about.env_options) shows it"
        )
    return array
