// SPDX-License-Identifier: Apache-2.0
// Taggers and a runner on a grid: the rules of WarpDrive's TagGridWorld (Lan et al., "WarpDrive",
// JMLR 2022), in 32-bit numbers as in its kernels.
#pragma once

#include "rollouts/core/multi_agent.h"

namespace rollouts {

struct TagGridWorld {
  struct Config {
    std::int32_t num_taggers = 10;      // taggers; the runner is not counted
    std::int32_t grid_length = 10;      // coordinates of cells are 0 to this
    double wall_hit_penalty = 0.1;      // taken from an agent that runs into a wall
    double tag_reward_for_tagger = 10;  // given to all taggers when one is in the runner's cell
    double tag_penalty_for_runner = 2;  // taken from the runner when it is tagged
    double step_cost_for_tagger = 0.01;  // without a tag, each tagger loses it, the runner gains it
    bool use_full_observation = true;   // all agents' cells, in place of one's own and another
    bool randomize_starts = false;      // taggers begin in any inner cell, not all in the middle
  };
  struct World {
    std::int32_t tagged;  // a tagger is in the runner's cell
  };
  struct Agents {
    std::int32_t* x;
    std::int32_t* y;
  };
  using Action = std::int32_t;  // 0 stay, 1 x+1, 2 x-1, 3 y+1, 4 y-1
  using Obs = float;
  using Ref = WorldRef<TagGridWorld>;

  static EnvSpec MakeSpec(const Config& config) {
    const std::int32_t n = config.num_taggers + 1;
    const SpaceSpec observation = {.dtype = DType::kFloat32,
                                   .ndim = 1,
                                   .shape = {config.use_full_observation ? 4 * n + 1 : 6},
                                   .low = {0},
                                   .high = {1}};
    const SpaceSpec action = {.dtype = DType::kInt64, .n = 5};
    EnvSpec spec;
    spec.step_cost_ns = EnvSpec::CostNs(3 * n, n);
    AddGroup(spec, {"tagger", config.num_taggers, observation, action});
    AddGroup(spec, {"runner", 1, observation, action});
    return spec;
  }

  template <typename Visitor>
  static void VisitConfig(Config& config, Visitor& visit) {
    visit("num_taggers", config.num_taggers);
    visit("grid_length", config.grid_length);
    visit("wall_hit_penalty", config.wall_hit_penalty);
    visit("tag_reward_for_tagger", config.tag_reward_for_tagger);
    visit("tag_penalty_for_runner", config.tag_penalty_for_runner);
    visit("step_cost_for_tagger", config.step_cost_for_tagger);
    visit("use_full_observation", config.use_full_observation);
    visit("randomize_starts", config.randomize_starts);
  }

