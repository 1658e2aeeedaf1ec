# SPDX-License-Identifier: Apache-2.0
"""Logs that are damaged, foreign, full or of another release; what is strange in a run."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from recorded_run import assert_same, policies_of
from torch import nn
from warm_python import run_script

import rollouts
from rollouts import RunLog
from rollouts.cli.main import main
from rollouts.errors import EnvError, FileError, ProtocolError, SpecError
from rollouts.policy import TorchPolicy
from rollouts.run_log.log_format import read_records, to_bytes
from rollouts.run_log.log_reader import open_log

pytestmark = pytest.mark.system

NUM_ENVS, STEPS, FRAGMENTS = 4, 10, 6


def run(log: Any, id: str = "CartPole-v1", num_fragments: int = FRAGMENTS, **options: Any) -> Any:
    """Returns the rollouts of a recorded run."""
    with rollouts.make_vec(id, NUM_ENVS, seed=3, autoreset_mode="same_step", **options) as env:
        collector = rollouts.Collector(env, policies_of(env), STEPS, record=log)
        made = [collector.collect() for _ in range(num_fragments)]
        collector.close()
    return made


@pytest.fixture
def log(tmp_path: Path) -> Path:
    run(RunLog(path=tmp_path / "run" / "log", state_every=2))
    return tmp_path / "run" / "log"


def part(log: Path) -> Path:
    (found,) = log.iterdir()
    return found


def test_the_run_directory_names_its_log(log: Path) -> None:
    assert rollouts.replay_run(log.parent, env_id=1, step=7).is_verified


@pytest.mark.parametrize(
    ("where", "sentence"),
    [
        ({"env_id": 4}, "env 4 is not in the log, expected one of 0 to 3"),
        ({"step": 60}, "step 60 of env 0 is not in the log: .* has steps 0 to 59"),
        ({"worker": 1}, "of that worker and incarnation is not in the log"),
        ({"incarnation": 2}, "of that worker and incarnation is not in the log"),
        ({"step": -1}, "expected a whole number"),
        ({"step": 1.5}, "expected a whole number"),
    ],
)
def test_a_step_that_is_not_there_is_named(where: Any, sentence: str, log: Path) -> None:
    with pytest.raises((SpecError, TypeError), match=sentence):
        rollouts.replay_run(log, **{"env_id": 0, "step": 0, **where})


@pytest.mark.parametrize("name", ["missing", "empty", "foreign"])
def test_a_folder_without_a_log_is_refused(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    if name != "missing":
        folder.mkdir()
    if name == "foreign":
        (folder / "worker-0.incarnation-0.part-00000.rlog").write_bytes(b"PK\3\4" * 100)
    with pytest.raises(SpecError, match=r"has no log of a run|but none begins with the record"):
        rollouts.replay_run(folder, env_id=0, step=0)


def test_what_is_no_path_is_named() -> None:
    with pytest.raises(SpecError, match=r"path is 3, expected a log's folder, or a run's"):
        rollouts.replay_run(3, env_id=0, step=0)  # type: ignore[arg-type]


def test_a_log_that_is_cut_anywhere_is_read_as_far_as_it_goes(log: Path) -> None:
    whole = part(log).read_bytes()
    starts = [start for _, start in read_records(part(log))]
    for size in range(0, len(whole), 97):
        part(log).write_bytes(whole[:size])
        num_whole = sum(end <= size for end in [*starts[1:], len(whole)])
        assert len(list(read_records(part(log)))) == num_whole
        if num_whole:
            open_log(log)
    part(log).write_bytes(whole[: starts[-1] + 9])
    assert rollouts.replay_run(log, env_id=0, step=45).is_verified
    with pytest.raises(SpecError, match="has steps 0 to 49"):
        rollouts.replay_run(log, env_id=0, step=50)


def test_a_damaged_byte_is_found_where_it_is_used(log: Path) -> None:
    data = bytearray(part(log).read_bytes())
    data[-3] ^= 1
    part(log).write_bytes(bytes(data))
    assert rollouts.replay_run(log, env_id=0, step=45).is_verified
    with pytest.raises(SpecError, match="is damaged at byte"):
        rollouts.replay_run(log, env_id=0, step=55)


def changed(log: Path, kind: str, change: Any) -> None:
    """Writes the log again with other facts or arrays in the first record of a kind."""
    data, is_done = b"", False
    for record, _ in read_records(part(log)):
        if record.kind == kind and not is_done:
            change(record)
            is_done = True
        data += to_bytes(record.kind, record.facts, record.arrays)
    part(log).write_bytes(data)


def test_another_release_is_refused_or_made_again_with_a_warning(log: Path) -> None:
    changed(log, "log", lambda record: record.facts.update(digest="0", library="rollouts 0.0.1"))
    with pytest.raises(SpecError, match=r"written by rollouts 0\.0\.1, and this is rollouts"):
        rollouts.replay_run(log, env_id=0, step=5)
    with pytest.warns(RuntimeWarning, match="its checksums will tell"):
        assert rollouts.replay_run(log, env_id=0, step=5, any_release=True).is_verified


def test_another_format_is_refused(log: Path) -> None:
    changed(log, "log", lambda record: record.facts.update(format=1))
    with pytest.raises(SpecError, match="format 1, expected 2"):
        rollouts.replay_run(log, env_id=0, step=5)


def test_what_is_not_the_run_is_an_error(log: Path) -> None:
    def turn(record: Any) -> None:
        actions = record.arrays["action."].copy()
        actions[3, 1] = 1 - actions[3, 1]
        record.arrays["action."] = actions

    changed(log, "fragment", turn)
    with pytest.raises(ProtocolError, match=r"fragment 0 of worker 0.* is not what the run did"):
        rollouts.replay_run(log, env_id=0, step=5)


def test_options_that_name_files_are_repeated_by_the_user(log: Path, capsys: Any) -> None:
    changed(log, "log", lambda record: record.facts["env_options"].update(cfg_file="/etc/passwd"))
    assert main(["replay-run", str(log), "--env", "0", "--step", "5"]) == 2
    assert "names a file or is a command line" in capsys.readouterr().err


def test_an_old_log_is_not_written_over(log: Path) -> None:
    before = part(log).read_bytes()
    with pytest.raises(SpecError, match="which has a log already"):
        run(log)
    assert part(log).read_bytes() == before


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (3, "record is 3, expected a folder"),
        ("", "record is '', expected a folder"),
        ({"path": "x", "on_error": "cry"}, "on_error is 'cry', expected 'warn' or 'stop'"),
        ({"path": "x", "state_every": 0}, "state_every"),
        ({"path": "x", "max_bytes": 1}, "max_bytes"),
    ],
)
def test_wrong_options_are_named(value: Any, sentence: str) -> None:
    with pytest.raises(SpecError, match=sentence):
        run(RunLog(**value) if isinstance(value, dict) else value)


def test_an_asynchronous_pool_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="record with batch_size cannot be had"):
        run(tmp_path / "log", batch_size=2)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made_is_an_error_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="cannot be written"):
        run(tmp_path / "file" / "log")


def test_old_parts_make_room_and_the_newest_steps_stay(tmp_path: Path) -> None:
    log = RunLog(path=tmp_path, state_every=2, max_bytes=1 << 16)
    made = run(log, "HalfCheetah-v5", 60)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 1 << 16
    (found,) = open_log(tmp_path)
    first, end = found.steps()
    assert (first > 0) and (end == 60 * STEPS)
    assert_same(rollouts.replay_run(tmp_path, env_id=3, step=end - 1), made[-1])
    assert_same(rollouts.replay_run(tmp_path, env_id=3, step=first), made[first // STEPS])


def test_a_part_that_cannot_be_opened_ends_the_log_alone(tmp_path: Path) -> None:
    with rollouts.make_vec("HalfCheetah-v5", NUM_ENVS, seed=3, autoreset_mode="same_step") as env:
        log = RunLog(path=tmp_path, state_every=2, max_bytes=1 << 16)
        collector = rollouts.Collector(env, policies_of(env), STEPS, record=log)
        name = part(tmp_path).name.replace("00000", "00001")
        (tmp_path / name).write_bytes(b"somebody else's")
        with pytest.warns(RuntimeWarning, match=f"goes on without it: .*{name}"):
            for _ in range(60):
                collector.collect()
                collector.synchronize()
        collector.close()
    (tmp_path / name).unlink()
    (found,) = open_log(tmp_path)
    assert rollouts.replay_run(tmp_path, env_id=3, step=found.steps()[1] - 1).is_verified


FULL = """
import resource, signal, sys, warnings
sys.path.insert(0, {helpers!r})
import rollouts
from recorded_run import policies_of
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
env = rollouts.make_vec("HalfCheetah-v5", 4, seed=3, autoreset_mode="same_step")
log = rollouts.RunLog(path={log!r}, on_error={on_error!r})
collector = rollouts.Collector(env, policies_of(env), 10, record=log)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
warnings.simplefilter("always")
for _ in range(4):
    for _ in range(15):
        collector.collect()
        if {waits}:
            collector.synchronize()
    collector.synchronize()
