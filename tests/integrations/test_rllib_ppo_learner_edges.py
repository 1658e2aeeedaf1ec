# SPDX-License-Identifier: Apache-2.0
"""`RolloutsPPOLearner` where native code has to leave steps to torch, beside PPOTorchLearner."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from ray.rllib.core.distribution.torch.torch_distribution import (
    TorchCategorical,
    TorchDiagGaussian,
    TorchMultiCategorical,
)
from ray.rllib.core.rl_module.apis.self_supervised_loss_api import SelfSupervisedLossAPI
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch
from rollouts.integrations import rllib
from rollouts.integrations.rllib.learner_reader import num_threads
from test_rllib_ppo_learner import (
    DISCRETE,
    MODULE,
    SPACES,
    OnlyNative,
    assert_equal_metrics,
    assert_equal_weights,
    built,
    config_of,
    episodes_of,
    metrics,
    update,
)

from rollouts.errors import SpecError

pytestmark = pytest.mark.usefixtures("one_torch_thread")


class Nothing:
    """Adds no method."""


def pair_of(added: type = Nothing, space: Any = DISCRETE, **how: Any) -> tuple[Any, Any]:
    """RLlib's learner and ours, both with the methods of `added`, of one state."""
    how = {"lr": 1e-3, **how}
    bases = (PPOTorchLearner, rllib.RolloutsPPOLearner)
    classes = [type("Changed", (added, base), {}) for base in bases]
    theirs, ours = (built(config_of(each, space, **how)) for each in classes)
    ours.set_state(theirs.get_state())
    return theirs, ours


def assert_torch_made(ours: Any, theirs: Any, why: str) -> None:
    assert_equal_weights(ours, theirs)
    assert ours.learner_engine == "torch"
    assert why in ours.why_not_native_learner


def acted(learner: Any, count: int = 64) -> dict[str, Any]:
    """A train batch: rows whose actions were drawn by the module itself."""
    module, random = learner.module[MODULE], np.random.default_rng(0)
    obs = random.normal(size=(count, 5)).astype(np.float32)
    torch.manual_seed(0)
    with torch.no_grad():
        inputs = module.forward_exploration({"obs": torch.from_numpy(obs)})["action_dist_inputs"]
        dist = module.get_exploration_action_dist_cls().from_logits(inputs)
        action = dist.sample()
        log_prob = dist.logp(action)
    return {
        "obs": obs,
        "actions": action.numpy(),
        "action_logp": log_prob.numpy(),
        "action_dist_inputs": inputs.numpy(),
        "advantages": random.normal(size=count).astype(np.float32),
        "value_targets": random.normal(size=count).astype(np.float32),
    }


def update_on(learner: Any, rows: dict[str, Any], **how: Any) -> dict[Any, Any]:
    """One `update` on copies of these rows; its metrics by their places."""
    np.random.seed(1)  # noqa: NPY002
    copied = SampleBatch({name: np.array(array) for name, array in rows.items()})
    batch = MultiAgentBatch({MODULE: copied}, len(rows["obs"]))
    how = {"num_epochs": 1, "minibatch_size": 16, **how}
    return dict(metrics(learner.update(batch=batch, **how)))


class Counting:
    """Counts calls, and makes the step itself."""

    calls = 0

    def _update(self, batch: Any, **_: Any) -> Any:
        self.calls += 1
        return self._uncompiled_update(batch)  # type: ignore[attr-defined]


class Stopping:
    """Ends after three minibatches."""

    calls = 0

    def _create_iterator_if_necessary(self, **given: Any) -> Any:
        for self.calls, each in enumerate(super()._create_iterator_if_necessary(**given)):  # type: ignore[misc]
            if self.calls == 3:
                return
            yield each


class OwnBatches:
    """Makes minibatches without RLlib."""

    calls = 0

    def _create_iterator_if_necessary(self, *, training_data: Any, **_: Any) -> Any:
        batch = self._make_batch_if_necessary(training_data=training_data)  # type: ignore[attr-defined]
        self.calls += 1
        return [batch, batch]


