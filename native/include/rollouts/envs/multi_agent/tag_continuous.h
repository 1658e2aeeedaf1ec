// SPDX-License-Identifier: Apache-2.0
// Taggers chase runners over a plane: the rules of WarpDrive's TagContinuous (Lan et al.,
// "WarpDrive", JMLR 2022), as in its Python step, in 32-bit numbers. envs/DESIGN.md lists the
// differences from its kernels.
//
// Rows of agents are taggers, then runners. WarpDrive scatters taggers among the ids of all agents.
// Where results depend on ids (the order of a full observation, the first of equal distances),
// these ids are used here too; they are in the tables.
#pragma once

#include "rollouts/core/multi_agent.h"
#include "rollouts/envs/multi_agent/tag_neighbors.h"
#include "rollouts/envs/multi_agent/tag_tables.h"

namespace rollouts {

struct TagContinuous {
  struct Config {
    std::int32_t num_taggers = 1;
    std::int32_t num_runners = 10;
    double grid_length = 10;         // side of the square
    double max_speed = 1;            // greatest speed per step; skill levels multiply it
    double skill_level_runner = 1;   // a runner's greatest speed / max_speed
    double skill_level_tagger = 1;   // a tagger's greatest speed / max_speed
    double max_acceleration = 1;     // the last of the acceleration levels
    double min_acceleration = -1;    // the first of them
    double max_turn = kPi / 2;       // the last of the turn levels, in radians
    double min_turn = -kPi / 2;      // the first of them
    std::int32_t num_acceleration_levels = 10;  // actions 1 to this; 0 keeps the acceleration
    std::int32_t num_turn_levels = 10;          // actions 1 to this; 0 is to go straight on
    double edge_hit_penalty = 0;     // at most 0; added where an agent runs into an edge
    bool use_full_observation = true;  // all other agents, in place of the nearest
    std::int32_t num_other_agents_observed = 2;  // how many of the nearest agents are seen
    double tagging_distance = 0.01;  // reach of a tag, as a share of grid_length
    double tag_reward_for_tagger = 1;       // for each runner that it tags
    double step_penalty_for_tagger = 0;     // at most 0; added in each step
    double tag_penalty_for_runner = -1;     // at most 0; added when it is tagged
    double step_reward_for_runner = 0;      // at least 0; added in each step while in the game
    double end_of_game_reward_for_runner = 1;  // for runners still in the game when time is over
    bool runner_exits_game_after_tagged = true;  // else it may be tagged again in the next step
    std::int32_t start_seed = 274880;  // seed of the starts, which all episodes share
    bool randomize_starts = false;     // starts are drawn for each episode
  };
  struct World {
    std::int32_t runners_left;
  };
  // State by row. Arrays `seen_...` are indexed by id and made before the step's tags; observations
  // are made of them.
  struct Agents {
    float *x, *y, *speed, *heading, *acceleration;
    double *seen_x, *seen_y;  // as a share of the diagonal
    float *seen_speed, *seen_heading, *seen_acceleration, *seen_type, *seen_active;
    float *id_x, *id_y;          // positions, cell by cell where there are cells; else by id, with
                                 // agents that left infinitely far away
    std::int32_t* cell_id;       // ids, cell by cell
    std::int32_t* counts;        // bits: runners in the game, tagged runners; then starts of cells
    std::int32_t* catcher;       // row of the tagger that tags this runner, or -1
    std::int32_t* near;          // for each row, ids of the nearest, and how many there are
    std::int32_t* num_near;
    float* reach;                // for each row, distance of the last of them
  };
  using Neighbors = TagNeighbors<TagContinuous>;
  using Action = std::int32_t;  // (acceleration level, turn level)
  using Obs = float;
  using Ref = WorldRef<TagContinuous>;

  static constexpr float kTurn = 6.28318530717958647692f;

