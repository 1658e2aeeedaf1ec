# SPDX-License-Identifier: Apache-2.0
"""Rendering without files left to open says so, and not that no library is installed."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

SCRIPT = """
    import os, resource
    import rollouts

    with rollouts.make_vec("HalfCheetah-v5", 1, render_mode="rgb_array") as env:
        env.reset()
        first_free = os.dup(0)
        os.close(first_free)
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (first_free, most))
        try:
            env.render()
        except rollouts.SpecError as error:
            print(error)
"""


def test_a_first_frame_without_files_left_says_what_is_lacking() -> None:
    pytest.importorskip("mujoco", reason="needs the extra mujoco")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(SCRIPT)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout == (
        "could not start OpenGL: the system gives no more open files (raise `ulimit -n`); or "
        "close some\n"
    ), done.stderr
