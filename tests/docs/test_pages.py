# SPDX-License-Identifier: Apache-2.0
"""Every code block of docs/ runs as it stands, and prints what the page says it does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from page_blocks import DOCS, NOT_RUN, blocks, missing_output, pages, run_page
from small_cluster import cluster_of_its_own

pytestmark = pytest.mark.system

# has a test of its own, tests/examples/test_own_environment_page.py
OWN_TEST = {"own_environment.md"}
# pages whose commands take long, each with tests of its own that compare more: those of
# `rollouts verify-mujoco`, and of all files that `export` writes
SLOW = {"reference/command.md", "how_to/export.md"}
# pages that have workers in Ray
RAY = {
    "tutorials/ray.md",
    "tutorials/replay_dqn.md",
    "migration/rllib.md",
    "how_to/ray_learners.md",
}
# modules beside the library that a page's blocks import
NEEDS = {
    "tutorials/first_pool.md": ("ale_py",),
    "how_to/atari.md": ("ale_py",),
    "how_to/frames.md": ("pygame", "imageio"),
    "how_to/gpu_mujoco.md": ("mujoco_warp",),
    "how_to/sb3_normalize.md": ("stable_baselines3",),
    "migration/sb3.md": ("stable_baselines3",),
    "migration/rllib.md": ("ray.rllib",),
    "migration/tianshou.md": ("tianshou",),
    "migration/torchrl.md": ("torchrl",),
    "migration/others.md": ("jax", "dm_env"),
}
# blocks that no test can run, by what they need
NOT_RUN_HERE = {
    "install.md": 1,
    "tutorials/ray.md": 2,
    "how_to/serving.md": 1,
    "how_to/export.md": 1,
    "how_to/native_learner.md": 1,
    "how_to/datasets.md": 1,
    "how_to/hindsight.md": 1,
    "how_to/cluster.md": 3,
    "how_to/many_cores.md": 2,
    "how_to/mujoco_engines.md": 1,
    "migration/rllib.md": 1,
}


def name_of(page: Path) -> str:
    return page.relative_to(DOCS).as_posix()


def runs_something(page: Path) -> bool:
    return any(
        block.language in ("python", "bash") and not block.title.startswith(NOT_RUN)
        for block in blocks(page)
    )


RUN = [page for page in pages() if name_of(page) not in OWN_TEST and runs_something(page)]


@pytest.fixture(scope="module")
def ray_address() -> Iterator[str]:
    """A cluster that the pages of RAY join."""
    pytest.importorskip("ray")
    with cluster_of_its_own(num_cpus=4) as address:
        yield address


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page,
            marks=[pytest.mark.slow] * (name_of(page) in SLOW),
            id=name_of(page).removesuffix(".md"),
        )
        for page in RUN
    ],
)
def test_page_runs_from_top_to_bottom(
    page: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    for module in NEEDS.get(name_of(page), ()):
        pytest.importorskip(module)
    # a page would start a Ray of its own; here they share one, as users of a cluster do
    joined = {"RAY_ADDRESS": request.getfixturevalue("ray_address")} if name_of(page) in RAY else {}
    result = run_page(page, tmp_path, timeout=600, **joined)
    assert result.returncode == 0, f"{page}\n{result.stdout}\n{result.stderr[-4000:]}"
    assert missing_output(page, result.stdout) == [], result.stdout


def test_blocks_that_are_not_run_say_why() -> None:
    found = {
        name_of(page): [block.title for block in blocks(page) if block.title.startswith(NOT_RUN)]
        for page in pages()
    }
    assert {name: len(titles) for name, titles in found.items() if titles} == NOT_RUN_HERE
    for titles in found.values():
        for title in titles:
            assert title.startswith(f"{NOT_RUN}: "), title


def test_blocks_have_a_language_that_is_run_or_only_shown() -> None:
    shown = {"text", "diff", "cpp", "toml", "yaml"}
    for page in pages():
        for block in blocks(page):
            assert block.language in {"python", "bash"} | shown, (page, block.line)
