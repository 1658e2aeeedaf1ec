# SPDX-License-Identifier: Apache-2.0
"""`rollouts new-env`: writes a header as a starting point."""

from __future__ import annotations

import re
from pathlib import Path

from rollouts.errors import SpecError

TEMPLATES = Path(__file__).resolve().parents[1] / "own_env" / "templates"
_NAME = "MyEnv"  # the type's name in the templates


def write(path: Path, *, agents: bool) -> None:
    """Writes a commented environment that compiles and passes its checks.

    Args:
      path: A file that does not exist yet; the type gets its name: my_env.h has MyEnv.
      agents: True for several agents in two groups.

    Raises:
      SpecError: The file exists or cannot be written, or its name gives no valid name of a type.
    """
    env_type = "".join(
        word[:1].upper() + word[1:] for word in re.split(r"[^A-Za-z0-9]+", path.stem)
    )
    if path.suffix not in (".h", ".hpp") or not re.match(r"[A-Za-z]", env_type):
        raise SpecError(f"expected a name such as my_env.h, got {path}")
    text = (TEMPLATES / ("agents.h" if agents else "one_agent.h")).read_text()
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(re.sub(rf"\b{_NAME}\b", env_type, text))
    except OSError as error:
        raise SpecError(f"{path} cannot be written: {error.strerror}") from error
    print(f"wrote {path}, which has {env_type}; try it with\n  rollouts check-env {path}")