  static EnvSpec MakeSpec(const Config& config) {
    const std::int32_t n = config.num_taggers + config.num_runners;
    const std::int32_t seen = config.use_full_observation ? n - 1 : config.num_other_agents_observed;
    const SpaceSpec observation = {.dtype = DType::kFloat32,
                                   .ndim = 1,
                                   .shape = {7 * seen + 1},
                                   .low = {-kInfinity},
                                   .high = {kInfinity}};
    const SpaceSpec action = {.dtype = DType::kInt32,
                              .ndim = 1,
                              .shape = {2},
                              .multi_discrete = true,
                              .elementwise = true,
                              .high = {static_cast<double>(config.num_acceleration_levels),
                                       static_cast<double>(config.num_turn_levels)}};
    EnvSpec spec;
    spec.step_cost_ns = EnvSpec::CostNs(n, 20 + 2 * n);
    AddGroup(spec, {"tagger", config.num_taggers, observation, action});
    AddGroup(spec, {"runner", config.num_runners, observation, action});
    return spec;
  }

  template <typename Visitor>
  static void VisitConfig(Config& config, Visitor& visit) {
    visit("num_taggers", config.num_taggers);
    visit("num_runners", config.num_runners);
    visit("grid_length", config.grid_length);
    visit("max_speed", config.max_speed);
    visit("skill_level_runner", config.skill_level_runner);
    visit("skill_level_tagger", config.skill_level_tagger);
    visit("max_acceleration", config.max_acceleration);
    visit("min_acceleration", config.min_acceleration);
    visit("max_turn", config.max_turn);
    visit("min_turn", config.min_turn);
    visit("num_acceleration_levels", config.num_acceleration_levels);
    visit("num_turn_levels", config.num_turn_levels);
    visit("edge_hit_penalty", config.edge_hit_penalty);
    visit("use_full_observation", config.use_full_observation);
    visit("num_other_agents_observed", config.num_other_agents_observed);
    visit("tagging_distance", config.tagging_distance);
    visit("tag_reward_for_tagger", config.tag_reward_for_tagger);
    visit("step_penalty_for_tagger", config.step_penalty_for_tagger);
    visit("tag_penalty_for_runner", config.tag_penalty_for_runner);
    visit("step_reward_for_runner", config.step_reward_for_runner);
    visit("end_of_game_reward_for_runner", config.end_of_game_reward_for_runner);
    visit("runner_exits_game_after_tagged", config.runner_exits_game_after_tagged);
    visit("start_seed", config.start_seed);
    visit("randomize_starts", config.randomize_starts);
  }

