# SPDX-License-Identifier: Apache-2.0
"""`OfEngine`: members that a face has where its engine has them."""

from __future__ import annotations

import operator
from typing import Any

from rollouts.envs.engine import FEATURES, Engine
from rollouts.errors import MissingFeatureError


class OfEngine:
    """A member of a face that is the engine's own, for engines with a feature.

    For others it is another property, or missing: to read it raises a MissingFeatureError then, an
    AttributeError too, so that `hasattr` is False.
    """

    def __init__(self, feature: str, path: str, *, otherwise: Any = None) -> None:
        """Names the feature, a key of FEATURES, and where the engine has the member.

        Args:
          otherwise: The property of faces whose engine lacks the feature.
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
            raise MissingFeatureError(f"{engine.name} cannot {FEATURES[self._feature]}")
        return self._read(engine)
