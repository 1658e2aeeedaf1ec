# SPDX-License-Identifier: Apache-2.0
"""Reads RLlib's learners for gradient steps in native code, and finds what it cannot train."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic

import torch
from ray.rllib.core.rl_module.apis.self_supervised_loss_api import SelfSupervisedLossAPI
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModule
from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule
from ray.rllib.policy.sample_batch import SampleBatch

from rollouts.errors import SpecError
from rollouts.learner.native_learner import ClipBy
from rollouts.machine.cpu_count import usable_cpus

from ..shared.native_training import Made, Networks, ReadsTrainer, own_method

# the methods of a learner that compute a loss or make a step
STEP = (
    "apply_gradients",
    "compute_gradients",
    "compute_loss_for_module",
    "compute_losses",
    "filter_param_dict_for_optimizer",
    "postprocess_gradients",
    "postprocess_gradients_for_module",
    "_get_clip_function",
    "_get_global_norm_function",
    "_uncompiled_update",
    "_update",
)
_CLIP_BY: dict[str, ClipBy] = {"global_norm": "all", "norm": "each", "value": "element"}


@dataclass(frozen=True, slots=True)
class LearnerKind(Generic[Made]):
    """An algorithm's learner in native code.

    Attributes:
      methods: Methods of the learner that native code replaces.
      find_reason: Takes a learner, the id of its module and its rows, and names what native code
        cannot train; "" for nothing.
      make: Reads a learner's module of this id.
      others: Objects beside the module's layers and its optimisers that `make` reads.
    """

    methods: tuple[str, ...]
    find_reason: Callable[[Any, str, Any], str]
    make: Callable[[Any, str], Made]
    others: Callable[[Any, str], tuple[Any, ...]] = lambda learner, module_id: ()


class NativeUpdates(ReadsTrainer[Made]):
    """A mixin to list before a TorchLearner of one kind: its gradient steps in native code.

    What native code does not have stays with torch: stateful modules and layers such as
    convolutions, several modules, several learners, GPUs, methods that a subclass overrides.
    `learner_engine` is the engine of the last steps, `why_not_native_learner` the reason for torch.

    A subclass decides `train_engine`.
    """

    # given by the subclass: the learner whose methods native code replaces
    _kind: ClassVar[LearnerKind[Any]]

    # attributes of the learner that this is mixed into
    module: Any
    get_optimizers_for_module: Any

    def _choose(self, rows: Mapping[str, Any] | None) -> Made | None:
        """Returns the trainer for `rows`, given by module; None where torch makes the steps.

        Raises:
          SpecError: train_engine is "native", and native code cannot train the learner.
        """
        return self._reader.choose(
            self.train_engine,
            lambda: _why_not(self, self._kind, rows),
            self._find_networks,
            lambda: self._kind.make(self, *self.module.keys()),
        )

    def _find_networks(self) -> Networks:
        ((module_id, module),) = self.module.items()
        optimizers = [each for _, each in self.get_optimizers_for_module(module_id)]
        return Networks(module, optimizers, self._kind.others(self, module_id))

    def _give_up(self, error: SpecError) -> None:
        self._reader.give_up(self.train_engine, error)


def num_threads(config: Any) -> int:
    """The number of threads: all CPUs in the algorithm's process, Ray's share in a learner's own.

    It is at most torch's number of threads, which a user may have limited.
    """
    cpus = usable_cpus() if config.num_learners == 0 else config.num_cpus_per_learner
    return max(1, min(cpus, torch.get_num_threads())) if isinstance(cpus, int) else 1


def clip_of(config: Any) -> tuple[float | None, ClipBy]:
    """The limit of gradients and what it bounds, as NativeLearner and LossLearner take them."""
    if not config.grad_clip:
        return None, "all"
    return config.grad_clip, _CLIP_BY[config.grad_clip_by]


def log_norms(learner: Any, module_id: str, norms: Mapping[str, float]) -> None:
    """Logs the norms of an update's gradients, by optimiser, where RLlib does."""
    config = learner.config.get_config_for_module(module_id)
    if config.grad_clip and config.grad_clip_by == "global_norm":
        for name, norm in norms.items():
            key = (module_id, f"gradients_{name}_global_norm")
            learner.metrics.log_value(key, norm, window=1)


def why_not_rows(rows: Any, columns: tuple[str, ...], numbers: tuple[str, ...]) -> str:
    """The column that native code cannot train with; "" for none.

    Args:
      rows: A train batch of one module.
      columns: Columns that must be there.
      numbers: Columns that have one number for each row; they may be missing.
    """
    missing = [name for name in columns if not isinstance(rows.get(name), torch.Tensor)]
    if missing:
        return f"the batch has no tensor {missing[0]!r}"
    if SampleBatch.SEQ_LENS in rows:
        return "the batch has sequences"
    for name in numbers:
        if name in rows and rows[name].dim() != 1:
            # torch would broadcast such columns against each other
            return f"{name!r} has shape {tuple(rows[name].shape)}, expected one number for each row"
    return ""


def _why_not(learner: Any, kind: LearnerKind[Any], rows: Mapping[str, Any] | None) -> str:
    """Names what native code cannot train of a learner; "" for nothing."""
    base = next(each for each in type(learner).__mro__ if "_kind" in vars(each))
    if own := own_method(learner, base, kind.methods):
        return f"{type(learner).__name__} has its own {own}"
    if len(learner.module) != 1 or rows is None or rows.keys() != learner.module.keys():
        return f"the learner has {len(learner.module)} modules, expected one, and rows of it"
    ((module_id, module),) = learner.module.items()
    return (
        _why_not_learner(learner, module_id)
        or _why_not_module(learner.module, module)
        or kind.find_reason(learner, module_id, rows[module_id])
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
    return ""


def _why_not_module(modules: Any, module: Any) -> str:
    if type(modules) is not MultiRLModule:
        return f"the modules are a {type(modules).__name__}, expected MultiRLModule"
    if not isinstance(module, TorchRLModule):
        return f"the module is a {type(module).__name__}, expected a TorchRLModule"
    if isinstance(module, SelfSupervisedLossAPI):
        return f"{type(module).__name__} computes a loss of its own"
    if module.is_stateful():
        return "the RLModule is stateful, which NativeLearner does not train"
    return ""
