# SPDX-License-Identifier: Apache-2.0
"""`train` of PPO and A2C in native code, and when that is possible."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from rollouts.collecting.policy_engine import Engine
from rollouts.learner.native_learner import (
    Losses,
    NativeLearner,
    PolicyGradientLoss,
    PpoLoss,
)
from rollouts.machine.cpu_count import usable_cpus
from rollouts.policies.native import NativePolicy

from ..shared.missing import needs
from ..shared.native_training import Networks, TrainerReader, has_hooks
from .native_off_policy import OFF_POLICY_KINDS, ModelTrainer, TrainerKind, lacking_in
from .native_rollouts import check_engine

try:
    from stable_baselines3 import A2C, PPO
    from stable_baselines3.common.buffers import RolloutBuffer
    from stable_baselines3.common.policies import ActorCriticPolicy
    from stable_baselines3.common.utils import explained_variance
except ImportError as error:
    raise needs("sb3", error) from error

Array = NDArray[Any]


class NativeTraining:
    """A mixin to list before PPO, A2C, DQN, SAC, TD3 or DDPG: gradient steps in native code.

    `train` makes the same steps as the algorithm's own `train`, to rounding: the same minibatches,
    loss, optimiser and logs, on the same parameters, without torch's dispatch.
    `train_engine="auto"` leaves to torch what native code lacks: layers such as convolutions and
    dropout, another optimiser than Adam, AdamW, RMSprop or SGD, gSDE, other rollout buffers, a
    policy on a GPU; off policy also observations other than Box, batch normalisation, and an
    extractor with weights that actor and critic share. `learner_engine` is the engine of the last
    steps, and `why_not_native_learner` the reason why torch made them.

    Native steps set no `.grad`. NaN rewards raise SpecError, where Stable-Baselines3 goes on.
    Densities of a saturated or very narrow SAC actor are exact where Stable-Baselines3's float32
    rounds, so that results differ visibly there.
    """

    def __init__(self, *args: Any, train_engine: Engine = "auto", **kwargs: Any) -> None:
        """Takes the arguments of its base classes and one more.

        Args:
          train_engine: Maker of gradient steps: "native", "torch", or "auto": native code where
            that is possible.

        Raises:
          SpecError: As the base classes. `learn` raises it where "native" is not possible.
        """
        self.train_engine: str = check_engine(train_engine, "train_engine")
        self._trainer: TrainerReader[ModelTrainer] = TrainerReader()
        super().__init__(*args, **kwargs)

    def train(self, *args: Any, **kwargs: Any) -> None:
        """Makes the gradient steps of one call; takes what the algorithm's own `train` takes."""
        theirs = super().train  # type: ignore[misc]
        trainer = choose_trainer(self._trainer, self, theirs)
        if trainer is None:
            theirs(*args, **kwargs)
            return
        given = inspect.signature(theirs).bind(*args, **kwargs)
        given.apply_defaults()
        trainer.train(self, **given.arguments)

    @property
    def learner_engine(self) -> str:
        """The engine of the last gradient steps: "native" or "torch"; "" before the first."""
        return self._trainer.engine

    @property
    def why_not_native_learner(self) -> str:
        """The reason why torch made the last gradient steps; "" where it did not."""
        return self._trainer.why_not

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "_trainer"]  # type: ignore[misc]


def choose_trainer(
    reader: TrainerReader[ModelTrainer], model: Any, theirs: Any
) -> ModelTrainer | None:
    """Returns the trainer of a model's next steps; None for the algorithm's own method.

    Args:
      reader: The model's reader.
      model: The model.
      theirs: The algorithm's `train` without native code.

    Raises:
      SpecError: model.train_engine is no engine, or it is "native" and not possible.
    """
    kind = _KINDS.get(getattr(theirs, "__func__", None)) or _unknown(theirs)

    def find_networks() -> Networks:
        # in training mode, because layers such as dropout act only in it
        model.policy.set_training_mode(True)
        parts = kind.parts_of(model)
        optimizers = [each for each in parts if isinstance(each, torch.optim.Optimizer)]
        return Networks(model.policy, optimizers, parts)

    return reader.choose(
        model.train_engine,
        lambda: kind.find_reason(model),
        find_networks,
        lambda: kind.make(model),
    )


class _OnPolicyTrainer:
    """PPO's and A2C's gradient steps."""

    def __init__(self, model: Any) -> None:
        policy = NativePolicy.from_torch(model.policy, model.action_space, model.observation_space)
        self._learner = NativeLearner(policy, model.policy.optimizer, usable_cpus())
        self._train = train_ppo if isinstance(model, PPO) else train_a2c

    def is_as_read(self) -> bool:
        """See `NativeTrainer`."""
        return self._learner.is_as_read()

    def train(self, model: Any) -> None:
        """Trains as the algorithm's own `train`, with gradient steps in native code."""
        self._train(self._learner, model)


