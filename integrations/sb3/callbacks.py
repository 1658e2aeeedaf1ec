# SPDX-License-Identifier: Apache-2.0
"""Finds out whether callbacks may read the local variables of a rollout."""

from __future__ import annotations

from typing import Any

from ..shared.missing import needs

try:
    from stable_baselines3.common import callbacks
except ImportError as error:
    raise needs("sb3", error) from error

# these read only steps and the model; the callbacks that they contain are checked one by one
_BLIND = (
    callbacks.CallbackList,
    callbacks.CheckpointCallback,
    callbacks.EvalCallback,
    callbacks.EventCallback,
    callbacks.EveryNTimesteps,
    callbacks.ProgressBarCallback,
    callbacks.StopTrainingOnNoModelImprovement,
    callbacks.StopTrainingOnRewardThreshold,
)


def reads_locals(callback: Any) -> bool:
    """Tells if a callback may read `locals`, such as the infos of a step.

    Args:
      callback: The callback of `collect_rollouts`. Any callback may read them, except those of
        Stable-Baselines3 that do not; subclasses of these may, too.
    """
    if type(callback) is callbacks.ConvertCallback:
        return callback.callback is not None
    if type(callback) not in _BLIND:
        return True
    inner = [*getattr(callback, "callbacks", ())]
    inner += [getattr(callback, name, None) for name in ("callback", "callback_on_new_best")]
    return any(reads_locals(one) for one in inner if one is not None)
