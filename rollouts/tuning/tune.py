# SPDX-License-Identifier: Apache-2.0
"""`tune_batch`: the number of environments from which a policy collects fastest."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import rollouts.errors
from rollouts.bench.policy_kinds import default_policy, read_policy
from rollouts.checks import whole_number
from rollouts.envs.physics.supported import MEMORY_OPTIONS, PHYSICS_IDS, installed
from rollouts.envs.registry import env_spec
from rollouts.errors import EnvError, SpecError
from rollouts.machine.cpu_count import usable_cpus
from rollouts.own_env.registrations import travelling
from rollouts.specs import EnvSpec
from rollouts.support.extras import needs
from rollouts.tuning.search import BatchTuning, Trial, most_trials, search
from rollouts.tuning.trial import CPU, CollectRequest

AUTO = "auto"
ROLLOUT_LENGTHS = (32, 128)
_START_S = 5.0  # approximate start of a process with torch, and its first rollout
_FIRST = {CPU: 8, "cpu-emulation": 8}  # num_envs; 1 024 on a GPU


def tune_batch(
    id: str,
    *,
    env_options: Mapping[str, Any] | None = None,
    policy: str | None = None,
    rollout_lengths: Sequence[int] = ROLLOUT_LENGTHS,
    device: str = AUTO,
    num_threads: int | None = None,
    max_num_envs: int = 2**20,
    memory_bytes: int | None = None,
    duration_s: float = 0.5,
    repeats: int = 3,
    seed: int = 0,
    on_trial: Callable[[Trial], None] | None = None,
    on_begin: Callable[[int, float], object] | None = None,
) -> BatchTuning:
    """Collects rollouts of more and more environments, and finds the fastest sizes.

    num_envs doubles while that gains 3 % or more, and while the next size is expected to fit in
    memory. Every size is tried in a process of its own: if one is killed for its memory, only the
    search ends. There is no learner: its memory comes on top.

    Args:
      id, env_options: The environments, with one agent or several; mujoco_warp's with the options
        nconmax and njmax of `make_vec`.
      policy: The policy: "64x64" or other widths of tanh layers, "cnn", "gru", or "random"; None
        for "cnn" if observations are images, else "64x64".
      rollout_lengths: Steps T, each tried with all sizes.
      device: "cpu" for a C++ pool; "cuda", "cuda:1" or "cpu-emulation"; "auto" for "cuda" if there
        is a GPU and the environment runs on it, else "cpu", with the reason in `note`.
      num_threads: Threads of a C++ pool; None for the usable CPUs.
      max_num_envs: The largest size.
      memory_bytes: Most bytes of a process, in RAM or on a GPU; None for 80 % of the free memory.
      duration_s, repeats: Approximate duration of one repeat, and number of repeats.
      seed: Seed of environments and actions.
      on_trial: Called with each trial when it is over.
      on_begin: Called before the first trial, with the largest number of trials and the approximate
        seconds of one.

    Raises:
      SpecError: An argument is wrong, or there is no such policy for these environments.
      EngineError: torch, an engine or the GPU is missing.
      EnvError: A process ended without an answer in the first trial; the message has its last
        output.
    """
    with needs("torch", "`rollouts tune-batch`"):
        import torch
    options = dict(env_options or {})
    spec = env_spec(id, **_described(id, options))
    kind = default_policy(_obs_space(spec)) if policy is None else read_policy(policy)
    if not rollout_lengths:
        raise SpecError("rollout_lengths is empty, expected steps T such as (32, 128)")
    lengths = [
        whole_number("rollout_lengths", one, 1, 2**20) for one in dict.fromkeys(rollout_lengths)
    ]
    threads = usable_cpus() if num_threads is None else num_threads
    whole_number("num_threads", threads, 1, 2**16)
    whole_number("max_num_envs", max_num_envs, 1, 2**30)
    whole_number("repeats", repeats, 1, 10**6)
    if memory_bytes is not None:
        whole_number("memory_bytes", memory_bytes, 1, 2**62)
    if not 0 < duration_s < 3600:
        raise SpecError(f"duration_s must be above 0 and below 3600, got {duration_s}")
    note = ""
    if device == AUTO:
        device, note = choose_device(spec, has_gpu=torch.cuda.is_available())
    if device == CPU:
        env_spec(id, **options)

    def measure(num_envs: int, length: int) -> Trial:
        request = CollectRequest(
            id=travelling(id),
            env_options=options,
            policy=kind.name,
            device=device,
            num_envs=num_envs,
            rollout_length=length,
            num_threads=threads,
            duration_s=duration_s,
            repeats=repeats,
            seed=seed,
        )
        return run_trial(request)

    trials: list[Trial] = []
    stopped: dict[int, str] = {}
    first = _FIRST.get(device, 1024)
    if on_begin is not None:
        count = most_trials(lengths, first=first, most=max_num_envs)
        on_begin(count, _START_S + repeats * duration_s)
    for found in search(
        measure, lengths, first=first, most=max_num_envs, memory_bytes=memory_bytes
    ):
        if not isinstance(found, Trial):
            stopped[found[0]] = found[1]
            continue
        if found.failure and not trials:
            raise EnvError(
                f"{id}: collecting from {found.num_envs} environments failed: {found.failure}"
            )
        trials.append(found)
        if on_trial is not None:
            on_trial(found)
    return BatchTuning(id, kind.name, device, tuple(trials), stopped, note)


def run_trial(request: CollectRequest) -> Trial:
    """Runs one trial in a process of its own.

    Raises:
      RolloutsError: The error of this library that the process raised.
    """
    result = subprocess.run(
        [sys.executable, "-m", "rollouts.tuning.trial"],
        input=pickle.dumps(request),
        capture_output=True,
        check=False,
    )
    size = request.num_envs, request.rollout_length
    lines = result.stdout.decode(errors="replace").splitlines()
    if result.returncode < 0:
        hint = ", as Linux does where memory is short" if result.returncode == -9 else ""
        return Trial(*size, failure=f"killed by signal {-result.returncode}{hint}")
    if result.returncode or not lines:
        words = result.stderr.decode(errors="replace").strip().splitlines() or ["no message"]
        return Trial(*size, failure=words[-1])
    answer = json.loads(lines[-1])
    if "error" in answer:
        raise getattr(rollouts.errors, answer["error"])(answer["message"])
    if "failure" in answer:
        return Trial(*size, failure=answer["failure"])
    speeds = tuple(answer.pop("env_steps_per_s"))
    return Trial(*size, env_steps_per_s=speeds, **answer)


def _described(id: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The environment's own options, without those of mujoco_warp."""
    others = MEMORY_OPTIONS if id in PHYSICS_IDS else ()
    return {name: value for name, value in options.items() if name not in others}


def choose_device(spec: EnvSpec, *, has_gpu: bool) -> tuple[str, str]:
    """A device, and the reason if it is no GPU."""
    is_physics = spec.id in PHYSICS_IDS
    if not spec.runs_on_gpu and not is_physics:
        return CPU, f"{spec.id} does not run on a GPU: the C++ pool was tuned"
    if not has_gpu:
        return CPU, "torch finds no GPU: the C++ pool was tuned"
    if is_physics and not installed():
        return CPU, (
            f"{spec.id} runs on a GPU with mujoco_warp, which is not installed "
            "(pip install 'rollouts[mujoco-warp]'): the C++ pool was tuned"
        )
    return "cuda", ""


def _obs_space(spec: EnvSpec) -> Any:
    """The space of an environment, or of its first group of agents."""
    if spec.groups:
        return spec.groups[0].single_observation_space
    return spec.single_observation_space