print("went on")
"""


@pytest.mark.parametrize(
    ("on_error", "waits"),
    # False: many fragments are written at once
    [
        ("warn", False),
        ("stop", True),
        # each of both is in one of those above
        pytest.param("warn", True, marks=pytest.mark.slow),
        pytest.param("stop", False, marks=pytest.mark.slow),
    ],
)
def test_on_a_full_disk_the_run_goes_on_or_stops_as_asked(
    on_error: str, waits: bool, tmp_path: Path
) -> None:
    helpers = str(Path(__file__).parents[1] / "helpers")
    program, log = tmp_path / "full.py", tmp_path / "log"
    program.write_text(FULL.format(helpers=helpers, log=str(log), on_error=on_error, waits=waits))
    done = run_script(program, timeout=300)
    if on_error == "warn":
        assert done.returncode == 0, done.stderr
        assert "went on" in done.stdout
        assert done.stderr.count("recording ended, and the run goes on without it") == 1
    else:
        assert done.returncode == 1
        assert "FileError" in done.stderr
        assert "went on" not in done.stdout
    # what was whole before stays
    (found,) = open_log(log)
    _, end = found.steps()
    assert rollouts.replay_run(log, env_id=0, step=end - 1).is_verified
    assert 15_000 < part(log).stat().st_size <= 20_000


class Clamped(nn.Module):
    """Says something finite of whatever it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 3)

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        both = self.body(obs.clamp(-10, 10))
        return both[:, :2], both[:, 2]


