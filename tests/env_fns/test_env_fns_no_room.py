# SPDX-License-Identifier: Apache-2.0
"""A system without files or processes to spare is named in one sentence, and nothing stays."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

HERE = str(Path(__file__).parent)

BEGIN = """
    import contextlib, gc, multiprocessing, os, resource, threading
    from host_envs import Counter
    import rollouts
    from rollouts.metrics import MetricsReporter
    from rollouts.rendering.opengl import GlThread

    def files():
        found = dict()
        for one in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):  # the folder's own
                found[one] = os.readlink("/proc/self/fd/" + one)
        return found

    def limit_files(more):
        now = len(os.listdir("/proc/self/fd")) - 1
        resource.setrlimit(resource.RLIMIT_NOFILE, (now + more, 4096))

    def limit_processes():
        if os.getuid() == 0:  # root has no limit
            os.setuid(54321)
        resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))

    def expect(make, *words):
        try:
            made = make()
        except rollouts.SpecError as error:
            assert all(word in str(error) for word in words), error
            assert "\\n" not in str(error) and error.__cause__ is not None
            return False
        made.close()
        return True

    if __name__ == "__main__":
        make = lambda: rollouts.from_env_fns(
            [Counter] * 6, num_processes=4, start_method="{method}"
        )
"""

FILES = """
        make().close()  # what multiprocessing keeps is there from now on
        found = []
        for more in range(0, 60, 2):
            before = files()
            limit_files(more)
            found.append(expect(make, "num_processes=4", "no more open files", "ulimit -n"))
            assert not multiprocessing.active_children()
            resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 4096))
            gc.collect()
            # multiprocessing itself leaves a pipe where it gets no second one
            left = [name for one, name in files().items() if one not in before]
            assert all("pipe:" in name for name in left), left
        # wherever it fails
        assert found[0] is False and found[-1] is True and sorted(found) == found
        print("named")
"""

PROCESSES = """
        make().close()  # imports what it needs, which another user may not read
        limit_processes()
        assert not expect(make, "num_processes=4", "no more processes or threads", "ulimit -u")
        assert not multiprocessing.active_children()
        trial = lambda: rollouts.from_env_fns([Counter] * 999, start_method="{method}")
        assert not expect(trial, "no more processes or threads")
        thread = lambda: MetricsReporter(dict, [])
        assert not expect(thread, "the thread 'rollouts-metrics'", "no more processes or threads")
        try:
            GlThread().run(int)
        except rollouts.SpecError as error:
            assert "the thread 'rollouts-opengl'" in str(error)
        else:
            raise SystemExit("no error")
        print("named")
"""


@pytest.mark.parametrize(
    ("method", "then"), [("fork", FILES), ("fork", PROCESSES), ("spawn", PROCESSES)]
)
def test_what_the_system_does_not_give_is_named(method: str, then: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent((BEGIN + then).format(method=method)))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script)],
        capture_output=True,
        text=True,
        timeout=300,
        env={"PYTHONPATH": HERE},
    )
    assert (done.stdout, done.stderr[-3000:]) == ("named\n", "")
