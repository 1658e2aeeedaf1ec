# SPDX-License-Identifier: Apache-2.0
"""`rollouts collect`, and the sentences for what it is not given rightly."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from recorded_sets import collector_of
from torch import nn

import rollouts
from rollouts.checkpoint import Checkpoint, save_checkpoint
from rollouts.cli.checkpoint_policy import read_policy
from rollouts.cli.checkpoint_program import load_program
from rollouts.cli.main import main
from rollouts.datasets import open_set, play_again
from rollouts.replay import ReplayBuffer


def test_the_command_writes_the_episodes_that_it_was_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to = tmp_path / "set.parquet"
    command = ["collect", "--env-id", "CartPole-v1", "--episodes", "10", "--num-envs", "4"]
    assert main([*command, "--to", str(to), "--info", "policy_version"]) == 0
    episodes = list(open_set(to))
    assert len(episodes) == 10 and "10 episodes" in capsys.readouterr().out
    assert sorted(each.env_id for each in episodes) == [0, 0, 0, 1, 1, 1, 2, 2, 3, 3]
    assert all((each.infos["policy_version"] == 0).all() for each in episodes)
    with rollouts.make_vec("CartPole-v1", 1, autoreset_mode="disabled") as env:
        assert play_again(episodes, env) == 10
    # never over what is there
    assert main([*command, "--to", str(to)]) == 2
    assert "there already" in capsys.readouterr().err


PROGRAM = """
import torch
from rollouts.policy import TorchPolicy

