// SPDX-License-Identifier: Apache-2.0
#include "rollouts/replay/hindsight.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "rollouts/core/rng.h"
#include "rollouts/support/errors.h"

namespace rollouts::replay {
namespace {

constexpr std::uint32_t kGoals = 0x474F414Cu;  // apart from the random streams of envs and tables

// The distance between two goals; elements are summed in order.
template <typename T>
double Distance(const std::uint8_t* a, const std::uint8_t* b, std::int64_t size) {
  double sum = 0;
  for (std::int64_t i = 0; i < size; ++i) {
    T x, y;
    // copied, because rows need not be aligned to elements
    std::memcpy(&x, a + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
    std::memcpy(&y, b + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
    const double difference = static_cast<double>(x) - static_cast<double>(y);
    sum += difference * difference;
  }
  return std::sqrt(sum);
}

}  // namespace

Hindsight::Hindsight(const ChunkLayout& layout, std::size_t column, const HindsightSpec& spec)
    : layout_(layout), column_(column), spec_(spec) {
  const ColumnSpec& obs = layout.specs[column];
  item_bytes_ = obs.item_bytes;
  obs_bytes_ = obs.value_bytes();
  if (obs.stacked() || obs.shape.size() != 1) {
    throw SpecError("hindsight needs flat observations (D,)");
  }
  for (const std::int64_t first : {spec.achieved, spec.desired}) {
    if (first < 0 || spec.size < 1 || first > obs.shape[0] - spec.size) {
      throw SpecError("a goal of " + std::to_string(spec.size) + " elements from " +
                      std::to_string(first) + " is not in an observation of " +
                      std::to_string(obs.shape[0]));
    }
  }
  const bool is_float = obs.dtype == "<f4" || obs.dtype == "<f8";
  if (spec.reward != HindsightSpec::Reward::kCaller && !is_float) {
    throw SpecError("distances are rewards of float32 or float64 goals, and observations have dtype " +
                    obs.dtype);
  }
  if (spec.steps < 1) throw SpecError("a transition has no steps");
}

void Hindsight::Prepare(std::span<Sampled> batch, std::uint64_t seed) const {
  for (Sampled& sampled : batch) {
    RowRun& run = sampled.run;
    const auto key = static_cast<std::uint64_t>(sampled.key);
    const PhiloxBlock block = Philox4x32(
        PhiloxBlock{{static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32),
                     static_cast<std::uint32_t>(sampled.times_sampled), kGoals}},
        static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32));
    const std::int64_t last = run.start + run.length - 1;
    const std::int64_t step = run.start + run.at;
    if (step < last && UniformOf(block.word[0], block.word[1]) < spec_.share) {
      // rows (before, last], because a goal is what a step led to
      const std::int64_t before = spec_.strategy == HindsightSpec::Strategy::kFuture ? step
                                  : spec_.strategy == HindsightSpec::Strategy::kFinal
                                      ? last - 1
                                      : run.start;
      const double drawn = UniformOf(block.word[2], block.word[3]);
      sampled.goal_row = before + 1 + static_cast<std::int64_t>(drawn * static_cast<double>(last - before));
    }
    // the chunks stay those of the whole run, to which the item holds references
    run.start = step;
    run.length = static_cast<std::int32_t>(std::min(last - step, spec_.steps) + 1);
    run.at = 0;
  }
}

const std::uint8_t* Hindsight::Observation(const RowRun& run, std::int64_t row) const {
  return RecordOfRow(layout_, run, row) + layout_.columns[column_].offset;
}

float Hindsight::Reward(const std::uint8_t* achieved, const std::uint8_t* goal) const {
  const double distance = item_bytes_ == sizeof(float) ? Distance<float>(achieved, goal, spec_.size)
                                                       : Distance<double>(achieved, goal, spec_.size);
  if (spec_.reward == HindsightSpec::Reward::kDense) return static_cast<float>(-distance);
  // equal to -(distance > threshold), which is -0 for a goal that is reached
  return distance > spec_.threshold ? -1.0f : -0.0f;
}

void Hindsight::Relabel(const Sampled& sampled, std::int64_t item, const Out& out) const {
  const RowRun& run = sampled.run;
  const bool relabelled = sampled.goal_row >= 0;
  const auto bytes = static_cast<std::size_t>(goal_bytes());
  if (out.relabelled) out.relabelled[item] = relabelled;
  if (out.achieved) {
    std::uint8_t* const to = out.achieved + item * spec_.steps * goal_bytes();
    std::memset(to, 0, bytes * static_cast<std::size_t>(spec_.steps));
    for (std::int64_t i = 0; relabelled && i + 1 < run.length; ++i) {
      std::memcpy(to + i * goal_bytes(),
                  Observation(run, run.start + i + 1) + spec_.achieved * item_bytes_, bytes);
    }
  }
  if (!relabelled) return;
  const std::uint8_t* const goal =
      Observation(run, sampled.goal_row) + spec_.achieved * item_bytes_;
  for (std::uint8_t* const obs : {out.obs, out.next_obs}) {
    std::memcpy(obs + item * obs_bytes_ + spec_.desired * item_bytes_, goal, bytes);
  }
  if (spec_.reward == HindsightSpec::Reward::kCaller) return;
  for (std::int64_t i = 0; i + 1 < run.length; ++i) {
    const float reward =
        Reward(Observation(run, run.start + i + 1) + spec_.achieved * item_bytes_, goal);
    std::memcpy(out.reward + (item * spec_.steps + i) * static_cast<std::int64_t>(sizeof(float)),
                &reward, sizeof(reward));
  }
}

}  // namespace rollouts::replay
