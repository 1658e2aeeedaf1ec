// SPDX-License-Identifier: Apache-2.0
// An environment on a world of Box2D. Its task is a class with
//   struct Config; static VisitConfig, CheckConfig, MakeSpec, as in core/env.h
//   static constexpr std::int32_t kMaxActions     numbers of an action
//   static std::int32_t ReadAction(const Config&, const std::uint8_t* bytes, float* numbers)
//       reads a row of the pool's actions; returns how many numbers it has
//   Task(const Config&, TapeDraws&)               a new episode, after the step without an action
//       with which Gymnasium's reset ends
//   StepResult Step(const float* action, TapeDraws&)
//   using Obs, void Observe(Obs* obs) const
//   void AppendScene(std::vector<double>& out) const    see rollouts/rendering/box2d_frames.py
//   void WriteInfo(double* values) const    optional: where its spec announces infos
//   Render(std::vector<std::uint8_t>& rgb) const    optional: draws a frame; returns its height and
//       width
//   static std::size_t NumLasting(const Config&)    optional: how many of the first numbers that an
//       episode draws the next episode may keep
//   static bool DrawsAnew(const Config&)    with NumLasting: whether the next one draws them again
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "rollouts/core/env.h"
#include "rollouts/engines/planar_world.h"
#include "rollouts/envs/box2d/episode_tape.h"
#include "rollouts/support/errors.h"
#include "rollouts/support/state.h"

namespace rollouts {

template <typename Task>
class Box2DEnv {
 public:
  using Config = typename Task::Config;
  using Action = std::uint8_t;
  using Obs = typename Task::Obs;

  template <typename Visitor>
  static void VisitConfig(Config& config, Visitor& visit) {
    Task::VisitConfig(config, visit);
  }
  template <typename Check>
  static void CheckConfig(const Config& config, Check& check) {
    Task::CheckConfig(config, check);
  }
  static EnvSpec MakeSpec(const Config& config) { return Task::MakeSpec(config); }

  // Runs turns of tasks without images: where a step draws an image, the world is only a small part
  // of its cost.
  static void RunTurns(std::int32_t count, const std::function<void(std::int32_t)>& turn)
    requires(!requires(const Task& task, std::vector<std::uint8_t>& rgb) { task.Render(rgb); })
  {
    RunPlanarTurns(count, turn);
  }

  explicit Box2DEnv(const Config& config) : config_(config) {}

  void Reset(Rng& rng, bool /*forced*/) {
    numbers_.clear();
    actions_.clear();
    // the world is made anew, as in Gymnasium's LunarLander, so that nothing of the former one
    // remains
    task_.reset();
    TapeDraws draws(rng, numbers_, AgainNext());
    try {
      task_ = std::make_unique<Task>(config_, draws);
    } catch (...) {
      numbers_.clear();
      throw;
    }
    SetLasting();
  }

  // Takes the lasting numbers of an environment with other options, which this one replaces.
  void Follow(const Box2DEnv& before)
    requires requires(const Config& config) { Task::NumLasting(config); }
  {
    if (before.lasting_.size() == Task::NumLasting(config_)) lasting_ = before.lasting_;
  }

  StepResult Step(const Action* action, Rng& rng) {
    float numbers[Task::kMaxActions];
    const std::int32_t count = Task::ReadAction(config_, action, numbers);
    const std::size_t drawn = numbers_.size();
    TapeDraws draws(rng, numbers_);
    try {
      const StepResult result = task_->Step(numbers, draws);
      actions_.insert(actions_.end(), numbers, numbers + count);
      return result;
    } catch (...) {
      // the tape keeps only steps that can be repeated
      numbers_.resize(drawn);
      throw;
    }
  }

  void Observe(Obs* obs) const { Live().Observe(obs); }
  void WriteInfo([[maybe_unused]] double* values) const {
    if constexpr (requires(const Task& task) { task.WriteInfo(values); }) Live().WriteInfo(values);
  }

  std::array<std::int32_t, 2> Render(std::vector<std::uint8_t>& rgb) const
    requires requires(const Task& task) { task.Render(rgb); }
  {
    return Live().Render(rgb);
  }

