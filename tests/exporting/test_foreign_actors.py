# SPDX-License-Identifier: Apache-2.0
"""Policies of Stable-Baselines3, Tianshou and RLlib, exported: they act as there."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import gymnasium
import numpy as np
import pytest
import torch
from exported_files import run_file, run_header

import rollouts
from rollouts import ExportedPolicy, SpecError

pytestmark = pytest.mark.system

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

CARTPOLE, PENDULUM = "CartPole-v1", "Pendulum-v1"
ENDINGS = (".onnx", ".pt2", ".pt", ".h")
NUM_COMPARED = 1000
ATOMS = {"num_atoms": 11, "v_min": -10.0, "v_max": 10.0}
# an algorithm's policy, and the same with the actions that it gives for observations
Made = tuple[Any, Callable[[np.ndarray], np.ndarray]]


def decided(network: Any) -> None:
    """Draws weights by which actions differ from observation to observation."""
    with torch.no_grad():
        for each in network.parameters():
            if each.requires_grad:
                each.normal_(std=0.4) if each.ndim > 1 else each.zero_()


def sb3(name: str, id: str, **options: Any) -> Made:
    library: Any = pytest.importorskip("stable_baselines3")
    sizes = {"buffer_size": 10} if name != "PPO" else {}
    model = getattr(library, name)("MlpPolicy", id, device="cpu", seed=1, **sizes, **options)
    if name == "DQN":
        decided(model.q_net)
    return model, lambda obs: model.predict(obs, deterministic=True)[0]


def tianshou(kind: str, id: str, *, softmax: bool = False, **options: Any) -> Made:
    """A policy with a small network; `kind` is the name of its class."""
    pytest.importorskip("tianshou")
    from tianshou.data import Batch

    env = gymnasium.make(id)
    policy = _TIANSHOU[kind](env.observation_space, env.action_space, softmax, options)
    if hasattr(policy, "compute_q_value"):
        decided(policy.model)
    policy.eval()

    def act(obs: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            found = policy(Batch(obs=obs, info={})).act
        raw = found.numpy() if isinstance(found, torch.Tensor) else found
        mapped: np.ndarray = policy.map_action(raw)
        return mapped

    return policy, act


def _net(obs: Any, **options: Any) -> Any:
    from tianshou.utils.net.common import Net

    return Net(state_shape=obs.shape, hidden_sizes=[16, 16], **options)


def _discrete(obs: Any, action: Any, softmax: bool) -> Any:
    from tianshou.utils.net.discrete import DiscreteActor

    return DiscreteActor(preprocess_net=_net(obs), action_shape=action.n, softmax_output=softmax)


def _gaussian(obs: Any, action: Any, **options: Any) -> Any:
    from tianshou.utils.net.continuous import ContinuousActorProbabilistic

    actor = ContinuousActorProbabilistic(
        preprocess_net=_net(obs), action_shape=action.shape, unbounded=True, **options
    )
    # some actions lie beyond each bound, whatever was drawn
    obs.seed(3)
    seen = np.stack([obs.sample() for _ in range(64)])
    with torch.no_grad():
        last = actor.mu.model[-1]
        last.weight.mul_(20)
        (mean, _), _ = actor(seen)
        last.bias.sub_(mean.mean(0))
    return actor


def _reinforce(obs: Any, action: Any, softmax: bool, options: Any) -> Any:
    from tianshou.algorithm.modelfree.reinforce import ProbabilisticActorPolicy
    from torch.distributions import Categorical, Independent, Normal

    if isinstance(action, gymnasium.spaces.Discrete):
        return ProbabilisticActorPolicy(
            actor=_discrete(obs, action, softmax), deterministic_eval=True, action_space=action,
            dist_fn=(lambda p: Categorical(probs=p)) if softmax else (
                lambda p: Categorical(logits=p)
            ), action_scaling=False, action_bound_method=None,
        )  # fmt: skip
    return ProbabilisticActorPolicy(
        actor=_gaussian(obs, action), dist_fn=lambda p: Independent(Normal(*p), 1),
        deterministic_eval=True, action_space=action, **options,
    )  # fmt: skip


def _values(obs: Any, action: Any, softmax: bool, options: Any) -> Any:
    from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy

    dueling = ({"hidden_sizes": [8]}, {"hidden_sizes": [8]})
    net = _net(obs, action_shape=action.n, dueling_param=dueling)
    return DiscreteQLearningPolicy(model=net, action_space=action)


def _quantiles(obs: Any, action: Any, softmax: bool, options: Any) -> Any:
    from tianshou.algorithm.modelfree.qrdqn import QRDQNPolicy

    return QRDQNPolicy(model=_net(obs, action_shape=action.n, num_atoms=8), action_space=action)


def _atoms(obs: Any, action: Any, softmax: bool, options: Any) -> Any:
    from tianshou.algorithm.modelfree.c51 import C51Policy

    net = _net(obs, action_shape=action.n, num_atoms=11, softmax=True)
    return C51Policy(model=net, action_space=action, num_atoms=11)


def _exact(obs: Any, action: Any, softmax: bool, options: Any) -> Any:
    from tianshou.algorithm.modelfree.ddpg import ContinuousDeterministicPolicy
    from tianshou.utils.net.continuous import ContinuousActorDeterministic

    actor = ContinuousActorDeterministic(
        preprocess_net=_net(obs), action_shape=action.shape, max_action=1.0
    )
    return ContinuousDeterministicPolicy(actor=actor, action_space=action, **options)


def _sac(obs: Any, action: Any, softmax: bool, options: Any) -> Any:
    from tianshou.algorithm.modelfree.redq import REDQPolicy
    from tianshou.algorithm.modelfree.sac import SACPolicy

    kind: Any = REDQPolicy if options.pop("redq", False) else SACPolicy
    actor = _gaussian(obs, action, conditioned_sigma=True)
    return kind(actor=actor, action_space=action, **options)


def _discrete_sac(obs: Any, action: Any, softmax: bool, options: Any) -> Any:
    from tianshou.algorithm.modelfree.discrete_sac import DiscreteSACPolicy

    return DiscreteSACPolicy(actor=_discrete(obs, action, False), action_space=action)


def _imitation(obs: Any, action: Any, softmax: bool, options: Any) -> Any:
    from tianshou.algorithm.imitation.imitation_base import ImitationPolicy

    size = action.n if isinstance(action, gymnasium.spaces.Discrete) else action.shape
    return ImitationPolicy(actor=_net(obs, action_shape=size), action_space=action, **options)


def _proposed(obs: Any, action: Any, softmax: bool, options: Any) -> Any:
    from tianshou.algorithm.modelfree.fqf import FQFPolicy
    from tianshou.utils.net.discrete import FractionProposalNetwork, FullQuantileFunction

    net = FullQuantileFunction(preprocess_net=_net(obs), action_shape=action.n, hidden_sizes=[8])
    proposal = FractionProposalNetwork(8, net.input_dim)
    return FQFPolicy(model=net, fraction_model=proposal, action_space=action)


def _implicit(obs: Any, action: Any, softmax: bool, options: Any) -> Any:
    from tianshou.algorithm.modelfree.iqn import IQNPolicy
    from tianshou.utils.net.discrete import ImplicitQuantileNetwork

    net = ImplicitQuantileNetwork(preprocess_net=_net(obs), action_shape=action.n, hidden_sizes=[8])
    return IQNPolicy(model=net, action_space=action, sample_size=8)


def evenly_implicit() -> Made:
    """IQN whose own code gets the middles of equal parts where it draws fractions."""
    policy, act = tianshou("implicit", CARTPOLE)
    # each action is the best of some observations, whatever was drawn
    seen = np.random.default_rng(3).normal(scale=0.5, size=(64, 4)).astype(np.float32)
    with torch.no_grad():
        values = policy.model(seen, sample_size=64)[0][0]
        policy.model.last.model[-1].bias.sub_(values.mean((0, 2)))

    def act_evenly(obs: np.ndarray) -> np.ndarray:
        count = policy.sample_size
        even = ((torch.arange(count) + 0.5) / count).expand(len(obs), count).contiguous()
        with mock.patch.object(torch, "rand", lambda *size, **_: even.reshape(size)):
            return act(obs)

    return policy, act_evenly


def rllib(name: str, id: str, *, explore: bool = False, **training: Any) -> Made:
    """An RLModule as an algorithm makes it; what it says goes through RLlib's own connectors."""
    algorithms: Any = pytest.importorskip("ray.rllib.algorithms")
    from ray.rllib.connectors.module_to_env import GetActions
    from ray.rllib.env.single_agent_episode import SingleAgentEpisode
    from ray.rllib.utils.spaces.space_utils import unsquash_action

    config = getattr(algorithms, f"{name}Config")().environment(id).training(**training)
    env = gymnasium.make(id)
    module = config.get_rl_module_spec(env=env).build()
    decided(module)

    def act(obs: np.ndarray) -> np.ndarray:
        given = {"obs": torch.from_numpy(obs)}
        with torch.no_grad():
            forward = module.forward_exploration if explore else module.forward_inference
            said = GetActions()(
                rl_module=module, batch=forward(given), episodes=[SingleAgentEpisode()],
                explore=explore, shared_data={},
            )  # fmt: skip
        found: np.ndarray = unsquash_action(said["actions"].numpy(), env.action_space)
        return found

    return module, act


