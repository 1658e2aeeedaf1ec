# SPDX-License-Identifier: Apache-2.0
"""The features that a collector lacks, each with the sentence that refuses it."""

from __future__ import annotations

from rollouts.errors import SpecError

# (who is collected, or who computes; feature) -> why there is no such thing
REFUSED: dict[tuple[str, str], str] = {
    ("agents", "batch_size"): (
        "environments with several agents are collected synchronously: leave batch_size out of "
        "make_vec"
    ),
    ("agents", "mask_actions"): (
        "mask_actions needs info['action_mask'], which environments with several agents do not "
        "report: leave it out"
    ),
    ("torch", "prefetch"): "prefetch=1 needs the native engine, which is not possible",
}


def refuse(where: str, feature: str, why: str = "") -> SpecError:
    """Returns the error that says why a feature is missing.

    Args:
      where, feature: A key of `REFUSED`.
      why: What is added, such as the reason for which native code does not compute.
    """
    sentence = REFUSED[where, feature]
    return SpecError(f"{sentence}: {why}" if why else sentence)
