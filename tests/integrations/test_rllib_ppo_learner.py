# SPDX-License-Identifier: Apache-2.0
"""`RolloutsPPOLearner`: its updates beside PPOTorchLearner's, from one state and on one batch."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch
from ray.rllib.utils.metrics.stats import StatsBase
from ray.rllib.utils.minibatch_utils import MiniBatchCyclicIterator
from rollouts.integrations import rllib
from rollouts.integrations.rllib.minibatches import minibatch_order, plan_of

from rollouts.errors import SpecError

pytestmark = [pytest.mark.system, pytest.mark.usefixtures("one_torch_thread")]

OBS = spaces.Box(-1, 1, (5,), np.float32)
DISCRETE = spaces.Discrete(3)
SPACES = {
    "discrete": DISCRETE,
    "several discrete": spaces.MultiDiscrete([2, 3]),
    "box": spaces.Box(-1, 1, (2,), np.float32),
}
MODULE = "default_policy"


class OnlyNative(rllib.RolloutsPPOLearner):
    """Fails where native code cannot make the steps."""

    train_engine = "native"


def config_of(cls: Any, space: Any, *, shares: bool = True, **training: Any) -> PPOConfig:
    config = PPOConfig().environment(observation_space=OBS, action_space=space)
    config.training(**training)
    config.rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[16, 8], vf_share_layers=shares))
    config.learners(learner_class=cls)
    config.debugging(seed=3)
    return config


def built(config: PPOConfig, cls: Any = None) -> Any:
    spec = config.get_multi_rl_module_spec(spaces={MODULE: (OBS, config.action_space)})
    learner = (cls or config.learner_class)(config=config, module_spec=spec)
    learner.build()
    return learner


def pair(space: Any, **how: Any) -> tuple[Any, Any]:
    """RLlib's learner and ours, of one state."""
    theirs = built(config_of(PPOTorchLearner, space, **how))
    ours = built(config_of(OnlyNative, space, **how))
    ours.set_state(theirs.get_state())
    return theirs, ours


def episodes_of(learner: Any, seed: int, reward: float = 3.0) -> list[SingleAgentEpisode]:
    """Episodes whose actions were drawn from distributions near the module's."""
    module, random = learner.module[MODULE], np.random.default_rng(seed)
    space = learner.config.action_space
    torch.manual_seed(seed)
    found = []
    for place in range(5):
        steps = int(random.integers(3, 40))
        obs = random.normal(size=(steps + 1, 5)).astype(np.float32)
        inputs = module.forward_exploration({"obs": torch.from_numpy(obs[:-1])})
        moved = inputs["action_dist_inputs"]
        moved = moved + 0.3 * torch.randn(moved.shape)
        dist = module.get_exploration_action_dist_cls().from_logits(moved)
        action = dist.sample()
        extras = {"action_dist_inputs": moved, "action_logp": dist.logp(action)}
        episode = SingleAgentEpisode(
            observations=list(obs),
            actions=list(action.numpy()),
            rewards=list(random.normal(size=steps) * reward),
            terminated=place % 2 == 1,
            observation_space=OBS,
            action_space=space,
            len_lookback_buffer=0,
            extra_model_outputs={name: list(each.numpy()) for name, each in extras.items()},
        )
        found.append(episode.to_numpy())
    return found


def update(learner: Any, episodes: list[SingleAgentEpisode], **how: Any) -> dict[Any, Any]:
    """One `update` of a copy of these episodes; its metrics by their places."""
    np.random.seed(1)  # noqa: NPY002
    how = {"num_epochs": 3, "minibatch_size": 32, "shuffle_batch_per_epoch": True, **how}
    result = learner.update(
        episodes=copy.deepcopy(episodes), timesteps={"num_env_steps_sampled_lifetime": 100}, **how
    )
    return dict(metrics(result))


def metrics(result: Any, place: tuple[str, ...] = ()) -> Any:
    """The numbers of a result by their places, without those that are times."""
    for name, value in result.items():
        if isinstance(value, dict):
            yield from metrics(value, (*place, name))
        elif not any("timer" in each or "throughput" in each for each in (*place, name)):
            yield (*place, name), value.peek() if isinstance(value, StatsBase) else value


