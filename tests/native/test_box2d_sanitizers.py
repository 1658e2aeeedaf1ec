# SPDX-License-Identifier: Apache-2.0
"""Box2D's worlds with sanitizers, built of the sources that the last build unpacked."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from made_once import make
from sanitizers import (
    CACHE,
    GXX,
    HANG_LIMIT_S,
    HERE,
    NATIVE,
    NUM_COMPILERS,
    SANITIZERS,
    needs_compiler,
)

pytestmark = [pytest.mark.system, needs_compiler]

SHIM = NATIVE / "src" / "engines" / "box2d"


def unpacked() -> Path:
    """Box2D's sources as they were altered for a build of this checkout."""
    found = NATIVE.parent.glob("build/*/box2d/box2d-py-2.3.8")
    newest = max(found, key=lambda folder: folder.stat().st_mtime, default=None)
    if newest is None:
        pytest.skip("no build of this checkout has unpacked Box2D's sources")
    return newest


@pytest.fixture(scope="module", params=sorted(SANITIZERS))
def program(request: pytest.FixtureRequest) -> Path:
    box2d = unpacked()
    sources = [path for path in sorted((box2d / "Box2D").rglob("*.cpp"))]
    # Box2D becomes one object: most of what a compiler does is to read the same headers
    groups = [[path for path in sources if path.stem not in ("b2Settings", "b2Timer")]]
    groups += [[path] for path in sorted(SHIM.glob("*.cpp"))]
    groups += [[NATIVE / "src" / "support" / name] for name in ("fiber.cpp", "huge_pages.cpp")]
    groups += [[HERE / "programs" / "box2d_stress.cpp"]]
    folder = CACHE / request.param / "box2d"
    compiler = [str(GXX), "-std=c++20", "-O1", "-g1", "-pthread", "-ffp-contract=off", "-w"]
    # Box2D's own undefined behaviour is not ours to mend
    compiler += [f"-fsanitize={SANITIZERS[request.param].split(',')[0]}"]
    compiler += [f"-I{SHIM}", f"-I{NATIVE / 'include'}", f"-I{NATIVE / 'src'}", f"-I{box2d}"]

    def compiled(group: list[Path]) -> Path:
        *before, last = map(str, group)
        included = [option for one in before for option in ("-include", one)]
        made = folder / f"{group[-1].stem}.o"
        return make(made, [*compiler, *included, "-MMD", "-c", last], group)

    with ThreadPoolExecutor(NUM_COMPILERS) as compilers:
        objects = list(compilers.map(compiled, groups))
    return make(folder / "box2d_stress", [*compiler, *map(str, objects)], objects)


@pytest.mark.parametrize("scenario", ["threads", "assertions", "contacts", "infinite", "turns"])
def test_worlds_are_clean(program: Path, scenario: str) -> None:
    done = subprocess.run([program, scenario], capture_output=True, text=True, timeout=HANG_LIMIT_S)
    assert done.returncode == 0, done.stdout + done.stderr
