# SPDX-License-Identifier: Apache-2.0
"""`examples/sac.py`: its arithmetic against slow references, and by its command line."""

from __future__ import annotations

import copy
import re
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Independent, Normal, TransformedDistribution
from torch.distributions.transforms import TanhTransform
from warm_python import run_in_new_python, run_script

import rollouts
from rollouts.collecting.collector import Collector
from rollouts.replay import NStep, ReplayBuffer, TableConfig, TransitionBatch

pytestmark = pytest.mark.system

EXAMPLES = Path(__file__).parents[2] / "examples"
PENDULUM = ("--env-id", "Pendulum-v1", "--num-envs", 2)
LIMIT_S = 600


def run(
    script: str, *args: object, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return run_script(EXAMPLES / script, *args, timeout=LIMIT_S, env=env)


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The example as a module; what it imports lies beside it."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import sac

    module: ModuleType = sac
    return module


def make_explorer(example: ModuleType, env_id: str) -> Any:
    spec = rollouts.env_spec(env_id)
    spaces = spec.single_observation_space, spec.single_action_space
    policy = rollouts.TorchPolicy(example.Actor(*example.sizes(*spaces)), spaces[1], seed=5)
    policy.head = example.head_of(spaces[1])
    return policy


def sampled(example: ModuleType, env_id: str, batch_size: int = 256) -> TransitionBatch:
    """Transitions of random actions in episodes that end, or are cut after twenty steps."""
    spec = rollouts.env_spec(env_id)
    spaces = spec.single_observation_space, spec.single_action_space
    replay = ReplayBuffer(*spaces, TableConfig(items=NStep(1, 0.99)))
    options: Any = {"seed": 3, "autoreset_mode": "same_step", "max_episode_steps": 20}
    with rollouts.make_vec(env_id, 8, **options) as env:
        collector = Collector(env, make_explorer(example, env_id), 64, keep_final_obs=True)
        replay.add_batch(collector.collect())
    batch = replay.sample(batch_size, device="cpu")
    assert isinstance(batch, TransitionBatch)
    return batch


def squashed(mean: Tensor, log_std: Tensor) -> TransformedDistribution:
    """The distribution of the actions, as torch has it."""
    gaussian = Independent(Normal(mean, log_std.exp()), 1)
    return TransformedDistribution(gaussian, TanhTransform(cache_size=1))


def test_densities_are_those_of_torch_distributions(example: ModuleType) -> None:
    torch.manual_seed(1)
    mean, log_std, noise = torch.randn(3, 200, 6, dtype=torch.float64)
    head = example.head_of(rollouts.env_spec("HalfCheetah-v5").single_action_space)
    action, log_prob = head.squash(mean, log_std, noise)
    expected = squashed(mean, log_std)
    torch.testing.assert_close(action, (mean + log_std.exp() * noise).tanh(), rtol=0, atol=1e-12)
    # torch inverts the tanh, which costs digits where it is nearly flat
    inside = (action.abs() < 0.999).all(-1)
    assert inside.sum() > 20
    got = log_prob[inside]
    torch.testing.assert_close(got, expected.log_prob(action)[inside], rtol=1e-9, atol=1e-9)
    # far out the density is still a number
    _, far = head.squash(torch.full((1, 1), 50.0), torch.zeros(1, 1), torch.zeros(1, 1))
    assert torch.isfinite(far).all()


def test_actions_of_the_head_are_within_the_bounds_and_come_back(example: ModuleType) -> None:
    space: Any = rollouts.env_spec("Pendulum-v1").single_action_space
    head = example.head_of(space)
    mean, log_std = torch.zeros(2000, 1), torch.zeros(2000, 1)
    action, log_prob = head.sample((mean, log_std), torch.Generator().manual_seed(1))
    assert action.abs().max() <= 2 and action.abs().max() > 1.5
    # the density of a torque is half that of the same number between -1 and 1
    expected = squashed(mean, log_std).log_prob(head.unit(action)) - torch.tensor(2.0).log()
    torch.testing.assert_close(log_prob, expected, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(head.scaled(head.unit(action)), action)


def make_learner(example: ModuleType, engine: str) -> Any:
    learner = example.Learner(
        example.parse_args(["--env-id", "Hopper-v5", "--learner-engine", engine])
    )
    assert (learner.native is not None) == (engine == "native")
    return learner


class Reference:
    """The update without stacked networks, common optimisers or pruned gradients."""

    def __init__(self, learner: Any) -> None:
        self.args, self.head = learner.args, learner.head
        self.actor = nn.Sequential(
            *(nn.Linear(11, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 6))
        )
        weights = learner.actor.state_dict().values()
        self.actor.load_state_dict(dict(zip(self.actor.state_dict(), weights, strict=True)))
        self.critics = [unstacked(learner.critics, i) for i in range(2)]
        self.targets = [unstacked(learner.target, i) for i in range(2)]
        self.log_alpha = torch.zeros(1, requires_grad=True)
        of_critics = [*self.critics[0].parameters(), *self.critics[1].parameters()]
        groups = self.actor.parameters(), of_critics, [self.log_alpha]
        self.optimizers = [torch.optim.Adam(group, lr=3e-4) for group in groups]
        self.generator = torch.Generator().manual_seed(self.args.seed)

    def act(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = self.actor(obs).split(3, -1)
        noise = torch.empty_like(mean).normal_(generator=self.generator)
        raw = mean + log_std.exp() * noise
        density = Normal(mean, log_std.exp()).log_prob(raw) - (1 - raw.tanh().square()).log()
        return raw.tanh(), density.sum(1)

    def value(self, critics: list[nn.Module], obs: Tensor, action: Tensor) -> list[Tensor]:
        return [critic(torch.cat([obs, action], 1))[:, 0] for critic in critics]

    def learn(self, batch: TransitionBatch) -> None:
        of_actor, of_critics, of_alpha = self.optimizers
        obs, next_obs = batch.obs.float(), batch.next_obs.float()
        alpha = self.log_alpha.detach().exp()
        with torch.no_grad():
            next_action, next_log_prob = self.act(next_obs)
            following = torch.minimum(*self.value(self.targets, next_obs, next_action))
            goal = following - alpha * next_log_prob
            # the end of time is no end
            goal = batch.reward + self.args.gamma * torch.where(batch.terminated, 0, goal)
        values = self.value(self.critics, obs, batch.action)
        loss = 0.5 * sum(nn.functional.mse_loss(value, goal) for value in values)
        self.step(of_critics, loss)
        action, log_prob = self.act(obs)
        value = torch.minimum(*self.value(self.critics, obs, action))
        self.step(of_actor, (alpha * log_prob - value).mean())
        self.step(of_alpha, -(self.log_alpha * (log_prob.detach() - 3)).mean())
        for target, critic in zip(self.targets, self.critics, strict=True):
            for slow, fast in zip(target.parameters(), critic.parameters(), strict=True):
                slow.data = 0.995 * slow.data + 0.005 * fast.data

    def step(self, optimizer: torch.optim.Adam, loss: Any) -> None:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def unstacked(critics: Any, index: int) -> nn.Sequential:
    """One of the two critics, of the usual layers."""
    layers = [nn.Linear(14, 256), nn.Linear(256, 256), nn.Linear(256, 1)]
    for layer, weight, bias in zip(layers, critics.weights, critics.biases, strict=True):
        layer.weight.data = weight.data[index].clone()
        layer.bias.data = bias.data[index, 0].clone()
    return nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])


@pytest.mark.parametrize("engine", ["native", "torch"])
def test_updates_are_those_of_the_slow_reference(engine: str, example: ModuleType) -> None:
    learner = make_learner(example, engine)
    batch = sampled(example, "Hopper-v5")
    assert batch.terminated.any() and (batch.truncated & ~batch.terminated).any()
    reference = Reference(learner)
    for _ in range(5):
        learner.learn(batch, learning_rate=3e-4)
        reference.learn(batch)

    # Adam divides by the gradient's size, so rounding moves a weight by parts of a step of 3e-4
    close: Any = {"rtol": 0, "atol": 2e-5}
    expected = list(reference.actor.parameters())
    torch.testing.assert_close(list(learner.actor.parameters()), expected, **close)
    torch.testing.assert_close(learner.log_alpha, reference.log_alpha[0], **close)
    pairs = (learner.critics, reference.critics), (learner.target, reference.targets)
    for stacked, networks in pairs:
        for index, network in enumerate(networks):
            got = list(unstacked(stacked, index).parameters())
            torch.testing.assert_close(got, list(network.parameters()), **close)


@pytest.mark.parametrize("first", ["native", "torch"])
def test_a_run_goes_on_with_the_other_engine_as_with_its_own(
    first: str, example: ModuleType
) -> None:
    one, other = (make_learner(example, engine) for engine in ("native", "torch"))
    if first == "torch":
        one, other = other, one
    batch = sampled(example, "Hopper-v5")
    # as a prioritised table weights them
    weight = torch.rand(256, generator=torch.Generator().manual_seed(1))
    batch = replace(batch, weight=weight)
    for _ in range(3):
        one.learn(batch, learning_rate=3e-4)
    other.load_state(copy.deepcopy(one.state()))
    for _ in range(3):
        errors, logs = one.learn(batch, learning_rate=1e-4)
        others, its_logs = other.learn(batch, learning_rate=1e-4)
    torch.testing.assert_close(errors, others, rtol=1e-4, atol=1e-4)
    assert logs.keys() == its_logs.keys() and one.updates == other.updates == 6
    for name, number in logs.items():
        assert float(number) == pytest.approx(float(its_logs[name]), rel=1e-4, abs=1e-4), name
    close: Any = {"rtol": 0, "atol": 1e-5}
    for network in ("actor", "critics", "target"):
        mine, its = (getattr(each, network).state_dict() for each in (one, other))
        torch.testing.assert_close(mine, its, **close)
    torch.testing.assert_close(one.log_alpha, other.log_alpha, **close)


def test_it_explores_evenly_before_it_learns(example: ModuleType) -> None:
    policy = make_explorer(example, "Pendulum-v1")
    obs = torch.randn(4000, 3, generator=torch.Generator().manual_seed(1)).numpy()
    action = torch.from_numpy(policy.act(obs).action)
    assert action.shape == (4000, 1) and action.dtype == torch.float32
    # the quartiles of a uniform torque, within five standard errors
    quartiles = action.quantile(torch.tensor([0.25, 0.5, 0.75]))
    torch.testing.assert_close(quartiles, torch.tensor([-1.0, 0.0, 1.0]), rtol=0, atol=0.16)


def test_its_workers_collect_in_native_code(example: ModuleType) -> None:
    for env_id in ("Pendulum-v1", "HalfCheetah-v5"):
        options: Any = {"seed": 3, "autoreset_mode": "same_step"}
        with rollouts.make_vec(env_id, 4, **options) as env:
            policy = make_explorer(example, env_id)
            batch = Collector(env, policy, 8, keep_final_obs=True, engine="native").collect()
        assert (batch.action <= policy.action_space.high).all()


def test_workers_fill_the_replay_and_a_resumed_run_goes_on(
    tmp_path: Path, in_a_cluster: dict[str, str]
) -> None:
    options = (*PENDULUM, "--min-size", 200, "--eval-interval", 200, "--run-dir", tmp_path)
    sizes = ("--total-steps", 400, "--save-replay")
    first = run("sac.py", *options, *sizes, env=in_a_cluster)
    assert first.returncode == 0, first.stderr
    progress = match_result(first)
    # one gradient step for each step after the first 200, less what is under way
    assert 400 <= progress[0] < 500 and 150 <= progress[1] <= progress[0] - 200 + 36
    assert (tmp_path / "training.png").read_bytes().startswith(b"\x89PNG")
    assert list(tmp_path.glob("events.out.tfevents.*"))

    here = ("--num-workers", 0, "--resume", tmp_path, "--total-steps", 500)
    second = run("sac.py", *options, *here)
    assert second.returncode == 0, second.stderr
    resumed = match_result(second)
    assert 500 <= resumed[0] < 600 and resumed[1] > progress[1]
    rows = (tmp_path / "evaluations.csv").read_text().splitlines()[1:]
    steps = [int(row.split(",")[1]) for row in rows]
    assert steps[0] == 0 and steps[-1] == resumed[0] and progress[0] in steps
    assert steps == sorted(steps)


def match_result(result: subprocess.CompletedProcess[str]) -> tuple[int, int]:
    """The env-steps and the updates that a run came to."""
    pattern = r"Pendulum-v1: .* without exploration, ([\d,]+) updates\), ([\d,]+) env-steps in "
    match = re.match(pattern, result.stdout.splitlines()[1])
    assert match, result.stdout
    return int(match[2].replace(",", "")), int(match[1].replace(",", ""))


def test_the_peer_is_trained_with_the_same_options_and_drawn(tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3")
    options = ("--env-id", "Pendulum-v1", "--min-size", 100, "--total-steps", 300)
    ours, peer, png = tmp_path / "ours", tmp_path / "sb3", tmp_path / "comparison.png"
    result = run("compare_sac.py", *options, "--eval-interval", 150, "--run-dir", peer)
    assert result.returncode == 0, result.stderr
    # the last step's update included
    assert "300 env-steps and 200 updates" in result.stdout
    rows = [row.split(",")[:3] for row in (peer / "evaluations.csv").read_text().splitlines()[1:]]
    peer_name = "Stable-Baselines3"
    assert rows == [[peer_name, "0", "0"], [peer_name, "150", "50"], [peer_name, "300", "200"]]
    ours.mkdir()
    (ours / "evaluations.csv").write_bytes((peer / "evaluations.csv").read_bytes())
    assert run("compare_sac.py", "--draw", png, ours, peer).returncode == 0
    assert png.read_bytes().startswith(b"\x89PNG")


def test_discrete_actions_are_refused(tmp_path: Path) -> None:
    options = ("--env-id", "CartPole-v1", "--num-workers", 0, "--run-dir", tmp_path)
    result = run_in_new_python(EXAMPLES / "sac.py", *options, timeout=LIMIT_S)
    assert result.returncode == 1 and "needs Box actions" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.slow
def test_it_swings_the_pendulum_up_from_what_workers_sampled(tmp_path: Path) -> None:
    # -1400 before it learns; a pendulum that is up and stays there costs 150
    options = ("--env-id", "Pendulum-v1", "--seed", 2, "--total-steps", 8_000)
    result = run("sac.py", *options, "--run-dir", tmp_path)
    assert result.returncode == 0, result.stderr
    last = (tmp_path / "evaluations.csv").read_text().splitlines()[-1].split(",")
    assert int(last[1]) >= 8_000 and float(last[4]) > -250
