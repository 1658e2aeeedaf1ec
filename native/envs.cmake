# SPDX-License-Identifier: Apache-2.0
# THE registry: one line per environment id. HEADER is relative to include/rollouts.
# An id that ends in * is a family whose members Python names (rollouts/registry.py).
#
# rollouts_env(ID TYPE HEADER [MAX_EPISODE_STEPS n] [REWARD_THRESHOLD x] [CPU_ONLY] [VECTORIZED])
# VECTORIZED goes with kVectorized in the header

rollouts_env(CartPole-v1 CartPole envs/classic/cart_pole.h MAX_EPISODE_STEPS 500 REWARD_THRESHOLD 475 VECTORIZED)
rollouts_env(Pendulum-v1 Pendulum envs/classic/pendulum.h MAX_EPISODE_STEPS 200 VECTORIZED)
rollouts_env(ALE/* Atari envs/atari/atari.h MAX_EPISODE_STEPS 27000 CPU_ONLY)
