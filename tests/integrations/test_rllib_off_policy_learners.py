# SPDX-License-Identifier: Apache-2.0
"""`RolloutsDQNLearner` and `RolloutsSACLearner`: their updates beside those of RLlib's learners."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
import torch
from gymnasium import spaces
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.dqn.torch.dqn_torch_learner import DQNTorchLearner
from ray.rllib.algorithms.sac import SACConfig
from ray.rllib.algorithms.sac.torch.sac_torch_learner import SACTorchLearner
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch
from rollouts.integrations import rllib
from test_rllib_ppo_learner import assert_equal_metrics, metrics

from rollouts.errors import SpecError

pytestmark = [pytest.mark.system, pytest.mark.usefixtures("one_torch_thread")]

OBS = spaces.Box(-1, 1, (5,), np.float32)
SPACES = {
    "dqn": spaces.Discrete(3),
    "sac": spaces.Box(-1, 1, (2,), np.float32),
    "discrete sac": spaces.Discrete(3),
}
STOCK = {"dqn": DQNTorchLearner, "sac": SACTorchLearner, "discrete sac": SACTorchLearner}
OURS = {
    "dqn": rllib.RolloutsDQNLearner,
    "sac": rllib.RolloutsSACLearner,
    "discrete sac": rllib.RolloutsSACLearner,
}
CONFIGS = {"dqn": DQNConfig, "sac": SACConfig, "discrete sac": SACConfig}
KINDS = [*SPACES]
MODULE = "default_policy"


class Nothing:
    """Adds no method."""


class Native:
    """Fails where native code cannot make the steps."""

    train_engine = "native"


def built(kind: str, cls: Any, *, space: Any = None, **training: Any) -> Any:
    space = SPACES[kind] if space is None else space
    config = CONFIGS[kind]().environment(observation_space=OBS, action_space=space)
    config.training(**training)
    config.rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[16, 8]))
    config.learners(learner_class=cls)
    config.debugging(seed=3)
    spec = config.get_multi_rl_module_spec(spaces={MODULE: (OBS, space)})
    learner = cls(config=config, module_spec=spec)
    learner.build()
    return learner


def pair(kind: str, added: type = Nothing, **how: Any) -> tuple[Any, Any]:
    """RLlib's learner and ours, both with the methods of `added`, of one state."""
    how = {"lr": 1e-3, **how} if kind == "dqn" else {**FAST, **how}
    classes = [type("Changed", (added, each), {}) for each in (STOCK[kind], OURS[kind])]
    theirs, ours = (built(kind, each, **how) for each in classes)
    ours.set_state(theirs.get_state())
    return theirs, ours


FAST = {"actor_lr": 1e-3, "critic_lr": 1e-3, "alpha_lr": 1e-3}


def rows_of(space: Any, seed: int, count: int = 32) -> dict[str, Any]:
    """A train batch as RLlib's replay and connectors make it."""
    drawn = np.random.default_rng(seed)
    if isinstance(space, spaces.Box):
        action: Any = drawn.uniform(-1, 1, (count, *space.shape)).astype(np.float32)
    else:
        action = drawn.integers(int(space.n), size=count)
    return {
        "obs": drawn.normal(size=(count, 5)).astype(np.float32),
        "new_obs": drawn.normal(size=(count, 5)).astype(np.float32),
        "actions": action,
        "rewards": (3 * drawn.normal(size=count)).astype(np.float32),
        "terminateds": drawn.random(count) < 0.2,
        "truncateds": np.zeros(count, bool),
        "n_step": drawn.integers(1, 4, count).astype(np.float32),
        "weights": drawn.random(count).astype(np.float32),
        "weights_seq_no": np.zeros(count, np.int64),
    }


def update(learner: Any, rows: dict[str, Any], time: int = 1000, **how: Any) -> dict[Any, Any]:
    """One `update` on copies of these rows; its metrics by their places."""
    torch.manual_seed(5)
    copied = SampleBatch({name: np.array(array) for name, array in rows.items()})
    batch = MultiAgentBatch({MODULE: copied}, len(rows["obs"]))
    steps = {"num_env_steps_sampled_lifetime": time}
    return dict(metrics(learner.update(batch=batch, timesteps=steps, **how)))


