// SPDX-License-Identifier: Apache-2.0
#include "engines/mujoco_lanes/comparison.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <memory>
#include <span>
#include <vector>

#include "engines/mujoco_native.h"
#include "rollouts/core/rng.h"
#include "rollouts/support/errors.h"

namespace rollouts {
namespace {

constexpr std::int32_t kStates = 64;
// Every fourth state is drawn; MuJoCo's steps lead from it to the next three.
constexpr std::int32_t kDrawnEvery = 4;
constexpr std::int32_t kStepsBetween = 10;

// The state before a step, and the state after it.
struct State {
  std::vector<double> qpos, qvel, act, qacc_warmstart, ctrl, qacc;
  double time = 0;
};

// The largest absolute value of an array.
double Largest(std::span<const double> values) {
  double largest = 0;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

// The largest difference; NaN where one of the numbers is.
double Difference(std::span<const double> a, std::span<const double> b, double scale) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(a[i] - b[i]);
    if (std::isnan(difference)) return difference;
    largest = std::max(largest, difference);
  }
  return largest == 0 ? 0 : largest / scale;
}

// States of a model, and MuJoCo's steps from them.
class Steps {
 public:
  explicit Steps(const mjModel* model)
      : model_(model),
        at_(Release().model),
        in_(Release().data),
        rng_(/*seed=*/42, /*env_id=*/0, /*episode=*/0) {
    mjData* data = nullptr;
    Guarded([&] { data = Mujoco().make_data(model_); });
    if (!data) throw EngineError("its data cannot be allocated");
    data_.reset(data);
  }

  // Draws or steps to the next state. False where MuJoCo finds it bad.
  bool Draw(std::int32_t number, State& state) {
    if (number % kDrawnEvery == 0) {
      Guarded([&] { Mujoco().reset_data(model_, data_.get()); });
      DrawPositions(in_.qpos.In(data_.get()));
      for (double& value : Array(in_.qvel, at_.nv)) value = rng_.Uniform(-2, 2);
      for (double& value : Array(in_.act, at_.na)) value = rng_.Uniform(0, 1);
      for (double& value : Array(in_.qacc_warmstart, at_.nv)) value = rng_.Uniform(-2, 2);
    } else if (!Step(kStepsBetween)) {
      return false;
    }
    DrawControls();
    Take(state);
    return true;
  }

  // Steps; false where MuJoCo warns, because it has reset itself then.
  bool Step(std::int32_t steps) {
    Guarded([&] {
      for (std::int32_t i = 0; i < steps; ++i) Mujoco().step(model_, data_.get());
    });
    const auto& warnings = in_.warning.In(data_.get());
    return std::all_of(std::begin(warnings), std::end(warnings),
                       [](const MujocoWarning& warning) { return warning.number == 0; });
  }

  void Take(State& state) const {
    const auto copy = [&](const Place<double*>& array, const Place<std::int64_t>& size) {
      const std::span<double> values = Array(array, size);
      return std::vector<double>(values.begin(), values.end());
    };
    state = {copy(in_.qpos, at_.nq), copy(in_.qvel, at_.nv), copy(in_.act, at_.na),
             copy(in_.qacc_warmstart, at_.nv), copy(in_.ctrl, at_.nu), copy(in_.qacc, at_.nv),
             in_.time.In(data_.get())};
  }

  // The scale for errors of velocities: the largest velocity, or the most that a step adds to one
  // without constraints.
  double VelocityScale() const {
    return std::max(Largest(Array(in_.qvel, at_.nv)),
                    at_.timestep.In(model_) * Largest(Array(in_.qacc_smooth, at_.nv)));
  }

 private:
  std::span<double> Array(const Place<double*>& array, const Place<std::int64_t>& size) const {
    return {array.In(data_.get()), static_cast<std::size_t>(size.In(model_))};
  }