def assert_equal_metrics(ours: dict[Any, Any], theirs: dict[Any, Any]) -> None:
    assert ours.keys() == theirs.keys()
    for place, value in theirs.items():
        # sums of float32 in another order
        assert ours[place] == pytest.approx(value, rel=1e-4, abs=1e-5, nan_ok=True), place


def assert_equal_weights(ours: Any, theirs: Any, tolerance: float = 1e-5) -> None:
    pairs = zip(ours.module[MODULE].parameters(), theirs.module[MODULE].parameters(), strict=True)
    assert max((a - b).abs().max().item() for a, b in pairs) < tolerance


SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "apart": {"shares": False, "lr": 1e-3},
    "no kl": {"use_kl_loss": False, "entropy_coeff": 0.02, "lr": 1e-3},
    "kl binds": {"kl_coeff": 5.0, "kl_target": 0.5, "lr": 1e-3},
    "value clip binds": {"vf_clip_param": 0.5, "vf_loss_coeff": 0.3, "lr": 1e-3},
    "clip by all": {"grad_clip": 0.1, "grad_clip_by": "global_norm", "lr": 1e-3},
    "clip by each": {"grad_clip": 0.01, "grad_clip_by": "norm", "lr": 1e-3},
    "clip by element": {"grad_clip": 0.001, "grad_clip_by": "value", "lr": 1e-3},
    "schedules": {"lr": [[0, 1e-3], [300, 1e-4]], "entropy_coeff": [[0, 0.1], [300, 0.0]]},
}


CASES = [
    *(("box", how) for how in SETTINGS),
    *(("discrete", how) for how in SETTINGS if "clip by" not in how),
    ("several discrete", "kl binds"),
]


@pytest.mark.parametrize(("space", "how"), CASES)
def test_updates_and_their_metrics_are_those_of_rllibs_learner(how: str, space: str) -> None:
    theirs, ours = pair(SPACES[space], **SETTINGS[how])
    for seed in range(2):
        episodes = episodes_of(theirs, seed)
        expected, found = update(theirs, episodes), update(ours, episodes)
        assert_equal_metrics(found, expected)
        assert_equal_weights(ours, theirs)
    assert (ours.learner_engine, ours.why_not_native_learner) == ("native", "")


@pytest.mark.parametrize(
    "how",
    [
        {"minibatch_size": None, "num_epochs": 1},
        {"minibatch_size": None, "num_epochs": 2},
        {"minibatch_size": 500, "num_epochs": 1},
        {"num_total_minibatches": 7},
        {"shuffle_batch_per_epoch": False},
    ],
)
def test_all_ways_to_cut_a_batch_are_rllibs(how: dict[str, Any]) -> None:
    theirs, ours = pair(DISCRETE, lr=1e-3)
    episodes = episodes_of(theirs, 0)
    assert_equal_metrics(update(ours, episodes, **how), update(theirs, episodes, **how))
    assert_equal_weights(ours, theirs)


@pytest.mark.parametrize("num_rows", [1, 5, 12])
@pytest.mark.parametrize("size", [1, 4, 5, 6, 30])
@pytest.mark.parametrize("how", [{}, {"num_total_minibatches": 5}, {"num_epochs": 3}])
@pytest.mark.parametrize("shuffles", [True, False])
def test_minibatches_have_the_rows_of_rllibs_iterator(
    num_rows: int, size: int, how: dict[str, Any], shuffles: bool
) -> None:
    def minibatches() -> MiniBatchCyclicIterator:
        np.random.seed(2)  # noqa: NPY002
        rows = MultiAgentBatch({MODULE: SampleBatch({"row": np.arange(num_rows)})}, num_rows)
        return MiniBatchCyclicIterator(
            rows, minibatch_size=size, shuffle_batch_per_epoch=shuffles, **how
        )

    expected = [each.policy_batches[MODULE]["row"] for each in minibatches()]
    drawn = np.random.random()  # noqa: NPY002
    found = minibatch_order(num_rows, plan_of(minibatches(), num_rows))
    np.testing.assert_array_equal(found, np.array(expected))
    # and as many numbers were drawn
    assert np.random.random() == drawn  # noqa: NPY002