  template <typename Check>
  static void CheckConfig(const Config& config, Check& check) {
    check.Between("num_taggers", config.num_taggers, 1, 100'000);
    // there must be an inner cell
    check.Between("grid_length", config.grid_length, 2, 1'000'000);
    check.Finite("wall_hit_penalty", config.wall_hit_penalty);
    check.Finite("tag_reward_for_tagger", config.tag_reward_for_tagger);
    check.Finite("tag_penalty_for_runner", config.tag_penalty_for_runner);
    check.Finite("step_cost_for_tagger", config.step_cost_for_tagger);
  }

  template <typename Visitor>
  static void VisitFields(const Config&, Agents& agents, Visitor& visit) {
    visit("x", agents.x);
    visit("y", agents.y);
  }

  ROLLOUTS_HD static void Reset(const Ref& w, Rng& rng) {
    const std::int32_t length = w.config.grid_length;
    const std::int32_t runner = w.num_agents - 1;
    for (std::int32_t i = 0; i < runner; ++i) {
      const bool drawn = w.config.randomize_starts;
      w.agents.x[i] = drawn ? 1 + static_cast<std::int32_t>(rng.Below(length - 1)) : length / 2;
      w.agents.y[i] = drawn ? 1 + static_cast<std::int32_t>(rng.Below(length - 1)) : length / 2;
    }
    w.agents.x[runner] = 0;
    w.agents.y[runner] = 0;
  }

  static constexpr int kPhases = 1;

  template <int kPhase>
  ROLLOUTS_HD static void StepAgent(const Ref& w, std::int32_t i) {
    const std::int32_t action = w.actions.Of<Action>(0)[i];
    const std::int32_t length = w.config.grid_length;
    const std::int32_t x = w.agents.x[i] + (action == 1) - (action == 2);
    const std::int32_t y = w.agents.y[i] + (action == 3) - (action == 4);
    w.agents.x[i] = Clip(x, 0, length);
    w.agents.y[i] = Clip(y, 0, length);
    const bool hit = x < 0 || x > length || y < 0 || y > length;
    w.status.reward[i] = hit ? -static_cast<float>(w.config.wall_hit_penalty) : 0.0f;
  }

  ROLLOUTS_HD static bool EndStep(const Ref& w, Rng&) {
    const std::int32_t runner = w.num_agents - 1;
    bool tagged = false;
    for (std::int32_t i = 0; i < runner; ++i) {
      tagged |= w.agents.x[i] == w.agents.x[runner] && w.agents.y[i] == w.agents.y[runner];
    }
    w.world.tagged = tagged;
    const auto cost = static_cast<float>(w.config.step_cost_for_tagger);
    const float tagger = tagged ? static_cast<float>(w.config.tag_reward_for_tagger) : -cost;
    for (std::int32_t i = 0; i < runner; ++i) Add(w.status.reward[i], tagger);
    Add(w.status.reward[runner],
        tagged ? -static_cast<float>(w.config.tag_penalty_for_runner) : cost);
    return tagged;
  }

  ROLLOUTS_HD static const char* CheckWorld(const Ref& w) {
    const std::int32_t length = w.config.grid_length;
    for (std::int32_t i = 0; i < w.num_agents; ++i) {
      const bool inside = IsWithin(w.agents.x[i], 0, length) && IsWithin(w.agents.y[i], 0, length);
      if (!inside) return kNoSuchState;
    }
    return nullptr;
  }

  ROLLOUTS_HD static void Observe(const Ref& w, std::int32_t agent, Obs* obs) {
    const std::int32_t n = w.num_agents, runner = n - 1;
    const auto length = static_cast<float>(w.config.grid_length);
    const float time = w.max_episode_steps > 0
                           ? static_cast<float>(w.elapsed_steps) / w.max_episode_steps
                           : 0.0f;
    if (!w.config.use_full_observation) {
      const std::int32_t other = agent == runner ? NearestTagger(w) : runner;
      obs[0] = w.agents.x[agent] / length;
      obs[1] = w.agents.y[agent] / length;
      obs[2] = w.agents.x[other] / length;
      obs[3] = w.agents.y[other] / length;
      obs[4] = agent == runner;
      obs[5] = time;
      return;
    }
    for (std::int32_t j = 0; j < n; ++j) {
      obs[j] = w.agents.x[j] / length;
      obs[n + j] = w.agents.y[j] / length;
      obs[2 * n + j] = j == runner;
      obs[3 * n + j] = j == agent;
    }
    obs[4 * n] = time;
  }

 private:
  // Adds in 32 bits, although the sum is stored in 64.
  ROLLOUTS_HD static void Add(double& reward, float more) {
    reward = static_cast<float>(reward) + more;
  }

  // The first of the taggers nearest to the runner.
  ROLLOUTS_HD static std::int32_t NearestTagger(const Ref& w) {
    const std::int32_t runner = w.num_agents - 1;
    std::int32_t nearest = 0;
    std::int64_t least = -1;
    for (std::int32_t i = 0; i < runner; ++i) {
      const std::int64_t dx = w.agents.x[i] - w.agents.x[runner];
      const std::int64_t dy = w.agents.y[i] - w.agents.y[runner];
      const std::int64_t distance = dx * dx + dy * dy;
      if (least >= 0 && distance >= least) continue;
      least = distance;
      nearest = i;
    }
    return nearest;
  }
};

}  // namespace rollouts
