// Two agents whose spaces are whatever the options say; rewards tell which actions arrived.
#pragma once

#include "rollouts/core/multi_agent.h"

struct Spaces {
  struct Config {
    // types of observations and actions: a Discrete of n, else a shape whose digits are its sides
    std::int32_t obs_type = OBS_DTYPE, obs_n = 0, obs_shape = 2;
    std::int32_t act_type = 3, act_n = 0, act_shape = 2;
    bool obs_multi = false, obs_each = false, act_multi = false, act_each = false;
    double obs_low = 0, obs_high = 1, act_low = -1, act_high = 1;
    std::int32_t num_groups = 1, num_agents = 2;
    bool same_name = false, is_named = true;
  };
  struct World {
    std::int32_t steps;
  };
  struct Agents {
    std::int32_t* unused;
  };
  using Obs = OBS_TYPE;
  using Ref = rollouts::WorldRef<Spaces>;
  static constexpr int kPhases = 1;

  ROLLOUTS_HD static double Low(double low, bool each, std::int32_t i) { return each ? low + i % 2 : low; }
  ROLLOUTS_HD static double High(double high, bool each, std::int32_t i) { return each ? high - i % 2 : high; }

  ROLLOUTS_HD static constexpr rollouts::SpaceSpec Space(std::int32_t dtype, std::int32_t n, std::int32_t shape,
                                                         bool multi, bool each, double low, double high) {
    rollouts::SpaceSpec space;
    space.dtype = static_cast<rollouts::DType>(dtype);
    space.n = n;
    space.multi_discrete = multi;
    space.elementwise = each;
    for (std::int32_t left = shape; left > 0; left /= 10) ++space.ndim;
    for (std::int32_t d = space.ndim - 1; d >= 0 && d < 4; --d, shape /= 10) space.shape[d] = shape % 10;
    const std::int64_t bounds = each ? space.size() : 1;
    for (std::int32_t i = 0; i < bounds && i < 64; ++i) {
      space.low[i] = multi ? low : Low(low, each, i);
      space.high[i] = High(high, each, i);
    }
    return space;
  }
  ROLLOUTS_HD static constexpr rollouts::SpaceSpec ObsSpace(const Config& c) {
    return Space(c.obs_type, c.obs_n, c.obs_shape, c.obs_multi, c.obs_each, c.obs_low, c.obs_high);
  }
  ROLLOUTS_HD static constexpr rollouts::SpaceSpec ActSpace(const Config& c) {
    return Space(c.act_type, c.act_n, c.act_shape, c.act_multi, c.act_each, c.act_low, c.act_high);
  }

  static rollouts::EnvSpec MakeSpec(const Config& config) {
    static const char* const kNames[] = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"};
    rollouts::EnvSpec spec;
    for (std::int32_t g = 0; g < config.num_groups; ++g) {
      const char* const name = config.is_named ? kNames[config.same_name ? 0 : g] : nullptr;
      AddGroup(spec, {name, config.num_agents, ObsSpace(config), ActSpace(config)});
    }
    return spec;
  }

  template <typename Visitor>
  static void VisitConfig(Config& c, Visitor& visit) {
    visit("obs_type", c.obs_type);
    visit("obs_n", c.obs_n);
    visit("obs_shape", c.obs_shape);
    visit("act_type", c.act_type);
    visit("act_n", c.act_n);
    visit("act_shape", c.act_shape);
    visit("obs_multi", c.obs_multi);
    visit("obs_each", c.obs_each);
    visit("act_multi", c.act_multi);
    visit("act_each", c.act_each);
    visit("obs_low", c.obs_low);
    visit("obs_high", c.obs_high);
    visit("act_low", c.act_low);
    visit("act_high", c.act_high);
    visit("num_groups", c.num_groups);
    visit("num_agents", c.num_agents);
    visit("same_name", c.same_name);
    visit("is_named", c.is_named);
  }
  template <typename Visitor>
  static void VisitFields(const Config&, Agents& agents, Visitor& visit) {
    visit("unused", agents.unused);
  }

  ROLLOUTS_HD static void Reset(const Ref& w, rollouts::Rng&) { w.world.steps = 0; }

  template <int kPhase>
  ROLLOUTS_HD static void StepAgent(const Ref& w, std::int32_t agent) {
    const Config& c = w.config;
    std::int32_t size = 1;
    if (c.act_n == 0) {
      for (std::int32_t left = c.act_shape; left > 0; left /= 10) size *= left % 10;
    }
    double sum = 0;
    for (std::int32_t i = 0; i < size; ++i) {
      const std::int32_t at = agent * size + i;
      const double value = c.act_n > 0 || c.act_multi ? w.actions.template Of<std::int32_t>(0)[at]
                                                      : w.actions.template Of<float>(0)[at];
      sum += (i + 1) * value;
    }
    w.status.reward[agent] = sum;
  }

  ROLLOUTS_HD static bool EndStep(const Ref& w, rollouts::Rng&) {
    ++w.world.steps;
    return false;
  }

  ROLLOUTS_HD static void Observe(const Ref& w, std::int32_t agent, Obs* obs) {
    const Config& c = w.config;
    const bool shows_high = (w.world.steps + agent) % 2 == 1;
    if (c.obs_n > 0) {
      obs[0] = static_cast<Obs>(shows_high ? c.obs_n - 1 : 0);
      return;
    }
    std::int32_t size = 1;
    for (std::int32_t left = c.obs_shape; left > 0; left /= 10) size *= left % 10;
    for (std::int32_t i = 0; i < size; ++i) {
      double value = shows_high ? High(c.obs_high, c.obs_each, i)
                                : (c.obs_multi ? 0 : Low(c.obs_low, c.obs_each, i));
      if (value - value != 0) value = 7;  // a bound that is none
      obs[i] = static_cast<Obs>(value);
    }
  }
};
