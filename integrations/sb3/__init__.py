# SPDX-License-Identifier: Apache-2.0
"""Stable-Baselines3: a `VecEnv` on a native pool, and algorithms that collect in bulk.

What to change: the environment first and then, to gain most, the algorithm's name:

    -env = make_vec_env("CartPole-v1", n_envs=64, vec_env_cls=SubprocVecEnv)
    -model = PPO("MlpPolicy", env)
    +env = RolloutsVecEnv("CartPole-v1", 64)
    +model = RolloutsPPO("MlpPolicy", env)                  # num_workers=2: from Ray actors

Python environments of your own: `make_vec_env(..., vec_env_cls=RolloutsVecEnv)` in place of
SubprocVecEnv runs several in each process.

`RolloutsVecEnv` picks the class: a `NativeVecEnv`, or an `EnvFnsVecEnv` where it is given
functions. Both serve every algorithm, wrapper and callback of Stable-Baselines3. `RolloutsPPO`,
`RolloutsA2C`, `RolloutsDQN`, `RolloutsSAC`, `RolloutsTD3` and `RolloutsDDPG` are these algorithms
with another `collect_rollouts`; `OnPolicyRollouts` and `OffPolicyRollouts` do the same for a class
of your own: `class MyPPO(OnPolicyRollouts, PPO)`. Models are saved and loaded as usual: PPO, for
example, loads a model that `RolloutsPPO` saved, and `RolloutsPPO` one that PPO saved.

PPO and A2C let the pool's threads compute policies that native code can read (see `model.engine`,
and `model.why_not_native` for the reason where it cannot). Callbacks are then called for each step
after the whole rollout, so that their changes of environments or weights take effect in the next
one. `rollout_engine="torch"` makes the library's own rollouts, bit for bit.

Gradient steps of all six are made in native code, too, where it can read policy and optimiser (see
`model.learner_engine` and `model.why_not_native_learner`). `train_engine="torch"` leaves them to
the library.

Traps that are handled here: the caller owns the arrays of rewards, because PPO adds to them in
place where a time limit cut an episode; `TimeLimit.truncated` is in the info of every step; a
Discrete space that does not count from 0 is shifted; a pool that autoresets in any other way than a
VecEnv does, or is asynchronous, is refused.

Running statistics: normalize_observation and normalize_reward of `RolloutsVecEnv` make a
`NativeVecNormalize`. It is a VecNormalize, so that `EvalCallback`, `sync_envs_normalization`,
`save` and `load` find the statistics. PPO and A2C collect natively through it.

Costs: `RolloutsVecEnv` builds N dicts per step, as a VecEnv must; the algorithms above do not,
unless a callback may read them. The bulk collectors need the environment without another wrapper
around it, and SB3's own RolloutBuffer or ReplayBuffer: everything else takes the library's own
path. Collecting from Ray pays where environments are slow; CartPole is not.
"""

from .agent_rows_env import AgentRowsVecEnv
from .env_fns import EnvFnsVecEnv
from .native_vec_env import NativeVecEnv
from .normalize import NativeVecNormalize
from .off_policy import (
    OffPolicyRollouts,
    RolloutsDDPG,
    RolloutsDQN,
    RolloutsSAC,
    RolloutsTD3,
)
from .on_policy import OnPolicyRollouts, RolloutsA2C, RolloutsPPO
from .vec_env import RolloutsVecEnv

__all__ = [
    "AgentRowsVecEnv",
    "EnvFnsVecEnv",
    "NativeVecEnv",
    "NativeVecNormalize",
    "OffPolicyRollouts",
    "OnPolicyRollouts",
    "RolloutsA2C",
    "RolloutsDDPG",
    "RolloutsDQN",
    "RolloutsPPO",
    "RolloutsSAC",
    "RolloutsTD3",
    "RolloutsVecEnv",
]
