// SPDX-License-Identifier: Apache-2.0
// The parts that environments on MuJoCo share: a simulation, a model that a user may change, and
// images.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rollouts/core/engine_choice.h"
#include "rollouts/core/model_overrides.h"
#include "rollouts/engines/mujoco_physics.h"
#include "rollouts/engines/mujoco_pixels.h"
#include "rollouts/envs/mujoco/model_changes.h"
#include "rollouts/envs/mujoco/step_engine.h"
#include "rollouts/support/state.h"

namespace rollouts {

// Implements the functions of core/env.h for engines whose model has fields.
class ModelOwner {
 public:
  void CheckOverrides(const ModelOverrides& overrides) const {
    ModelChanges::Check(physics_.model(), overrides);
  }
  void SetModel(ModelOverrides overrides) { changes_.Set(std::move(overrides)); }
  const ModelOverrides& model_overrides() const { return changes_.overrides(); }
  ModelArray ReadModel(const std::string& field, bool of_file) const {
    return ModelChanges::Read(physics_, field, of_file);
  }
  std::vector<std::string> ModelFields() const { return physics_.model().SettableFields(); }

  EngineChoice engine() const { return {why_not_lanes_.empty() ? "lanes" : "mujoco", why_not_lanes_}; }
  bool stepped_ahead() const { return physics_.stepped_by_lanes(); }

  // Makes the steps that are due, at once where lanes step the simulations; each environment's Step
  // then finishes its own.
  template <typename Env>
  static void StepAhead(std::span<Env* const> envs, std::span<const float* const> actions) {
    std::array<Physics::DueStep, Physics::kMostDue> due;
    for (std::size_t i = 0; i < envs.size(); ++i) due[i] = {&envs[i]->physics_, actions[i]};
    Physics::StepTogether({due.data(), envs.size()});
  }

 protected:
  ModelOwner(const std::shared_ptr<const PhysicsModel>& model, const EngineConfig& config)
      : physics_(model), pixels_(PixelView::Make(model, config)), all_parts_(config.all_parts) {}
  ~ModelOwner() = default;

  // To be called once, in a constructor: from now on lanes step the simulation, if they can.
  void ChooseEngine(const EngineConfig& config, const StepKind& kind) {
    why_not_lanes_ = WhyNotLanes(config, physics_.model(), kind.reads);
    if (why_not_lanes_.empty()) physics_.UseLanes(kind);
  }

  // To be called when the simulation has changed.
  void ForgetPicture() {
    if (pixels_) pixels_->Forget();
  }
  // Writes an observation: that of `write_state`, which writes to an address and returns the number
  // of bytes, or the image, or first the one and then the other.
  template <typename WriteState>
  void ObserveBy(const WriteState& write_state, std::uint8_t* obs) const {
    if (!pixels_ || all_parts_) obs += write_state(obs);
    if (pixels_) pixels_->Write(physics_, obs);
  }
  // Appends the image to a state, after all else.
  void SavePicture(std::vector<std::uint8_t>& out) const {
    if (!pixels_) return;
    StateWriter writer(out);
    pixels_->Save(physics_, writer);
  }

  Physics physics_;
  const std::unique_ptr<PixelView> pixels_;  // null without from_pixels
  ModelChanges changes_;  // put in place by a Reset: changes_.BeginEpisode(physics_, rng)

 private:
  const bool all_parts_;
  std::string why_not_lanes_;
};

}  // namespace rollouts