def train_ppo(learner: NativeLearner, model: Any) -> None:
    """As `PPO.train`: the same minibatches, losses, steps and logs."""
    policy, buffer = model.policy, model.rollout_buffer
    model._update_learning_rate(policy.optimizer)
    clip_range = float(model.clip_range(model._current_progress_remaining))
    value_clip = model.clip_range_vf
    if value_clip is not None:
        value_clip = float(value_clip(model._current_progress_remaining))
    loss = PpoLoss(
        clip_range=clip_range,
        value_clip_range=value_clip,
        value_loss="clipped",
        value_weight=model.vf_coef,
        entropy_weight=model.ent_coef,
        normalize_advantage=model.normalize_advantage,
        target_kl=None if model.target_kl is None else 1.5 * model.target_kl,
    )
    rows = _rows(model, buffer)
    count = len(rows["obs"])
    epochs: list[Losses] = []
    for epoch in range(model.n_epochs):
        # the same draw as in the buffer's own `get`
        order = np.random.permutation(count)  # noqa: NPY002
        batch = model.batch_size or count
        found = learner.update(
            rows, order, minibatch=batch, loss=loss, max_grad_norm=model.max_grad_norm
        )
        epochs.append(found)
        model._n_updates += 1
        if found.num_steps < -(-count // batch):
            if model.verbose >= 1:
                far = found.approx_kl[-1]
                print(f"Early stopping at step {epoch} due to reaching max kl: {far:.2f}")
            break
    _log_ppo(model, epochs, loss)


def train_a2c(learner: NativeLearner, model: Any) -> None:
    """Does as `A2C.train`: one step on the whole rollout."""
    model._update_learning_rate(model.policy.optimizer)
    loss = PolicyGradientLoss(
        value_weight=model.vf_coef,
        entropy_weight=model.ent_coef,
        normalize_advantage=model.normalize_advantage,
    )
    rows = _rows(model, model.rollout_buffer)
    count = len(rows["obs"])
    # the same draw as in the buffer's own `get`
    order = np.random.permutation(count)  # noqa: NPY002
    found = learner.update(
        rows, order, minibatch=count, loss=loss, max_grad_norm=model.max_grad_norm
    )
    model._n_updates += 1
    record = model.logger.record
    record("train/n_updates", model._n_updates, exclude="tensorboard")
    _log_fit(model)
    record("train/entropy_loss", -float(found.entropy[0]))
    record("train/policy_loss", float(found.policy_loss[0]))
    record("train/value_loss", float(found.value_loss[0]))


def _rows(model: Any, buffer: Any) -> dict[str, Array]:
    """The buffer's rows in the order and layout that its own `get` gives them."""
    if not buffer.generator_ready:
        names = ("observations", "actions", "values", "log_probs", "advantages", "returns")
        for name in names:
            setattr(buffer, name, buffer.swap_and_flatten(getattr(buffer, name)))
        buffer.generator_ready = True
    return {
        "obs": buffer.observations.reshape(len(buffer.observations), -1),
        "action": buffer.actions,
        "log_prob": buffer.log_probs,
        "value": buffer.values,
        "advantage": buffer.advantages,
        "target": buffer.returns,
    }


def _log_fit(model: Any) -> None:
    buffer = model.rollout_buffer
    explained = explained_variance(buffer.values.flatten(), buffer.returns.flatten())
    model.logger.record("train/explained_variance", explained)
    if hasattr(model.policy, "log_std"):
        model.logger.record("train/std", torch.exp(model.policy.log_std).mean().item())


def _log_ppo(model: Any, epochs: list[Losses], loss: PpoLoss) -> None:
    record = model.logger.record

    def mean(name: str) -> Any:
        return np.mean(np.concatenate([getattr(each, name) for each in epochs]))

    last = epochs[-1]
    total = last.policy_loss[-1] - loss.entropy_weight * last.entropy[-1]
    record("train/entropy_loss", -mean("entropy"))
    record("train/policy_gradient_loss", mean("policy_loss"))
    record("train/value_loss", mean("value_loss"))
    # the algorithm, too, logs these values of the last epoch
    record("train/approx_kl", np.mean(last.approx_kl))
    record("train/clip_fraction", mean("clip_fraction"))
    record("train/loss", float(total + loss.value_weight * last.value_loss[-1]))
    _log_fit(model)
    record("train/n_updates", model._n_updates, exclude="tensorboard")
    record("train/clip_range", loss.clip_range)
    if loss.value_clip_range is not None:
        record("train/clip_range_vf", loss.value_clip_range)


def _why_not(model: Any) -> str:
    """The part of a model that native code does not train; "" for nothing."""
    policy, buffer, space = model.policy, model.rollout_buffer, model.action_space
    if type(buffer) is not RolloutBuffer:
        return (
            f"the rollout buffer is a {type(buffer).__name__}, expected Stable-Baselines3's own "
            "RolloutBuffer"
        )
    if model.max_grad_norm is None:
        return "max_grad_norm is None, which Stable-Baselines3's own train refuses"
    if model.use_sde:
        return "use_sde=True draws noise that native code does not have"
    if not isinstance(space, spaces.Discrete | spaces.Box | spaces.MultiDiscrete):
        return f"actions are of {space}, expected Discrete, MultiDiscrete or Box"
    if np.any(getattr(space, "start", 0)):
        return f"actions are of {space}, expected numbers from 0 on"
    own = [
        name
        for name in ("evaluate_actions", "set_training_mode", "extract_features")
        if getattr(type(policy), name) is not getattr(ActorCriticPolicy, name)
        or name in vars(policy)
    ]
    if own:
        return f"{type(policy).__name__} has its own {own[0]}"
    if any(map(has_hooks, policy.modules())):
        return "a layer has hooks, which native code would not call"
    return lacking_in(policy.optimizer, policy)


_ON_POLICY = TrainerKind(
    _why_not, parts_of=lambda model: (model.policy.optimizer,), make=_OnPolicyTrainer
)


def _unknown(theirs: Any) -> TrainerKind:
    """The kind of an algorithm that native code does not train."""
    name = getattr(theirs, "__qualname__", theirs)
    return replace(_ON_POLICY, find_reason=lambda _: f"{name} is not the library's own train")


_KINDS = {PPO.train: _ON_POLICY, A2C.train: _ON_POLICY, **OFF_POLICY_KINDS}
