// SPDX-License-Identifier: Apache-2.0
#include "rollouts/registry/tag_loop.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace rollouts {

TagLoop::TagLoop(const TagContinuous::Config& config, std::int32_t num_envs,
                 std::int32_t max_episode_steps)
    : config_(config),
      num_agents_(config.num_taggers + config.num_runners),
      num_envs_(num_envs),
      max_episode_steps_(max_episode_steps),
      tables_(static_cast<std::size_t>(TagContinuous::NumTables(config))),
      worlds_(static_cast<std::size_t>(num_envs)),
      obs_(static_cast<std::size_t>(num_envs) * num_agents_ * (7 * NumSeen() + 1)),
      reward_(static_cast<std::size_t>(num_envs) * num_agents_) {
  TagContinuous::FillTables(config, tables_.data());
}

std::int32_t TagLoop::NumSeen() const {
  return config_.use_full_observation ? num_agents_ - 1 : config_.num_other_agents_observed;
}

void TagLoop::Reset() {
  for (std::int32_t env = 0; env < num_envs_; ++env) Begin(env);
}

void TagLoop::Begin(std::int32_t env) {
  const TagContinuous::Tables tables(config_, tables_.data());
  World& world = worlds_[env];
  world.agents.assign(num_agents_, {});
  world.steps = 0;
  std::fill_n(reward_.begin() + std::int64_t{env} * num_agents_, num_agents_, 0.0f);
  for (std::int32_t i = 0; i < num_agents_; ++i) {
    const auto id = static_cast<std::int32_t>(tables.id[i]);
    Agent& agent = world.agents[i];
    agent.x = tables.start[id];
    agent.y = tables.start[num_agents_ + id];
    agent.heading = tables.start[2 * num_agents_ + id];
  }
  Observe(env);
}

void TagLoop::Step(const std::int32_t* actions) {
  for (std::int32_t env = 0; env < num_envs_; ++env) {
    World& world = worlds_[env];
    if (world.ended) {
      world.ended = false;
      Begin(env);
      continue;
    }
    Move(env, actions + std::int64_t{2} * env * num_agents_);
    Observe(env);
    world.ended = Tag(env);
  }
}

void TagLoop::Move(std::int32_t env, const std::int32_t* actions) {
  const TagContinuous::Tables tables(config_, tables_.data());
  World& world = worlds_[env];
  ++world.steps;
  const auto side = static_cast<float>(config_.grid_length);
  for (std::int32_t i = 0; i < num_agents_; ++i) {
    Agent& agent = world.agents[i];
    float& reward = reward_[std::int64_t{env} * num_agents_ + i];
    reward = 0;
    if (!agent.active) continue;
    const bool tags = i < config_.num_taggers;
    const auto most = static_cast<float>(
        config_.max_speed * (tags ? config_.skill_level_tagger : config_.skill_level_runner));
    agent.acceleration += tables.acceleration[actions[2 * i]];
    agent.heading = std::fmod(agent.heading + tables.turn[actions[2 * i + 1]], TagContinuous::kTurn);
    if (agent.heading < 0) agent.heading += TagContinuous::kTurn;
    agent.speed = std::clamp(agent.speed + agent.acceleration, 0.0f, most);
    if (agent.speed <= 0 || agent.speed >= most) agent.acceleration = 0;
    agent.x += agent.speed * std::cos(agent.heading);
    agent.y += agent.speed * std::sin(agent.heading);
    const bool hit = agent.x < 0 || agent.x > side || agent.y < 0 || agent.y > side;
    agent.x = std::clamp(agent.x, 0.0f, side);
    agent.y = std::clamp(agent.y, 0.0f, side);
    reward = static_cast<float>((hit ? config_.edge_hit_penalty : 0.0) +
                                (tags ? config_.step_penalty_for_tagger
                                      : config_.step_reward_for_runner));
  }
}

void TagLoop::Observe(std::int32_t env) {
  World& world = worlds_[env];
  const std::int32_t ranks = NumSeen();
  const float diagonal = static_cast<float>(config_.grid_length) * std::sqrt(2.0f);
  const auto fastest = static_cast<float>(config_.max_speed);
  std::vector<std::pair<float, std::int32_t>> others;
  others.reserve(static_cast<std::size_t>(num_agents_));
  for (std::int32_t i = 0; i < num_agents_; ++i) {
    const Agent& own = world.agents[i];
    float* obs = obs_.data() + (std::int64_t{env} * num_agents_ + i) * (7 * ranks + 1);
    std::fill(obs, obs + 7 * ranks + 1, 0.0f);
    if (!own.active) continue;
    others.clear();
    for (std::int32_t j = 0; j < num_agents_; ++j) {
      if (j == i || !world.agents[j].active) continue;
      const float dx = world.agents[j].x - own.x, dy = world.agents[j].y - own.y;
      others.emplace_back(std::sqrt(dx * dx + dy * dy), j);
    }
    const std::int32_t seen = std::min<std::int32_t>(ranks, static_cast<std::int32_t>(others.size()));
    if (!config_.use_full_observation) {
      std::partial_sort(others.begin(), others.begin() + seen, others.end());
    }
    for (std::int32_t k = 0; k < seen; ++k) {
      const Agent& other = world.agents[others[k].second];
      obs[k] = (other.x - own.x) / diagonal;
      obs[ranks + k] = (other.y - own.y) / diagonal;
      obs[2 * ranks + k] = (other.speed - own.speed) / fastest;
      obs[3 * ranks + k] = (other.acceleration - own.acceleration) / fastest;
      obs[4 * ranks + k] = (other.heading - own.heading) / TagContinuous::kTurn;
      obs[5 * ranks + k] = others[k].second < config_.num_taggers;
      obs[6 * ranks + k] = 1;
    }
    obs[7 * ranks] = max_episode_steps_ > 0
                         ? static_cast<float>(world.steps) / static_cast<float>(max_episode_steps_)
                         : 0.0f;
  }
}

bool TagLoop::Tag(std::int32_t env) {
  World& world = worlds_[env];
  float* const reward = reward_.data() + std::int64_t{env} * num_agents_;
  const auto margin = static_cast<float>(config_.tagging_distance * config_.grid_length);
  const bool last = world.steps == max_episode_steps_;
  std::int32_t left = 0;
  for (std::int32_t i = config_.num_taggers; i < num_agents_; ++i) {
    Agent& runner = world.agents[i];
    if (!runner.active) continue;
    float least = margin;
    std::int32_t catcher = -1;
    for (std::int32_t t = 0; t < config_.num_taggers; ++t) {
      const float dx = world.agents[t].x - runner.x, dy = world.agents[t].y - runner.y;
      const float distance = std::sqrt(dx * dx + dy * dy);
      if (distance >= least) continue;
      least = distance;
      catcher = t;
    }
    if (catcher >= 0) {
      reward[i] += static_cast<float>(config_.tag_penalty_for_runner);
      reward[catcher] += static_cast<float>(config_.tag_reward_for_tagger);
      runner.active = !config_.runner_exits_game_after_tagged;
    }
    if (runner.active && last) reward[i] += static_cast<float>(config_.end_of_game_reward_for_runner);
    left += runner.active;
  }
  return last || left == 0;
}

}  // namespace rollouts
