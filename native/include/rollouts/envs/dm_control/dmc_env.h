// SPDX-License-Identifier: Apache-2.0
// The tasks of the DeepMind Control Suite: the loop around the simulation, as in dm_control's
// rl/control.py and mujoco/engine.py. suite_task.h defines what a task is.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rollouts/core/env.h"
#include "rollouts/envs/dm_control/dmc_task.h"
#include "rollouts/envs/mujoco/model_owner.h"

namespace rollouts {

struct DmControlConfig : EngineConfig {
  std::string suite_model;            // path of a .mjb; set by rollouts/families/dm_control.py
  std::string suite_task;             // an id of envs.cmake; set by rollouts/families/dm_control.py
  std::int32_t frame_skip = 0;        // substeps per step; 0: the task's own number
  std::string obs_dtype = "float64";  // as in dm_control; or "float32": half the bytes
};

class DmControl : public ModelOwner {
 public:
  using Config = DmControlConfig;
  using Action = float;
  using Obs = std::uint8_t;  // bytes: the dtype is an option

  template <typename Visitor>
  static void VisitConfig(Config& config, Visitor& visit) {
    visit("suite_model", config.suite_model);
    visit("suite_task", config.suite_task);
    visit("frame_skip", config.frame_skip);
    visit("obs_dtype", config.obs_dtype);
    EngineConfig::VisitEngine(config, visit);
  }
  template <typename Check>
  static void CheckConfig(const Config& config, Check& check) {
    if (config.frame_skip != 0) check.Positive("frame_skip", config.frame_skip);
    check.OneOf("obs_dtype", config.obs_dtype, {"float64", "float32"});
    EngineConfig::CheckEngine(config, check);
  }

  // Batches hold the model, so that environments and specs find it.
  static std::shared_ptr<const void> Share(const Config& config) {
    return PixelView::Share(PhysicsModel::Get(config.suite_model), config);
  }

  // Substeps of a step: frame_skip, or the number that fills the task's control interval.
  static std::int32_t Substeps(const Config& config, const dmc::TaskEntry& entry, double timestep);

  // Throws EngineError for a model that MuJoCo cannot read, SpecError for one that lacks parts that
  // the task needs.
  static EnvSpec MakeSpec(const Config& config);

  explicit DmControl(const Config& config);

  // Begins episodes whose starts need substeps to come to rest, several at once by lanes.
  static void BeginAhead(std::span<DmControl* const> envs, std::span<const Rng> streams);
  void Reset(Rng& rng, bool forced);
  StepResult Step(const Action* action, Rng& rng);
  void Observe(Obs* obs) const;
  void WriteInfo(double*) const {}
  void SaveState(std::vector<std::uint8_t>& out) const;
  void LoadState(std::span<const std::uint8_t> state);

 private:
  void Draw(Rng& rng);
  std::int64_t ObserveState(Obs* obs) const;
  std::int32_t ObservationSize() const;

  const Config config_;
  const dmc::TaskEntry& entry_;
  const std::unique_ptr<dmc::Task> task_;
  const std::int32_t substeps_;
  std::optional<Rng> drawn_;   // the stream after Draw, where BeginAhead has called it
  std::vector<double> shown_;  // the observation of a loaded state; empty after the next step
};

}  // namespace rollouts
