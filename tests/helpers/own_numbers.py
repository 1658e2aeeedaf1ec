# SPDX-License-Identifier: Apache-2.0
"""Our random numbers once more, from the paper: for references that draw what we drew."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

MASK = 0xFFFFFFFF


def philox4x32(counter: list[int], key: list[int]) -> list[int]:
    """Ten rounds of Philox4x32 (Salmon et al., SC 2011)."""
    x, k = list(counter), list(key)
    for _ in range(10):
        p0, p1 = 0xD2511F53 * x[0], 0xCD9E8D57 * x[2]
        x = [(p1 >> 32) ^ x[1] ^ k[0], p1 & MASK, (p0 >> 32) ^ x[3] ^ k[1], p0 & MASK]
        k = [(k[0] + 0x9E3779B9) & MASK, (k[1] + 0xBB67AE85) & MASK]
    return x


class Rng:
    """The random stream of one episode of one environment."""

    def __init__(self, seed: int, env_id: int, episode: int) -> None:
        self.key = [seed & MASK, seed >> 32]
        self.env_id, self.episode, self.draws = env_id, episode, 0

    def word(self) -> int:
        block = philox4x32([self.draws // 4 + 1, self.env_id, self.episode, 0], self.key)
        self.draws += 1
        return block[(self.draws - 1) % 4]

    def uniform(self) -> float:
        high, low = self.word() >> 5, self.word() >> 6
        return ((high << 26) | low) / 2**53

    def below(self, n: int) -> int:
        while True:
            product = self.word() * n
            if product & MASK >= 2**32 % n:
                return product >> 32


class NumpyLike:
    """An Rng with the methods of numpy's Generator that Gymnasium's environments call."""

    def __init__(self, rng: Rng) -> None:
        self._rng = rng

    def uniform(
        self, low: float, high: float, size: int | tuple[int, ...] = ()
    ) -> npt.NDArray | float:
        if size:
            return np.array([self.uniform(low, high) for _ in range(np.prod(size))]).reshape(size)
        return low + (high - low) * self._rng.uniform()

    def random(self) -> float:
        return self._rng.uniform()

    def integers(self, low: float, high: float | None = None) -> int:
        first, past = (0, low) if high is None else (low, high)
        return int(first) + self._rng.below(int(past) - int(first))
