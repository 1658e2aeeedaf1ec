# SPDX-License-Identifier: Apache-2.0
"""`make_target`: chooses the kind of a data set by its name."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from rollouts.datasets.about import About
from rollouts.datasets.set_parts import Target
from rollouts.errors import SpecError
from rollouts.support.plain_values import plain_path

MINARI = "minari:"
_EXPECTED = "minari:NAME-v0 (such as minari:cheetah/random-v0), FOLDER.parquet or FILE.hdf5"
_MINARI_ID = re.compile(r"(?:[-_\w][-_\w/]*[-_\w]+/)?[-_\w]+?-v\d+")


def make_target(to: str | os.PathLike[str], about: About, compression: str) -> Target[Any]:
    """Chooses the target by a name; with agents each group has its own target.

    Raises:
      SpecError: The name has another ending. EngineError: A library is missing.
    """
    name = plain_path("to", to, _EXPECTED)
    if name.startswith(MINARI):
        from rollouts.datasets.minari_set import MinariSet

        return MinariSet(_minari_id(name.removeprefix(MINARI), about.group), about, compression)
    path = Path(name)
    group = about.group
    match path.suffix:
        case ".hdf5" | ".h5":
            from rollouts.datasets.hdf5_set import Hdf5File

            path = path.with_name(f"{path.stem}-{group}{path.suffix}") if group else path
            return Hdf5File(path, about, compression)
        case ".parquet":
            from rollouts.datasets.parquet_set import ParquetSet

            return ParquetSet(path / group if group else path, about, compression)
    raise SpecError(f"to is {name!r}, expected {_EXPECTED}")


def _minari_id(name: str, group: str) -> str:
    if not _MINARI_ID.fullmatch(name):
        raise SpecError(
            f"the Minari id is {name!r}, expected NAME-v0 or NAMESPACE/NAME-v0, such as "
            "minari:cheetah/random-v0"
        )
    if not group:
        return name
    base, _, version = name.rpartition("-v")
    return f"{base}/{group}-v{version}"