def assert_equal(ours: Any, theirs: Any, found: Any = None, expected: Any = None) -> None:
    """Compares weights, targets, optimisers and perhaps metrics."""
    if found is not None:
        errors = [each.pop((MODULE, "td_error"), [np.zeros(0)]) for each in (found, expected)]
        one, other = (np.concatenate([np.asarray(each) for each in all_]) for all_ in errors)
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
        assert_equal_metrics(found, expected)
    mine, its = (each.module[MODULE].state_dict() for each in (ours, theirs))
    assert mine.keys() == its.keys()
    for name, each in mine.items():
        torch.testing.assert_close(each, its[name], rtol=0, atol=1e-5, msg=name)
    mine, its = (each.get_state()["optimizer"] for each in (ours, theirs))
    assert mine.keys() == its.keys()
    for name, state in its.items():
        assert_equal_states(mine[name]["state"]["state"], state["state"]["state"])
    if hasattr(theirs, "curr_log_alpha"):
        alphas = [each.curr_log_alpha[MODULE].detach() for each in (ours, theirs)]
        torch.testing.assert_close(*alphas, rtol=0, atol=1e-5)


def assert_equal_states(mine: Any, its: Any) -> None:
    assert mine.keys() == its.keys()
    for place, numbers in its.items():
        assert mine[place].keys() == numbers.keys()
        for name, array in numbers.items():
            np.testing.assert_allclose(mine[place][name], array, rtol=1e-3, atol=1e-5)


SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "dqn": ("dqn", {}),
    "dqn alone": ("dqn", {"double_q": False, "dueling": False}),
    "dqn double": ("dqn", {"double_q": True, "dueling": False}),
    "dqn dueling": ("dqn", {"double_q": False, "dueling": True}),
    "dqn mse": ("dqn", {"td_error_loss_fn": "mse", "gamma": 0.9}),
    "dqn clips": ("dqn", {"grad_clip": 0.1}),
    "dqn clips each": ("dqn", {"grad_clip": 0.1, "grad_clip_by": "norm"}),
    "dqn clips numbers": ("dqn", {"grad_clip": 0.01, "grad_clip_by": "value"}),
    "dqn clips nothing": ("dqn", {"grad_clip": None}),
    "dqn moves": ("dqn", {"target_network_update_freq": 0, "tau": 0.1}),
    "dqn schedule": ("dqn", {"lr": [[0, 1e-3], [3000, 1e-4]]}),
    "sac": ("sac", {}),
    "sac one critic": ("sac", {"twin_q": False}),
    "sac clips": ("sac", {"grad_clip": 0.1, "grad_clip_by": "global_norm"}),
    "sac clips each": ("sac", {"grad_clip": 0.05, "grad_clip_by": "norm"}),
    "sac cold": ("sac", {"initial_alpha": 0.1, "target_entropy": -3.0, "tau": 0.5}),
    "sac schedule": ("sac", {"actor_lr": [[0, 1e-3], [3000, 1e-4]]}),
    "discrete sac": ("discrete sac", {}),
    "discrete sac clips": ("discrete sac", {"grad_clip": 0.1, "grad_clip_by": "global_norm"}),
    "discrete sac clips each": ("discrete sac", {"grad_clip": 0.05, "grad_clip_by": "norm"}),
    "discrete sac cold": (
        "discrete sac",
        {"initial_alpha": 0.1, "target_entropy": -0.5, "tau": 0.5, "gamma": 0.9},
    ),
}


# the discrete SAC has the same settings, in a fraction of the time
LONG = {"sac clips each", "sac cold"}


@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=pytest.mark.slow if each in LONG else ()) for each in SETTINGS],
)
def test_updates_and_their_metrics_are_those_of_rllibs_learner(name: str) -> None:
    kind, how = SETTINGS[name]
    theirs, ours = pair(kind, **how)
    ours.train_engine = "native"
    for seed in range(4):
        rows = rows_of(SPACES[kind], seed)
        expected = update(theirs, rows, 1000 * seed)
        found = update(ours, rows, 1000 * seed)
        assert_equal(ours, theirs, found, expected)
    assert (ours.learner_engine, ours.why_not_native_learner) == ("native", "")


EPOCHS: list[dict[str, Any]] = [
    {"num_epochs": 2},
    {"minibatch_size": 10, "num_epochs": 2},
    {"minibatch_size": 7, "num_epochs": 3, "shuffle_batch_per_epoch": True},
]


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        pytest.param(
            kind, how, marks=pytest.mark.slow if kind == "sac" and how is not EPOCHS[1] else ()
        )
        for how in EPOCHS
        for kind in KINDS
    ],
)
def test_each_minibatch_is_a_step(kind: str, how: dict[str, Any]) -> None:
    theirs, ours = pair(kind, Nothing)
    rows = rows_of(SPACES[kind], 0)
    results = []
    for each in (theirs, ours):
        np.random.seed(1)  # noqa: NPY002
        results.append(update(each, rows, **how))
    assert_equal(ours, theirs, results[1], results[0])
    assert ours.learner_engine == "native"