_TIANSHOU: dict[str, Callable[[Any, Any, bool, Any], Any]] = {
    "reinforce": _reinforce,
    "values": _values,
    "quantiles": _quantiles,
    "atoms": _atoms,
    "proposed": _proposed,
    "implicit": _implicit,
    "exact": _exact,
    "sac": _sac,
    "discrete_sac": _discrete_sac,
    "imitation": _imitation,
}
KINDS: dict[str, tuple[str, Callable[[], Made]]] = {
    "sb3_dqn": (CARTPOLE, lambda: sb3("DQN", CARTPOLE)),
    "sb3_sac": (PENDULUM, lambda: sb3("SAC", PENDULUM)),
    "sb3_sac_sde": (PENDULUM, lambda: sb3("SAC", PENDULUM, use_sde=True)),
    "sb3_td3": (PENDULUM, lambda: sb3("TD3", PENDULUM)),
    "sb3_ddpg": (PENDULUM, lambda: sb3("DDPG", PENDULUM)),
    "logits": (CARTPOLE, lambda: tianshou("reinforce", CARTPOLE)),
    "probabilities": (CARTPOLE, lambda: tianshou("reinforce", CARTPOLE, softmax=True)),
    "clipped": (PENDULUM, lambda: tianshou("reinforce", PENDULUM)),
    "tanh": (PENDULUM, lambda: tianshou("reinforce", PENDULUM, action_bound_method="tanh")),
    "unscaled": (PENDULUM, lambda: tianshou("reinforce", PENDULUM, action_scaling=False)),
    "values": (CARTPOLE, lambda: tianshou("values", CARTPOLE)),
    "quantiles": (CARTPOLE, lambda: tianshou("quantiles", CARTPOLE)),
    "atoms": (CARTPOLE, lambda: tianshou("atoms", CARTPOLE)),
    "proposed": (CARTPOLE, lambda: tianshou("proposed", CARTPOLE)),
    "implicit": (CARTPOLE, evenly_implicit),
    "exact": (PENDULUM, lambda: tianshou("exact", PENDULUM)),
    "sac": (PENDULUM, lambda: tianshou("sac", PENDULUM)),
    "redq": (PENDULUM, lambda: tianshou("sac", PENDULUM, redq=True)),
    "discrete_sac": (CARTPOLE, lambda: tianshou("discrete_sac", CARTPOLE)),
    "imitation_values": (CARTPOLE, lambda: tianshou("imitation", CARTPOLE)),
    "imitation": (PENDULUM, lambda: tianshou("imitation", PENDULUM, action_scaling=True)),
    "rllib_dqn": (CARTPOLE, lambda: rllib("DQN", CARTPOLE)),
    "rllib_dqn_plain": (CARTPOLE, lambda: rllib("DQN", CARTPOLE, dueling=False, double_q=False)),
    "rllib_dqn_atoms": (CARTPOLE, lambda: rllib("DQN", CARTPOLE, **ATOMS)),
    "rllib_sac": (PENDULUM, lambda: rllib("SAC", PENDULUM)),
    "rllib_sac_discrete": (CARTPOLE, lambda: rllib("SAC", CARTPOLE)),
}
# a writer of ONNX takes two seconds: for the others that file is compared in slow tests, and the
# three other files always
TO_ONNX = {"sb3_sac", "values", "atoms", "rllib_dqn"}
DRAWN = [
    *("clipped", "tanh", "sac", "logits", "sb3_sac", "discrete_sac", "rllib_sac"),
    "rllib_sac_discrete",
]
# files that there are not, and why
REFUSED = {("proposed", ".h"): r"cumsum, which native code does not have; export it to .onnx"}


