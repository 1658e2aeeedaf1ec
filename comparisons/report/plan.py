# SPDX-License-Identifier: Apache-2.0
"""Sections of the report: measures, peers, and what is fair and unfair about them.

Each measure is a command that anybody can type; `--quick` runs those with `quick`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from comparisons.report.mujoco_tasks import MUJOCO_TASKS, SUITE_TASKS

Plot = Literal["lines", "bars"]


@dataclass(frozen=True, slots=True)
class Measure:
    """One command.

    Attributes:
      arguments: Arguments of `rollouts`, without --peer and --json.
      peers: Names of `rollouts.bench.all_peers`; those that are not installed are left out.
      needs: Modules that the whole measure needs.
      timeout_s: Seconds after which the command is ended.
      quick: Whether `--quick` runs it.
      full: Whether the full report does.
    """

    arguments: tuple[str, ...]
    peers: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    timeout_s: float = 420.0
    quick: bool = False
    full: bool = True


@dataclass(frozen=True, slots=True)
class Section:
    """One question, the measures that answer it, and how fair they are.

    Attributes:
      name: Name of its files and of --only.
      title: Its heading.
      question: The meaning of the figures.
      fair, unfair: What is the same for all, and what is not.
      measures: Commands, in this order.
      plot: Lines over num_envs, or bars.
    """

    name: str
    title: str
    question: str
    fair: str
    unfair: str
    measures: tuple[Measure, ...]
    plot: Plot = "bars"


def _measure(line: str, *peers: str, needs: str = "", **fields: Any) -> Measure:
    return Measure(tuple(line.split()), peers, tuple(needs.split()), **fields)


def _short(line: str, *peers: str, needs: str = "") -> Measure:
    """A measure of the quick report alone."""
    return _measure(line, *peers, needs=needs, quick=True, full=False)


# turns of one library: five are enough for a median on a shared machine
_TURNS = "--repeats 5 --duration-s 0.5"
_SHORT = "--repeats 3 --duration-s 0.3"

SECTIONS = (
    Section(
        "pools",
        "Stepping: number of environments and threads",
        "How many env-steps per second a pool makes of cheap environments, where calls count.",
        "The same random actions, drawn before; the same number of threads for all that have "
        "threads; turns of half a second in one process; autoreset of the next step everywhere.",
        "Gymnasium's SyncVectorEnv is Python in one thread, with which most programs begin. "
        "PufferLib has another Gymnasium, in a process of its own that is stopped meanwhile; its "
        "workers spin, and so does the process that they work for. "
        "Nobody waits for a policy here: see the collectors for that.",
        (
            _measure(
                f"bench --env-id CartPole-v1 --num-envs 1 8 64 1024 --num-threads 1 2 {_TURNS}",
                *("envpool", "gymnasium", "rollouts-hosted", "pufferlib"),
            ),
            _short(
                f"bench --env-id CartPole-v1 --num-envs 8 64 1024 --num-threads 1 {_SHORT}",
                *("envpool", "gymnasium"),
            ),
        ),
        plot="lines",
    ),
    Section(
        "families",
        "Stepping: families of environments",
        "The same for one environment or two of each family, at sizes that people train with.",
        "As above. Each library makes the environment with the same options, which the JSON file "
        "lists in its own words. Atari runs on our own engine; rollouts-ale is ALE's in our pool.",
        "EnvPool's tasks are older versions of Gymnasium's in places; what differs is said in the "
        "row's note. An Atari env-step is four frames for all. mujoco-batch is MuJoCo's own "
        "batched stepper with observations, ends and resets by NumPy; it makes no rewards, infos, "
        "final observations or contact forces.",
        (
            _measure(
                f"bench --env-id Pendulum-v1 --num-envs 1024 {_TURNS}", "envpool", "gymnasium"
            ),
            _measure(
                f"bench --env-id FrozenLake-v1 --num-envs 1024 {_TURNS}", "envpool", "gymnasium"
            ),
            _measure(
                f"bench --env-id ALE/Pong-v5 --env-id ALE/Breakout-v5 --num-envs 16 {_TURNS}",
                *("rollouts-ale", "envpool", "ale"),
                needs="ale_py",
            ),
            *(
                _measure(
                    f"bench --env-id {tasks} --num-envs 16 {_TURNS}",
                    *("envpool", "mujoco-batch"),
                    needs=needs,
                )
                for tasks, needs in ((MUJOCO_TASKS, "mujoco"), (SUITE_TASKS, "dm_control"))
            ),
            _measure(
                f"bench --env-id HalfCheetah-v5 --num-envs 16 --max-episode-steps 0 {_TURNS}",
                "mujoco",
                needs="mujoco",
            ),
            _measure(
                f"bench --env-id LunarLander-v3 --env-id BipedalWalker-v3 --num-envs 64 {_TURNS}",
                *("envpool", "gymnasium"),
                needs="Box2D",
            ),
            _measure(
                f"bench --env-id CarRacing-v3 --num-envs 8 {_TURNS}",
                *("envpool", "gymnasium"),
                needs="Box2D",
            ),
            _measure(
                "bench --env-id MiniGrid-Empty-8x8-v0 --env-id MiniGrid-DoorKey-8x8-v0 "
                f"--env-id BabyAI-GoToLocal-v0 --num-envs 1024 {_TURNS}",
                *("envpool", "gymnasium"),
                needs="minigrid",
            ),
            _measure(
                f"bench --env-id MiniGrid-DoorKey-8x8-v0 --option observation=rgb {_TURNS}",
                "gymnasium",
                needs="minigrid",
            ),
            _short(
                f"bench --env-id ALE/Pong-v5 --num-envs 8 {_SHORT}",
                "envpool",
                "ale",
                needs="ale_py",
            ),
            _short(f"bench --env-id Ant-v5 --num-envs 8 {_SHORT}", "envpool", needs="mujoco"),
        ),
    ),
    Section(
        "async",
        "Stepping: send and recv",
        "What is gained where a call takes the environments that are ready first.",
        "As above; each library hands out half of the environments at a time.",
        "Random actions make environments equally slow; real stragglers gain more.",
        (
            _measure(
                f"bench --env-id ALE/Pong-v5 --num-envs 16 --batch-size N/2 {_TURNS}",
                *("rollouts-ale", "envpool", "ale"),
                needs="ale_py",
            ),
            _measure(
                "bench --env-id Ant-v5 Hopper-v5 Walker2d-v5 --num-envs 16 --batch-size N/2 "
                f"{_TURNS}",
                "envpool",
                needs="mujoco",
            ),
        ),
    ),
    Section(
        "latency",
        "Latency of one call",
        "Percentiles of the time that one `step` of all environments takes.",
        "Every call is timed for itself, the libraries taking turns in one process.",
        "The highest percentiles are the machine's as much as the library's: other processes, "
        "interrupts and the garbage collector are in them.",
        (
            _short("bench latency --env-id CartPole-v1 --num-envs 64", "envpool", "gymnasium"),
            _measure(
                "bench latency --env-id ALE/Pong-v5 --num-envs 8", "envpool", "ale", needs="ale_py"
            ),
            _measure(
                "bench latency --env-id HalfCheetah-v5 --num-envs 16", "envpool", needs="mujoco"
            ),
        ),
    ),
    Section(
        "collecting",
        "Collecting with a policy",
        "What a learner receives: observations, actions, log-probabilities and values of a policy "
        "of two layers of 64.",
        "A network of the same size acts in each; torch has the number of threads that is best "
        "beside a pool, and the same for all in this process.",
        "Ours is computed by the pool's threads where the row says native; torch rows call torch "
        "every step. The row without a policy is what stepping alone allows. TorchRL's and Sample "
        "Factory's collectors are asynchronous, over Gymnasium's Python environments; Sample "
        "Factory's has as many worker processes as ours has threads, and a policy worker.",
        (
            _measure(
                f"bench collect --in-process --env-id CartPole-v1 --num-envs 8 64 1024 {_TURNS}",
                *("envpool-torch", "sb3"),
                needs="torch",
            ),
            _measure(
                "bench collect --in-process --env-id CartPole-v1 --num-envs 64 --num-threads 2 "
                f"{_TURNS}",
                *("torchrl-async", "sample-factory"),
                needs="torch",
            ),
            _measure(
                f"bench collect --in-process --env-id HalfCheetah-v5 --num-envs 16 {_TURNS}",
                "envpool-torch",
                needs="torch mujoco",
            ),
            _short(
                f"bench collect --in-process --env-id CartPole-v1 --num-envs 64 {_SHORT}",
                *("envpool-torch", "sb3"),
                needs="torch",
            ),
        ),
    ),
    Section(
        "ray",
        "Ray workers",
        "What the driver receives from one Ray worker, beside an actor for each environment and "
        "RLlib's own runners.",
        "One machine, the same number of environments; each works while the others rest.",
        "With two CPUs an actor for each environment shares them; on a machine with as many CPUs "
        "as actors the gap is smaller.",
        (
            _measure(
                f"bench collect --env-id CartPole-v1 --num-envs 64 --peer-num-envs 8 {_SHORT}",
                *("env-actors", "rllib-actors"),
                needs="torch ray",
            ),
        ),
    ),
    Section(
        "replay",
        "Replay",
        "Inserts and samples per second of a prioritised buffer.",
        "The same transitions, the same batches, values handed over as torch tensors.",
        "Reverb runs a server, as it is made to; the others are in the process.",
        (
            _measure("bench replay --repeats 3", "torchrl", "tianshou", "reverb", needs="torch"),
            _short(
                "bench replay --num-threads 1 --num-batches 30 --repeats 1",
                *("torchrl", "tianshou"),
                needs="torch",
            ),
        ),
    ),
    Section(
        "adapters",
        "Adapters",
        "What users of other libraries collect with our environments under them, and without.",
        "The library's own loop, its own default policy class with layers of the same size, no "
        "learning.",
        "A whole training gains less than its sampling, since learning takes as long as before.",
        (
            *(
                _measure(f"bench adapter {name} {_SHORT}", needs=f"torch {module}")
                for name, module in (
                    ("sb3", "stable_baselines3"),
                    ("rllib", "ray.rllib"),
                    ("tianshou", "tianshou"),
                    ("torchrl", "torchrl"),
                    ("cleanrl", "torch"),
                )
            ),
            _measure(f"bench adapter env_fns {_SHORT}"),
            _measure(f"bench adapter jax {_SHORT}", needs="jax"),
            _short("bench adapter env_fns --num-envs 8 --repeats 2 --duration-s 0.2"),
        ),
    ),
    Section(
        "agents",
        "Several agents",
        "Env-steps per second of worlds with many agents.",
        "The same worlds and actions for all.",
        "WarpDrive's row is its Python step, which it keeps to check its CUDA kernels by; on a GPU "
        "it is another thing. SuperSuit runs MPE2's Python in processes.",
        (
            _measure(
                "bench --env-id TagContinuous-v0 --option num_taggers=5 --option num_runners=100 "
                "--option use_full_observation=false --option num_other_agents_observed=10 "
                f"--num-envs 16 {_TURNS}",
                *("warpdrive", "all-pairs"),
            ),
            _measure(
                f"bench --env-id simple_spread_v3 --num-envs 256 {_TURNS}",
                "supersuit",
                needs="mpe2",
            ),
            _short(f"bench --env-id simple_spread_v3 --num-envs 256 {_SHORT}"),
        ),
    ),
    Section(
        "states",
        "Saved states",
        "Saving and restoring one environment in the middle of an episode.",
        "States of the same environments after the same number of steps.",
        "Ours carry clocks, seeds and episode statistics beside the engine's state; EnvPool and "
        "Gymnasium's vector environments save none.",
        (
            _measure(
                "bench states --env-id CartPole-v1 --env-id ALE/Pong-v5 --env-id Ant-v5",
                needs="ale_py mujoco",
                quick=True,
            ),
        ),
    ),
    Section(
        "memory",
        "Memory and time to begin",
        "What a pool takes until its first observations, and how much memory it then has.",
        "Each library in a fresh process; imports are not counted.",
        "Memory is what the process grew by (resident), so that pages shared with the library's "
        "file count once.",
        (
            _measure(
                "bench memory --env-id ALE/Pong-v5 --num-envs 256", "envpool", "ale", needs="ale_py"
            ),
            _measure("bench memory --env-id Humanoid-v5 --num-envs 256", "envpool", needs="mujoco"),
            _short("bench memory --env-id CartPole-v1 --num-envs 1024", "envpool", "gymnasium"),
        ),
    ),
    Section(
        "solving",
        "Time to solve",
        "Seconds from the first step until the last 100 episodes have the mean return that counts "
        "as solved.",
        "The same algorithm, network, hyper-parameters and seeds; Stable-Baselines3 learns in all.",
        "Learning takes most of the time, and is the same for all.",
        (
            _measure(
                "bench solve --env-id CartPole-v1 --target 450 --repeats 3",
                needs="torch stable_baselines3",
                timeout_s=900.0,
            ),
        ),
    ),
)
