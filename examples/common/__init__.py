# SPDX-License-Identifier: Apache-2.0
"""Code that the programs of this folder share: runs, checkpoints, the replay loop, evaluation."""

from importlib.util import find_spec

# missing libraries are named in one sentence, before a program begins
_missing = [
    name for name in ("matplotlib", "tensorboard", "torch", "tqdm") if find_spec(name) is None
]
if _missing:
    raise SystemExit(
        f"error: the programs in examples/ need {', '.join(_missing)}, not installed here: "
        "pip install 'rollouts[examples]'"
    )
