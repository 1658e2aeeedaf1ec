# SPDX-License-Identifier: Apache-2.0
"""WandbSink offline and MLflowSink with a file: what was logged is what they keep."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rollouts.errors import EngineError
from rollouts.metrics import MetricsReporter, MLflowSink, WandbSink
from rollouts.metrics.sample import Sampler
from rollouts.metrics.scalars import scalars

STATS = {
    "env_steps": {"produced": 70, "delivered": 64, "queued": 6, "discarded": {"lost": 8}},
    "queue_depth": 1,
    "workers": [{"worker_id": 3, "state": "running"}],
    "mine": {"odd % name": 2.5},
}
MORE = {**STATS, "env_steps": {**STATS["env_steps"], "delivered": 164}, "queue_depth": 2}  # type: ignore[dict-item]


class Source:
    """Stats that a test replaces, and a clock that moves a second with each look."""

    def __init__(self) -> None:
        self.stats: dict[str, Any] = STATS
        self.now_s = 0.0

    def __call__(self) -> dict[str, Any]:
        return self.stats

    def clock(self) -> float:
        self.now_s += 1
        return self.now_s


def report_two(sink: Any) -> None:
    source = Source()
    with MetricsReporter(source, [sink], interval_s=None, clock=source.clock) as reporter:
        reporter.report()
        source.stats = MORE  # the last sample's, when the reporter is closed


def expected() -> list[dict[str, float]]:
    sampler = Sampler()
    return [scalars(sampler.sample(stats, float(at))) for at, stats in ((1, STATS), (2, MORE))]


def test_scalars_have_the_names_of_metrics() -> None:
    first, second = expected()
    assert first["rollouts/env_steps_discarded_total/lost"] == 8
    assert first["rollouts/worker_up/3"] == 1 and first["stats/mine/odd % name"] == 2.5
    assert "rollouts/env_steps_delivered_per_s" not in first
    assert second["rollouts/env_steps_delivered_per_s"] == 100


def stay_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    # its own process starts in 2 s, and on a busy machine in more than the 30 s that wandb waits
    monkeypatch.setenv("WANDB__SERVICE_WAIT", "300")


def histories(path: Path) -> Iterator[dict[str, float]]:
    """The log of an offline run: protobufs in blocks of 32 KiB, as LevelDB's logs."""
    from wandb.proto import wandb_internal_pb2

    data, at, whole = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        length, kind = struct.unpack("<HB", data[at + 4 : at + 7])
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or its last part
            record = wandb_internal_pb2.Record()
            record.ParseFromString(whole)
            whole = b""
            if record.WhichOneof("record_type") == "history":
                items = record.history.item
                found = {"".join(i.nested_key) or i.key: json.loads(i.value_json) for i in items}
                yield {name: value for name, value in found.items() if not name.startswith("_")}


def written(path: Path, count: int) -> list[dict[str, float]]:
    """The histories, once there are `count`: wandb's own process writes them, perhaps late."""
    deadline = time.monotonic() + 300.0
    while len(found := list(histories(path))) < count and time.monotonic() < deadline:
        threading.Event().wait(0.05)
    return found


@pytest.mark.system
def test_an_offline_run_of_wandb_has_every_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb")
    stay_offline(monkeypatch)
    report_two(WandbSink("project", directory=tmp_path, config={"lr": 0.1}, first_step=1000))
    (path,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    first, second = expected()
    counted = "rollouts/env_steps_total"
    logged = [{"rollouts/step": 1000 + each[counted], **each} for each in (first, second)]
    assert written(path, 2) == logged


@pytest.mark.system
def test_a_run_of_ones_own_goes_on_after_the_sink(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb = pytest.importorskip("wandb")
    stay_offline(monkeypatch)
    run = wandb.init(project="project", dir=str(tmp_path))
    run.log({"loss": 1.0}, step=500_000)
    report_two(WandbSink(run))
    # an own count of steps, which samples neither move back nor are refused by
    run.log({"loss": 0.5}, step=500_100)
    run.finish()
    (path,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    # the run's own first one goes with the first sample
    logged = written(path, 3)
    assert [each["loss"] for each in logged if "loss" in each] == [1.0, 0.5]
    assert [each["rollouts/queue_depth"] for each in logged if "rollouts/step" in each] == [1, 2]


@pytest.mark.system
def test_neither_a_training_nor_a_sink_of_its_run_loses_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb = pytest.importorskip("wandb")
    stay_offline(monkeypatch)
    run = wandb.init(project="project", dir=str(tmp_path))
    source = Source()
    with MetricsReporter(source, [WandbSink(run)], interval_s=None, clock=source.clock) as reporter:
        for step in range(3):
            # steps that count updates, and several calls for one of them
            run.log({"loss": step}, step=step)
            for _ in range(3):
                source.stats = {**source.stats, "queue_depth": source.stats["queue_depth"] + 1}
                reporter.report()
            run.log({"entropy": step}, step=step)
        run.log({"loss": 3}, step=3)
    run.finish()
    (path,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    logged = written(path, 10)
    assert [each["loss"] for each in logged if "loss" in each] == [0, 1, 2, 3]
    assert [each["entropy"] for each in logged if "entropy" in each] == [0, 1, 2]
    depths = [each["rollouts/queue_depth"] for each in logged if "rollouts/step" in each]
    assert depths == [*range(2, 11), 10]


@pytest.mark.system
def test_mlflow_has_every_sample(tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow")
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    sink = MLflowSink(uri, experiment="mine", run_name="first", first_step=1000)
    report_two(sink)
    client = mlflow.MlflowClient(tracking_uri=uri)
    run = client.get_run(sink.run_id)
    assert run.info.status == "FINISHED" and run.info.run_name == "first"
    assert client.get_experiment(run.info.experiment_id).name == "mine"
    first, second = expected()
    for name in ("rollouts/queue_depth", "rollouts/env_steps_delivered_total"):
        history = client.get_metric_history(sink.run_id, name)
        assert [each.value for each in history] == [first[name], second[name]]
        steps = [1000 + each["rollouts/env_steps_total"] for each in (first, second)]
        assert [each.step for each in history] == steps
    # the last sample has everything, under names that MLflow takes
    assert run.data.metrics == {name.replace("%", "_"): value for name, value in second.items()}

    # a run that exists is gone on with, and not ended
    own = client.create_run(run.info.experiment_id)
    report_two(MLflowSink(uri, run_id=own.info.run_id))
    found = client.get_run(own.info.run_id)
    assert found.info.status == "RUNNING" and found.data.metrics["rollouts/queue_depth"] == 2
    # another run of the same experiment
    again = MLflowSink(uri, experiment="mine")
    assert client.get_run(again.run_id).info.experiment_id == run.info.experiment_id
    again.close()


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    # None makes the import fail as if nothing were installed
    monkeypatch.setitem(sys.modules, "wandb", None)
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(EngineError, match=r"WandbSink needs .* pip install 'rollouts\[wandb\]'"):
        WandbSink("project")
    with pytest.raises(EngineError, match=r"MLflowSink needs .* pip install 'rollouts\[mlflow\]'"):
        MLflowSink("sqlite:///x.db")


def test_metrics_import_neither_service() -> None:
    code = "import sys, rollouts.metrics; print({'wandb', 'mlflow'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
