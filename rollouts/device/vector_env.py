# SPDX-License-Identifier: Apache-2.0
"""`DeviceVectorEnv`: N light environments that a kernel steps, with torch tensors in and out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gymnasium.vector import AutoresetMode
from gymnasium.vector import VectorEnv as GymnasiumVectorEnv
from torch import Tensor

from rollouts.device.arguments import ActionReader, read_obs_dtype
from rollouts.device.env_arrays import LightArrays
from rollouts.device.kernel import BlockShape, make_kernel
from rollouts.device.kernel_source import EnvKernelSource
from rollouts.device.launch_args import EnvLaunch, Launch
from rollouts.device.rows import RowRing, RowSet, RowSpec
from rollouts.device.stepping import DeviceStepping
from rollouts.device.tensor_pool import Five
from rollouts.errors import SpecError
from rollouts.own_env.registrations import env_source

_NUM_THREADS = 128  # of a block


class DeviceVectorEnv(DeviceStepping, GymnasiumVectorEnv[Tensor, Tensor, Tensor]):
    """N light environments, stepped on a GPU by one launch of a kernel.

    What VectorEnv is on the CPU, with the same random streams, autoreset modes and options, and
    states that either loads from the other. Arrays are torch tensors on `device`. The arithmetic of
    the dynamics is 32-bit.

    Launches go on torch's current stream and nothing waits for them: what goes wrong on the device
    (a state that is not finite, an action that does not exist) is raised by the next
    `synchronize`, `get_state`, `set_state` or `reset`. Returned tensors are written again only when
    nobody holds one of them, so keeping them is safe; who uses them on another stream waits for
    that stream before letting go, as with any tensor of torch.

    Steps may be captured in a CUDA graph, after one that is not. What a captured step returned is
    written by every replay, and by nothing else; its random actions are the same in each; `stats`
    counts launches, episodes of replays among them, and not replays. Capture again after a `reset`
    with options, and replay nothing once the pool is closed.

    `device="cpu-emulation"` runs the same kernels as loops on the host, one thread after the
    other, for tests: it is not fast.

    Attributes:
      num_envs: Environments N.
      device: `torch.device` of all tensors.
      env_id_offset, env_spec, autoreset_mode: As VectorEnv.
    """

    def _set_spaces(self) -> None:
        spec = self.env_spec
        if spec.groups:
            raise SpecError(f"{spec.id} has several agents: make_vec makes their pool")
        super()._set_spaces()

    def _make(self, native_id: str, facts: dict[str, Any], obs_dtype: str) -> None:
        rows = RowSpec.of(
            self.env_spec,
            native_id,
            read_obs_dtype(obs_dtype, self.single_observation_space),
            self.autoreset_mode is AutoresetMode.SAME_STEP,
        )
        self.obs_dtypes = [rows.obs_dtype]
        self._source = EnvKernelSource(env_source(native_id), rows.obs_dtype, facts["state_fields"])
        self._actions = ActionReader(self.single_action_space, (self.num_envs,), self.device)
        self._kernel = make_kernel(self._source, self.device, emulated=self.is_emulated)
        self._envs = LightArrays(native_id, self.num_envs, self.device, self.env_id_offset, facts)

        def make(shape: tuple[int, ...]) -> RowSet:
            launch = EnvLaunch()
            self._fill(launch)
            return RowSet(rows, shape, self.device, launch)

        self._block = BlockShape(_NUM_THREADS, _NUM_THREADS)
        self._ring = RowRing(self.num_envs, make)

    def _five(self, row_set: RowSet) -> Five:
        obs, reward, terminated, truncated, info = row_set.batch()
        info["env_id"] = self._env_ids
        return obs, reward, terminated, truncated, info

    def _read_actions(self, actions: Any) -> tuple[list[Tensor], int | None]:
        read, count = self._actions.read(actions)
        return [read], count

    def _empty_actions(self, num_steps: int) -> list[Tensor]:
        return [self._actions.empty(num_steps)]

    def _give(self, launch: Launch, actions: list[Tensor]) -> None:
        launch.actions = actions[0].data_ptr()
        launch.action_bytes = actions[0].element_size()
        # until the next launch is made, on the same stream
        self._held_actions = actions

    def _take(self, launch: Launch, actions: list[Tensor]) -> None:
        launch.taken = actions[0].data_ptr() if actions else None

    def _grouped(self, arrays: Sequence[Any]) -> Any:
        return arrays[0]