def observations(env: Any) -> np.ndarray:
    """Observations of random episodes."""
    env.action_space.seed(3)
    found = [np.array(env.reset(seed=3)[0])]
    while sum(map(len, found)) < NUM_COMPARED:
        found.append(np.array(env.step(env.action_space.sample())[0]))
    return np.concatenate(found)[:NUM_COMPARED].astype(np.float32)


@pytest.mark.parametrize(
    ("name", "endings"),
    [
        *(pytest.param(name, ENDINGS, id=name) for name in KINDS if name in TO_ONNX),
        *(pytest.param(name, ENDINGS[1:], id=name) for name in KINDS if name not in TO_ONNX),
        *(
            pytest.param(name, ENDINGS[:1], id=f"{name} to ONNX", marks=pytest.mark.slow)
            for name in KINDS
            if name not in TO_ONNX
        ),
    ],
)
def test_each_file_acts_as_the_policy_in_its_library(
    name: str, endings: tuple[str, ...], tmp_path: Path
) -> None:
    torch.manual_seed(3)
    id, make = KINDS[name]
    policy, act = make()
    with rollouts.make_vec(id, 8) as env:
        rows = {"obs": observations(env)}
        expected = act(rows["obs"])
        for ending in endings:
            path = tmp_path / f"policy{ending}"
            if ending == ".h" and shutil.which("cc") is None:
                continue
            if why := REFUSED.get((name, ending)):
                with pytest.raises(SpecError, match=why):
                    rollouts.export(policy, path, env)
                assert not path.exists()
                continue
            rollouts.export(policy, path, env)
            is_header = ending == ".h"
            found = run_header(tmp_path, rows, expected) if is_header else run_file(path, rows)[0]
            if expected.dtype.kind != "f":
                # rounding may choose otherwise between two that are as good
                assert (found != expected).mean() <= 0.002
            else:
                np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)
    assert len(np.unique(expected)) > 1


