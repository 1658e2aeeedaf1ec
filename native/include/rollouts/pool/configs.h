// SPDX-License-Identifier: Apache-2.0
// The Configs of a batch of light environments: one for all, or one for each.
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "rollouts/core/env.h"

namespace rollouts {

inline constexpr std::int32_t kBlockEnvs = 64;  // environments that are stepped by one loop

// An environment that declares kVectorized; core/env.h says what it promises.
template <typename Env>
concept Vectorized = requires { requires Env::kVectorized; };

// An environment whose Step may draw; core/env.h says what it declares.
template <typename Env>
concept DrawsInSteps = requires(const typename Env::Config& config) { Env::StepDraws(config); };

// The same Config for every environment of a block.
template <typename Env>
struct SameConfig {
  typename Env::Config config;

  [[gnu::always_inline]] const typename Env::Config& operator[](std::int32_t) const {
    return config;
  }
};

// A Config for each environment of a block, field by field, so that the compiler can vectorise
// loops over them. Fields are kept as doubles, which hold every bool, int32 and float.
template <typename Env>
struct ConfigLanes {
  const double* first = nullptr;  // field f of environment i is first[f * stride + i]
  std::int64_t stride = 0;

  [[gnu::always_inline]] typename Env::Config operator[](std::int32_t i) const {
    typename Env::Config config;
    const double* lane = first + i;
    auto read = [&]<typename T>(const char*, T& field) {
      static_assert(std::is_same_v<T, double> || sizeof(T) <= 4);
      if constexpr (std::is_same_v<T, bool>) {
        field = *lane != 0;
      } else {
        field = static_cast<T>(*lane);
      }
      lane += stride;
    };
    Env::VisitConfig(config, read);
    return config;
  }
};

// Owns the Configs.
template <typename Env>
class Configs {
  using Config = typename Env::Config;

 public:
  // Each field takes at least a byte.
  static constexpr std::int32_t kMaxFields = sizeof(Config);
  // Room for the lanes of a block whose environments do not lie next to each other.
  struct Gathered {
    alignas(64) double lanes[kMaxFields * kBlockEnvs];
  };

  // One Config, or as many as there are environments.
  explicit Configs(std::vector<Config> configs) : configs_(std::move(configs)) {
    if constexpr (Vectorized<Env>) {
      if (!same()) FillLanes();
    }
  }

  bool same() const { return configs_.size() == 1; }
  const Config& operator[](std::int32_t env) const { return configs_[same() ? 0 : env]; }

  // The Configs of at most kBlockEnvs environments, where they are not the same. Borrows
  // from this and from `gathered`.
  ConfigLanes<Env> Lanes(std::span<const std::int32_t> envs, Gathered& gathered) const {
    bool neighbours = true;
    for (std::size_t i = 0; i < envs.size(); ++i) {
      neighbours &= envs[i] == envs[0] + static_cast<std::int32_t>(i);
    }
    if (neighbours) return {lanes_.data() + envs[0], stride_};
    const std::int64_t num_fields = static_cast<std::int64_t>(lanes_.size()) / stride_;
    for (std::int64_t f = 0; f < num_fields; ++f) {
      for (std::size_t i = 0; i < envs.size(); ++i) {
        gathered.lanes[f * kBlockEnvs + i] = lanes_[f * stride_ + envs[i]];
      }
    }
    return {gathered.lanes, kBlockEnvs};
  }

 private:
  void FillLanes() {
    std::int64_t num_fields = 0;
    auto count = [&](const char*, auto&) { ++num_fields; };
    Config any;
    Env::VisitConfig(any, count);

    // one cache line more, so that the fields of one environment do not share a cache set
    const auto num_envs = static_cast<std::int64_t>(configs_.size());
    stride_ = num_envs + 8;
    lanes_.resize(num_fields * stride_);
    for (std::int64_t env = 0; env < num_envs; ++env) {
      double* lane = lanes_.data() + env;
      auto write = [&](const char*, auto& field) {
        *lane = static_cast<double>(field);
        lane += stride_;
      };
      Env::VisitConfig(configs_[env], write);
    }
  }

  std::vector<Config> configs_;
  std::vector<double> lanes_;  // as in ConfigLanes, over all environments; empty if same()
  std::int64_t stride_ = 0;
};

}  // namespace rollouts
