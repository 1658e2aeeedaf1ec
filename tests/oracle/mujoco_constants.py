# SPDX-License-Identifier: Apache-2.0
"""Prints which arrays of models mj_setConst writes although our table of the release denies it.

Run by test_mujoco_releases.py with one release of mujoco after another.
"""

from __future__ import annotations

import re
from pathlib import Path

import gymnasium
import mujoco
import numpy as np
from dm_control import suite

ASSETS = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"
TABLES = Path(__file__).parents[2] / "native" / "src" / "engines" / "mujoco_releases"
CLOTH = """
<mujoco><worldbody><flexcomp type="grid" dim="2" count="4 4 1" spacing=".1 .1 .1" name="cloth"
mass="1" radius=".01">{}</flexcomp>
<body pos="0 0 1"><freejoint/><geom size=".1" name="ball"/><site name="a"/></body><site name="b"/>
</worldbody><tendon><spatial stiffness="1"><site site="a"/><site site="b"/></spatial></tendon>
</mujoco>
"""
CLOTHS = ['<edge equality="true"/>', '<edge equality="vert"/>']  # the latter is not in 4.0

# what MuJoCo trusts to be as it was compiled
COMPILED_IN = ("body_ipos", "body_iquat", "flex", "efm")


def table() -> dict[str, bool]:
    """Arrays of mjModel in the table of this release, and whether it says that they are written."""
    major, minor, _ = mujoco.__version__.split(".")
    text = (TABLES / f"mujoco_{major}_{minor}.inc").read_text()
    entry = r'\{"(\w+)", kArray, .*?(, true|, false)?(, true)?\},\n'
    return {name: bool(written) for name, _, written in re.findall(entry, text)}


def written(model: mujoco.MjModel, names: list[str]) -> set[str]:
    """Changes what may be changed, in two ways, and sees what mj_setConst makes of it."""
    found = set()
    for scale in (1.01, 1.5):
        for name in names:
            values = getattr(model, name)
            if values.dtype == np.float64 and not name.startswith(COMPILED_IN):
                values *= scale
        before = {name: getattr(model, name).copy() for name in names}
        mujoco.mj_setConst(model, mujoco.MjData(model))
        for name, old in before.items():
            if not np.array_equal(old, getattr(model, name), equal_nan=True):
                found.add(name)
    return found


def main() -> None:
    uses = table()
    files = [*sorted(ASSETS.glob("*.xml")), *sorted(Path(suite.__file__).parent.glob("*.xml"))]
    release = tuple(int(part) for part in mujoco.__version__.split("."))
    cloths = [CLOTH.format(text) for text in CLOTHS if release < (4,) or "vert" not in text]
    models = [mujoco.MjModel.from_xml_string(cloth) for cloth in cloths]
    models += [mujoco.MjModel.from_xml_path(str(file)) for file in files]
    # those that hold bytes are read as text, not as arrays
    names = [name for name in uses if isinstance(getattr(models[0], name, None), np.ndarray)]
    changed = set().union(*(written(model, names) for model in models))
    print(mujoco.__version__, len(models), len(changed), sorted(n for n in changed if not uses[n]))


if __name__ == "__main__":
    main()
