# SPDX-License-Identifier: Apache-2.0
"""TorchRL on native environments: a batched `EnvBase` for its collectors and transforms.

What to change in a script:

    -env = GymWrapper(SyncVectorEnv([lambda: gym.make("CartPole-v1") for _ in range(64)]))
    +env = RolloutsEnv("CartPole-v1", num_envs=64)

or, in place of `ParallelEnv(64, lambda: GymEnv("CartPole-v1"))`, the same line; transforms,
`Collector`, `MultiSyncCollector`, replay buffers and losses stay. Specs, keys and dtypes are as in
GymEnv: "observation", "action" (one-hot unless categorical_action_encoding), "reward" (N, 1)
float32, "done", "terminated", "truncated" (N, 1) bool.

The pool's own threads can also collect, without torch and without Python:

    -collector = Collector(env, policy, frames_per_batch=8192)
    +collector = RolloutsCollector(env, policy, frames_per_batch=8192)

The batches have the same keys, dtypes and shapes. `collector.engine` is the engine that computed
the policy, and `collector.why_not_native` the reason why TorchRL's own loop was needed.

Environments with several agents are a `RolloutsMultiAgentEnv` with TorchRL's keys of groups:

    env = RolloutsMultiAgentEnv("simple_tag_v3", num_envs=64)   # ("agent", "observation"), ...

Traps handled:
  * At an episode's end ("next", "observation") is its true last observation. The pool has begun
    the next episode in the same step, and `_reset` hands its first observation out.
  * A "_reset" mask may name environments that have not ended (StepCounter(max_steps=...),
    truncation by a transform): only those are reset.
  * A pool in next-step mode is refused: TorchRL would take the observation of the reset for the
    outcome of an action.

What it costs: observations, terminated and truncated are not copied. Tensors share the pool's
memory, which is not written again while such a tensor lives. A collector that keeps T steps
before it stacks them makes the pool keep T buffers. TorchRL's own collectors run the policy
themselves: call `torch.set_num_threads(1)` before a small one, whose threads would take the cores
from those of the pool (see `rollouts.machine.torch_threads`). `RolloutsCollector` does that itself.
"""

from ..shared.missing import needs

try:
    import tensordict  # noqa: F401
    import torchrl.data
    import torchrl.envs  # noqa: F401
except ImportError as error:
    raise needs("torchrl", error) from error

from .collector import RolloutsCollector
from .env import RolloutsEnv
from .multi_agent_env import RolloutsMultiAgentEnv

__all__ = ["RolloutsCollector", "RolloutsEnv", "RolloutsMultiAgentEnv"]
