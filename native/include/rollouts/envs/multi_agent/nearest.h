// SPDX-License-Identifier: Apache-2.0
// The K nearest of many points in the plane.
#pragma once

#include "rollouts/core/math.h"

namespace rollouts {

// Borrows arrays of `count` points; those that are infinitely far away are never found.
class NearestPoints {
 public:
  ROLLOUTS_HD NearestPoints(const float* x, const float* y, std::int32_t count)
      : x_(x), y_(y), count_(count) {}

  // Writes the indices of the `k` nearest others of point `of`, the nearest first and the lower
  // index first among equal distances; returns how many there are. `reach` is the distance within
  // which they are expected, 0 if nobody knows, and becomes that of the last one found.
  ROLLOUTS_HD std::int32_t Find(std::int32_t of, std::int32_t k, float& reach,
                                std::int32_t* index) const {
    if (reach > 0 && k <= kListed && Rank(of, k, reach, index)) return k;
    float distance[kRound];
    // of the last one that was found: the next round goes on behind it
    float last_distance = -1;
    std::int32_t last_index = -1;
    std::int32_t found = 0;
    reach = 0;
    while (found < k) {
      const std::int32_t wanted = k - found < kRound ? k - found : kRound;
      const std::int32_t more =
          Insert(of, wanted, last_distance, last_index, distance, index + found);
      if (more < wanted) return found + more;
      found += more;
      last_distance = distance[more - 1];
      last_index = index[found - 1];
    }
    reach = last_distance;
    return found;
  }

 private:
  static constexpr std::int32_t kLanes = 16;   // points that one loop compares at once
  static constexpr std::int32_t kListed = 32;  // of which Rank says the order
  static constexpr std::int32_t kRound = 64;   // more neighbours than this are found in rounds

  // One bit for each of the points [first, first + kLanes) but `of` whose square of the distance
  // is below the limit.
  ROLLOUTS_HD std::uint32_t Compare(std::int32_t first, std::int32_t of, float limit,
                                    float* square) const {
    const float x = x_[of], y = y_[of];
    std::uint32_t bits = 0;
    if (count_ - first >= kLanes) {
      std::uint32_t near[kLanes];
      // unrolled before it is vectorised, it would not be vectorised any more
#pragma GCC ivdep
#pragma GCC unroll 1
      for (std::int32_t i = 0; i < kLanes; ++i) {
        const float dx = x_[first + i] - x, dy = y_[first + i] - y;
        square[i] = dx * dx + dy * dy;
        near[i] = static_cast<std::uint32_t>(square[i] < limit) << i;
      }
#pragma GCC unroll 1
      for (std::int32_t i = 0; i < kLanes; ++i) bits |= near[i];
    } else {
      for (std::int32_t i = 0; first + i < count_; ++i) {
        const float dx = x_[first + i] - x, dy = y_[first + i] - y;
        square[i] = dx * dx + dy * dy;
        bits |= static_cast<std::uint32_t>(square[i] < limit) << i;
      }
    }
    const std::int32_t self = of - first;
    return self >= 0 && self < kLanes ? bits & ~(1u << self) : bits;
  }

  // Lists those somewhat further than `reach` and counts, for each, those before it: no branch
  // depends on distances. False where they are too few or too many to say.
  ROLLOUTS_HD bool Rank(std::int32_t of, std::int32_t k, float& reach, std::int32_t* index) const {
    const float limit = reach * 1.25f;
    float distance[kListed + kLanes];
    std::int32_t listed[kListed + kLanes];
    std::int32_t count = 0;
    for (std::int32_t first = 0; first < count_; first += kLanes) {
      float square[kLanes];
      std::uint32_t near = Compare(first, of, limit * limit, square);
      for (; near != 0; near &= near - 1) {
        const std::int32_t lane = LowestBit(near);
        distance[count] = square[lane];
        listed[count++] = first + lane;
      }
      if (count > kListed) return false;
    }
    if (count < k) return false;
    for (std::int32_t i = count; i < kListed; ++i) distance[i] = static_cast<float>(kInfinity);
    for (std::int32_t i = 0; i < kListed; ++i) distance[i] = Sqrt(distance[i]);
    std::int32_t rank[kListed] = {};
    for (std::int32_t j = 0; j < count; ++j) {
      const float d = distance[j];
#pragma GCC ivdep
      for (std::int32_t i = 0; i < kListed; ++i) {
        rank[i] += (d < distance[i]) | ((d == distance[i]) & (j < i));
      }
    }
    float last = 0;
    for (std::int32_t i = 0; i < count; ++i) {
      if (rank[i] >= k) continue;
      index[rank[i]] = listed[i];
      if (rank[i] == k - 1) last = distance[i];
    }
    // one beyond the limit may be as far, by its rounded distance, as the last one within
    if (last > limit * 0.999f) return false;
    reach = last;
    return true;
  }

  // Those behind (last_distance, last_index), sorted as they come.
  ROLLOUTS_HD std::int32_t Insert(std::int32_t of, std::int32_t wanted, float last_distance,
                                  std::int32_t last_index, float* distance,
                                  std::int32_t* index) const {
    std::int32_t found = 0;
    // squares that are not below cannot be nearer than the last one kept
    float limit = static_cast<float>(kInfinity);
    for (std::int32_t first = 0; first < count_; first += kLanes) {
      float square[kLanes];
      std::uint32_t near = Compare(first, of, limit, square);
      for (; near != 0; near &= near - 1) {
        const std::int32_t lane = LowestBit(near);
        const std::int32_t other = first + lane;
        const float d = Sqrt(square[lane]);
        if (d < last_distance || (d == last_distance && other <= last_index)) continue;
        // equal distances: those that came before have the lower index
        if (found == wanted && d >= distance[found - 1]) continue;
        std::int32_t place = found < wanted ? found++ : found - 1;
        for (; place > 0 && distance[place - 1] > d; --place) {
          distance[place] = distance[place - 1];
          index[place] = index[place - 1];
        }
        distance[place] = d;
        index[place] = other;
        if (found == wanted) limit = Above(distance[found - 1]);
      }
    }
    return found;
  }

  // A number above the squares of all distances that round to this one.
  ROLLOUTS_HD static float Above(float distance) {
    return distance * distance * 1.000001f + 1e-37f;
  }

  const float* x_;
  const float* y_;
  std::int32_t count_;
};

}  // namespace rollouts