class Slicing:
    """Counts minibatches by the call that follows each."""

    calls = 0

    def _set_slicing_by_batch_id(self, batch: Any, *, value: bool) -> Any:
        self.calls += 1
        return super()._set_slicing_by_batch_id(batch, value=value)  # type: ignore[misc]


class Logging:
    """Counts minibatches by what is logged of them."""

    calls = 0

    def _compute_off_policyness(self, batch: Any) -> None:
        self.calls += 1

    def _log_steps_trained_metrics(self, batch: Any) -> None:
        self.calls += 1
        super()._log_steps_trained_metrics(batch)  # type: ignore[misc]

    def _log_metrics(self, batch: Any) -> None:
        self.calls += 1
        super()._log_metrics(batch)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("added", "why"),
    [
        (Counting, "_update"),
        (Stopping, "_create_iterator_if_necessary"),
        (OwnBatches, "_create_iterator_if_necessary"),
        (Slicing, "_set_slicing_by_batch_id"),
        (Logging, "_compute_off_policyness"),
    ],
)
def test_a_subclass_that_sees_each_minibatch_sees_them_all(added: type, why: str) -> None:
    theirs, ours = pair_of(added)
    episodes = episodes_of(theirs, 0)
    assert_equal_metrics(update(ours, episodes), update(theirs, episodes))
    assert_torch_made(ours, theirs, f"Changed has its own {why}")
    assert ours.calls == theirs.calls > 0


@pytest.mark.parametrize(
    "name",
    ["_log_steps_trained_metrics", "_log_metrics", "filter_param_dict_for_optimizer"],
)
def test_a_method_given_to_one_learner_is_seen(name: str) -> None:
    _, ours = pair_of()
    setattr(ours, name, getattr(ours, name))
    update(ours, episodes_of(ours, 0))
    assert ours.why_not_native_learner.endswith(f"has its own {name}")


@pytest.mark.parametrize("added", [Counting, OwnBatches])
def test_a_subclass_with_its_own_steps_is_refused_where_native_code_is_asked_for(
    added: type,
) -> None:
    learner = built(config_of(type("Changed", (added, OnlyNative), {}), DISCRETE))
    with pytest.raises(SpecError, match="Changed has its own _"):
        update(learner, episodes_of(learner, 0))


class Signs:
    """Makes signs of gradients."""

    @staticmethod
    def _get_clip_function() -> Any:
        def clip(gradients: Any, *, grad_clip: float, grad_clip_by: str) -> Any:
            for each in gradients.values():
                each.sign_().mul_(grad_clip)
            return torch.tensor(1.0)

        return clip


class OwnNorm:
    """Gives a function of its own for the norm."""

    @staticmethod
    def _get_global_norm_function() -> Any:
        return lambda gradients: torch.tensor(1.0)


class Filtering:
    """Keeps the gradients of weights, not of biases."""

    def filter_param_dict_for_optimizer(self, param_dict: Any, optimizer: Any) -> Any:
        found = super().filter_param_dict_for_optimizer(param_dict, optimizer)  # type: ignore[misc]
        return {name: each for name, each in found.items() if each.dim() > 1}


@pytest.mark.parametrize(
    ("added", "why"),
    [
        (Signs, "_get_clip_function"),
        (OwnNorm, "_get_global_norm_function"),
        (Filtering, "filter_param_dict_for_optimizer"),
    ],
)
def test_what_clips_gradients_may_be_the_subclasss(added: type, why: str) -> None:
    theirs, ours = pair_of(added, grad_clip=0.1)
    episodes = episodes_of(theirs, 0)
    assert_equal_metrics(update(ours, episodes), update(theirs, episodes))
    assert_torch_made(ours, theirs, f"Changed has its own {why}")


class Tempered(TorchCategorical):
    """Draws from flatter probabilities."""

    @classmethod
    def from_logits(cls, logits: Any, **_: Any) -> Any:
        return TorchCategorical(logits=logits / 2)


