# SPDX-License-Identifier: Apache-2.0
"""`RolloutsIMPALALearner`, `RolloutsAPPOLearner`: their updates beside RLlib's learners'."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from ray.rllib.algorithms.appo import APPOConfig
from ray.rllib.algorithms.appo.torch.appo_torch_learner import APPOTorchLearner
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.algorithms.impala.torch.impala_torch_learner import IMPALATorchLearner
from ray.rllib.core.learner.learner import Learner
from ray.rllib.core.learner.training_data import TrainingData
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch
from rollouts.integrations import rllib
from test_rllib_ppo_learner import assert_equal_metrics, metrics

from rollouts.errors import SpecError

pytestmark = pytest.mark.usefixtures("one_torch_thread")

OBS = spaces.Box(-1, 1, (5,), np.float32)
SPACES = {
    "discrete": spaces.Discrete(3),
    "several discrete": spaces.MultiDiscrete([2, 3]),
    "box": spaces.Box(-1, 1, (2,), np.float32),
}
STOCK = {"impala": IMPALATorchLearner, "appo": APPOTorchLearner}
OURS = {"impala": rllib.RolloutsIMPALALearner, "appo": rllib.RolloutsAPPOLearner}
CONFIGS: dict[str, Any] = {"impala": IMPALAConfig, "appo": APPOConfig}
MODULE = "default_policy"
LENGTH = 8


class Native:
    """Fails where native code cannot make the steps."""

    train_engine = "native"


@pytest.fixture
def learners() -> Iterator[list[Any]]:
    """Learners whose threads end with the test."""
    made: list[Any] = []
    yield made
    for each in made:
        each.shutdown()


def built(made: list[Any], kind: str, cls: Any, space: str = "discrete", **how: Any) -> Any:
    config = CONFIGS[kind]().environment(observation_space=OBS, action_space=SPACES[space])
    config.env_runners(rollout_fragment_length=LENGTH)
    config.training(**{"lr": 1e-3, **how})
    config.rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[16, 8]))
    config.learners(learner_class=cls)
    config.debugging(seed=3)
    spec = config.get_multi_rl_module_spec(spaces={MODULE: (OBS, SPACES[space])})
    learner = cls(config=config, module_spec=spec)
    learner.build()
    made.append(learner)
    return learner


def pair(made: list[Any], kind: str, space: str = "discrete", **how: Any) -> tuple[Any, Any]:
    """RLlib's learner and ours, of one state."""
    native = type("OnlyNative", (Native, OURS[kind]), {})
    theirs, ours = (built(made, kind, each, space, **how) for each in (STOCK[kind], native))
    ours.set_state(theirs.get_state())
    return theirs, ours


def rows_of(space: str, seed: int, count: int = 44, reward: float = 3.0) -> dict[str, Any]:
    """A train batch as RLlib's connectors make it: fragments, and rows that do not count."""
    drawn, of = np.random.default_rng(seed), SPACES[space]
    of.seed(seed)
    counts = drawn.random(count) < 0.9
    return {
        "obs": drawn.normal(size=(count, 5)).astype(np.float32),
        "actions": np.stack([of.sample() for _ in range(count)]),
        "action_logp": drawn.normal(-1.3, 0.3, count).astype(np.float32),
        "rewards": (reward * drawn.normal(size=count)).astype(np.float32),
        "terminateds": drawn.random(count) < 0.1,
        "loss_mask": counts,
        "weights_seq_no": np.zeros(count, np.int64),
    }


def update(learner: Any, rows: dict[str, Any], time: int = 100, **how: Any) -> dict[Any, Any]:
    """One update of copies of these rows, in this thread; its metrics by their places."""
    copied = SampleBatch({name: np.array(array) for name, array in rows.items()})
    batch = MultiAgentBatch({MODULE: copied}, len(rows["obs"]))
    steps = {"num_env_steps_sampled_lifetime": time, "num_env_steps_trained_lifetime": time}
    return dict(metrics(Learner.update(learner, batch=batch, timesteps=steps, **how)))


def assert_equal_weights(ours: Any, theirs: Any) -> None:
    mine, its = (each.module[MODULE].state_dict() for each in (ours, theirs))
    assert mine.keys() == its.keys()
    for name, each in mine.items():
        torch.testing.assert_close(each, its[name], rtol=0, atol=1e-5, msg=name)


SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "impala": ("impala", {}),
    "impala entropy": ("impala", {"entropy_coeff": 0.02, "vf_loss_coeff": 0.3, "gamma": 0.9}),
    "impala limits": (
        "impala",
        {"vtrace_clip_rho_threshold": 1.3, "vtrace_clip_pg_rho_threshold": 0.7},
    ),
    "impala clips": ("impala", {"grad_clip": 0.1, "grad_clip_by": "global_norm"}),
    "impala clips each": ("impala", {"grad_clip": 0.1, "grad_clip_by": "norm"}),
    "appo": ("appo", {}),
    "appo kl": ("appo", {"use_kl_loss": True, "kl_coeff": 2.0, "lr": 1e-2}),
    "appo entropy": ("appo", {"entropy_coeff": [[0, 0.1], [300, 0.0]], "clip_param": 0.05}),
}


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("name", SETTINGS)
def test_updates_and_their_metrics_are_those_of_rllibs_learner(
    name: str, space: str, learners: list[Any]
) -> None:
    kind, how = SETTINGS[name]
    theirs, ours = pair(learners, kind, space, **how)
    for seed in range(3):
        rows = rows_of(space, seed)
        expected, found = (update(each, rows, 100 * seed + 100) for each in (theirs, ours))
        assert_equal_metrics(found, expected)
        assert_equal_weights(ours, theirs)
    assert (ours.learner_engine, ours.why_not_native_learner) == ("native", "")


@pytest.mark.parametrize("kind", ["impala", "appo"])
def test_each_minibatch_is_a_step(kind: str, learners: list[Any]) -> None:
    theirs, ours = pair(learners, kind)
    rows, how = rows_of("discrete", 0, 48), {"num_epochs": 2, "minibatch_size": 16}
    assert_equal_metrics(update(ours, rows, **how), update(theirs, rows, **how))
    assert_equal_weights(ours, theirs)


@pytest.mark.parametrize("kind", ["impala", "appo"])
def test_a_training_changes_sides_by_the_state_in_the_middle(
    kind: str, learners: list[Any]
) -> None:
    theirs, ours = pair(learners, kind)
    for each in (theirs, ours):
        update(each, rows_of("discrete", 0))
    states = [theirs.get_state(), ours.get_state()]
    theirs.set_state(states[1])
    ours.set_state(states[0])
    for each in (theirs, ours):
        update(each, rows_of("discrete", 1))
    assert_equal_weights(ours, theirs)


@pytest.mark.parametrize("kind", ["impala", "appo"])
def test_rewards_that_are_not_finite_are_left_to_torch(kind: str, learners: list[Any]) -> None:
    theirs, ours = (built(learners, kind, each[kind]) for each in (STOCK, OURS))
    ours.set_state(theirs.get_state())
    rows = rows_of("discrete", 0, reward=float("inf"))
    assert_equal_metrics(update(ours, rows), update(theirs, rows))
    assert_equal_weights(ours, theirs)
    assert ours.learner_engine == "torch"
    assert "nan or infinite" in ours.why_not_native_learner
    with pytest.raises(SpecError, match="not possible: minibatch 0"):
        update(built(learners, kind, type("OnlyNative", (Native, OURS[kind]), {})), rows)


@pytest.mark.parametrize("kind", ["impala", "appo"])
def test_a_loss_of_a_subclass_is_called(kind: str, learners: list[Any]) -> None:
    class OwnLoss(OURS[kind]):  # type: ignore[misc]
        def compute_loss_for_module(self, **given: Any) -> Any:
            return super().compute_loss_for_module(**given)

    learner = built(learners, kind, OwnLoss)
    update(learner, rows_of("discrete", 0))
    assert learner.learner_engine == "torch"
    assert "OwnLoss has its own compute_loss_for_module" in learner.why_not_native_learner


@pytest.mark.parametrize("kind", ["impala", "appo"])
def test_masks_of_another_type_are_left_to_torch(kind: str, learners: list[Any]) -> None:
    theirs, ours = (built(learners, kind, each[kind]) for each in (STOCK, OURS))
    ours.set_state(theirs.get_state())
    rows = rows_of("discrete", 0)
    rows["loss_mask"] = rows["loss_mask"].astype(np.float32)
    # RLlib would take rows of it by this mask
    del rows["weights_seq_no"]
    update(ours, rows)
    update(theirs, rows)
    assert_equal_weights(ours, theirs)
    assert "the loss mask is of torch.float32" in ours.why_not_native_learner


@pytest.mark.parametrize("kind", ["impala", "appo"])
def test_rllibs_learner_thread_makes_native_steps(kind: str, learners: list[Any]) -> None:
    how: dict[str, Any] = {"broadcast_interval": 10}
    if kind == "appo":
        how["use_circular_buffer"] = False
    theirs, ours = pair(learners, kind, **how)
    for learner in (theirs, ours):
        for seed in range(2):
            rows = {
                name: torch.from_numpy(each) for name, each in rows_of("discrete", seed).items()
            }
            batch = MultiAgentBatch({MODULE: SampleBatch(rows)}, len(rows["obs"]))
            steps = {"num_env_steps_sampled_lifetime": 100}
            learner.update(training_data=TrainingData(batch=batch), timesteps=steps)
        learner._learner_thread_in_queue.join()
    assert ours._learner_thread.is_alive()
    assert ours.learner_engine == "native"
    assert_equal_weights(ours, theirs)