@pytest.mark.parametrize("engine", ["native", "torch"])
def test_a_failing_environment_names_the_command_that_shows_it(
    engine: Any, tmp_path: Path, capsys: Any
) -> None:
    gravity = [9.8] * 30
    gravity[17] = 1e308
    with rollouts.make_vec(
        "CartPole-v1", 30, seed=1, autoreset_mode="same_step", env_id_offset=100, gravity=gravity
    ) as env:
        policy = TorchPolicy(Clamped(), env.single_action_space)
        collector = rollouts.Collector(env, policy, STEPS, engine=engine, record=tmp_path)
        with pytest.raises(EnvError, match=r"env_id 117: .*shows it") as raised:
            collector.collect()
        collector.close()
    command = str(raised.value).split("`")[1].split()
    assert command[:2] == ["rollouts", "replay-run"]
    assert main(command[1:]) == 0
    shown = capsys.readouterr().out
    assert "failed again: " in shown
    made = rollouts.replay_run(tmp_path, env_id=117, step=int(command[-1]))
    assert made.failed and made.of_env()["truncated"][-1]


class Rewards(gymnasium.Env[np.ndarray, int]):
    """Rewards of 1, but for one step."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, at: int = -1, reward: float = 1.0, obs: float = 0.0) -> None:
        self.at, self.reward, self.obs, self.count = at, reward, obs, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.float32([0]), {}

    def step(self, action: int) -> Any:
        self.count += 1
        is_now = self.count == self.at
        obs = np.float32([self.obs if is_now else 0])
        return obs, self.reward if is_now else 1.0, self.count % 50 == 0, False, {}


@pytest.mark.parametrize(
    ("strange", "sentence"),
    [
        ({"reward": -11.0}, "env_id 1 has the reward -11, 10 times as large as any before"),
        ({"reward": float("nan")}, "env_id 1 has the reward nan"),
        ({"obs": float("inf")}, "env_id 1 has the observation inf"),
    ],
)
def test_what_is_strange_is_a_warning_with_the_command(
    strange: dict[str, float], sentence: str, tmp_path: Path
) -> None:
    fns = [Rewards, lambda: Rewards(at=5045, **strange)]
    env = rollouts.from_env_fns(fns, num_processes=0, seed=1, autoreset_mode="same_step")
    policy = TorchPolicy(Constant(), env.single_action_space)
    collector = rollouts.Collector(env, policy, 1000, record=tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(5):
            collector.collect()
    with pytest.warns(RuntimeWarning, match=sentence) as seen:
        collector.collect()
    # what was observed after a step is what the next one sees
    step = 5045 if "obs" in strange else 5044
    assert f"--env 1 --step {step}` shows it" in str(seen[0].message)
    collector.close()


class Constant(nn.Module):
    """Sees nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(2))

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return self.logits.expand(len(obs), 2), torch.zeros(len(obs))