class Module(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.mean, self.value = torch.nn.Linear(3, 1), torch.nn.Linear(3, 1)
        self.log_std = torch.nn.Parameter(torch.full((1,), -20.0))

    def forward(self, obs):
        return self.mean(obs), self.log_std, self.value(obs)

def make_policy(spec):
    return TorchPolicy(Module(), spec.single_action_space, seed=spec.seed)
"""


def make_run() -> tuple[nn.ModuleDict, rollouts.RunningStatistics]:
    """Writes run.pt, trained with scaled observations, and the program that makes its policy."""
    torch.manual_seed(0)
    Path("program.py").write_text(PROGRAM)
    module = nn.ModuleDict({"mean": nn.Linear(3, 1), "value": nn.Linear(3, 1)})
    weights = {**module.state_dict(), "log_std": torch.full((1,), -20.0)}
    counted = rollouts.RunningStatistics(
        np.array([0.5, -0.1, 2.0]), np.array([0.2, 0.3, 9.0]), count=1000.0
    )
    scaling = {"normalize_observation": {"clip": 1.5}, "normalize_reward": True}
    save_checkpoint("run.pt", Checkpoint(
        id="Pendulum-v1", env_options={**scaling, "clip_action": True}, weights=weights,
        policy_version=2, program="program.py", statistics={"observation": counted},
    ))  # fmt: skip
    return module, counted


@pytest.mark.parametrize("own", [True, False], ids=["the environment's", "scaled as asked for"])
def test_a_run_that_learned_from_scaled_data_records(
    own: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The policy acts as it did in its training, on observations that the set has as they were."""
    monkeypatch.chdir(tmp_path)
    module, counted = make_run()
    asked = [] if own else ["--option", "normalize_observation=true"]
    command = ["collect", "--policy", "run.pt", "--trust", "--episodes", "2", "--num-envs", "2"]
    assert main([*command, *asked, "--to", "set.hdf5"]) == 0
    episodes = list(open_set("set.hdf5"))
    if own:
        with rollouts.make_vec("Pendulum-v1", 1, autoreset_mode="disabled") as env:
            assert play_again(episodes, env) == 2
    for episode in episodes:
        seen = episode.observation[:-1]
        deviation = np.sqrt(counted.var + 1e-8)
        shown = np.clip((seen - counted.mean) / deviation, -1.5, 1.5) if own else seen
        with torch.no_grad():
            expected = module["mean"](torch.from_numpy(shown.astype(np.float32))).clamp(-2, 2)
        np.testing.assert_allclose(episode.action, expected.numpy(), atol=1e-5)
        # a Pendulum's return is some -1000, of scaled rewards some -10
        assert episode.reward.sum() < -100


@pytest.mark.system
def test_workers_of_ray_collect_one_set(tmp_path: Path, ray_session: object) -> None:
    to = tmp_path / "set.hdf5"
    command = ["collect", "--env-id", "CartPole-v1", "--episodes", "6", "--num-envs", "2"]
    assert main([*command, "--num-workers", "2", "--to", str(to)]) == 0
    episodes = list(open_set(to))
    assert sorted(each.env_id for each in episodes) == [0, 0, 1, 1, 2, 3]
    with rollouts.make_vec("CartPole-v1", 1, autoreset_mode="disabled") as env:
        assert play_again(episodes, env) == 6


@pytest.mark.system
def test_workers_of_ray_play_the_policy_of_a_run(
    tmp_path: Path, ray_session: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    module, counted = make_run()
    command = ["collect", "--policy", "run.pt", "--trust", "--episodes", "4", "--num-envs", "1"]
    assert main([*command, "--num-workers", "2", "--to", "set.hdf5"]) == 0
    episodes = list(open_set("set.hdf5"))
    assert sorted(each.env_id for each in episodes) == [0, 0, 1, 1]
    for episode in episodes:
        seen = (episode.observation[:-1] - counted.mean) / np.sqrt(counted.var + 1e-8)
        shown = torch.from_numpy(np.clip(seen, -1.5, 1.5).astype(np.float32))
        with torch.no_grad():
            expected = module["mean"](shown).clamp(-2, 2)
        np.testing.assert_allclose(episode.action, expected.numpy(), atol=1e-5)


AGAIN = """
import pickle, sys
made = pickle.load(sys.stdin.buffer)
policy = made.make_policy(type("Spec", (), {"single_action_space": SPACE, "seed": 3}))
print(made.path, type(policy).__name__, type(policy.module).__module__)
"""


def test_another_process_imports_the_program_of_a_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_run()
    program = load_program(
        read_policy(Path("run.pt"), None), Path("run.pt"), network=None, trust=True
    )
    text = AGAIN.replace("SPACE", "__import__('gymnasium').spaces.Box(-2, 2, (1,))")
    said = subprocess.run(
        [sys.executable, "-c", text], input=pickle.dumps(program), capture_output=True, check=True,
        cwd="/",
    )  # fmt: skip
    expected = f"{tmp_path / 'program.py'} TorchPolicy rollouts_network_program"
    assert said.stdout.decode().strip() == expected


def test_workers_count_no_statistics_in_place_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    make_run()
    command = ["collect", "--policy", "run.pt", "--trust", "--episodes", "2", "--num-workers", "2"]
    asked = ["--option", "normalize_observation=true"]
    assert main([*command, *asked, "--to", "set.hdf5"]) == 2
    assert "--num-workers with normalize_observation of a run" in capsys.readouterr().err
    assert not Path("set.hdf5").exists()


def test_a_coordinator_without_ray_is_recorded(tmp_path: Path) -> None:
    from rollouts.policies.uniform import UniformPolicy

    with rollouts.RolloutCoordinator(
        "CartPole-v1",
        lambda spec: UniformPolicy(spec.single_action_space, spec.seed),
        num_workers=0,
        num_envs_per_worker=3,
        rollout_length=32,
        collect=rollouts.CollectOptions(keep_final_obs=True),
    ) as coordinator:
        coordinator.publish_weights({})
        with rollouts.Recorder(coordinator, tmp_path / "set.parquet", states=True) as recorder:
            recorder.record(num_episodes=6)
    episodes = list(open_set(tmp_path / "set.parquet"))
    assert sorted(each.env_id for each in episodes) == [0, 0, 1, 1, 2, 2]
    with rollouts.make_vec("CartPole-v1", 1, autoreset_mode="disabled") as env:
        assert play_again(episodes, env) == 6
        env.set_state(None, [episodes[0].state or b""])
        obs = env.step(episodes[0].action[:1])[0]
        np.testing.assert_array_equal(obs[0], episodes[0].observation[1])


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("cut", "no Parquet file that can be read"),
        ("foreign", "no Parquet file that can be read"),
        ("about", "is no JSON"),
    ],
)
def test_damaged_parquet_is_one_sentence(damage: str, said: str, tmp_path: Path) -> None:
    to = tmp_path / "set.parquet"
    with collector_of("CartPole-v1", 2, {}) as collector, rollouts.Recorder(collector, to) as made:
        made.record(num_episodes=2)
    part = to / "part-000000.parquet"
    if damage == "cut":
        part.write_bytes(part.read_bytes()[:-100])
    elif damage == "foreign":
        part.write_bytes(b"foreign " * 100)
    else:
        (to / "_metadata.json").write_text("{")
    with pytest.raises(rollouts.SpecError, match=said):
        ReplayBuffer.from_parquet(to)


