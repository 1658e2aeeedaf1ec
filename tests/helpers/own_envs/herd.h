// Dogs drive sheep to a gate on a ring of fields; sheep that are through it are gone.
#pragma once

#include "rollouts/core/multi_agent.h"

struct Herd {
  struct Config {
    std::int32_t num_dogs = 2;   // the drivers
    std::int32_t num_sheep = 4;  // the driven
    std::int32_t fields = 24;    // the ring's; the gate is at 0
    double panic = 0.05;         // probability that a sheep jumps anywhere
  };
  struct World {
    std::int32_t gone;
    float panic[2];  // what was drawn for this step
  };
  struct Agents {
    std::int32_t* field;
    float* fear;
  };
  using Obs = float;
  using Ref = rollouts::WorldRef<Herd>;

  static rollouts::EnvSpec MakeSpec(const Config& config) {
    using rollouts::DType;
    const rollouts::SpaceSpec seen = {
        .dtype = DType::kFloat32, .ndim = 1, .shape = {4}, .low = {-1}, .high = {2}};
    rollouts::EnvSpec spec;
    spec.step_cost_ns = rollouts::EnvSpec::CostNs(20, config.num_dogs + config.num_sheep);
    AddGroup(spec, {"dog", config.num_dogs, seen,
                    {.dtype = DType::kInt32,
                     .ndim = 1,
                     .shape = {2},
                     .multi_discrete = true,
                     .elementwise = true,
                     .high = {2, 1}}});
    AddGroup(spec, {"sheep", config.num_sheep, seen, {.dtype = DType::kInt64, .n = 3}});
    return spec;
  }
  template <typename V>
  static void VisitConfig(Config& config, V& visit) {
    visit("num_dogs", config.num_dogs);
    visit("num_sheep", config.num_sheep);
    visit("fields", config.fields);
    visit("panic", config.panic);
  }
  template <typename Check>
  static void CheckConfig(const Config& config, Check& check) {
    check.Between("num_dogs", config.num_dogs, 1, 100);
    check.Between("num_sheep", config.num_sheep, 1, 100);
    check.Between("fields", config.fields, 4, 1000);
    check.Probability("panic", config.panic);
  }
  template <typename V>
  static void VisitFields(const Config&, Agents& agents, V& visit) {
    visit("field", agents.field);
    visit("fear", agents.fear, 2);
  }
  template <typename V>
  static void VisitWorld(World& world, V& visit) {
    visit("gone", world.gone);
  }

  ROLLOUTS_HD static void Reset(const Ref& w, rollouts::Rng& rng) {
    for (std::int32_t i = 0; i < w.num_agents; ++i) {
      w.agents.field[i] = 1 + static_cast<std::int32_t>(rng.Below(w.config.fields - 1));
    }
    Draw(w, rng);
  }

  static constexpr int kPhases = 2;

  template <int kPhase>
  ROLLOUTS_HD static void StepAgent(const Ref& w, std::int32_t i) {
    const std::int32_t dogs = w.config.num_dogs;
    if constexpr (kPhase == 0) {
      if (i < dogs) {
        // its direction, and whether it runs
        const std::int32_t* action = w.actions.Of<std::int32_t>(0) + 2 * i;
        Move(w, i, (action[0] - 1) * (1 + action[1]));
      }
    } else if (i >= dogs && w.status.active[i]) {
      w.agents.fear[2 * i] = 0;
      for (std::int32_t d = 0; d < dogs; ++d) {
        w.agents.fear[2 * i] += w.agents.field[d] == w.agents.field[i];
      }
      w.agents.fear[2 * i + 1] = 0.5f * w.agents.fear[2 * i + 1] + w.agents.fear[2 * i];
      const bool panics = w.world.panic[i % 2] < w.config.panic;
      Move(w, i, w.actions.Of<std::int32_t>(1)[i - dogs] - 1 + (panics ? 5 : 0));
      const bool through = w.agents.field[i] == 0;
      w.status.terminated[i] = through;
      w.status.reward[i] = through ? 1 : -0.01 * w.agents.fear[2 * i];
    }
  }

  ROLLOUTS_HD static bool EndStep(const Ref& w, rollouts::Rng& rng) {
    std::int32_t through = 0;
    for (std::int32_t i = w.config.num_dogs; i < w.num_agents; ++i) through += w.status.terminated[i];
    for (std::int32_t i = 0; i < w.config.num_dogs; ++i) w.status.reward[i] = 0.5 * through;
    w.world.gone += through;
    Draw(w, rng);
    return w.world.gone == w.config.num_sheep;
  }

  ROLLOUTS_HD static void Observe(const Ref& w, std::int32_t i, Obs* obs) {
    const auto fields = static_cast<float>(w.config.fields);
    obs[0] = static_cast<float>(w.agents.field[i]) / fields;
    obs[1] = rollouts::Clip(w.agents.fear[2 * i + 1], 0.0f, 2.0f);
    obs[2] = static_cast<float>(w.agents.field[i < w.config.num_dogs ? w.config.num_dogs : 0]) / fields;
    obs[3] = static_cast<float>(w.world.gone) / static_cast<float>(w.config.num_sheep);
  }

 private:
  ROLLOUTS_HD static void Draw(const Ref& w, rollouts::Rng& rng) {
    for (float& one : w.world.panic) one = static_cast<float>(rng.Uniform());
  }
  ROLLOUTS_HD static void Move(const Ref& w, std::int32_t i, std::int32_t by) {
    const std::int32_t fields = w.config.fields;
    w.agents.field[i] = (w.agents.field[i] + by + fields) % fields;
  }
};