  // Saves the scene, for drawing, and the tape, so a state grows with the length of its episode.
  // Both are empty before the first reset, and after a reset that failed.
  void SaveState(std::vector<std::uint8_t>& out) const {
    StateWriter writer(out);
    std::vector<double> scene;
    if (task_) task_->AppendScene(scene);
    writer.Put(static_cast<std::uint64_t>(scene.size()));
    writer.PutBytes(BytesOf(scene));
    writer.Put(static_cast<std::uint64_t>(numbers_.size()));
    writer.Put(static_cast<std::uint64_t>(actions_.size()));
    writer.PutBytes(BytesOf(numbers_));
    writer.PutBytes(BytesOf(actions_));
  }

  // Plays the episode again, which takes as long as its steps took.
  void LoadState(std::span<const std::uint8_t> state) {
    StateReader reader(state);
    Vector<double>(reader, reader.Get<std::uint64_t>());  // the scene follows from the tape
    const auto num_numbers = reader.Get<std::uint64_t>();
    const auto num_actions = reader.Get<std::uint64_t>();
    const bool begun = num_numbers > 0;
    std::vector<double> numbers = Vector<double>(reader, num_numbers);
    std::vector<float> actions = Vector<float>(reader, num_actions);
    const std::int64_t per_step = Task::NumActions(config_);
    if (!reader.rest().empty() || num_actions % per_step != 0) {
      throw SpecError("is longer than its parts");
    }
    TapeDraws draws{std::span<const double>(numbers)};
    auto task = begun ? std::make_unique<Task>(config_, draws) : nullptr;
    if (!begun && num_actions > 0) throw SpecError("has steps of no episode");
    CheckActions(actions);
    for (std::size_t i = 0; i < actions.size(); i += per_step) task->Step(&actions[i], draws);
    if (!draws.at_end()) throw SpecError("is longer than its parts");
    task_ = std::move(task);
    numbers_ = std::move(numbers);
    actions_ = std::move(actions);
    SetLasting();
  }

 private:
  // Checks actions as the pool does: numbers of a Discrete space, or finite ones.
  void CheckActions(std::span<const float> actions) const {
    const std::int32_t choices = Task::MakeSpec(config_).action.n;
    for (const float number : actions) {
      const bool is_choice = number >= 0 && number < choices && number == std::floor(number);
      if (choices > 0 ? !is_choice : !std::isfinite(number)) {
        throw SpecError("has an action out of range");
      }
    }
  }

  std::span<const double> AgainNext() const {
    if constexpr (requires { Task::NumLasting(config_); }) {
      if (!Task::DrawsAnew(config_)) return lasting_;
    }
    return {};
  }
  void SetLasting() {
    if constexpr (requires { Task::NumLasting(config_); }) {
      const std::size_t count = std::min(Task::NumLasting(config_), numbers_.size());
      lasting_.assign(numbers_.begin(), numbers_.begin() + static_cast<std::ptrdiff_t>(count));
    }
  }
  const Task& Live() const {
    if (!task_) throw SpecError("has no world: its last reset failed");
    return *task_;
  }
  template <typename T>
  static std::span<const std::uint8_t> BytesOf(const std::vector<T>& values) {
    return {reinterpret_cast<const std::uint8_t*>(values.data()), values.size() * sizeof(T)};
  }
  template <typename T>
  static std::vector<T> Vector(StateReader& reader, std::uint64_t count) {
    // divided, because a product with a damaged state's number may overflow
    if (count > reader.rest().size() / sizeof(T)) throw SpecError("is shorter than its parts");
    const auto bytes = reader.GetBytes(count * sizeof(T));
    std::vector<T> values(count);
    std::copy(bytes.begin(), bytes.end(), reinterpret_cast<std::uint8_t*>(values.data()));
    return values;
  }

  const Config config_;
  std::unique_ptr<Task> task_;
  std::vector<double> numbers_;
  std::vector<float> actions_;
  std::vector<double> lasting_;  // the episode's first numbers, which the next may reuse
};

}  // namespace rollouts
