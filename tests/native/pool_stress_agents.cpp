// SPDX-License-Identifier: Apache-2.0
// Scenarios of environments with several agents: see pool_stress.cpp.
#include <array>
#include <cmath>

#include "pool_stress.h"
#include "rollouts/envs/multi_agent/tag_continuous.h"
#include "rollouts/policy/rollout.h"
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

// One group's arrays of a rollout, and a policy of one layer for its observations.
struct GroupWorld {
  GroupWorld(const GroupSpec& spec, std::int32_t num_envs, std::int32_t num_steps)
      : rows(num_envs * spec.num_agents), steps(num_steps), obs_size(spec.observation.size()) {
    const auto cells = static_cast<std::size_t>(rows * steps);
    obs.resize((cells + static_cast<std::size_t>(rows)) * static_cast<std::size_t>(obs_size));
    action.resize(cells * 2);
    for (auto* floats : {&log_prob, &value, &reward, &bootstrap}) floats->resize(cells);
    for (auto* flags : {&terminated, &truncated, &active}) flags->resize(cells);
    episode_return.resize(cells);
    episode_length.resize(cells);
    last_value.resize(static_cast<std::size_t>(rows));
    const auto size = static_cast<std::int32_t>(obs_size);
    const policy::Program program{
        .obs_size = size,
        .ops = {{.kind = policy::OpKind::kLinear, .inputs = {0}, .params = {0}, .numbers = {}, .size = 22},
                {.kind = policy::OpKind::kLinear, .inputs = {0}, .params = {1}, .numbers = {}, .size = 1}},
        .params = {{"logits", 22 * size}, {"value", size}},
        .outputs = {1, 2},
        .states = {}};
    std::vector<float> logits(static_cast<std::size_t>(22 * size)), values(static_cast<std::size_t>(size), 0.5f);
    for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = 0.1f * static_cast<float>(i % 7);
    const std::vector<std::span<const float>> params{logits, values};
    const auto network = std::make_shared<const policy::Network>(program);
    current = std::make_unique<policy::NativePolicy>(policy::NativePolicy{network, network->Pack(params), {}, {}});
    current->head.kind = policy::HeadKind::kMultiCategorical;
    current->nvec = {11, 11};
  }

  policy::RolloutArrays Arrays() {
    policy::RolloutArrays arrays;
    arrays.steps = steps, arrays.rows = rows;
    arrays.obs = reinterpret_cast<std::uint8_t*>(obs.data());
    arrays.action = reinterpret_cast<std::uint8_t*>(action.data());
    arrays.log_prob = log_prob.data(), arrays.value = value.data();
    arrays.reward = reward.data(), arrays.bootstrap_value = bootstrap.data();
    arrays.terminated = terminated.data(), arrays.truncated = truncated.data();
    arrays.active = active.data();
    arrays.episode_return = episode_return.data(), arrays.episode_length = episode_length.data();
    arrays.last_value = last_value.data();
    return arrays;
  }

  std::int32_t rows, steps;
  std::int64_t obs_size;
  std::unique_ptr<policy::NativePolicy> current;
  std::vector<float> obs, log_prob, value, reward, bootstrap, last_value;
  std::vector<std::int32_t> action, episode_length;
  std::vector<std::uint8_t> terminated, truncated, active;
  std::vector<double> episode_return;
};

// Taggers and runners of one pool, and rollouts of both.
struct TagWorlds {
  explicit TagWorlds(std::int32_t num_threads) : pool(MakeTags(MakeOptions(30, 30, num_threads))) {
    for (std::int32_t g = 0; g < 2; ++g) groups.emplace_back(pool->spec().groups[g], 30, 25);
  }
  void Reset() {
    SendReset(*pool);
    const Received received = pool->Recv(Later());
    for (std::size_t g = 0; g < 2; ++g) {
      const float* from = reinterpret_cast<const float*>(received.buffer->view().groups[g].obs);
      std::copy_n(from, groups[g].rows * groups[g].obs_size, groups[g].obs.data());
    }
    pool->Release(received.buffer.get());
  }
  std::vector<std::vector<policy::FinalObs>> Collect() {
    const policy::RolloutArrays taggers = groups[0].Arrays(), runners = groups[1].Arrays();
    const std::array parts{policy::PolicyRollout{*groups[0].current, taggers},
                           policy::PolicyRollout{*groups[1].current, runners}};
    auto kept = policy::Collect(*pool, parts, {.rules = {.keep_final_obs = true}, .poll = {}});
    for (GroupWorld& group : groups) {
      std::copy(group.obs.end() - group.rows * group.obs_size, group.obs.end(), group.obs.begin());
    }
    return kept;
  }
  std::unique_ptr<CpuPool> pool;
  std::vector<GroupWorld> groups;
};

// Threads with policies of two groups write what one alone does; agents leave, worlds fail.
void AgentsCollect() {
  TagWorlds expected(1), found(4);
  expected.Reset();
  found.Reset();
  for (int rollout = 0; rollout < 12; ++rollout) {
    const auto final_obs = expected.Collect(), others = found.Collect();
    for (std::size_t g = 0; g < 2; ++g) {
      const GroupWorld &one = expected.groups[g], &other = found.groups[g];
      CHECK(one.obs == other.obs && one.action == other.action && one.reward == other.reward);
      CHECK(one.active == other.active && one.bootstrap == other.bootstrap);
      CHECK(one.terminated == other.terminated && one.truncated == other.truncated);
      CHECK(final_obs[g].size() == others[g].size());
      const auto ended = [&](std::size_t i) { return one.terminated[i] || one.truncated[i]; };
      std::size_t ends = 0, away = 0;
      for (std::size_t i = 0; i < one.active.size(); ++i) {
        ends += ended(i);
        away += !one.active[i];
        CHECK(one.active[i] || (one.reward[i] == 0 && !one.terminated[i]));
      }
      CHECK(ends == final_obs[g].size());
      CHECK(g == 0 || away > 0);
    }
  }
  CHECK(found.pool->stats().env_errors > 0);
  std::thread closer([&] { found.pool->Close(); });
  UntilClosed([&] { found.Collect(); });
  closer.join();
}

}  // namespace

Scenarios AgentScenarios() {
  return {{"agents_collect", AgentsCollect},
          {"agents_leave_async", AgentsLeaveAsync},
          {"agents_leave_sync", AgentsLeaveSync}};
}

}  // namespace rollouts