@pytest.mark.parametrize("kind", KINDS)
def test_a_training_changes_sides_by_the_state_in_the_middle(kind: str) -> None:
    theirs, ours = pair(kind)
    first, second = (rows_of(SPACES[kind], seed) for seed in range(2))
    update(theirs, first)
    update(ours, first)
    # RLlib's state has no temperature
    again = [pair(kind)[0], pair(kind)[1], pair(kind)[0]]
    for learner, state in zip(again, (theirs, theirs, ours), strict=True):
        learner.set_state(state.get_state())
        update(learner, second)
    assert_equal(again[1], again[0])
    assert_equal(again[2], again[0])


def assert_torch_made(ours: Any, theirs: Any, why: str) -> None:
    assert_equal(ours, theirs)
    assert ours.learner_engine == "torch"
    assert why in ours.why_not_native_learner, ours.why_not_native_learner


# RLlib's SAC itself raises an error of a next observation that is infinite
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *(("dqn", name) for name in ("rewards", "obs", "new_obs", "weights")),
        ("sac", "weights"),
        *(pytest.param("sac", name, marks=pytest.mark.slow) for name in ("rewards", "obs")),
        *(("discrete sac", name) for name in ("rewards", "obs", "new_obs", "weights")),
    ],
)
def test_numbers_that_are_not_finite_are_left_to_torch(kind: str, name: str) -> None:
    theirs, ours = pair(kind)
    rows = rows_of(SPACES[kind], 0)
    rows[name][3] = np.inf
    for each in (theirs, ours):
        update(each, rows_of(SPACES[kind], 1))
        update(each, rows)
    assert_torch_made(ours, theirs, "nan or infinite")
    # and as many random numbers were drawn
    draws = []
    for each in (theirs, ours):
        update(each, rows)
        draws.append(torch.rand(1))
    assert draws[0] == draws[1]
    ours.train_engine = "native"
    with pytest.raises(SpecError, match="not possible: "):
        update(ours, rows)


class OwnLoss:
    def compute_loss_for_module(self, **given: Any) -> Any:
        return 2 * super().compute_loss_for_module(**given)  # type: ignore[misc]


class OwnGradients:
    def compute_gradients(self, *args: Any, **given: Any) -> Any:
        found = super().compute_gradients(*args, **given)  # type: ignore[misc]
        return {key: each if each is None else each / 2 for key, each in found.items()}


class OwnUpdate:
    def _update(self, batch: Any, **_: Any) -> Any:
        return self._uncompiled_update(batch)  # type: ignore[attr-defined]


# RLlib's SAC makes no step of what compute_loss_for_module returns
@pytest.mark.parametrize(
    ("kind", "added", "why"),
    [
        ("dqn", OwnLoss, "Changed has its own compute_loss_for_module"),
        ("dqn", OwnGradients, "Changed has its own compute_gradients"),
        ("sac", OwnGradients, "Changed has its own compute_gradients"),
        ("discrete sac", OwnGradients, "Changed has its own compute_gradients"),
    ],
)
def test_methods_of_a_subclass_are_called(kind: str, added: type, why: str) -> None:
    theirs, ours = pair(kind, added)
    rows = rows_of(SPACES[kind], 0)
    assert_equal(ours, theirs, update(ours, rows), update(theirs, rows))
    assert_torch_made(ours, theirs, why)


@pytest.mark.parametrize("kind", KINDS)
def test_a_subclass_with_its_own_update_has_it(kind: str) -> None:
    theirs, ours = pair(kind, OwnUpdate)
    rows = rows_of(SPACES[kind], 0)
    assert_equal(ours, theirs, update(ours, rows), update(theirs, rows))


@pytest.mark.parametrize("kind", KINDS)
def test_a_learner_that_ray_made_an_actor_of_is_native(kind: str) -> None:
    ours = built(kind, ray.remote(OURS[kind]).__ray_metadata__.modified_class)
    update(ours, rows_of(SPACES[kind], 0))
    assert (ours.learner_engine, ours.why_not_native_learner) == ("native", "")


