// SPDX-License-Identifier: Apache-2.0
// Layout of a world of agents in its memory, on host and device.
#pragma once

#include "rollouts/core/multi_agent.h"

namespace rollouts {

// Visits the arrays that every environment's agents have, as VisitFields visits the environment's
// own.
template <typename Visit>
ROLLOUTS_HD inline void VisitStatus(AgentStatus& status, Visit&& visit) {
  visit("reward", status.reward, 1);
  visit("episode_return", status.episode_return, 1);
  visit("active", status.active, 1);
  visit("terminated", status.terminated, 1);
}

// The World, its agents' status, then the environment's arrays. Each begins at a multiple of a
// cache line, or of a quarter of one where agents are few, so that small worlds stay small.
template <typename Env>
class WorldLayout {
 public:
  ROLLOUTS_HD WorldLayout(const typename Env::Config& config, std::int32_t num_agents)
      : num_agents_(num_agents), unit_(num_agents < 16 ? 16 : 64), bytes_(WorldBytes()) {
    AgentStatus status;
    typename Env::Agents agents;
    auto measure = [&](const char*, auto*& array, std::int32_t count = 1) {
      bytes_ += BytesOf(array, count);
    };
    VisitStatus(status, measure);
    Env::VisitFields(config, agents, measure);
  }

  ROLLOUTS_HD std::int64_t bytes() const { return bytes_; }
  ROLLOUTS_HD std::int32_t num_agents() const { return num_agents_; }

  // The arrays of a world whose memory begins at `memory`.
  ROLLOUTS_HD void Place(const typename Env::Config& config, std::uint8_t* memory,
                         AgentStatus& status, typename Env::Agents& agents) const {
    std::uint8_t* next = memory + WorldBytes();
    auto place = [&](const char*, auto*& array, std::int32_t count = 1) {
      array = reinterpret_cast<decltype(&*array)>(next);
      next += BytesOf(array, count);
    };
    VisitStatus(status, place);
    Env::VisitFields(config, agents, place);
  }

 private:
  ROLLOUTS_HD std::int64_t Aligned(std::int64_t bytes) const {
    return (bytes + unit_ - 1) & -unit_;
  }
  ROLLOUTS_HD std::int64_t WorldBytes() const {
    return Aligned(static_cast<std::int64_t>(sizeof(typename Env::World)));
  }
  template <typename T>
  ROLLOUTS_HD std::int64_t BytesOf(T*, std::int64_t count) const {
    return Aligned(static_cast<std::int64_t>(sizeof(T)) * count * num_agents_);
  }

  std::int32_t num_agents_;
  std::int64_t unit_;  // a power of two
  std::int64_t bytes_;
};

}  // namespace rollouts
