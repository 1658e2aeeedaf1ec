# SPDX-License-Identifier: Apache-2.0
"""`LearnerReader`: reads a PPO learner for native code, or says why torch has to train it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from ray.rllib.algorithms.ppo.torch.default_ppo_torch_rl_module import DefaultPPOTorchRLModule
from ray.rllib.core.columns import Columns
from ray.rllib.core.distribution.distribution import Distribution
from ray.rllib.core.distribution.torch.torch_distribution import TorchMultiCategorical
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModule
from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule
from ray.rllib.evaluation.postprocessing import Postprocessing
from ray.rllib.policy.sample_batch import SampleBatch
from torch import Tensor

from rollouts.checks import one_of
from rollouts.collecting.engine import Engine, why_slow
from rollouts.errors import SpecError
from rollouts.learner.native_learner import NativeLearner
from rollouts.learner.side_effects import put_back_if_refused
from rollouts.machine.cpu_count import usable_cpus
from rollouts.policies.foreign import Wrapped
from rollouts.policies.native import NativePolicy
from rollouts.policies.native_heads import head_of, nvec_of

from .native import HEADS

# what a loss or a step is made of, and what each minibatch goes through
_LEARNER = (
    "apply_gradients",
    "compute_gradients",
    "compute_loss_for_module",
    "compute_losses",
    "filter_param_dict_for_optimizer",
    "postprocess_gradients",
    "postprocess_gradients_for_module",
    "_compute_off_policyness",
    "_create_iterator_if_necessary",
    "_get_clip_function",
    "_get_global_norm_function",
    "_log_metrics",
    "_log_steps_trained_metrics",
    "_set_slicing_by_batch_id",
    "_uncompiled_update",
    "_update",
)
_MODULE = (
    "compute_values",
    "forward_train",
    "get_exploration_action_dist_cls",
    "get_train_action_dist_cls",
    "_forward",
    "_forward_exploration",
    "_forward_train",
)
_COLUMNS = (
    Columns.OBS,
    Columns.ACTIONS,
    Columns.ACTION_LOGP,
    Columns.ACTION_DIST_INPUTS,
    Postprocessing.ADVANTAGES,
    Postprocessing.VALUE_TARGETS,
)
# columns of one number for each row
_NUMBERS = (
    Columns.ACTION_LOGP,
    Columns.LOSS_MASK,
    Postprocessing.ADVANTAGES,
    Postprocessing.VALUE_TARGETS,
)


class LearnerReader:
    """A learner's module and optimiser for native code, read again when they are other ones."""

    def __init__(self, wanted: Engine, base: type) -> None:
        """Takes the engine and the class whose methods native code stands for.

        Raises:
          SpecError: `wanted` is no engine.
        """
        one_of("train_engine", wanted, ("auto", "native", "torch"))
        # what the last update was made with: "native" or "torch", and why not native
        self.engine, self.why_not = "", ""
        self._wanted, self._base = wanted, base
        self._native: NativeLearner | None = None
        self._seen: tuple[Any, ...] = ()

    def choose(self, learner: Any, batch: Any) -> NativeLearner | None:
        """Returns what trains on a batch; None for the learner's own way.

        Raises:
          SpecError: train_engine is "native", and not possible.
        """
        native: NativeLearner | None = None
        if self._wanted == "torch":
            why_not = "train_engine='torch' was asked for"
        else:
            own = _own(learner, self._base, _LEARNER)
            why_not = f"{type(learner).__name__} has its own {own}" if own else ""
            why_not = why_not or _why_not(learner, batch)
        if not why_not and self._wanted == "auto":
            why_not = why_slow()
        if not why_not:
            native, why_not = self._read(learner)
        if why_not:
            self.give_up(SpecError(why_not))
        else:
            self.engine, self.why_not = "native", ""
        return native

    def give_up(self, error: SpecError) -> None:
        """Leaves an update to torch; raises SpecError where native code has to make it."""
        if self._wanted == "native":
            raise SpecError(f"train_engine='native' is not possible: {error}") from error
        self.engine, self.why_not = "torch", str(error)

    def _read(self, learner: Any) -> tuple[NativeLearner | None, str]:
        ((module_id, module),) = learner.module.items()
        ((_, optimizer),) = learner.get_optimizers_for_module(module_id)
        seen = (module, optimizer, *module.modules())
        try:
            if self._seen == seen and self._native and self._native.is_as_read():
                return self._native, ""
            self._seen, self._native = seen, None
            with put_back_if_refused(module):
                policy = NativePolicy.from_torch(
                    _Trained(module), module.action_space, module.observation_space
                )
                self._native = NativeLearner(policy, optimizer, _num_threads(learner.config))
        except SpecError as error:
            return None, str(error)
        return self._native, ""