def test_distributions_of_values_are_left_to_torch() -> None:
    theirs, ours = pair("dqn", num_atoms=5, v_min=-3.0, v_max=3.0)
    rows = rows_of(SPACES["dqn"], 0)
    assert_equal(ours, theirs, update(ours, rows), update(theirs, rows))
    assert_torch_made(ours, theirs, "num_atoms=5")


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"space": spaces.Discrete(3, start=1)}, "expected Discrete with numbers from 0 on"),
        ({"space": spaces.Discrete(3), "twin_q": False}, "discrete actions need twin_q"),
    ],
)
def test_discrete_actions_that_rllibs_sac_cannot_train_are_left_to_it(
    how: dict[str, Any], why: str
) -> None:
    said = []
    theirs, ours = pair("discrete sac", **how)
    for each in (theirs, ours):
        try:
            update(each, {**rows_of(how["space"], 0), "actions": np.full(32, 3)})
        except Exception as error:
            said.append(f"{type(error).__name__}: {error}")
    assert len(said) == 2 and said[0] == said[1]
    assert ours.learner_engine == "torch" and why in ours.why_not_native_learner


class Halved:
    """Values that are half of RLlib's."""

    def _qf_forward_helper(self, *args: Any) -> Any:
        found = super()._qf_forward_helper(*args)  # type: ignore[misc]
        return {**found, "qf_preds": found["qf_preds"] / 2}

    def _qf_forward_train_helper(self, *args: Any, **given: Any) -> Any:
        return super()._qf_forward_train_helper(*args, **given) / 2  # type: ignore[misc]


@pytest.mark.parametrize("kind", KINDS)
def test_a_module_with_values_of_its_own_is_trained_by_torch(kind: str) -> None:
    theirs, ours = pair(kind)
    for each in (theirs, ours):
        module = each.module[MODULE]
        module.__class__ = type("Own", (Halved, type(module)), {})
    rows = rows_of(SPACES[kind], 0)
    assert_equal(ours, theirs, update(ours, rows), update(theirs, rows))
    assert_torch_made(ours, theirs, "Own has its own _qf_forward")


def head_of(learner: Any) -> Any:
    """A trained head of a learner's module."""
    module = learner.module[MODULE]
    return module.af if hasattr(module, "af") else module.qf


@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_that_draws_is_trained_by_torch(kind: str) -> None:
    theirs, ours = pair(kind)
    for each in (theirs, ours):
        head_of(each).net.mlp.append(torch.nn.Dropout(0.5))
    rows = rows_of(SPACES[kind], 0)
    assert_equal(ours, theirs, update(ours, rows), update(theirs, rows))
    assert_torch_made(ours, theirs, "dropout")


@pytest.mark.parametrize("kind", KINDS)
def test_hooks_are_called(kind: str) -> None:
    theirs, ours = pair(kind)
    calls: list[list[int]] = [[], []]
    for each, noted in zip((theirs, ours), calls, strict=True):
        head_of(each).register_full_backward_hook(lambda *_, to=noted: to.append(1))
    rows = rows_of(SPACES[kind], 0)
    assert_equal(ours, theirs, update(ours, rows), update(theirs, rows))
    assert_torch_made(ours, theirs, "hooks")
    assert calls[0] == calls[1] != []


@pytest.mark.parametrize("kind", ["dqn", "sac"])
def test_weights_that_are_frozen_are_rllibs_affair(kind: str) -> None:
    theirs, ours = pair(kind)
    for each in (theirs, ours):
        head_of(each).requires_grad_(False)
    for seed in range(3):
        rows = rows_of(SPACES[kind], seed)
        assert_equal(ours, theirs, update(ours, rows), update(theirs, rows))
    # RLlib's SAC lets critics require gradients at its first update
    assert ours.learner_engine == "native"


@pytest.mark.parametrize("kind", KINDS)
def test_another_optimiser_is_left_to_torch(kind: str) -> None:
    class WithAdagrad:
        def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
            super().configure_optimizers_for_module(module_id, config)  # type: ignore[misc]
            for name, each in self.get_optimizers_for_module(module_id):  # type: ignore[attr-defined]
                plain = torch.optim.Adagrad(each.param_groups[0]["params"])
                self._named_optimizers[f"{module_id}_{name}"] = plain  # type: ignore[attr-defined]
                self._optimizer_parameters[plain] = self._optimizer_parameters[each]  # type: ignore[attr-defined]

    theirs, ours = pair(kind, WithAdagrad)
    rows = rows_of(SPACES[kind], 0)
    for each in (theirs, ours):
        torch.manual_seed(1)
        update(each, rows)
    assert_torch_made(ours, theirs, "the optimiser is Adagrad")


