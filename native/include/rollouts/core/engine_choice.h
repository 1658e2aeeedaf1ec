// SPDX-License-Identifier: Apache-2.0
// The engine that steps an environment, where there are several engines that can load each other's
// states.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

namespace rollouts {

struct EngineChoice {
  std::string name;           // value of the option `engine`; empty where there is one engine only
  std::string why_not_lanes;  // the reason; empty where lanes step the environment
};

// Counts of the steps that an engine made for several environments at once, and of all other steps
// of the same environments.
struct EngineSteps {
  std::int64_t together = 0;
  std::int64_t alone = 0;
};

// Step counts of some environments. The thread that steps an environment adds to its count; any
// thread may read.
class EngineTallies {
 public:
  explicit EngineTallies(std::int32_t num_envs)
      : num_envs_(num_envs), by_env_(std::make_unique<Tally[]>(num_envs)) {}

  void Add(std::int32_t env, bool together) {
    std::atomic<std::int64_t>& count = together ? by_env_[env].together : by_env_[env].alone;
    count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  EngineSteps Sum() const {
    EngineSteps sum;
    for (std::int32_t env = 0; env < num_envs_; ++env) {
      sum.together += by_env_[env].together.load(std::memory_order_relaxed);
      sum.alone += by_env_[env].alone.load(std::memory_order_relaxed);
    }
    return sum;
  }

 private:
  // padded, because different threads step neighbours
  struct alignas(64) Tally {
    std::atomic<std::int64_t> together{0};
    std::atomic<std::int64_t> alone{0};
  };
  const std::int32_t num_envs_;
  const std::unique_ptr<Tally[]> by_env_;
};

}  // namespace rollouts
