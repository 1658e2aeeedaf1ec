# SPDX-License-Identifier: Apache-2.0
"""RLlib's new API stack over native pools: as environments, or as a whole EnvRunner.

What to change in an algorithm's config:

    from rollouts.integrations import rllib

    # RLlib's own runner, our environments: N of them in one native pool
    config.environment(rllib.register("CartPole-v1"))
    config.env_runners(num_envs_per_env_runner=64, gym_env_vectorize_mode="vector_entry_point")

    # our runner: the same episodes, built in bulk; ids as in `rollouts.env_ids()`
    config.environment("CartPole-v1")
    config.env_runners(num_envs_per_env_runner=64, env_runner_cls=rllib.RolloutsEnvRunner)

    # several agents: ids as in `rollouts.multi_agent_ids()`, modules as in RLlib
    config.environment("simple_spread_v3")
    config.multi_agent(policies={"shared"}, policy_mapping_fn=lambda agent, episode, **_: "shared")
    config.env_runners(env_runner_cls=rllib.RolloutsMultiAgentEnvRunner)

    # what computes the module of RolloutsEnvRunner: the pool's threads where they can ("auto";
    # native_reason gives the reason where they cannot), only these threads ("native"), or "torch"
    class ByTorch(rllib.RolloutsEnvRunner):
        rollout_engine = "torch"

    # gradient steps in native code, where they can be (learner.why_not_native_learner);
    # also RolloutsIMPALALearner, RolloutsAPPOLearner, RolloutsDQNLearner, RolloutsSACLearner
    config.learners(learner_class=rllib.RolloutsPPOLearner)

    # a runner that also writes what it samples, as RLlib's own does
    config.env_runners(env_runner_cls=rllib.RolloutsOfflineEnvRunner)
    config.offline_data(output="/tmp/cartpole", output_write_episodes=False)

    # observations of "action_mask" and "observations", for modules that mask their logits
    config.environment(rllib.register("MyEnv-v0", action_masks=True))

    # images stay uint8 until they are on the learner's or runner's device
    config.rl_module(rl_module_spec=rllib.image_module(config))

Traps handled:
  * RLlib takes NEXT_STEP autoreset for granted; anything else is refused, since it would lose
    final observations silently. RolloutsEnvRunner itself steps in SAME_STEP mode, which
    has no wasted steps, and puts each final observation where it belongs.
  * Statistics of normalize_observation and normalize_reward, which RLlib would neither merge, save
    nor hand to evaluation, are refused: its MeanStdFilter is a connector.
  * RLlib's vectorised creators lose worker_index; seeds come from `config.debugging(seed=)`.
  * Spaces of module and environment that differ are refused when the runner is made.
  * Episodes own writable memory that no other episode and no pool touches.
  * Custom connectors, callbacks of episodes, and stateful modules that torch computes get the
    same data as in RLlib: both runners then run RLlib's own loop over the same pool, and
    `slow_reason` gives the reason.
  * RLlib marks agents that the time limit truncated as terminated, too, so that its learners take
    the value of their last observation for 0, and its wrapper for PettingZoo does not end an
    episode in which some agents terminate while the limit truncates the others. In the bulk
    loop of RolloutsMultiAgentEnvRunner agents have the flags that the environment gave them.

Modules like those that PPO, APPO and IMPALA build for vectors are read as a program, which the
pool's threads compute between steps. Their layers are those of `rollouts.NativePolicy`, and their
actions are discrete, or a Gaussian's that are normalised to symmetric bounds, clipped or
unbounded. Outputs are torch's within 1e-5, and the module's `forward` is not called. The states of
stateful modules (use_lstm) are kept by the pool's threads, and episodes have the `state_out` of
each step. Torch computes modules that draw actions themselves or need the time step (DQN, SAC),
modules for images, and every module where episodes keep their infos.

What differs from RLlib's runner: `episode.infos` are empty unless a learner connector is
configured; actions are drawn from the same distributions by other random numbers; rewards of
natively computed steps have 32 bits, and their timer, ENV_STEP_TIMER, includes the module; Atari
ids are the preprocessed games of `rollouts.make_vec` (uint8 stacks of frames).

Several agents: each module is called once per step, by torch, for all agents of all environments
that `policy_mapping_fn` gives it; agents that left do not act, and their episodes end when they
leave. Agents have PettingZoo's names (`MultiAgentVectorEnv.agents`). Infos are empty. One
environment for RLlib's own runner is
`ParallelPettingZooEnv(rollouts.integrations.pettingzoo.parallel_env(id))`.
"""

from typing import Any

from ..shared.missing import needs

try:
    import ray.rllib  # noqa: F401
except ImportError as error:
    raise needs("rllib", error) from error

from .agents_runner import RolloutsMultiAgentEnvRunner
from .env import EnvCreator, RolloutsVectorEnv, register
from .env_runner import RolloutsEnvRunner
from .images import image_module
from .impala_learner import RolloutsAPPOLearner, RolloutsIMPALALearner
from .off_policy_learner import RolloutsDQNLearner, RolloutsSACLearner
from .ppo_learner import RolloutsPPOLearner

__all__ = [
    "EnvCreator",
    "RolloutsAPPOLearner",
    "RolloutsDQNLearner",
    "RolloutsEnvRunner",
    "RolloutsIMPALALearner",
    "RolloutsMultiAgentEnvRunner",
    "RolloutsOfflineEnvRunner",
    "RolloutsPPOLearner",
    "RolloutsSACLearner",
    "RolloutsVectorEnv",
    "image_module",
    "register",
]


def __getattr__(name: str) -> Any:
    # it imports ray.data, which takes long and which nothing else here needs
    if name == "RolloutsOfflineEnvRunner":
        from .offline import RolloutsOfflineEnvRunner

        return RolloutsOfflineEnvRunner
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
