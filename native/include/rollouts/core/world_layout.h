// SPDX-License-Identifier: Apache-2.0
// Where everything about a world of agents lies in its memory, on host and device.
#pragma once

#include "rollouts/core/multi_agent.h"

namespace rollouts {

// The arrays of every environment's agents, as VisitFields has its own.
template <typename Visit>
ROLLOUTS_HD inline void VisitStatus(AgentStatus& status, Visit&& visit) {
  visit("reward", status.reward, 1);
  visit("episode_return", status.episode_return, 1);
  visit("active", status.active, 1);
  visit("terminated", status.terminated, 1);
}

// The World, its agents' status, then the environment's arrays, each at a cache line.
template <typename Env>
class WorldLayout {
 public:
  static constexpr std::int64_t kLine = 64;

  ROLLOUTS_HD WorldLayout(const typename Env::Config& config, std::int32_t num_agents)
      : num_agents_(num_agents), bytes_(kStatus) {
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
    std::uint8_t* next = memory + kStatus;
    auto place = [&](const char*, auto*& array, std::int32_t count = 1) {
      array = reinterpret_cast<decltype(&*array)>(next);
      next += BytesOf(array, count);
    };
    VisitStatus(status, place);
    Env::VisitFields(config, agents, place);
  }

 private:
  ROLLOUTS_HD static constexpr std::int64_t Aligned(std::int64_t bytes) {
    return (bytes + kLine - 1) / kLine * kLine;
  }
  template <typename T>
  ROLLOUTS_HD std::int64_t BytesOf(T*, std::int64_t count) const {
    return Aligned(static_cast<std::int64_t>(sizeof(T)) * count * num_agents_);
  }
  // Bytes of the World.
  static constexpr std::int64_t kStatus =
      (static_cast<std::int64_t>(sizeof(typename Env::World)) + kLine - 1) / kLine * kLine;

  std::int32_t num_agents_;
  std::int64_t bytes_;
};

}  // namespace rollouts
