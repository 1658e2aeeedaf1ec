// SPDX-License-Identifier: Apache-2.0
// Goal relabelling (Andrychowicz et al. 2017, "Hindsight experience replay"): the goal of a sample
// is replaced by one that a row of its own episode achieved.
#pragma once

#include <cstdint>
#include <span>

#include "rollouts/replay/column.h"
#include "rollouts/replay/table.h"

namespace rollouts::replay {

struct HindsightSpec {
  enum class Strategy : std::int32_t {
    kFuture,   // any row after the step
    kFinal,    // the last row
    kEpisode,  // any row of the episode but its first
  };
  enum class Reward : std::int32_t {
    kCaller,  // computed by the caller, who asks for the field @achieved
    kSparse,  // -1 if farther from the goal than `threshold`, else 0
    kDense,   // minus the distance
  };
  Strategy strategy = Strategy::kFuture;
  Reward reward = Reward::kCaller;
  double share = 0;           // the share of samples that get another goal
  double threshold = 0;       // in units of the goal
  std::int64_t steps = 1;     // in a transition
  std::int64_t achieved = 0;  // first element in an observation
  std::int64_t desired = 0;
  std::int64_t size = 0;      // elements
};

// Immutable, hence thread-safe.
class Hindsight {
 public:
  // `column`: of observations. Throws SpecError for elements that an observation does not have, and
  // for a dtype that the reward is not computed for.
  Hindsight(const ChunkLayout& layout, std::size_t column, const HindsightSpec& spec);

  // Draws goals, and narrows each run to its transition. The draw is a function of the seed, the
  // item and how often it was sampled, so that the same item gets the same goal when it is looked
  // up later.
  void Prepare(std::span<Sampled> batch, std::uint64_t seed) const;

  // Arrays of a batch; null: not wanted.
  struct Out {
    std::uint8_t* obs = nullptr;         // (B, D)
    std::uint8_t* next_obs = nullptr;    // (B, D)
    std::uint8_t* reward = nullptr;      // (B[, steps]) float32
    std::uint8_t* relabelled = nullptr;  // (B,) bool
    std::uint8_t* achieved = nullptr;    // (B, steps, size), by step; zeros where there is none
  };
  // Changes an item that was gathered into `out`, if it has another goal.
  void Relabel(const Sampled& sampled, std::int64_t item, const Out& out) const;

  const HindsightSpec& spec() const { return spec_; }
  std::int64_t goal_bytes() const { return spec_.size * item_bytes_; }

 private:
  // The address of a row's observation.
  const std::uint8_t* Observation(const RowRun& run, std::int64_t row) const;
  float Reward(const std::uint8_t* achieved, const std::uint8_t* goal) const;

  const ChunkLayout& layout_;
  const std::size_t column_;
  const HindsightSpec spec_;
  std::int64_t item_bytes_ = 0;  // bytes in one element
  std::int64_t obs_bytes_ = 0;
};

}  // namespace rollouts::replay