class Wide(TorchDiagGaussian):
    """Draws with deviations that are no exponentials."""

    @classmethod
    def from_logits(cls, logits: Any, **_: Any) -> Any:
        mean, scale = logits.chunk(2, -1)
        return TorchDiagGaussian(loc=mean, scale=torch.nn.functional.softplus(scale) + 1e-3)


class TemperedAll(TorchMultiCategorical):
    """Draws each element from flatter probabilities."""

    @classmethod
    def from_logits(cls, logits: Any, **given: Any) -> Any:
        return super().from_logits(logits / 2, **given)


DISTRIBUTIONS = {
    "discrete": Tempered,
    "box": Wide,
    "several discrete": TemperedAll.get_partial_dist_cls(
        space=SPACES["several discrete"], input_lens=[2, 3]
    ),
}


@pytest.mark.parametrize("space", DISTRIBUTIONS)
def test_a_distribution_of_the_users_is_trained_by_torch(space: str) -> None:
    theirs, ours = pair_of(space=SPACES[space])
    for each in (theirs, ours):
        each.module[MODULE].action_dist_cls = DISTRIBUTIONS[space]
    episodes = episodes_of(theirs, 0)
    assert_equal_metrics(update(ours, episodes), update(theirs, episodes))
    assert_torch_made(ours, theirs, "actions are drawn from")


def test_a_minibatch_without_a_row_that_counts_is_left_to_torch() -> None:
    theirs, ours = pair_of()
    rows = acted(theirs) | {"loss_mask": np.arange(64) < 48}
    expected, found = update_on(theirs, rows), update_on(ours, rows)
    assert np.isnan(expected[MODULE, "mean_kl_loss"])
    assert_equal_metrics(found, expected)
    assert_torch_made(ours, theirs, "has no row that counts, expected one or more")


def sure_of(learner: Any, logits: list[float]) -> None:
    """Lets the policy choose by these logits, nearly whatever it observes."""
    with torch.no_grad():
        for name, each in learner.module[MODULE].named_parameters():
            if name.startswith("pi"):
                each.mul_(0.01) if "bias" not in name else each.copy_(torch.tensor(logits))


def test_a_divergence_that_is_infinite_in_torch_is_left_to_torch() -> None:
    theirs, ours = pair_of()
    for each in (theirs, ours):
        sure_of(each, [110.0, 0.0, 109.0])
    rows = acted(theirs)
    rows["action_dist_inputs"] = rows["action_dist_inputs"] - np.float32([10, 0, 10])
    expected, found = update_on(theirs, rows), update_on(ours, rows)
    assert np.isinf(expected[MODULE, "mean_kl_loss"])
    assert_equal_metrics(found, expected)
    assert_torch_made(ours, theirs, "a KL divergence")


def test_a_divergence_of_rows_that_do_not_count_may_be_infinite() -> None:
    theirs, ours = pair_of()
    for each in (theirs, ours):
        sure_of(each, [110.0, 0.0, 109.0])
    rows = acted(theirs) | {"loss_mask": np.arange(64) % 4 > 0}
    rows["action_dist_inputs"][::4] = 0
    assert_equal_metrics(update_on(ours, rows), update_on(theirs, rows))
    assert_equal_weights(ours, theirs)
    assert ours.learner_engine == "native"


@pytest.mark.parametrize("use_kl_loss", [True, False])
def test_a_ratio_that_overflows_is_left_to_torch(use_kl_loss: bool) -> None:
    theirs, ours = pair_of(use_kl_loss=use_kl_loss)
    rows = acted(theirs)
    rows["advantages"] = np.abs(rows["advantages"])
    rows["action_logp"][5] = -100
    expected, found = update_on(theirs, rows), update_on(ours, rows)
    assert_equal_metrics(found, expected)
    assert_torch_made(ours, theirs, "a ratio of probabilities")


