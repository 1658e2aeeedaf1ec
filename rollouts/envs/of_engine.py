# SPDX-License-Identifier: Apache-2.0
"""`OfEngine`: attributes that a vector env has only if its engine has them."""

from __future__ import annotations

import operator
from typing import Any

from rollouts.envs.engine import Engine
from rollouts.errors import MissingFeatureError
from rollouts.features import cannot


class OfEngine:
    """A member of a `PoolFace` that is read from the engine, if the engine has a feature.

    With other engines, another property takes its place, or the member is missing: reading it
    raises a MissingFeatureError, which is also an AttributeError, so that `hasattr` is False.
    """

    def __init__(self, feature: str, path: str, *, otherwise: Any = None) -> None:
        """Names the feature, a key of FEATURES, and the member's path in the engine.

        Args:
          otherwise: The property that takes its place if the engine lacks the feature.
        """
        self._feature, self._otherwise = feature, otherwise
        self._read = operator.attrgetter(path)

    def __get__(self, face: Any, owner: type | None = None) -> Any:
        if face is None:
            return self
        if self._otherwise is not None and self._feature not in face.engine.can:
            return self._otherwise.__get__(face)
        return self.of(face.engine)

    def __set__(self, face: Any, value: Any) -> None:
        if self._otherwise is None or self._feature in face.engine.can:
            raise AttributeError(f"a member of {face.engine.name} cannot be set")
        self._otherwise.__set__(face, value)

    def of(self, engine: Engine) -> Any:
        """The engine's member.

        Raises:
          MissingFeatureError: The engine lacks the feature.
        """
        if self._feature not in engine.can:
            raise MissingFeatureError(cannot(engine.name, self._feature))
        return self._read(engine)