@pytest.mark.parametrize("name", ["sb3_td3", "clipped", "exact", "unscaled"])
def test_scales_of_policy_and_pool_follow_each_other(name: str, tmp_path: Path) -> None:
    """A policy trained in a pool that rescales: its space is from -1 to 1, what comes out not."""
    torch.manual_seed(2)
    unit = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    policy, act = KINDS[name][1]()
    (policy.policy if name.startswith("sb3") else policy).action_space = unit
    with rollouts.make_vec(PENDULUM, 8, rescale_action=True, clip_action=True) as env:
        rollouts.export(policy, tmp_path / "policy.pt2", env)
    with rollouts.make_vec(PENDULUM, 8) as raw:
        obs = observations(raw)
    found = run_file(tmp_path / "policy.pt2", {"obs": obs})[0]
    np.testing.assert_allclose(found, 2 * np.clip(act(obs), -1, 1), rtol=0, atol=2e-5)


@pytest.mark.parametrize("name", DRAWN)
def test_noise_draws_as_the_library_does(name: str, tmp_path: Path) -> None:
    torch.manual_seed(2)
    count = 20_000
    id, make = KINDS[name]
    policy, act = rllib("SAC", id, explore=True) if name.startswith("rllib") else make()
    with rollouts.make_vec(id, 8) as env:
        rollouts.export(policy, tmp_path / "policy.pt2", env, noise=True)
        rows = np.repeat(observations(env)[:1], count, 0)
    if name.startswith("sb3"):
        theirs = policy.predict(rows)[0].astype(np.float64)
    else:
        policy.deterministic_eval = False
        theirs = act(rows).astype(np.float64)
    ours = ExportedPolicy(tmp_path / "policy.pt2", seed=5).act(rows).action.astype(np.float64)
    assert len(np.unique(ours)) > 1
    error = theirs.std() * np.sqrt(2 / count)
    assert abs(ours.mean() - theirs.mean()) < 5 * error
    assert abs(ours.std() - theirs.std()) < 5 * error


@pytest.mark.parametrize(
    "name",
    [
        *("sb3_dqn", "sb3_td3", "sb3_sac_sde", "values", "exact", "proposed", "implicit"),
        "rllib_dqn",
    ],
)
def test_noise_is_refused_where_the_library_explores_otherwise(name: str, tmp_path: Path) -> None:
    id, make = KINDS[name]
    policy, _ = make()
    with (
        rollouts.make_vec(id, 2) as env,
        pytest.raises(SpecError, match=r"draws each action by itself: \w+ .*leave it out"),
    ):
        rollouts.export(policy, tmp_path / "policy.pt", env, noise=True)