  template <typename Check>
  static void CheckConfig(const Config& config, Check& check) {
    check.Between("num_taggers", config.num_taggers, 1, 50'000);
    check.Between("num_runners", config.num_runners, 1, 50'000);
    check.Positive("grid_length", config.grid_length);
    check.Positive("max_speed", config.max_speed);
    // WarpDrive's own configuration has runners that do not move
    check.Between("skill_level_runner", config.skill_level_runner, 0, kMost);
    check.Between("skill_level_tagger", config.skill_level_tagger, 0, kMost);
    check.Finite("max_acceleration", config.max_acceleration);
    check.Finite("min_acceleration", config.min_acceleration);
    // an angle beyond a whole turn is equivalent to a smaller one
    check.Between("max_turn", config.max_turn, -2 * kPi, 2 * kPi);
    check.Between("min_turn", config.min_turn, -2 * kPi, 2 * kPi);
    check.Between("num_acceleration_levels", config.num_acceleration_levels, 1, 10'000);
    check.Between("num_turn_levels", config.num_turn_levels, 1, 10'000);
    check.Between("edge_hit_penalty", config.edge_hit_penalty, -kMost, 0);
    check.Between("num_other_agents_observed", config.num_other_agents_observed, 1,
                  config.num_taggers + config.num_runners);
    check.Probability("tagging_distance", config.tagging_distance);
    check.Between("tag_reward_for_tagger", config.tag_reward_for_tagger, 0, kMost);
    check.Between("step_penalty_for_tagger", config.step_penalty_for_tagger, -kMost, 0);
    check.Between("tag_penalty_for_runner", config.tag_penalty_for_runner, -kMost, 0);
    check.Between("step_reward_for_runner", config.step_reward_for_runner, 0, kMost);
    check.Between("end_of_game_reward_for_runner", config.end_of_game_reward_for_runner, 0, kMost);
    check.Between("start_seed", config.start_seed, 0, 2147483647);
  }

  template <typename Visitor>
  static void VisitFields(const Config& config, Agents& agents, Visitor& visit) {
    visit("x", agents.x);
    visit("y", agents.y);
    visit("speed", agents.speed);
    visit("heading", agents.heading);
    visit("acceleration", agents.acceleration);
    visit("seen_x", agents.seen_x);
    visit("seen_y", agents.seen_y);
    visit("seen_speed", agents.seen_speed);
    visit("seen_heading", agents.seen_heading);
    visit("seen_acceleration", agents.seen_acceleration);
    visit("seen_type", agents.seen_type);
    visit("seen_active", agents.seen_active);
    visit("id_x", agents.id_x);
    visit("id_y", agents.id_y);
    visit("cell_id", agents.cell_id, Neighbors::AreInCells(config) ? 1 : 0);
    visit("counts", agents.counts);
    visit("catcher", agents.catcher);
    visit("near", agents.near, config.use_full_observation ? 0 : config.num_other_agents_observed);
    visit("num_near", agents.num_near);
    visit("reach", agents.reach);
  }

  using Tables = TagTables<Config>;
  static std::int32_t NumTables(const Config& config) { return Tables::Size(config); }
  static void FillTables(const Config& config, float* tables) { Tables::Fill(config, tables); }

  ROLLOUTS_HD static void Reset(const Ref& w, Rng& rng) {
    const std::int32_t n = w.num_agents;
    const Tables tables(w.config, w.tables);
    const auto side = static_cast<float>(w.config.grid_length);
    w.world.runners_left = w.config.num_runners;
    for (std::int32_t i = 0; i < n; ++i) {
      const auto id = static_cast<std::int32_t>(tables.id[i]);
      const bool drawn = w.config.randomize_starts;
      w.agents.x[i] = drawn ? static_cast<float>(side * rng.Uniform()) : tables.start[id];
      w.agents.y[i] = drawn ? static_cast<float>(side * rng.Uniform()) : tables.start[n + id];
      w.agents.heading[i] = drawn ? static_cast<float>(rng.Below(4) * (kPi / 2))
                                  : tables.start[2 * n + id];
    }
  }

  static constexpr int kResetPhases = 2;

  template <int kPhase>
  ROLLOUTS_HD static void ResetAgent(const Ref& w, std::int32_t i) {
    if constexpr (kPhase == 0) {
      Show(w, i);
    } else if (!w.config.use_full_observation) {
      Neighbors::LookAround(w, i);
    }
  }
  template <int kPhase, typename Crew>
  ROLLOUTS_HD static void ResetTogether(const Crew& crew) {
    if constexpr (kPhase == 1) Neighbors::SortIntoCells(crew);
  }

  // First all agents move; then their visible states and the tags are written; then all agents find
  // their neighbours, and taggers count their tags.
  static constexpr int kPhases = 3;

  template <int kPhase>
  ROLLOUTS_HD static void StepAgent(const Ref& w, std::int32_t i) {
    if constexpr (kPhase == 0) {
      Move(w, i);
    } else if constexpr (kPhase == 1) {
      Show(w, i);
      if (!Neighbors::AreInCells(w.config)) Neighbors::SetCatcher(w, i);
    } else {
      if (!w.config.use_full_observation) Neighbors::LookAround(w, i);
      CountTags(w, i);
    }
  }
  template <int kPhase, typename Crew>
  ROLLOUTS_HD static void StepTogether(const Crew& crew) {
    if constexpr (kPhase == 2) Neighbors::Meet(crew);
  }

  ROLLOUTS_HD static bool EndStep(const Ref& w, Rng&) {
    const std::int32_t leaving =
        w.config.runner_exits_game_after_tagged ? Neighbors::CountRunners(w, /*tagged=*/true) : 0;
    const std::int32_t left = Neighbors::CountRunners(w, /*tagged=*/false) - leaving;
    w.world.runners_left = left;
    return left == 0;
  }

  ROLLOUTS_HD static const char* CheckWorld(const Ref& w) {
    if (w.config.use_full_observation) return nullptr;
    const std::int32_t ranks = w.config.num_other_agents_observed;
    for (std::int32_t i = 0; i < w.num_agents; ++i) {
      if (!IsWithin(w.agents.num_near[i], 0, ranks)) return kNoSuchState;
      const std::int32_t* const near = w.agents.near + std::int64_t{i} * ranks;
      for (std::int32_t k = 0; k < w.agents.num_near[i]; ++k) {
        if (!IsWithin(near[k], 0, w.num_agents - 1)) return kNoSuchState;
      }
    }
    return nullptr;
  }

  ROLLOUTS_HD static void Observe(const Ref& w, std::int32_t row, Obs* obs) {
    const auto id = static_cast<std::int32_t>(w.tables[row]);
    const bool active = w.agents.seen_active[id] != 0;
    // in 64 bits, as Python divides two ints
    const float time = w.max_episode_steps > 0
                           ? static_cast<float>(static_cast<double>(w.elapsed_steps) /
                                                w.max_episode_steps)
                           : 0.0f;
    if (w.config.use_full_observation) {
      ObserveAll(w, id, active, time, obs);
    } else {
      ObserveNearest(w, row, id, active, time, obs);
    }
  }

 private:
  static constexpr double kMost = 3.4e38;  // bound of a 32-bit number

  // The angle in [0, 2 pi) equal to one in (-4 pi, 4 pi): NumPy's remainder, which is exact there.
  ROLLOUTS_HD static float Wrap(float angle) {
    const float size = angle < 0 ? -angle : angle;
    const float rest = size >= kTurn ? size - kTurn : size;
    const float signed_rest = angle < 0 ? -rest : rest;
    return signed_rest < 0 ? signed_rest + kTurn : signed_rest;
  }

  ROLLOUTS_HD static void Move(const Ref& w, std::int32_t i) {
    const Tables tables(w.config, w.tables);
    const Action* const action = w.actions.Of<Action>(0) + 2 * i;
    const auto active = static_cast<float>(w.status.active[i]);
    const bool tags = i < w.config.num_taggers;
    const float most = static_cast<float>(w.config.max_speed) *
                       static_cast<float>(tags ? w.config.skill_level_tagger
                                               : w.config.skill_level_runner);
    const float acceleration = w.agents.acceleration[i] + tables.acceleration[action[0]];
    const float heading = Wrap(w.agents.heading[i] + tables.turn[action[1]]) * active;
    const float speed = Clip(w.agents.speed[i] + acceleration, 0.0f, most) * active;
    w.agents.acceleration[i] = speed <= 0 || speed >= most ? 0.0f : acceleration;
    w.agents.heading[i] = heading;
    w.agents.speed[i] = speed;
    const float x = w.agents.x[i] + speed * static_cast<float>(Cos(double{heading}));
    const float y = w.agents.y[i] + speed * static_cast<float>(Sin(double{heading}));
    const auto side = static_cast<float>(w.config.grid_length);
    w.agents.x[i] = Clip(x, 0.0f, side);
    w.agents.y[i] = Clip(y, 0.0f, side);
    const bool hit = x < 0 || x > side || y < 0 || y > side;
    const float penalty = hit ? static_cast<float>(w.config.edge_hit_penalty) : 0.0f;
    const auto each = static_cast<float>(tags ? w.config.step_penalty_for_tagger
                                              : w.config.step_reward_for_runner);
    w.status.reward[i] = (penalty + each) * active;
  }

  // Writes the state of an agent that others see.
  ROLLOUTS_HD static void Show(const Ref& w, std::int32_t i) {
    const auto id = static_cast<std::int32_t>(w.tables[i]);
    const double diagonal = static_cast<float>(w.config.grid_length) * 1.41421356237309504880;
    const float fastest = static_cast<float>(w.config.max_speed + 1e-10);
    if (!Neighbors::AreInCells(w.config)) {
      w.agents.id_x[id] = w.status.active[i] ? w.agents.x[i] : static_cast<float>(kInfinity);
      w.agents.id_y[id] = w.agents.y[i];
    }
    w.agents.seen_x[id] = w.agents.x[i] / diagonal;
    w.agents.seen_y[id] = w.agents.y[i] / diagonal;
    w.agents.seen_speed[id] = w.agents.speed[i] / fastest;
    w.agents.seen_acceleration[id] = w.agents.acceleration[i] / fastest;
    w.agents.seen_heading[id] = w.agents.heading[i] / kTurn;
    w.agents.seen_type[id] = i < w.config.num_taggers;
    w.agents.seen_active[id] = w.status.active[i];
  }

  ROLLOUTS_HD static void CountTags(const Ref& w, std::int32_t i) {
    auto reward = static_cast<float>(w.status.reward[i]);
    if (i < w.config.num_taggers) {
      // one by one, because the rounding of a 32-bit sum depends on its order
      Neighbors::ForEachTagged(w, i, [&] {
        reward += static_cast<float>(w.config.tag_reward_for_tagger);
      });
    } else if (w.status.active[i]) {
      const bool tagged = w.agents.catcher[i] >= 0;
      const bool exits = tagged && w.config.runner_exits_game_after_tagged;
      if (tagged) reward += static_cast<float>(w.config.tag_penalty_for_runner);
      if (w.elapsed_steps == w.max_episode_steps && !exits) {
        reward += static_cast<float>(w.config.end_of_game_reward_for_runner);
      }
      w.status.terminated[i] = exits;
    }
    w.status.reward[i] = reward;
  }

  ROLLOUTS_HD static void ObserveAll(const Ref& w, std::int32_t id, bool active, float time,
                                     Obs* obs) {
    const std::int32_t others = w.num_agents - 1;
    // ids before the observer's, then those after it
    for (std::int32_t k = 0; k < others; ++k) {
      const std::int32_t o = k < id ? k : k + 1;
      WriteOther(w, id, o, active, obs + k, others);
    }
    obs[7 * others] = active ? time : 0.0f;
  }

  ROLLOUTS_HD static void ObserveNearest(const Ref& w, std::int32_t row, std::int32_t id,
                                         bool active, float time, Obs* obs) {
    const std::int32_t ranks = w.config.num_other_agents_observed;
    const Agents& a = w.agents;
    const std::int32_t* const near = a.near + std::int64_t{row} * ranks;
    const std::int32_t num_near = active ? a.num_near[row] : 0;
    // one loop for each feature, so that loads are scattered but stores are contiguous
    const double x = a.seen_x[id], y = a.seen_y[id];
    const float speed = a.seen_speed[id], acceleration = a.seen_acceleration[id];
    const float heading = a.seen_heading[id];
#pragma GCC ivdep
    for (std::int32_t k = 0; k < num_near; ++k) {
      obs[k] = static_cast<float>(a.seen_x[near[k]] - x);
      obs[ranks + k] = static_cast<float>(a.seen_y[near[k]] - y);
      obs[2 * ranks + k] = a.seen_speed[near[k]] - speed;
      obs[3 * ranks + k] = a.seen_acceleration[near[k]] - acceleration;
      obs[4 * ranks + k] = a.seen_heading[near[k]] - heading;
      obs[5 * ranks + k] = a.seen_type[near[k]];
      obs[6 * ranks + k] = a.seen_active[near[k]];
    }
    for (std::int32_t f = 0; f < 7; ++f) {
      for (std::int32_t k = num_near; k < ranks; ++k) obs[f * ranks + k] = 0;
    }
    obs[7 * ranks] = active ? time : 0.0f;
  }

  // Writes one other agent's seven features, `stride` apart from each other.
  ROLLOUTS_HD static void WriteOther(const Ref& w, std::int32_t id, std::int32_t o, bool active,
                                     Obs* obs, std::int64_t stride) {
    const Agents& a = w.agents;
    obs[0 * stride] = active ? static_cast<float>(a.seen_x[o] - a.seen_x[id]) : 0.0f;
    obs[1 * stride] = active ? static_cast<float>(a.seen_y[o] - a.seen_y[id]) : 0.0f;
    obs[2 * stride] = active ? a.seen_speed[o] - a.seen_speed[id] : 0.0f;
    obs[3 * stride] = active ? a.seen_acceleration[o] - a.seen_acceleration[id] : 0.0f;
    obs[4 * stride] = active ? a.seen_heading[o] - a.seen_heading[id] : 0.0f;
    obs[5 * stride] = a.seen_type[o];
    obs[6 * stride] = a.seen_active[o];
  }
};

}  // namespace rollouts
