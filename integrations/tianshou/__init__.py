# SPDX-License-Identifier: Apache-2.0
"""Tianshou 2.x on native environments: a vector environment, and collectors that write in blocks.

What to change in a script:

    -train_envs = SubprocVectorEnv([lambda: gym.make("CartPole-v1") for _ in range(64)])
    +train_envs = RolloutsVectorEnv("CartPole-v1", num_envs=64)
    -collector = Collector(algorithm, train_envs, VectorReplayBuffer(20_000, 64))
    +collector = RolloutsCollector(algorithm, train_envs, VectorReplayBuffer(20_000, 64))

Policies, algorithms, trainers, buffers, hooks and wrappers stay as they are. Either line may be
changed alone: Tianshou's collectors run on `RolloutsVectorEnv`, and `RolloutsCollector` on any
environment. For wait_num or timeout, `RolloutsAsyncCollector` takes the place of AsyncCollector.

Native code makes the gradient steps of PPO, A2C, DQN and SAC, with Tianshou's arguments (see
`algorithm.learner_engine` and `algorithm.why_not_native_learner`):

    -algorithm = PPO(policy=policy, critic=critic, optim=AdamOptimizerFactory(lr=1e-3))
    +algorithm = NativePPO(policy=policy, critic=critic, optim=AdamOptimizerFactory(lr=1e-3))

Traps handled:
  * Tianshou resets ended environments itself. The pool has done so in the same step, and `reset`
    hands out that observation; obs_next of an ended episode is its true last observation. A pool in
    next-step mode is refused.
  * Actions of Tianshou's random phase come from N action spaces with N streams, as with N
    environments of Gymnasium.
  * Arrays that the pool hands out are not written again while a reference to them exists.

`RolloutsCollector` makes the pool's threads compute the policy in collects of n_step, between the
steps of their environments and without torch, where native code can read it: PPO's, A2C's and
Reinforce's policies of Tianshou's nets, categorical or Gaussian. `collector.engine` is the engine
used, and `collector.why_not_native` the reason for torch: recurrent nets, convolutions,
epsilon-greedy policies, a `forward` or an `action_bound_method` that native code lacks, and
environments with infos, which the buffer keeps ("native" leaves them out).

A block is several steps' transitions, which are gathered and then written to each column of the
buffer's storage at once. Sub-buffers' counters, episode statistics and priorities are the same as
after `buffer.add`. `add` itself is called where a column does not exist yet, and
Tianshou's own loop runs where there is a step hook, rendering, a single `ReplayBuffer`, a buffer
with another `add` (HER, cached), or statistics that override an `update_at_...`.
"""

from ..shared.missing import needs

try:
    import tianshou  # noqa: F401
except ImportError as _error:
    raise needs("tianshou", _error) from _error

from .async_collector import RolloutsAsyncCollector
from .collector import RolloutsCollector
from .native_discrete_sac import NativeDiscreteSAC
from .native_on_policy import NativeA2C, NativePPO
from .native_steps import NativeDQN, NativeSAC
from .vector_env import RolloutsVectorEnv

__all__ = [
    "NativeA2C",
    "NativeDQN",
    "NativeDiscreteSAC",
    "NativePPO",
    "NativeSAC",
    "RolloutsAsyncCollector",
    "RolloutsCollector",
    "RolloutsVectorEnv",
]