def test_a_training_changes_sides_by_the_state_in_the_middle() -> None:
    theirs, ours = pair(DISCRETE, lr=1e-3)
    first, second = episodes_of(theirs, 0), episodes_of(theirs, 1)
    update(theirs, first)
    update(ours, first)
    # RLlib's state has no KL coefficient, so all three begin with the config's
    classes = (PPOTorchLearner, OnlyNative, PPOTorchLearner)
    learners = [built(config_of(each, DISCRETE, lr=1e-3)) for each in classes]
    for learner, state in zip(learners, (theirs, theirs, ours), strict=True):
        learner.set_state(state.get_state())
        update(learner, second)
    assert_equal_weights(learners[1], learners[0])
    assert_equal_weights(learners[2], learners[0])


def test_gradients_that_are_not_finite_are_left_to_torch() -> None:
    theirs = built(config_of(PPOTorchLearner, DISCRETE))
    ours = built(config_of(rllib.RolloutsPPOLearner, DISCRETE))
    ours.set_state(theirs.get_state())
    episodes = episodes_of(theirs, 0, reward=float("inf"))
    assert_equal_metrics(update(ours, episodes), update(theirs, episodes))
    assert_equal_weights(ours, theirs)
    assert ours.learner_engine == "torch"
    assert "nan or infinite" in ours.why_not_native_learner
    with pytest.raises(SpecError, match="not possible: minibatch 0"):
        update(built(config_of(OnlyNative, DISCRETE)), episodes)


class OwnLoss(rllib.RolloutsPPOLearner):
    """A learner that adds nothing to the loss."""

    def compute_loss_for_module(self, **given: Any) -> Any:
        return super().compute_loss_for_module(**given)


@pytest.mark.parametrize(
    ("change", "cls", "why"),
    [
        (lambda config: config.reporting(log_gradients=True), None, "log_gradients=True"),
        (lambda config: config.training(use_critic=False), None, "use_critic=False"),
        (lambda config: None, OwnLoss, "OwnLoss has its own compute_loss_for_module"),
    ],
    ids=["logs", "no critic", "own loss"],
)
def test_what_native_code_does_not_train_is_left_to_torch(change: Any, cls: Any, why: str) -> None:
    config = config_of(cls or rllib.RolloutsPPOLearner, DISCRETE)
    change(config)
    learner = built(config)
    before = [each.detach().clone() for each in learner.module[MODULE].parameters()]
    update(learner, episodes_of(learner, 0))
    assert learner.learner_engine == "torch"
    assert why in learner.why_not_native_learner
    after = learner.module[MODULE].parameters()
    assert any((a != b).any() for a, b in zip(after, before, strict=True))


def test_a_stateful_module_is_left_to_torch() -> None:
    config = config_of(rllib.RolloutsPPOLearner, DISCRETE)
    config.rl_module(model_config=DefaultModelConfig(use_lstm=True, max_seq_len=5))
    learner = built(config)
    assert learner._choose({MODULE: SampleBatch({"obs": torch.zeros(1, 5)})}) is None
    assert learner.why_not_native_learner.startswith("the RLModule is stateful")


class ByTorch(rllib.RolloutsEnvRunner):
    """Lets torch compute the module, whose bits RLlib's own runner has."""

    rollout_engine = "torch"


def algorithm_of(cls: Any) -> Any:
    config = PPOConfig().environment("CartPole-v1")
    config.env_runners(num_env_runners=0, num_envs_per_env_runner=4, env_runner_cls=ByTorch)
    config.training(train_batch_size_per_learner=400, minibatch_size=64, num_epochs=2)
    config.rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[16]))
    config.learners(learner_class=cls)
    config.debugging(seed=3)
    return config.build_algo()


def test_train_and_checkpoints_are_those_of_rllibs_learner(rllib_ray: Any, tmp_path: Path) -> None:
    ours, theirs = algorithm_of(OnlyNative), algorithm_of(PPOTorchLearner)
    try:
        # networks are drawn by torch's generator, which both share
        ours.restore_from_path(theirs.save_to_path(tmp_path / "begin"))
        results = []
        for algorithm in (ours, theirs):
            torch.manual_seed(1)
            np.random.seed(1)  # noqa: NPY002
            results.append(dict(metrics(algorithm.train()["learners"])))
        assert_equal_metrics(*results)
        # and torch goes on from a checkpoint of ours
        theirs.restore_from_path(ours.save_to_path(tmp_path / "end"))
        learners = [each.learner_group._learner for each in (ours, theirs)]
        assert_equal_weights(*learners, tolerance=1e-12)
        theirs.train()
    finally:
        ours.stop()
        theirs.stop()