def test_an_algorithm_of_tianshou_stands_for_its_policy(tmp_path: Path) -> None:
    policy, act = KINDS["values"][1]()
    from tianshou.algorithm.modelfree.dqn import DQN
    from tianshou.algorithm.optim import AdamOptimizerFactory

    algorithm = DQN(policy=policy, optim=AdamOptimizerFactory(), target_update_freq=3)
    with rollouts.make_vec(CARTPOLE, 2) as env:
        rollouts.export(algorithm, tmp_path / "policy.pt", env)
        obs = observations(env)
    found = ExportedPolicy(tmp_path / "policy.pt").act(obs).action
    assert (found == act(obs)).mean() > 0.998


def test_policies_that_act_in_their_own_way_are_refused(tmp_path: Path) -> None:
    policy, _ = KINDS["values"][1]()

    class Own(type(policy)):  # type: ignore[misc]
        def compute_q_value(self, logits: Any, mask: Any) -> Any:
            return -logits

    policy.__class__ = Own
    with (
        rollouts.make_vec(CARTPOLE, 2) as env,
        pytest.raises(SpecError, match="Own has its own compute_q_value"),
    ):
        rollouts.export(policy, tmp_path / "policy.pt", env)


@pytest.mark.parametrize("name", ["rllib_dqn", "rllib_sac"])
def test_an_rl_module_with_a_forward_of_its_own_is_refused(name: str, tmp_path: Path) -> None:
    id, make = KINDS[name]
    module, _ = make()

    class Own(type(module)):  # type: ignore[misc]
        def _forward_inference(self, batch: Any) -> Any:
            return super()._forward_inference(batch)

    module.__class__ = Own
    with (
        rollouts.make_vec(id, 2) as env,
        pytest.raises(SpecError, match=r"Own has its own _forward_inference, expected Default\w+"),
    ):
        rollouts.export(module, tmp_path / "policy.pt", env)


def test_an_rl_module_of_values_with_memory_is_refused(tmp_path: Path) -> None:
    module, _ = KINDS["rllib_dqn"][1]()
    module.is_stateful = lambda: True
    with (
        rollouts.make_vec(CARTPOLE, 2) as env,
        pytest.raises(SpecError, match="has memory, which RLlib's loop carries"),
    ):
        rollouts.export(module, tmp_path / "policy.pt", env)


@pytest.mark.parametrize("name", ["proposed", "implicit"])
def test_quantiles_of_a_network_of_another_kind_are_refused(name: str, tmp_path: Path) -> None:
    policy, _ = KINDS[name][1]()
    policy.model = torch.nn.Linear(4, 2)
    with (
        rollouts.make_vec(CARTPOLE, 2) as env,
        pytest.raises(SpecError, match=r"network is a Linear, expected Tianshou's \w+Quantile\w+"),
    ):
        rollouts.export(policy, tmp_path / "policy.pt", env)


@pytest.mark.parametrize(
    "name",
    [
        *("sb3_dqn", "clipped", "rllib_sac"),
        # an algorithm of each library, of each kind of action, is enough to see a pool play
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("sb3_sac", "sb3_td3", "values", "rllib_dqn")
        ),
    ],
)
def test_rollouts_eval_of_the_file_gives_the_models_returns(name: str, tmp_path: Path) -> None:
    from rollouts.collecting.evaluation import evaluate

    torch.manual_seed(4)
    id, make = KINDS[name]
    policy, act = make()
    options: Any = {"seed": 5, "autoreset_mode": "same_step", "max_episode_steps": 60}
    with rollouts.make_vec(id, 4, **options) as env:
        rollouts.export(policy, tmp_path / "policy.onnx", env)
        found = evaluate(env, ExportedPolicy(tmp_path / "policy.onnx"), 4).returns
    with rollouts.make_vec(id, 4, **options) as env:
        obs, _ = env.reset(seed=5)
        returns, over = np.zeros(4), np.zeros(4, np.bool_)
        while not over.all():
            obs, reward, terminated, truncated, _ = env.step(
                act(obs).reshape(4, *env.action_space.shape[1:])
            )
            returns += np.where(over, 0, reward)
            over |= terminated | truncated
    np.testing.assert_allclose(np.sort(found), np.sort(returns), rtol=1e-3)
