# SPDX-License-Identifier: Apache-2.0
"""`rollouts bench collect` without Ray: turns, counting, policies, contestants in this process."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")

import torch
from gymnasium import spaces

from rollouts.bench import Settings, collect
from rollouts.bench.collect import compare_collecting, measure_streams
from rollouts.bench.collect_streams import drawn_actions
from rollouts.bench.collect_task import Task
from rollouts.bench.policies import ActorCritic
from rollouts.bench.policy_kinds import default_policy, read_policy
from rollouts.bench.random_policy import RandomPolicy
from rollouts.cli import main as cli
from rollouts.envs.registry import env_spec
from rollouts.errors import SpecError

QUICK = ["--num-envs", "4", "--rollout-length", "8", "--duration-s", "0.01", "--repeats", "2"]
OURS = ["rollouts, native", "rollouts, TorchPolicy", "rollouts, env alone"]


class FakeStream:
    """Writes down what is called."""

    api, notes, num_envs, num_threads = "collect", (), 2, 1

    def __init__(self, name: str, log: list[str], *, num_steps: int = 6) -> None:
        self.name, self.log, self.num_steps = name, log, num_steps

    def version(self) -> str:
        return "1"

    def resume(self) -> None:
        self.log.append(f"{self.name} on")

    def collect(self) -> int:
        return self.num_steps

    def pause(self) -> None:
        self.log.append(f"{self.name} off")

    def close(self) -> None:
        self.log.append(f"{self.name} closed")


def measure(streams: list[FakeStream]) -> Any:
    return measure_streams(streams, rollout_length=3, duration_s=1e-4, repeats=2, options={"a": 1})


def is_ray_running() -> bool:
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


def settings(num_envs: int = 4, **changes: Any) -> Settings:
    given = {"duration_s": 0.01, "repeats": 2} | changes
    return Settings("CartPole-v1", num_envs, num_envs, 1, **given)


def median(measurement: dict[str, Any]) -> float:
    return float(measurement["env_steps_per_s"]["median"])


def measured(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[list[dict[str, Any]]]:
    """Measurements of each result of the command, without Ray."""
    assert cli.main(["bench", "collect", "--in-process", *QUICK, *arguments, "--json"]) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    return [result["measurements"] for result in results]


def test_each_stream_works_only_in_its_own_turns() -> None:
    log: list[str] = []
    measure([FakeStream("a", log), FakeStream("b", log)])
    assert log == ["a on", "a off", "b on", "b off"] * 3


def test_rollouts_are_counted_in_env_steps() -> None:
    (found,) = measure([FakeStream("a", [])])
    rollouts, rest = divmod(found.calls, 3)
    assert (rest, found.batch_size, found.options) == (0, 2, {"a": 1})
    expected = tuple(rollouts * 6 / elapsed for elapsed in found.elapsed_s)
    assert found.env_steps_per_s == pytest.approx(expected)


def test_steps_beyond_those_asked_for_are_counted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(1000))
    monkeypatch.setattr(collect.time, "perf_counter", lambda: float(next(clock)))
    # one second on this clock for any number of rollouts
    assert collect._timed(FakeStream("a", [], num_steps=6), 10, 3) == 1.0
    assert collect._timed(FakeStream("a", [], num_steps=12), 10, 3) == 0.5


def test_the_random_policy_hands_out_valid_actions_in_turn() -> None:
    space = spaces.Discrete(3)
    policy = RandomPolicy(space, 5, seed=1)
    outputs = [policy.act(np.zeros((5, 4))) for _ in range(32)]
    assert all(action in space for output in outputs for action in output.action)
    assert outputs[0] is outputs[16]
    assert len({output.action.tobytes() for output in outputs}) > 1
    assert policy.value(np.zeros((3, 4))).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("obs_space", "action_space", "shapes"),
    [
        (spaces.Box(-1, 1, (4,)), spaces.Discrete(3), [(2, 3), (2, 1)]),
        (spaces.Box(-1, 1, (4,)), spaces.Box(-1, 1, (2, 3)), [(2, 2, 3), (2, 3), (2, 1)]),
        (spaces.Box(0, 255, (4, 84, 84), np.uint8), spaces.Discrete(6), [(2, 6), (2, 1)]),
    ],
)
def test_the_network_fits_the_spaces(obs_space: Any, action_space: Any, shapes: Any) -> None:
    module = ActorCritic(obs_space, action_space, default_policy(obs_space))
    obs = torch.as_tensor(np.stack([obs_space.sample(), obs_space.sample()]))
    assert [tuple(out.shape) for out in module(obs)] == shapes


def test_the_network_refuses_observations_that_are_no_arrays_of_features() -> None:
    with pytest.raises(SpecError, match="expected a Box of vectors"):
        ActorCritic(spaces.Discrete(16), spaces.Discrete(4), read_policy("64x64"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rollout_length": 0}, "rollout_length is 0"),
        ({"peers": ["sebulba"]}, "peer is 'sebulba', expected one of"),
        ({"peer_num_envs": 0}, "peer_num_envs is 0"),
        ({"peers": ["tianshou"], "in_process": True}, "peer 'tianshou' needs Ray"),
        ({"peers": ["sb3"], "policy": read_policy("gru")}, "peer 'sb3' is not measured with"),
        ({"peers": ["sb3"], "policy": read_policy("random")}, "leave this peer out"),
        ({"policy": read_policy("cnn")}, r"expected a Box of images \(C, H, W\)"),
    ],
)
def test_arguments_out_of_range_are_refused(changes: dict[str, Any], message: str) -> None:
    was_running = is_ray_running()
    with pytest.raises(SpecError, match=message):
        compare_collecting(settings(), **({"rollout_length": 8} | changes))
    assert is_ray_running() == was_running


def test_asynchronous_pools_are_refused() -> None:
    with pytest.raises(SpecError, match="batch_size is 2 with num_envs 4"):
        compare_collecting(Settings("CartPole-v1", 4, 2, 1), rollout_length=8)


@pytest.mark.parametrize(("name", "hidden"), [("64x64", (64, 64)), ("8", (8,)), ("cnn", ())])
def test_a_policy_is_read_from_its_name(name: str, hidden: tuple[int, ...]) -> None:
    kind = read_policy(name)
    assert (kind.name, kind.hidden) == (name, hidden)


@pytest.mark.parametrize("name", ["lazy", "64x", "0x64", "64x64x", "", "network"])
def test_a_policy_that_nobody_knows_is_refused(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["bench", "collect", "--env-id", "CartPole-v1", "--policy", name]) == 2
    assert f"policy is {name!r}, expected widths of layers such as" in capsys.readouterr().err


def test_layers_have_the_widths_asked_for() -> None:
    spec = env_spec("CartPole-v1")
    kind = read_policy("16x8")
    module = ActorCritic(spec.single_observation_space, spec.single_action_space, kind)
    linear = [layer for layer in module.modules() if isinstance(layer, torch.nn.Linear)]
    assert [layer.out_features for layer in linear] == [16, 8, 2, 1]


def test_engines_and_stepping_alone_are_measured_without_ray(
    capsys: pytest.CaptureFixture[str],
) -> None:
    was_running = is_ray_running()
    small, large = measured(
        capsys, "--env-id", "CartPole-v1", "--policy", "16x16", "--num-envs", "2"
    )
    assert is_ray_running() == was_running
    assert [each["library"] for each in small] == [*OURS, "plain C++ loop"]
    assert [each["batch_size"] for each in small + large] == [4] * 4 + [2] * 4
    native, torch_policy, alone, loop = small
    assert native["rollouts_ratio"] is None
    assert torch_policy["rollouts_ratio"] == pytest.approx(median(native) / median(torch_policy))
    assert native["shares"]["of env alone"] == pytest.approx(median(native) / median(alone))
    assert native["shares"]["of plain loop"] == pytest.approx(median(native) / median(loop))
    assert alone["shares"]["of env alone"] is None
    assert loop["shares"]["of plain loop"] is None


def test_an_environment_with_an_engine_has_no_plain_loop(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("mujoco", reason="mujoco is not installed")
    (found,) = measured(capsys, "--env-id", "HalfCheetah-v5")
    assert [each["library"] for each in found] == OURS
    assert found[0]["shares"]["of env alone"] > 0
    assert found[0]["shares"]["of plain loop"] is None


def test_what_native_code_does_not_compute_is_measured_once_and_says_why(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (found,) = measured(capsys, "--env-id", "CartPole-v1", "--policy", "random")
    assert [each["library"] for each in found][:2] == ["rollouts, RandomPolicy", OURS[2]]
    assert "engine='native' is not possible" in found[0]["notes"][0]


def test_a_policy_with_memory_is_measured_by_both_engines(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (found,) = measured(capsys, "--env-id", "CartPole-v1", "--policy", "gru")
    names = [OURS[0], "rollouts, RecurrentTorchPolicy", OURS[2]]
    assert [each["library"] for each in found][:3] == names


def test_images_go_through_a_cnn(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ale_py", reason="ale-py is not installed")
    arguments = ["--env-id", "ALE/Pong-v5", "--rollout-length", "2"]
    (found,) = measured(capsys, *arguments)
    assert {each["options"]["policy"] for each in found} == {"cnn"}


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
@pytest.mark.parametrize(
    ("peer", "module", "api"),
    [
        ("envpool-torch", "envpool", "step"),
        ("sb3", "stable_baselines3", "collect_rollouts"),
        ("torchrl-async", "torchrl", "next"),
    ],
)
def test_peers_in_this_process_are_measured(
    peer: str, module: str, api: str, env_id: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip(module, reason=f"{module} is not installed")
    (found,) = measured(capsys, "--env-id", env_id, "--peer", peer, "--peer-num-envs", "3")
    assert [found[4]["api"], found[4]["batch_size"]] == [api, 3]
    assert found[4]["rollouts_ratio"] > 0


@pytest.mark.system
def test_torchrl_collects_in_processes(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torchrl", reason="torchrl is not installed")
    arguments = ["--env-id", "CartPole-v1", "--num-threads", "2", "--peer", "torchrl-async"]
    (found,) = measured(capsys, *arguments)
    assert found[-1]["num_threads"] == 2
    assert "Environments in 2 processes" in found[-1]["notes"][0]
    assert median(found[-1]) > 0


def test_a_peer_that_is_not_installed_is_left_out_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # what the import system does with a module that is None
    monkeypatch.setitem(sys.modules, "envpool", None)
    monkeypatch.delitem(sys.modules, "comparisons.collecting.sb3_collect", raising=False)
    monkeypatch.setitem(sys.modules, "stable_baselines3", None)
    peers = ["envpool-torch", "sb3"]
    found = compare_collecting(settings(), rollout_length=8, peers=peers, in_process=True)
    assert [each.library for each in found.measurements[:-1]] == OURS
    assert "not measured: peer 'envpool' needs the module 'envpool'" in caplog.text
    assert "not measured: peer 'sb3' needs a library that cannot be imported" in caplog.text


def test_actions_of_a_box_are_drawn_normally_and_clipped() -> None:
    spec = env_spec("Pendulum-v1")
    task = Task(Settings("Pendulum-v1", 64, 64, 1), spec, 128, read_policy("random"))
    actions = np.stack(drawn_actions(task))
    assert actions.shape == (128, 64, 1)
    assert actions.dtype == np.float32
    assert abs(actions.max()) == abs(actions.min()) == 2.0
    # 68 % of a normal distribution are within one deviation; 8192 draws are within 3 % of that
    assert 0.65 < (abs(actions) < 1).mean() < 0.71


def test_another_engine_of_ours_collects_beside(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--env-id", "ALE/Pong-v5", "--policy", "random"]
    (found,) = measured(capsys, *arguments, "--peer", "rollouts-ale", "--peer", "rollouts-native")
    names = ["rollouts-ale, RandomPolicy", "rollouts-native, RandomPolicy"]
    assert [one["library"] for one in found[-2:]] == names
    assert min(median(one) for one in found[-2:]) > 0


def test_an_engine_that_an_id_has_not_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["bench", "collect", "--in-process", "--env-id", "CartPole-v1"]
    assert cli.main([*arguments, "--peer", "rollouts-mujoco"]) == 2
    said = capsys.readouterr().err
    assert "peer 'rollouts-mujoco' has ids with several engines only" in said