def test_torch_goes_on_after_the_steps_that_were_made_since_weights_were_unfrozen() -> None:
    theirs, ours = pair_of(space=SPACES["box"])
    for each in (theirs, ours):
        each.module[MODULE].vf.requires_grad_(False)
    rows = acted(theirs)
    for each in (theirs, ours):
        update_on(each, rows, num_epochs=3)
        each.module[MODULE].vf.requires_grad_(True)
    assert ours.learner_engine == "native"
    # the minibatch before the last one is not finite
    rows["advantages"][40] = np.nan
    assert_equal_metrics(update_on(ours, rows), update_on(theirs, rows))
    assert_torch_made(ours, theirs, "minibatch 2")


@pytest.mark.parametrize("name", ["advantages", "value_targets", "action_logp"])
def test_columns_with_an_axis_more_are_left_to_torch(name: str) -> None:
    theirs, ours = pair_of()
    rows = acted(theirs)
    rows[name] = rows[name][:, None]
    said = []
    for each in (theirs, ours):
        try:
            said.append(sorted(update_on(each, rows)))
        except Exception as error:
            said.append(f"{type(error).__name__}: {error}")
    assert said[0] == said[1]
    assert_torch_made(ours, theirs, f"{name!r} has shape (64, 1)")


def test_a_mask_of_numbers_is_left_to_torch() -> None:
    theirs, ours = pair_of()
    rows = acted(theirs) | {"loss_mask": (np.arange(64) % 3 > 0).astype(np.int64)}
    assert_equal_metrics(update_on(ours, rows), update_on(theirs, rows))
    assert_torch_made(ours, theirs, "the loss mask is of torch.int64, expected torch.bool")


def test_nothing_clips_where_there_is_no_limit() -> None:
    classes = (PPOTorchLearner, OnlyNative)
    configs = [config_of(each, DISCRETE, lr=1e-3) for each in classes]
    for config in configs:
        config.grad_clip_by = None
    theirs, ours = (built(config) for config in configs)
    ours.set_state(theirs.get_state())
    episodes = episodes_of(theirs, 0)
    assert_equal_metrics(update(ours, episodes), update(theirs, episodes))
    assert_equal_weights(ours, theirs)


@pytest.mark.parametrize("num_learners", [0, 1])
def test_no_more_threads_compute_than_torchs(num_learners: int) -> None:
    config = config_of(OnlyNative, DISCRETE)
    config.learners(num_learners=num_learners, num_cpus_per_learner=2)
    # `one_torch_thread` has set 1
    assert num_threads(config) == 1


class Sorted(torch.nn.Module):
    """A layer that native code does not have."""

    calls: ClassVar[list[int]] = []

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        self.calls.append(len(features))
        return features + features.sort(-1)[0]


def test_a_module_that_is_refused_is_read_ever_more_seldom() -> None:
    _, ours = pair_of(space=SPACES["box"])
    module = ours.module[MODULE]
    module.pi = torch.nn.Sequential(Sorted(), module.pi)
    episodes, read = episodes_of(ours, 0), []
    for _ in range(9):
        Sorted.calls.clear()
        update(ours, episodes, num_epochs=1, minibatch_size=None)
        assert "sort" in ours.why_not_native_learner
        # torch's own step is one
        read.append(len(Sorted.calls) > 1)
    assert read == [True, True, False, True, False, False, False, True, False]


class OwnLossModule(SelfSupervisedLossAPI):
    """Computes its loss itself."""

    def compute_self_supervised_loss(self, *, learner: Any, **given: Any) -> Any:
        return 2 * learner.compute_loss_for_module(**given)


def test_a_module_with_a_loss_of_its_own_is_trained_by_torch() -> None:
    theirs, ours = pair_of()
    for each in (theirs, ours):
        module = each.module[MODULE]
        module.__class__ = type("Own", (type(module), OwnLossModule), {})
    episodes = episodes_of(theirs, 0)
    assert_equal_metrics(update(ours, episodes), update(theirs, episodes))
    assert_torch_made(ours, theirs, "Own computes a loss of its own")
