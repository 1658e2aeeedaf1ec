# SPDX-License-Identifier: Apache-2.0
"""Prints the host's CPU time of a launched step, by a driver that does nothing.

    python tests/device/launch_cost.py

`env.step` of a GPU's pool on tensors of the host: everything but the driver's own time. "engine" is
without the dicts that a face makes of the arrays. The least of 20 turns counts; the machine
should be quiet.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rollouts

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

from standin_driver import StandInDriver

_CALLS, _TURNS = 2000, 20


def _microseconds(call: Callable[[], Any]) -> float:
    turns = []
    for _ in range(_TURNS):
        began = time.thread_time_ns()
        for _ in range(_CALLS):
            call()
        turns.append((time.thread_time_ns() - began) / _CALLS / 1000)
    return min(turns)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        driver = StandInDriver(Path(folder))
        for id in ("CartPole-v1", "TagGridWorld-v0"):
            env: Any = rollouts.make_vec(
                id, 64, device="cpu-emulation", seed=0, autoreset_mode="same_step"
            )
            env.reset()
            drawn = env.rollout(1, "random", record=True)[4]["action"]
            if isinstance(drawn, dict):
                actions = {name: one[0] for name, one in drawn.items()}
                of_engine = [*actions.values()]
            else:
                actions = of_engine = drawn[0]
            driver.take_over(env, runs=False)
            whole = _microseconds(lambda env=env, actions=actions: env.step(actions))
            engine = _microseconds(lambda env=env, own=of_engine: env.engine.step(own, None, None))
            print(f"{id}: env.step {whole:.2f} us, engine {engine:.2f} us")
            env.close()


if __name__ == "__main__":
    main()
