# SPDX-License-Identifier: Apache-2.0
"""Random torch networks, for tests of what reads them."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

ACTIVATIONS = [
    *(nn.Tanh, nn.ReLU, nn.Sigmoid, nn.SiLU, nn.GELU, nn.ELU, nn.LeakyReLU, nn.Softplus),
    *(nn.Mish, nn.Softsign, nn.SELU, nn.Identity),
]


class RandomNetwork(nn.Module):
    """Blocks that take any earlier features, joined and cut, and heads on any of them."""

    def __init__(self, obs_size: int, blocks: list[dict[str, Any]], heads: list[int]) -> None:
        super().__init__()
        sizes, self.blocks, self.layers = [obs_size], blocks, nn.ModuleList()
        for block in blocks:
            size = sum(sizes[i % len(sizes)] for i in block["reads"])
            layer = nn.Linear(size, block["size"], bias=block["has_bias"])
            parts = [layer, block["activation"]()]
            if block["is_normal"]:
                parts.insert(1, nn.LayerNorm(block["size"]))
            self.layers.append(nn.Sequential(*parts))
            sizes.append(block["size"])
        self.places = [head % len(sizes) for head in heads]
        self.heads = nn.ModuleList(nn.Linear(sizes[place], 2) for place in self.places)
        self.register_buffer("mean", torch.randn(obs_size))
        self.register_buffer("var", torch.rand(obs_size))
        self.log_std = nn.Parameter(torch.randn(2))

    def forward(self, obs: Tensor) -> tuple[Tensor, ...]:
        features = [((obs - self.mean) / torch.sqrt(self.var + 1e-2)).clamp(-5, 5)]
        for block, layer in zip(self.blocks, self.layers, strict=True):
            read = [features[i % len(features)] for i in block["reads"]]
            x = layer(torch.cat(read, -1))
            if block["residual"] and x.shape == features[-1].shape:
                x = x + features[-1]
            if block["is_cut"]:
                left, right = x.tensor_split(2, -1)
                x = torch.cat([right, left * 0.5], -1)
            features.append(x)
        pairs = zip(self.heads, self.places, strict=True)
        outputs = [head(features[place]) for head, place in pairs]
        return (*outputs, self.log_std, outputs[0][:, 0])


BLOCKS = st.lists(
    st.fixed_dictionaries(
        {
            "reads": st.lists(st.integers(0, 5), min_size=1, max_size=3),
            "size": st.integers(2, 40),
            "has_bias": st.booleans(),
            "is_normal": st.booleans(),
            "activation": st.sampled_from(ACTIVATIONS),
            "residual": st.booleans(),
            "is_cut": st.booleans(),
        }
    ),
    max_size=4,
)
