# SPDX-License-Identifier: Apache-2.0
"""`OneAgent`: light environments in the form of their kernel."""

from __future__ import annotations

from typing import Any

from gymnasium.vector import AutoresetMode
from torch import Tensor

from rollouts.envs.kernel.device_arguments import ActionForm, ActionReader, read_obs_dtype
from rollouts.envs.kernel.device_engine import DeviceSetting
from rollouts.envs.kernel.env_arrays import LightArrays
from rollouts.envs.kernel.kernel import BlockShape, make_kernel
from rollouts.envs.kernel.kernel_source import EnvKernelSource, KernelSource
from rollouts.envs.kernel.launch_args import EnvLaunch, Launch
from rollouts.envs.kernel.row_tensors import RowSet, RowSpec
from rollouts.own_env.registrations import env_source
from rollouts.specs import EnvSpec

_NUM_THREADS = 128  # threads of a block


class OneAgent:
    """The kernel, arrays and actions of environments with one agent; see `Actors`."""

    def __init__(
        self,
        spec: EnvSpec,
        native_id: str,
        facts: dict[str, Any],
        obs_dtype: str,
        setting: DeviceSetting,
    ) -> None:
        """Compiles the kernel; `facts` are `_native.device_facts` of the environments."""
        num_envs, device = setting.num_envs, setting.device
        self._device = device
        self._rows = RowSpec.of(
            spec,
            native_id,
            read_obs_dtype(obs_dtype, spec.single_observation_space),
            setting.autoreset_mode is AutoresetMode.SAME_STEP,
        )
        self.obs_dtypes = [self._rows.obs_dtype]
        self.info_names = tuple(name for name, _, _ in self._rows.infos)
        self.source: KernelSource = EnvKernelSource(
            env_source(native_id), self._rows.obs_dtype, facts["state_fields"]
        )
        self._reader = ActionReader(spec.single_action_space, (num_envs,), device)
        self.kernel = make_kernel(self.source, device, emulated=setting.is_emulated)
        self.arrays = LightArrays(native_id, num_envs, device, setting.env_id_offset, facts)
        # a copy, because callers may write to it
        self._env_id = self.arrays.clock["env_id"].clone()
        self.block = BlockShape(_NUM_THREADS, _NUM_THREADS)

    def new_launch(self) -> EnvLaunch:
        """Returns an empty launch."""
        return EnvLaunch()

    def fill(self, launch: Launch) -> None:
        """Does nothing: the launch needs no more than its arrays and rules."""

    def row_set(self, shape: tuple[int, ...], launch: Launch) -> RowSet:
        """Returns rows of a shape, with the launch that writes them."""
        assert isinstance(launch, EnvLaunch)
        return RowSet(self._rows, shape, self._device, launch, self._env_id)

    def block_of(self, most_shared_bytes: int) -> BlockShape:
        """Returns the same block for every kernel: its threads share no memory."""
        return self.block

    @property
    def action_forms(self) -> list[ActionForm]:
        """The `ActionReader.form` of the one agent."""
        return [self._reader.form]

    def read(self, actions: Any) -> tuple[list[Tensor], int | None]:
        """The actions as a tensor; and K for a sequence (K, N, ...), None for (N, ...)."""
        read, count = self._reader.read(actions)
        return [read], count

    def empty(self, num_steps: int) -> list[Tensor]:
        """Returns an array (K, N, ...), which a launch fills with random actions.

        Raises:
          SpecError: The actions have no bounds.
        """
        return [self._reader.empty(num_steps)]

    def give(self, launch: Launch, actions: list[Tensor]) -> None:
        """Makes a launch read these actions."""
        launch.actions = actions[0].data_ptr()
        launch.action_bytes = actions[0].element_size()

    def take(self, launch: Launch, actions: list[Tensor]) -> None:
        """Makes a launch write a step's actions into these tensors; with an empty list, nowhere."""
        launch.taken = actions[0].data_ptr() if actions else None