def test_damaged_hdf5_and_other_spaces_are_one_sentence(tmp_path: Path) -> None:
    to = tmp_path / "set.hdf5"
    with collector_of("CartPole-v1", 2, {}) as collector, rollouts.Recorder(collector, to) as made:
        made.record(num_episodes=2)
    whole = to.read_bytes()
    to.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(rollouts.SpecError, match="no HDF5 file that can be read"):
        open_set(to)
    import h5py

    to.write_bytes(whole)
    with h5py.File(to, "a") as file:
        del file["episode_1/actions"]
        file["episode_1/actions"] = np.zeros((3, 2))
    with pytest.raises(rollouts.SpecError, match="of another space, or cut off"):
        list(open_set(to))
    with h5py.File(to, "a") as file:
        del file.attrs["metadata.json"]
    with pytest.raises(rollouts.SpecError, match="does not say which spaces"):
        open_set(to)
    with pytest.raises(rollouts.SpecError, match=r"no data set .*nothing.hdf5, expected FILE.hdf5"):
        open_set(tmp_path / "nothing.hdf5")
    # a file of another kind, not one of Parquet that lacks its spaces
    (tmp_path / "policy.onnx").write_text("no columns")
    with pytest.raises(rollouts.SpecError, match=r"policy.onnx is no Parquet file that can be"):
        open_set(tmp_path / "policy.onnx")
    with pytest.raises(rollouts.SpecError, match=r"path is 3, expected FILE.hdf5, FOLDER.parquet"):
        open_set(3)  # type: ignore[arg-type]


def test_what_is_no_episode_is_not_played_again() -> None:
    with (
        rollouts.make_vec("CartPole-v1", 1, autoreset_mode="disabled") as env,
        pytest.raises(rollouts.SpecError, match=r"episodes has 's', expected an Episode: give a"),
    ):
        play_again("set.hdf5", env)  # type: ignore[arg-type]


def test_sources_and_names_of_other_kinds_are_refused(tmp_path: Path) -> None:
    with (
        rollouts.make_vec("CartPole-v1", 2) as env,
        pytest.raises(rollouts.SpecError, match="SAME_STEP"),
    ):
        rollouts.Recorder(env, tmp_path / "set.hdf5")
    with pytest.raises(rollouts.SpecError, match="expected a Collector"):
        rollouts.Recorder(3, tmp_path / "set.hdf5")
    with collector_of("CartPole-v1", 2, {}) as collector:
        for name in ("set.csv", "minari:x", "minari:one/two", "", 3):
            with pytest.raises(rollouts.SpecError, match="expected"):
                rollouts.Recorder(collector, name)
        with rollouts.Recorder(collector, tmp_path / "set.hdf5", infos=["lives"]) as recorder:
            with pytest.raises(rollouts.SpecError, match="do not have"):
                recorder.add(collector.collect())
            with pytest.raises(rollouts.SpecError, match="steps by itself"):
                recorder.reset()
