// SPDX-License-Identifier: Apache-2.0
// The K nearest of many points in the plane.
#pragma once

#include "rollouts/core/math.h"

namespace rollouts {

// Borrows arrays of `count` points; those whose `present` is 0 are not there.
class NearestAgents {
 public:
  // More neighbours than this are found in rounds of so many.
  static constexpr std::int32_t kMost = 64;

  ROLLOUTS_HD NearestAgents(const float* x, const float* y, const float* present,
                            std::int32_t count)
      : x_(x), y_(y), present_(present), count_(count) {}

  // Calls visit(rank, index) for the `k` nearest others of point `of`, the nearest first and the
  // lower index first among equal distances; fewer times where there are fewer.
  template <typename Visit>
  ROLLOUTS_HD void ForEach(std::int32_t of, std::int32_t k, Visit&& visit) const {
    float distance[kMost];
    std::int32_t index[kMost];
    // of the last one that was visited: the next round goes on behind it
    float last_distance = -1;
    std::int32_t last_index = -1;
    for (std::int32_t rank = 0; rank < k;) {
      const std::int32_t wanted = k - rank < kMost ? k - rank : kMost;
      const std::int32_t found =
          Find(of, wanted, last_distance, last_index, distance, index);
      for (std::int32_t i = 0; i < found; ++i) visit(rank + i, index[i]);
      if (found < wanted) return;
      rank += found;
      last_distance = distance[found - 1];
      last_index = index[found - 1];
    }
  }

 private:
  static constexpr std::int32_t kLanes = 16;  // points that one loop compares at once

  // Those behind (last_distance, last_index), sorted by distance and index.
  ROLLOUTS_HD std::int32_t Find(std::int32_t of, std::int32_t wanted, float last_distance,
                                std::int32_t last_index, float* distance,
                                std::int32_t* index) const {
    const float x = x_[of], y = y_[of];
    std::int32_t found = 0;
    // squares that are not below that of the last one kept cannot be nearer
    float limit = static_cast<float>(kInfinity);
    for (std::int32_t first = 0; first < count_; first += kLanes) {
      const std::int32_t lanes = count_ - first < kLanes ? count_ - first : kLanes;
      float square[kLanes];
      std::uint32_t nearer = 0;
      if (lanes == kLanes) {
        nearer = Compare<true>(first, kLanes, x, y, limit, square);
      } else {
        nearer = Compare<false>(first, lanes, x, y, limit, square);
      }
      for (; nearer != 0; nearer &= nearer - 1) {
        const std::int32_t lane = __builtin_ctz(nearer);
        const std::int32_t other = first + lane;
        if (other == of || square[lane] >= limit) continue;
        const float d = Sqrt(square[lane]);
        // equal distances by index: other indices of this round are all greater
        if (d < last_distance || (d == last_distance && other <= last_index)) continue;
        if (found == wanted && d >= distance[found - 1]) continue;
        std::int32_t place = found < wanted ? found++ : found - 1;
        for (; place > 0 && distance[place - 1] > d; --place) {
          distance[place] = distance[place - 1];
          index[place] = index[place - 1];
        }
        distance[place] = d;
        index[place] = other;
        if (found == wanted) limit = LimitOf(distance[found - 1]);
      }
    }
    return found;
  }

  // A number that no square of a lesser distance reaches.
  ROLLOUTS_HD static float LimitOf(float distance) {
    return distance * distance * 1.000001f + 1e-37f;
  }

  // One bit for each lane whose point is there and whose square is below the limit.
  template <bool kFull>
  ROLLOUTS_HD std::uint32_t Compare(std::int32_t first, std::int32_t count, float x, float y,
                                    float limit, float* square) const {
    const std::int32_t lanes = kFull ? kLanes : count;
    std::uint32_t bits = 0;
    for (std::int32_t i = 0; i < lanes; ++i) {
      const float dx = x_[first + i] - x, dy = y_[first + i] - y;
      const float each = dx * dx + dy * dy;
      square[i] = each;
      const std::uint32_t nearer = each < limit && present_[first + i] != 0 ? 1u : 0u;
      bits |= nearer << i;
    }
    return bits;
  }

  const float* x_;
  const float* y_;
  const float* present_;
  std::int32_t count_;
};

}  // namespace rollouts