class _Trained(Wrapped):
    """Returns (logits, value) or (mean, log_std, value) as the loss takes them."""

    def forward(self, obs: Tensor) -> tuple[Tensor, ...]:
        batch = {Columns.OBS: obs}
        output = self.module._forward_train(batch)
        value = self.module.compute_values(batch, embeddings=output.get(Columns.EMBEDDINGS))
        inputs = output[Columns.ACTION_DIST_INPUTS]
        is_box = isinstance(self.module.action_space, spaces.Box)
        return (*inputs.chunk(2, -1), value) if is_box else (inputs, value)


def _num_threads(config: Any) -> int:
    """All CPUs in the algorithm's process; in one of its own, those that Ray gives it.

    No more than torch's threads, which a user may have limited.
    """
    cpus = usable_cpus() if config.num_learners == 0 else config.num_cpus_per_learner
    return max(1, min(cpus, torch.get_num_threads())) if isinstance(cpus, int) else 1


def _why_not(learner: Any, batch: Any) -> str:
    """The part of a learner that native code does not train; "" for nothing."""
    if len(learner.module) != 1 or batch is None or len(batch.policy_batches) != 1:
        return f"the learner has {len(learner.module)} modules, expected one, and rows of it"
    ((module_id, module),) = learner.module.items()
    return (
        _why_not_learner(learner, module_id)
        or _why_not_module(learner.module, module)
        or _why_not_batch(batch.policy_batches[module_id])
    )


def _why_not_learner(learner: Any, module_id: str) -> str:
    config = learner.config.get_config_for_module(module_id)
    if config.num_learners > 1:
        return f"num_learners={config.num_learners}, whose gradients torch averages"
    if learner.device != torch.device("cpu"):
        return f"the learner is on {learner.device}, expected the CPU"
    settings = {
        "torch_compile_learner": "compiles the update",
        "_torch_grad_scaler_class": "scales gradients",
        "_torch_lr_scheduler_classes": "changes the learning rate at each step",
        "log_gradients": "logs gradients",
    }
    for name, does in settings.items():
        if getattr(config, name):
            return f"{name}={getattr(config, name)} {does}, which native code does not"
    if not config.use_critic:
        return "use_critic=False, without which native code has no loss"
    if len(learner.get_optimizers_for_module(module_id)) != 1:
        return "the module has several optimisers, expected one"
    return ""


def _why_not_module(modules: Any, module: Any) -> str:
    if type(modules) is not MultiRLModule:
        return f"the modules are a {type(modules).__name__}, expected MultiRLModule"
    if not isinstance(module, TorchRLModule):
        return f"the module is a {type(module).__name__}, expected a TorchRLModule"
    if module.is_stateful():
        return "the RLModule is stateful, which NativeLearner does not train"
    if own := _own(module, DefaultPPOTorchRLModule, _MODULE):
        return f"{type(module).__name__} has its own {own}"
    if not isinstance(module.action_space, spaces.Discrete | spaces.Box | spaces.MultiDiscrete):
        return f"actions are of {module.action_space}, expected Discrete, MultiDiscrete or Box"
    if np.any(getattr(module.action_space, "start", 0)):
        return f"actions are of {module.action_space}, expected numbers from 0 on"
    expected = head_of(module.action_space).kind
    for dist in (module.get_train_action_dist_cls(), module.get_exploration_action_dist_cls()):
        if _head_of(dist, module.action_space) != expected:
            return f"actions are drawn from {dist.__name__}, expected RLlib's {expected}"
    return ""


def _head_of(dist: Any, space: Any) -> str | None:
    """The name of a distribution of RLlib's in native code; None: it has none."""
    # RLlib makes a class for each space
    is_made = dist.__module__ == Distribution.__module__
    if is_made and dist.__bases__ == (TorchMultiCategorical,):
        sizes = np.ravel(dist._merge_kwargs().get("input_lens", ()))
        return "multi_categorical" if list(sizes) == nvec_of(space) else None
    return HEADS.get(dist)


def _why_not_batch(rows: Any) -> str:
    missing = [name for name in _COLUMNS if not isinstance(rows.get(name), torch.Tensor)]
    if missing:
        return f"the batch has no tensor {missing[0]!r}"
    if SampleBatch.SEQ_LENS in rows:
        return "the batch has sequences"
    for name in _NUMBERS:
        if name in rows and rows[name].dim() != 1:
            # torch would broadcast them against each other
            return f"{name!r} has shape {tuple(rows[name].shape)}, expected one number for each row"
    if Columns.LOSS_MASK in rows and rows[Columns.LOSS_MASK].dtype != torch.bool:
        return f"the loss mask is of {rows[Columns.LOSS_MASK].dtype}, expected torch.bool"
    return ""


def _own(given: Any, base: type, names: tuple[str, ...]) -> str:
    """The method that is another one than the base's; "" for none."""
    for name in names:
        if name in vars(given) or getattr(type(given), name, None) is not getattr(base, name):
            return name
    return ""