@pytest.mark.parametrize(
    ("kind", "changed", "why"),
    [
        ("dqn", {"loss_mask": np.arange(32) % 4 > 0}, "loss mask"),
        ("sac", {"loss_mask": np.arange(32) % 4 > 0}, "loss mask"),
        ("dqn", {"rewards": np.ones((32, 1), np.float32)}, "'rewards' has shape (32, 1)"),
        ("sac", {"rewards": np.ones((32, 1), np.float32)}, "'rewards' has shape (32, 1)"),
        ("dqn", {"actions": np.full(32, 7)}, "an action is not within 0 and 2"),
        ("dqn", {"actions": np.full(32, -1)}, "an action is not within 0 and 2"),
        ("discrete sac", {"actions": np.full(32, 7)}, "an action is not within 0 and 2"),
        ("discrete sac", {"n_step": None}, "no tensor 'n_step'"),
        ("dqn", {"weights": None}, "no tensor 'weights'"),
        ("sac", {"n_step": None}, "no tensor 'n_step'"),
        ("sac", {"actions": np.ones((32, 3), np.float32)}, "actions are torch.float32 of shape"),
    ],
)
def test_rows_of_another_form_are_left_to_torch(
    kind: str, changed: dict[str, Any], why: str
) -> None:
    theirs, ours = pair(kind)
    rows = {**rows_of(SPACES[kind], 0), **changed}
    rows = {name: each for name, each in rows.items() if each is not None}
    said = []
    for each in (theirs, ours):
        try:
            update(each, rows)
            said.append("")
        except Exception as error:
            said.append(f"{type(error).__name__}: {error}")
    assert said[0] == said[1]
    assert_torch_made(ours, theirs, why)


@pytest.mark.parametrize("kind", KINDS)
def test_reading_a_module_leaves_its_parts_as_they_were(kind: str) -> None:
    theirs, ours = pair(kind)
    module = ours.module[MODULE]
    before = {name: id(each) for name, each in module.named_parameters()}
    layers, modes = [*module.named_modules()], [each.training for each in module.modules()]
    torch.manual_seed(3)
    state = torch.get_rng_state()
    assert ours._choose({MODULE: as_tensors(rows_of(SPACES[kind], 0))}) is not None
    assert torch.equal(torch.get_rng_state(), state)
    assert {name: id(each) for name, each in module.named_parameters()} == before
    assert [*module.named_modules()] == layers
    assert [each.training for each in module.modules()] == modes
    assert_equal(ours, theirs)


def as_tensors(rows: dict[str, Any]) -> SampleBatch:
    return SampleBatch({name: torch.from_numpy(each) for name, each in rows.items()})


class ByTorch(rllib.RolloutsEnvRunner):
    """Lets torch compute the module, whose bits RLlib's own runner has."""

    rollout_engine = "torch"


def algorithm_of(kind: str, cls: Any) -> Any:
    config = CONFIGS[kind]().environment("CartPole-v1" if kind == "dqn" else "Pendulum-v1")
    config.env_runners(num_env_runners=0, num_envs_per_env_runner=4, env_runner_cls=ByTorch)
    config.env_runners(rollout_fragment_length=4)
    config.training(
        num_steps_sampled_before_learning_starts=64,
        target_network_update_freq=40,
        train_batch_size_per_learner=32,
        n_step=2,
    )
    config.reporting(min_sample_timesteps_per_iteration=200, min_time_s_per_iteration=0)
    config.rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[16]))
    config.learners(learner_class=cls)
    config.debugging(seed=3)
    return config.build_algo()


@pytest.mark.parametrize("kind", ["dqn", "sac"])
def test_train_logs_what_rllibs_learner_logs_and_checkpoints_are_its_own(
    kind: str, rllib_ray: Any, tmp_path: Path
) -> None:
    native = type("OnlyNative", (Native, OURS[kind]), {})
    ours, theirs = (algorithm_of(kind, each) for each in (native, STOCK[kind]))
    try:
        # RLlib's replay draws by a generator without a seed, so that numbers differ
        found, expected = (dict(metrics(each.train()["learners"])) for each in (ours, theirs))
        assert found.keys() == expected.keys()
        assert all(np.isfinite(each).all() for each in found.values())
        updates = (MODULE, "num_target_updates")
        assert found[updates] == expected[updates]
        # and torch goes on from a checkpoint of ours
        theirs.restore_from_path(ours.save_to_path(tmp_path / "end"))
        mine, its = (each.learner_group._learner.module[MODULE] for each in (ours, theirs))
        for one, other in zip(mine.parameters(), its.parameters(), strict=True):
            assert torch.equal(one, other)
        theirs.train()
    finally:
        ours.stop()
        theirs.stop()