  // Draws positions around the model's own: within limits, on the floor and in it.
  void DrawPositions(double* qpos) {
    const std::int32_t* const types = at_.jnt_type.In(model_);
    for (std::int64_t joint = 0; joint < at_.njnt.In(model_); ++joint) {
      double* const own = qpos + at_.jnt_qposadr.In(model_)[joint];
      switch (types[joint]) {
        case kFreeJoint:
          for (int i = 0; i < 2; ++i) own[i] += rng_.Uniform(-0.1, 0.1);
          own[2] += rng_.Uniform(-std::abs(own[2]), 0.1);
          Turn(own + 3);
          break;
        case kBallJoint: Turn(own); break;
        default: *own += DrawOffset(joint, *own);
      }
    }
  }

  double DrawOffset(std::int64_t joint, double from) {
    if (!at_.jnt_limited.In(model_)[joint]) return rng_.Uniform(-0.5, 0.2);
    // draws positions slightly beyond the limits, too
    const double* const range = at_.jnt_range.In(model_) + 2 * joint;
    const double beyond = 0.05 * (range[1] - range[0]);
    return rng_.Uniform(range[0] - beyond, range[1] + beyond) - from;
  }

  void Turn(double* quat) {
    double length = 0;
    for (int i = 0; i < 4; ++i) {
      quat[i] += rng_.Uniform(-0.3, 0.3);
      length += quat[i] * quat[i];
    }
    for (int i = 0; i < 4; ++i) quat[i] /= std::sqrt(length);
  }

  void DrawControls() {
    double* const ctrl = in_.ctrl.In(data_.get());
    for (std::int64_t i = 0; i < at_.nu.In(model_); ++i) {
      const double* const range = at_.actuator_ctrlrange.In(model_) + 2 * i;
      const bool limited = range[0] < range[1];
      // as float32, because actions are float32
      ctrl[i] = static_cast<float>(limited ? rng_.Uniform(range[0], range[1]) : rng_.Uniform(-1, 1));
    }
  }

  const mjModel* const model_;
  const ModelPlaces& at_;
  const DataPlaces& in_;
  std::unique_ptr<mjData, DeleteData> data_;
  Rng rng_;
};

lanes::Row RowOf(State& state) {
  lanes::Row row;
  row.qpos = state.qpos.data();
  row.qvel = state.qvel.data();
  row.act = state.act.data();
  row.qacc_warmstart = state.qacc_warmstart.data();
  row.time = &state.time;
  row.ctrl = state.ctrl.data();
  row.qacc = state.qacc.data();
  return row;
}

}  // namespace

LanesComparison CompareLanes(const lanes::Model& in_lanes, const mjModel* model) {
  Steps steps(model);
  std::vector<State> ours, theirs;
  std::vector<double> scales;
  for (std::int32_t i = 0; i < kStates; ++i) {
    State before, after;
    // after a failure the next drawn state begins anew
    if (!steps.Draw(i, before) || !steps.Step(1)) continue;
    steps.Take(after);
    scales.push_back(steps.VelocityScale());
    ours.push_back(std::move(before));
    theirs.push_back(std::move(after));
  }
  std::array<lanes::Row, kStates> rows;
  std::transform(ours.begin(), ours.end(), rows.begin(), RowOf);
  const std::uint64_t left = lanes::Step(in_lanes, {rows.data(), ours.size()}, {});

  LanesComparison result;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    if ((left >> i & 1) != 0) continue;
    ++result.num_compared;
    const auto add = [&](const char* array, double difference) {
      if (difference <= result.difference) return;
      result.difference = difference;
      result.array = array;
    };
    add("qpos", Difference(ours[i].qpos, theirs[i].qpos, Largest(theirs[i].qpos)));
    add("qvel", Difference(ours[i].qvel, theirs[i].qvel, scales[i]));
    const double qacc = Difference(ours[i].qacc, theirs[i].qacc, Largest(theirs[i].qacc));
    // stiff contacts multiply rounding errors, but a release with other rules differs by far more
    result.qacc_differs |= !(qacc <= 1e-6);
    if (std::isnan(result.difference)) break;
  }
  return result;
}

std::string TextOf(double number) {
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%.2g", number);
  return text.data();
}

}  // namespace rollouts
