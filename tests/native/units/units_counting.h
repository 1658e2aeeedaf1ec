// SPDX-License-Identifier: Apache-2.0
// Pools of environments that count, so that what a rollout must say can be written down.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "rollouts/pool/cpu_pool.h"
#include "rollouts/pool/heavy_env_batch.h"

namespace rollouts::units {

// Shows (its number, steps of the episode). An episode ends after 3 to 7 steps, by its number.
struct CountingEnv {
  struct Config {
    std::int32_t number = 0;
    std::int32_t step_cost_ns = 5'000;
    std::int32_t fails_at = -1;  // step of an episode
  };
  using Action = std::int32_t;
  using Obs = float;

  template <typename Visitor>
  static void VisitConfig(Config& config, Visitor& visit) {
    visit("number", config.number);
    visit("step_cost_ns", config.step_cost_ns);
    visit("fails_at", config.fails_at);
  }
  static EnvSpec MakeSpec(const Config& config) {
    EnvSpec spec;
    spec.observation.ndim = 1;
    spec.observation.shape[0] = 2;
    spec.action.dtype = DType::kInt32;
    spec.action.n = 3;
    spec.step_cost_ns = config.step_cost_ns;
    return spec;
  }
  static std::int32_t Length(std::int32_t number) { return 3 + number % 5; }

  explicit CountingEnv(const Config& config) : config_(config) {}
  void Reset(Rng&, bool) { steps_ = 0; }
  StepResult Step(const Action* action, Rng&) {
    if (steps_ == config_.fails_at) throw std::runtime_error("it broke");
    ++steps_;
    return StepResult::Of(100 * config_.number + 10 * steps_ + *action,
                          steps_ == Length(config_.number));
  }
  void Observe(Obs* obs) const {
    obs[0] = static_cast<float>(config_.number);
    obs[1] = static_cast<float>(steps_);
  }
  void WriteInfo(double*) const {}

 private:
  const Config config_;
  std::int32_t steps_ = 0;
};

// The same with an action of two doubles, the second of which may be larger.
struct BoxEnv : CountingEnv {
  using Action = double;
  static EnvSpec MakeSpec(const Config& config) {
    EnvSpec spec = CountingEnv::MakeSpec(config);
    spec.action = {.dtype = DType::kFloat64, .n = 0, .ndim = 1, .shape = {2}, .elementwise = true,
                   .low = {-1, -2}, .high = {1, 2}};
    return spec;
  }
  using CountingEnv::CountingEnv;
  StepResult Step(const Action* action, Rng&) {
    return StepResult::Of(action[0] + 10 * action[1], false);
  }
};

// The same with two actions of a number each, below 4 and 3.
struct PairEnv : CountingEnv {
  static EnvSpec MakeSpec(const Config& config) {
    EnvSpec spec = CountingEnv::MakeSpec(config);
    spec.action = {.dtype = DType::kInt32, .n = 0, .ndim = 1, .shape = {2}, .multi_discrete = true,
                   .elementwise = true, .high = {3, 2}};
    return spec;
  }
  using CountingEnv::CountingEnv;
  StepResult Step(const Action* action, Rng&) {
    return StepResult::Of(action[0] + 10 * action[1], false);
  }
};

// The same, with starts that are begun for several at once.
struct StartingEnv : CountingEnv {
  static inline std::atomic<std::int32_t> most_together = 0;
  static inline std::atomic<std::int32_t> num_alone = 0;  // starts that were not, or with another stream

  static EnvSpec MakeSpec(const Config& config) {
    EnvSpec spec = CountingEnv::MakeSpec(config);
    spec.together = 8;
    return spec;
  }
  using CountingEnv::CountingEnv;
  static void StepAhead(std::span<StartingEnv* const>, std::span<const Action* const>) {}
  bool stepped_ahead() const { return true; }
  static void BeginAhead(std::span<StartingEnv* const> envs, std::span<const Rng> streams) {
    const auto count = static_cast<std::int32_t>(envs.size());
    if (count > most_together) most_together = count;
    for (std::size_t i = 0; i < envs.size(); ++i) {
      Rng rng = streams[i];
      envs[i]->drawn_ = rng.NextWord();
      // what is over is over: it must have been shown by now
      envs[i]->CountingEnv::Reset(rng, false);
    }
  }
  void Reset(Rng& rng, bool forced) {
    if (drawn_ != rng.NextWord()) ++num_alone;
    drawn_.reset();
    CountingEnv::Reset(rng, forced);
  }

 private:
  std::optional<std::uint32_t> drawn_;
};

// Episodes are cut off after five steps. Environment i has the number i.
template <typename Env = CountingEnv>
std::unique_ptr<CpuPool> MakeCounting(std::int32_t num_envs, std::int32_t num_threads,
                                      CountingEnv::Config config = {}, PoolOptions options = {}) {
  std::vector<AnyConfig> configs;
  for (config.number = 0; config.number < num_envs; ++config.number) {
    configs.push_back(std::make_shared<const CountingEnv::Config>(config));
  }
  options.num_envs = num_envs;
  if (options.batch_size <= 1) options.batch_size = num_envs;
  options.num_threads = num_threads;
  options.env_id_offset = 1000;
  options.rules.max_episode_steps = 5;
  return std::make_unique<CpuPool>(
      std::make_unique<HeavyEnvBatch>(HeavyTypeOf<Env>(), std::move(configs), num_envs), options);
}

inline PoolOptions InSameStep(OnEnvError on_env_error = OnEnvError::kRaise) {
  PoolOptions options;
  options.on_env_error = on_env_error;
  options.rules.autoreset = AutoresetMode::kSameStep;
  return options;
}

inline CpuPool::Clock::time_point Later() {
  return CpuPool::Clock::now() + std::chrono::seconds(600);
}

}  // namespace rollouts::units
