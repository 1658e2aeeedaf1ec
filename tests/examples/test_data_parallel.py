# SPDX-License-Identifier: Apache-2.0
"""`ppo_on_device.py` in two processes: one policy, the environments of one pool."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from warm_python import run_script

EXAMPLES = Path(__file__).parents[2] / "examples"
PROGRAM = """
import contextlib
import sys
from pathlib import Path
import torch
from processes import wait_until
from common.data_parallel import Processes
from ppo_on_device import ALONE, Trainer, parse_args

folder, num_envs = sys.argv[1:]
args = ["--device", "cpu-emulation", "--num-envs", num_envs, "--rollout-length", "16"]
args = parse_args(args)
processes = Processes(args.device)
trainer = Trainer(args, processes)
taken, collect = [], trainer.collector.collect
trainer.collector.collect = lambda: taken.append(collect()) or taken[-1]
means = [trainer.update(1e-3)[ALONE] for _ in range(12)]
found = {
    "obs": taken[0].obs, "action": taken[0].action, "means": means,
    "weights": trainer.learners[ALONE].model.state_dict(),
}
torch.save(found, f"{folder}/{processes.count}_{processes.rank}.pt")

def threads():
    count = 0
    for name in Path("/proc/self/task").glob("*/comm"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended since
            count += "gloo" in name.read_text()
    return count

running = threads()
processes.close()
# those that add up tensors of Python end before the interpreter does; one that was joined is in the
# kernel's list for a moment longer
assert processes.count == 1 or wait_until(lambda: threads() < running)
"""

pytestmark = pytest.mark.system


def test_two_processes_are_one_learner(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    folders = [str(EXAMPLES), str(Path(__file__).parents[1] / "helpers")]
    program.write_text(f"import sys\nsys.path[:0] = {folders}\n{PROGRAM}")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    alone = run_script(program, tmp_path, 64, timeout=900)
    assert alone.returncode == 0, alone.stderr[-3000:]
    done = subprocess.run(
        [*launcher, "--nproc-per-node", "2", program, tmp_path, "32"],
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    one, first, second = (torch.load(tmp_path / f"{name}.pt") for name in ("1_0", "2_0", "2_1"))
    # the same weights begin, and streams of random numbers are those of one pool
    for name in ("obs", "action"):
        assert torch.equal(torch.cat([first[name], second[name]], 1), one[name])
    # everybody learns by the mean of the gradients of minibatches that differ
    for name, weights in first["weights"].items():
        assert torch.equal(weights, second["weights"][name])
        assert not torch.equal(weights, one["weights"][name])
    # and counts everybody's episodes
    assert first["means"][-1] == second["means"][-1] > 20
