# SPDX-License-Identifier: Apache-2.0
"""Processes whose rollouts is another release than the driver's say so, and read nothing."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from processes import environ_with_path

import rollouts
from rollouts import _native
from rollouts.support.same_release import make_check, sealed

ray = pytest.importorskip("ray")
cloudpickle = pytest.importorskip("cloudpickle")

PACKAGE = Path(rollouts.__file__).parent


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this checkout's package, laid out as a wheel is."""
    folder = tmp_path_factory.mktemp("release")
    copy = folder / "rollouts"
    unwanted = shutil.ignore_patterns("__pycache__", "*.so")
    shutil.copytree(PACKAGE, copy, ignore=unwanted)
    integrations = PACKAGE.parent / "integrations"
    if not (copy / "integrations").is_dir():
        shutil.copytree(integrations, copy / "integrations", ignore=unwanted)
    if not (copy / "include").is_dir():
        shutil.copytree(rollouts.include_dir(), copy / "include")
    (copy / Path(_native.__file__).name).symlink_to(_native.__file__)
    # an editable installation would come first
    (folder / "sitecustomize.py").write_text(
        "import sys\n"
        "sys.meta_path[:] = [one for one in sys.meta_path if 'rollouts' not in repr(one)]\n"
    )
    return folder


def in_tree(tree: Path, code: str, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Runs code that imports the tree's package, with `data` as its input."""
    environ = environ_with_path()
    environ["PYTHONPATH"] = os.pathsep.join([str(tree), environ["PYTHONPATH"]])
    argv = [sys.executable, "-c", "import sys\n" + code]
    return subprocess.run(argv, input=data, capture_output=True, env=environ, cwd=tree)


CHECK = "import pickle; print(pickle.loads(sys.stdin.buffer.read())())"


def test_a_wheel_of_this_checkout_is_the_same_release(tree: Path) -> None:
    result = in_tree(tree, CHECK, cloudpickle.dumps(make_check()))
    assert result.stdout == b"None\n", result.stderr


def test_another_release_is_named_by_one_sentence(tree: Path, tmp_path: Path) -> None:
    other = shutil.copytree(tree, tmp_path / "other", symlinks=True)
    (other / "rollouts" / "support" / "same_release.py").unlink()
    result = in_tree(other, CHECK, cloudpickle.dumps(make_check()))
    said = result.stdout.decode()
    assert said.startswith("this process has rollouts"), result.stderr
    assert str(other / "rollouts") in said and str(PACKAGE) in said
    assert "install the same release" in said and said.count("\n") == 1


@pytest.mark.parametrize(
    "name", ["rollouts/integrations/cleanrl.py", "rollouts/include/rollouts/core/env.h"]
)
def test_adapters_and_headers_are_compared_too(tree: Path, tmp_path: Path, name: str) -> None:
    other = shutil.copytree(tree, tmp_path / "other", symlinks=True)
    (other / name).write_text((other / name).read_text() + "\n")
    result = in_tree(other, CHECK, cloudpickle.dumps(make_check()))
    assert b"install the same release" in result.stdout, result.stderr


def test_a_sealed_object_of_another_release_is_not_read(tree: Path, tmp_path: Path) -> None:
    class Client:
        def __reduce__(self) -> Any:
            return sealed(print, "was read")

    data = pickle.dumps(Client())
    read = "import pickle, rollouts; pickle.loads(sys.stdin.buffer.read())"
    assert in_tree(tree, read, data).stdout == b"was read\n"
    other = shutil.copytree(tree, tmp_path / "other", symlinks=True)
    (other / "rollouts" / "batch.py").write_text(
        "# of another commit\n" + (other / "rollouts" / "batch.py").read_text()
    )
    result = in_tree(other, read, data)
    assert b"was read" not in result.stdout
    assert b"WorkerError: an object of another release" in result.stderr


RAY = """
import pathlib
import ray, rollouts
from counter_world import CounterCollector, make_policy, weights
from inference_world import SumPolicy
from replay_world import make_coordinator, make_service
from small_cluster import started
from rollouts import RolloutCoordinator
from rollouts.workers import CollectOptions, FaultPolicy, Inference
from rollouts.replay.shards.shard_options import ShardOptions
from rollouts.support.same_release import make_check

def say(who, call):
    try:
        call()
        print(who, "no error")
    except rollouts.RolloutsError as error:
        print(who, type(error).__name__, *str(error).splitlines())

class Learner(rollouts.FragmentInbox):
    def weights(self):
        return weights()

started(lambda: ray.init("local", num_cpus=8, include_dashboard=False, log_to_driver=False))
options = dict(num_envs_per_worker=2, rollout_length=4, faults=FaultPolicy(max_restarts=0))
counters = CollectOptions(make_collector=CounterCollector)
learner = ray.remote(num_cpus=0)(Learner).remote()
make_check()
# as a commit without this field has it
path = pathlib.Path(rollouts.__file__).parent / "workers" / "worker_config.py"
before = path.read_text()
path.write_text(before.replace("    pack_frame_stacks: bool | None = None\\n", "", 1))
assert path.read_text() != before
with RolloutCoordinator("Counter", make_policy, num_workers=1, collect=counters, **options) as one:
    one.publish_weights(weights())
    say("worker", lambda: one.get(timeout_s=300))
    say("hand_over", lambda: one.hand_over(learner, timeout_s=300))
    say("publish_from", lambda: one.publish_from(learner))
with RolloutCoordinator("CartPole-v1", lambda spec: SumPolicy(), num_workers=1,
                        inference=Inference(num_cpus=1), **options) as one:
    say("inference", lambda: one._runner._server.make_remote_policy(None))
with make_coordinator(num_workers=0) as one:
    one.publish_weights(weights())
    with make_service(one, num_shards=1, shards=ShardOptions(max_restarts=0)) as replay:
        say("shard", lambda: replay.sample(4, timeout_s=300))
"""


@pytest.mark.system
def test_actors_of_another_release_read_nothing(tree: Path, tmp_path: Path) -> None:
    other = shutil.copytree(tree, tmp_path / "other", symlinks=True)
    result = in_tree(other, RAY)
    lines = result.stdout.decode().splitlines()
    assert [line.split()[0] for line in lines] == [
        *("worker", "hand_over", "publish_from", "inference", "shard")
    ], (lines, result.stderr.decode())
    for line in lines:
        assert "this process has rollouts" in line and "install the same release" in line, line
