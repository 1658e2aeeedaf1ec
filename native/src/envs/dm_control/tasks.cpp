// SPDX-License-Identifier: Apache-2.0
// The part that several domains of the DeepMind Control Suite share.
#include <cmath>
#include <functional>
#include <string>

#include "rollouts/envs/dm_control/randomizers.h"
#include "rollouts/envs/dm_control/rewards.h"
#include "rollouts/envs/mujoco/task_math.h"
#include "rollouts/support/errors.h"

namespace rollouts::dmc {
namespace {

void Normalize(double* values, std::int32_t count) {
  const double norm = mujoco::Norm(values, count);
  for (std::int32_t i = 0; i < count; ++i) values[i] /= norm;
}

// A rotation by less than `limit` radians around any axis.
void DrawLimitedRotation(Rng& rng, double limit, double* quaternion) {
  // the direction of normal numbers is uniform
  double axis[3];
  for (double& value : axis) value = mujoco::StandardNormal(rng);
  Normalize(axis, 3);
  const double half = rng.Uniform() * limit * 0.5;
  quaternion[0] = std::cos(half);
  for (std::int32_t i = 0; i < 3; ++i) quaternion[1 + i] = axis[i] * std::sin(half);
}

}  // namespace

double SmallControl(const double* controls, std::int32_t count) {
  // in NumPy's order, so that rewards are dm_control's to the bit
  const double sum = mujoco::PairwiseSum<double>(
      [&](std::int32_t i) { return Tolerance(controls[i], {}, 1, Sigmoid::kQuadratic, 0); }, 0,
      count);
  return sum / count;
}

void DrawRotation(Rng& rng, double* quaternion) {
  for (std::int32_t i = 0; i < 4; ++i) quaternion[i] = mujoco::StandardNormal(rng);
  Normalize(quaternion, 4);
}

void RandomizeJoints(Physics& physics, Rng& rng) {
  const ModelView& model = physics.model_view();
  for (std::int32_t joint = 0; joint < model.njnt; ++joint) {
    // through start(): view() is read-only
    double* const qpos = physics.start().qpos + model.jnt_qposadr[joint];
    const double low = model.jnt_range[2 * joint];
    const double high = model.jnt_range[2 * joint + 1];
    const bool limited = physics.JointLimited(joint);
    switch (model.jnt_type[joint]) {
      // as dm_control's randomizers: slides without limits have no natural range, and stay
      case kHingeJoint: *qpos = limited ? rng.Uniform(low, high) : rng.Uniform(-kPi, kPi); break;
      case kSlideJoint:
        if (limited) *qpos = rng.Uniform(low, high);
        break;
      case kBallJoint:
        if (limited) {
          DrawLimitedRotation(rng, high, qpos);
        } else {
          DrawRotation(rng, qpos);
        }
        break;
      case kFreeJoint:
        if (limited) break;
        // uniform and not normal, as dm_control has it: not all rotations are as likely
        for (std::int32_t i = 3; i < 7; ++i) qpos[i] = rng.Uniform();
        Normalize(qpos + 3, 4);
        break;
    }
  }
}

void DrawApart(Physics& physics, const std::function<void()>& draw) {
  // dm_control tries for ever; a model whose sizes were changed may have no such start
  constexpr std::int32_t kTries = 10'000;
  for (std::int32_t i = 0; i < kTries; ++i) {
    draw();
    physics.ForwardUnactuated();
    if (physics.num_contacts() == 0) return;
  }
  throw EngineError("no start without contacts was found in " + std::to_string(kTries) +
                    " tries; sizes or ranges of the model may leave none");
}

void RandomizeJointsApart(Physics& physics, Rng& rng) {
  DrawApart(physics, [&] { RandomizeJoints(physics, rng); });
}

}  // namespace rollouts::dmc
