# SPDX-License-Identifier: Apache-2.0
"""RLlib's default networks for images of bytes, which are cast to floats on the network's device.

RLlib's encoders take float images with their channels last. Here episodes, connectors and batches
hold uint8, a quarter of the bytes, in either order of axes.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from ray.rllib.algorithms.dqn.dqn_catalog import DQNCatalog
from ray.rllib.algorithms.dqn.torch.default_dqn_torch_rl_module import DefaultDQNTorchRLModule
from ray.rllib.algorithms.ppo.ppo_catalog import PPOCatalog
from ray.rllib.algorithms.ppo.torch.default_ppo_torch_rl_module import DefaultPPOTorchRLModule
from ray.rllib.algorithms.sac.sac_catalog import SACCatalog
from ray.rllib.algorithms.sac.torch.default_sac_torch_rl_module import DefaultSACTorchRLModule
from ray.rllib.core.columns import Columns
from ray.rllib.core.models.base import ENCODER_OUT
from ray.rllib.core.models.configs import CNNEncoderConfig
from ray.rllib.core.models.torch.encoder import TorchCNNEncoder
from ray.rllib.core.rl_module.rl_module import RLModuleSpec

from rollouts.errors import SpecError


@dataclasses.dataclass
class ByteCNNEncoderConfig(CNNEncoderConfig):
    """RLlib's CNN for images of bytes; input_dims are (H, W, C), as in RLlib.

    Attributes:
      channels_first: Images are (C, H, W).
    """

    channels_first: bool = True

    def build(self, framework: str = "torch") -> ByteCNNEncoder:
        """Makes the encoder."""
        self._validate(framework=framework)
        return ByteCNNEncoder(self)


class ByteCNNEncoder(TorchCNNEncoder):
    """RLlib's CNN, with the same weights, for images of bytes."""

    def __init__(self, config: ByteCNNEncoderConfig) -> None:
        """Builds the parts of which RLlib's CNN is made."""
        super().__init__(config)
        self._channels_first = config.channels_first
        # on the CPU, convolutions take half the time with the channels last in memory
        self.net.to(memory_format=torch.channels_last)

    def _forward(self, inputs: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        images = inputs[Columns.OBS]
        if not self._channels_first:
            images = images.permute(0, 3, 1, 2)
        # to [-1, 1), as RLlib's wrapper for Atari does
        floats = images.to(torch.float32, copy=True).mul_(1 / 128).sub_(1.0)
        floats = floats.contiguous(memory_format=torch.channels_last)
        # RLlib's CNN puts channels first again; both permutations are views
        return {ENCODER_OUT: self.net(floats.permute(0, 2, 3, 1))}


class ByteImages:
    """A mixin for catalogs: images of bytes get a `ByteCNNEncoder`."""

    @classmethod
    def _get_encoder_config(
        cls,
        observation_space: spaces.Space[Any],
        model_config_dict: dict[str, Any],
        action_space: spaces.Space[Any] | None = None,
    ) -> Any:
        config = super()._get_encoder_config(  # type: ignore[misc]
            observation_space, model_config_dict, action_space
        )
        if observation_space.dtype != np.uint8 or not isinstance(config, CNNEncoderConfig):
            return config
        fields = {f.name: getattr(config, f.name) for f in dataclasses.fields(config) if f.init}
        shape = tuple(fields.pop("input_dims"))
        channels_first = shape[0] < shape[-1]
        dims = (*shape[1:], shape[0]) if channels_first else shape
        return ByteCNNEncoderConfig(**fields, input_dims=dims, channels_first=channels_first)


class BytePPOCatalog(ByteImages, PPOCatalog):
    """The catalog of PPO, APPO and IMPALA."""


class ByteDQNCatalog(ByteImages, DQNCatalog):
    """The catalog of DQN."""


class ByteSACCatalog(ByteImages, SACCatalog):
    """The catalog of SAC."""


_CATALOGS = {
    DefaultPPOTorchRLModule: BytePPOCatalog,
    DefaultDQNTorchRLModule: ByteDQNCatalog,
    DefaultSACTorchRLModule: ByteSACCatalog,
}


def image_module(config: Any, *, model_config: Any = None) -> RLModuleSpec:
    """The algorithm's default RLModule for images of bytes.

    Args:
      config: The AlgorithmConfig that the module is for.
      model_config: As for `config.rl_module`; None: RLlib's defaults.

    Raises:
      SpecError: The algorithm's default module is not one that is known here.

    Example:
      config.rl_module(rl_module_spec=image_module(config))
    """
    module_class = config.get_default_rl_module_spec().module_class
    for known, catalog in _CATALOGS.items():
        if issubclass(module_class, known):
            return RLModuleSpec(
                module_class=module_class, catalog_class=catalog, model_config=model_config
            )
    raise SpecError(
        f"{type(config).__name__}'s default module is {module_class.__name__}, expected that of "
        "PPO, APPO, IMPALA, DQN or SAC: mix ByteImages into its catalog"
    )
