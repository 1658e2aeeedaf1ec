// SPDX-License-Identifier: Apache-2.0
// Scenarios of environments with several agents: see pool_stress.cpp.
#include <cmath>

#include "pool_stress.h"
#include "rollouts/envs/multi_agent/tag_continuous.h"
#include "rollouts/pool/multi_agent_batch.h"

namespace rollouts {
namespace {

// Runners leave within a few steps; in every fourth world a tag is worth more than a number holds,
// so that two of them fail it.
std::unique_ptr<CpuPool> MakeTags(PoolOptions options) {
  std::vector<TagContinuous::Config> configs(static_cast<std::size_t>(options.num_envs));
  for (std::size_t i = 0; i < configs.size(); ++i) {
    configs[i].num_taggers = 3;
    configs[i].num_runners = 9;
    configs[i].grid_length = 3;
    configs[i].tagging_distance = 0.2;
    configs[i].use_full_observation = false;
    configs[i].num_other_agents_observed = 4;
    configs[i].randomize_starts = true;
    if (i % 4 == 3) configs[i].tag_reward_for_tagger = 3e38;
  }
  options.rules.max_episode_steps = 12;
  options.on_env_error = OnEnvError::kReset;
  auto envs = std::make_unique<MultiAgentBatch<TagContinuous>>(configs, options.num_envs);
  return std::make_unique<CpuPool>(std::move(envs), options);
}

// Actions (acceleration, turn) that differ by agent and step.
void SendTags(CpuPool& pool, std::span<const std::int32_t> envs, std::uint32_t step) {
  const auto fill = [&](std::int64_t first, std::int64_t count) {
    for (const std::int32_t env : envs.subspan(first, count)) {
      auto* const actions = reinterpret_cast<std::int32_t*>(pool.ActionRow(env));
      for (std::uint32_t i = 0; i < 24; ++i) {
        actions[i] = static_cast<std::int32_t>((step * 7 + i * 5 + static_cast<std::uint32_t>(env)) % 11);
      }
    }
    return true;
  };
  CHECK(pool.Send(envs, fill, nullptr));
}

// Counts agents that left a world that went on; checks what every row says.
int CountLeaving(const Received& received, bool is_reset) {
  const BatchView& view = received.buffer->target();
  int leaving = 0;
  for (std::int32_t row = received.first; row < received.first + received.rows; ++row) {
    const bool ended = view.terminated[row] || view.truncated[row];
    int over = 0, active = 0;
    for (std::int32_t g = 0; g < view.num_groups; ++g) {
      const GroupView& group = view.groups[g];
      for (std::int32_t i = row * group.num_agents; i < (row + 1) * group.num_agents; ++i) {
        const bool is_over = group.terminated[i] || group.truncated[i];
        CHECK(!(is_over && !group.active[i]));
        CHECK(group.active[i] || group.reward[i] == 0);
        CHECK(std::isfinite(group.reward[i]));
        over += is_over;
        active += group.active[i];
      }
    }
    CHECK(!ended || over == active);
    CHECK(!is_reset || over == 0);
    if (!ended) leaving += over;
  }
  return leaving;
}

void AgentsLeaveSync() {
  const auto pool = MakeTags(MakeOptions(40, 40, 3));
  int leaving = 0;
  std::size_t failures = 0;
  for (std::uint32_t round = 0; round < 60; ++round) {
    if (round % 20 == 0) {
      SendReset(*pool);
    } else {
      SendTags(*pool, pool->all_envs(), round);
    }
    const Received received = pool->Recv(Later());
    leaving += CountLeaving(received, round % 20 == 0);
    failures += received.failures.size();
    pool->Release(received.buffer.get());
  }
  CHECK(leaving > 0);
  CHECK(failures > 0);
}

// One thread steps what another saves and another resets in between.
void AgentsLeaveAsync() {
  const auto pool = MakeTags(MakeOptions(24, 8, 3));
  SendReset(*pool);
  std::thread saver([&] {
    UntilClosed([&] { CHECK(!pool->SaveState(5).empty()); });
  });
  std::thread resetter([&] {
    for (int i = 0; i < 5; ++i) {
      try {
        if (pool->Drain(Later())) SendReset(*pool);
      } catch (const ProtocolError&) {
        std::this_thread::yield();
      }
    }
  });
  int leaving = 0;
  for (std::uint32_t round = 0; round < 150; ++round) {
    try {
      const Received received = pool->Recv(Soon());
      if (!received.buffer) continue;
      leaving += CountLeaving(received, false);
      const std::vector<std::int32_t> envs = Envs(*pool, received);
      pool->Release(received.buffer.get());
      SendTags(*pool, envs, round);
    } catch (const ProtocolError&) {
      std::this_thread::yield();
    }
  }
  resetter.join();
  pool->Close();
  saver.join();
  CHECK(leaving > 0);
}

}  // namespace

Scenarios AgentScenarios() {
  return {{"agents_leave_async", AgentsLeaveAsync}, {"agents_leave_sync", AgentsLeaveSync}};
}

}  // namespace rollouts
