# SPDX-License-Identifier: Apache-2.0
# THE registry: one line per environment id. HEADER is relative to include/rollouts.
# An id that ends in * is a family whose members Python names (rollouts/registry.py).
#
# rollouts_env(ID TYPE HEADER [MAX_EPISODE_STEPS n] [REWARD_THRESHOLD x] [CPU_ONLY] [VECTORIZED])
# VECTORIZED goes with kVectorized in the header

rollouts_env(CartPole-v0 CartPole envs/classic/cart_pole.h MAX_EPISODE_STEPS 200 REWARD_THRESHOLD 195 VECTORIZED)
rollouts_env(CartPole-v1 CartPole envs/classic/cart_pole.h MAX_EPISODE_STEPS 500 REWARD_THRESHOLD 475 VECTORIZED)
rollouts_env(Pendulum-v1 Pendulum envs/classic/pendulum.h MAX_EPISODE_STEPS 200 VECTORIZED)
rollouts_env(Acrobot-v1 Acrobot envs/classic/acrobot.h MAX_EPISODE_STEPS 500 REWARD_THRESHOLD -100 VECTORIZED)
rollouts_env(MountainCar-v0 MountainCar envs/classic/mountain_car.h MAX_EPISODE_STEPS 200 REWARD_THRESHOLD -110 VECTORIZED)
rollouts_env(MountainCarContinuous-v0 MountainCarContinuous envs/classic/mountain_car_continuous.h MAX_EPISODE_STEPS 999 REWARD_THRESHOLD 90 VECTORIZED)
rollouts_env(FrozenLake-v1 FrozenLake envs/toy_text/frozen_lake.h MAX_EPISODE_STEPS 100 REWARD_THRESHOLD 0.70 VECTORIZED)
rollouts_env(FrozenLake8x8-v1 FrozenLake8x8 envs/toy_text/frozen_lake.h MAX_EPISODE_STEPS 200 REWARD_THRESHOLD 0.85 VECTORIZED)
rollouts_env(CliffWalking-v1 CliffWalking envs/toy_text/cliff_walking.h VECTORIZED)
rollouts_env(CliffWalkingSlippery-v1 CliffWalkingSlippery envs/toy_text/cliff_walking.h VECTORIZED)
rollouts_env(Taxi-v3 Taxi envs/toy_text/taxi.h MAX_EPISODE_STEPS 200 REWARD_THRESHOLD 8)
rollouts_env(Taxi-v4 Taxi envs/toy_text/taxi.h MAX_EPISODE_STEPS 200 REWARD_THRESHOLD 8)
rollouts_env(Blackjack-v1 Blackjack envs/toy_text/blackjack.h)
rollouts_env(Catch-v0 Catch envs/toy_text/catch.h)
rollouts_env(NChain-v0 NChain envs/toy_text/n_chain.h MAX_EPISODE_STEPS 1000 VECTORIZED)
rollouts_env(ALE/* Atari envs/atari/atari.h MAX_EPISODE_STEPS 27000 CPU_ONLY)
rollouts_env(Ant-v5 Ant envs/mujoco/ant.h MAX_EPISODE_STEPS 1000 REWARD_THRESHOLD 6000 CPU_ONLY)
rollouts_env(HalfCheetah-v5 HalfCheetah envs/mujoco/half_cheetah.h MAX_EPISODE_STEPS 1000 REWARD_THRESHOLD 4800 CPU_ONLY)
rollouts_env(Hopper-v5 Hopper envs/mujoco/hopper.h MAX_EPISODE_STEPS 1000 REWARD_THRESHOLD 3800 CPU_ONLY)
rollouts_env(Walker2d-v5 Walker2d envs/mujoco/walker2d.h MAX_EPISODE_STEPS 1000 CPU_ONLY)
rollouts_env(Humanoid-v5 Humanoid envs/mujoco/humanoid.h MAX_EPISODE_STEPS 1000 CPU_ONLY)
rollouts_env(HumanoidStandup-v5 HumanoidStandup envs/mujoco/humanoid_standup.h MAX_EPISODE_STEPS 1000 CPU_ONLY)
rollouts_env(InvertedPendulum-v5 InvertedPendulum envs/mujoco/inverted_pendulum.h MAX_EPISODE_STEPS 1000 REWARD_THRESHOLD 950 CPU_ONLY)
rollouts_env(InvertedDoublePendulum-v5 InvertedDoublePendulum envs/mujoco/inverted_double_pendulum.h MAX_EPISODE_STEPS 1000 REWARD_THRESHOLD 9100 CPU_ONLY)
rollouts_env(Reacher-v5 Reacher envs/mujoco/reacher.h MAX_EPISODE_STEPS 50 REWARD_THRESHOLD -3.75 CPU_ONLY)
rollouts_env(Pusher-v5 Pusher envs/mujoco/pusher.h MAX_EPISODE_STEPS 100 REWARD_THRESHOLD 0 CPU_ONLY)
rollouts_env(Swimmer-v5 Swimmer envs/mujoco/swimmer.h MAX_EPISODE_STEPS 1000 REWARD_THRESHOLD 360 CPU_ONLY)
