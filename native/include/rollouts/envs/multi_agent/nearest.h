// SPDX-License-Identifier: Apache-2.0
// The K nearest of many points in the plane.
#pragma once

#include "rollouts/core/math.h"

namespace rollouts {

// Borrows arrays of `count` points, which begin at multiples of 16 bytes; those that are infinitely
// far away are never found.
class NearestPoints {
 public:
  ROLLOUTS_HD NearestPoints(const float* x, const float* y, std::int32_t count)
      : x_(x), y_(y), count_(count) {}

  // Writes the indices of the `k` nearest others of point `of`, the nearest first and the lower
  // index first among equal distances; returns how many there are. `reach` is the distance within
  // which they are expected, 0 if nobody knows, and becomes that of the last one found.
  ROLLOUTS_HD std::int32_t Find(std::int32_t of, std::int32_t k, float& reach,
                                std::int32_t* index) const {
    if constexpr (kInKernel) {
      return FindByKeys(x_, y_, count_, of, k, reach, index);
    } else {
      if (reach > 0 && k <= kListed && Rank(of, k, reach, index)) return k;
      return FindInRounds(of, k, reach, index);
    }
  }

 private:
  static constexpr std::int32_t kLanes = 16;   // points that one loop compares at once
  static constexpr std::int32_t kListed = 32;  // those whose order Rank says
  static constexpr std::int32_t kRound = 64;   // more neighbours than this are found in rounds
  static constexpr std::int32_t kKept = 16;    // those of a round in a kernel, in registers
  static constexpr std::int32_t kNear = 48;    // those that a kernel's thread lists

  ROLLOUTS_HD std::int32_t FindInRounds(std::int32_t of, std::int32_t k, float& reach,
                                        std::int32_t* index) const {
    float distance[kRound];
    // the last one that was found: the next round goes on behind it
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

  // The nearest so far, in a thread's registers. A key is a distance's bits and then the index: keys
  // are ordered as the points are.
  struct Kept {
    std::uint64_t key[kKept];

    ROLLOUTS_HD Kept() {
      for (std::int32_t i = 0; i < kKept; ++i) key[i] = kNobody;
    }
    static constexpr std::uint64_t kNobody = ~std::uint64_t{0};

    ROLLOUTS_HD static std::uint64_t KeyOf(float distance, std::int32_t other) {
      return std::uint64_t{__builtin_bit_cast(std::uint32_t, distance)} << 32 |
             static_cast<std::uint32_t>(other);
    }
    // Puts one in its place among the first `k`; the last of them falls out.
    ROLLOUTS_HD void Add(std::uint64_t one, std::int32_t k) {
      for (std::int32_t i = 0; i < kKept; ++i) {
        if (i >= k) return;
        const bool before = one < key[i];
        const std::uint64_t other = key[i];
        key[i] = before ? one : other;
        one = before ? other : one;
      }
    }
    ROLLOUTS_HD std::uint64_t Last(std::int32_t k) const {
      std::uint64_t last = kNobody;
      for (std::int32_t i = 0; i < kKept; ++i) {
        if (i == k - 1) last = key[i];
      }
      return last;
    }
    // Writes the indices of the first `k`; returns how many there are.
    ROLLOUTS_HD std::int32_t Write(std::int32_t k, std::int32_t* index) const {
      std::int32_t count = 0;
      for (std::int32_t i = 0; i < kKept; ++i) {
        if (i >= k || key[i] == kNobody) continue;
        index[count++] = static_cast<std::int32_t>(key[i] & 0xFFFFFFFFu);
      }
      return count;
    }
    ROLLOUTS_HD static float DistanceOf(std::uint64_t one) {
      return __builtin_bit_cast(float, static_cast<std::uint32_t>(one >> 32));
    }
  };

  ROLLOUTS_HD static float Square(float dx, float dy) { return dx * dx + dy * dy; }

  // Four numbers that one load of a kernel reads.
  struct alignas(16) Four {
    float at[4];

    ROLLOUTS_HD static Four Of(const float* from) { return *reinterpret_cast<const Four*>(from); }
  };

  // A point, and the squares of its distances, of which a thread reads four at once.
  struct Watcher {
    const float *x, *y;
    std::int32_t count;
    float own_x, own_y;

    // Calls `visit(other, square)` for every point, this one among them, until it returns false
    // behind four of them.
    template <typename Visit, typename GoOn>
    ROLLOUTS_HD void ForEach(Visit&& visit, GoOn&& go_on) const {
      std::int32_t first = 0;
      for (; first + 4 <= count; first += 4) {
        const Four xs = Four::Of(x + first), ys = Four::Of(y + first);
        for (std::int32_t i = 0; i < 4; ++i) {
          visit(first + i, Square(xs.at[i] - own_x, ys.at[i] - own_y));
        }
        if (!go_on()) return;
      }
      for (; first < count; ++first) visit(first, SquareTo(first));
    }
    ROLLOUTS_HD float SquareTo(std::int32_t other) const {
      return Square(x[other] - own_x, y[other] - own_y);
    }
  };

  // As Find, of a thread whose neighbours in its warp look for other points' at the same time. Its
  // arguments come in registers, where members would be read from memory again and again.
  ROLLOUTS_NOINLINE static std::int32_t FindByKeys(const float* x, const float* y,
                                                   std::int32_t count, std::int32_t of,
                                                   std::int32_t k, float& reach,
                                                   std::int32_t* index) {
    const Watcher watcher{x, y, count, x[of], y[of]};
    if (reach > 0 && k <= kKept && FindListed(watcher, of, k, reach, index)) return k;
    reach = 0;
    std::uint64_t from = 0;  // keys below were found in rounds before
    std::int32_t found = 0;
    while (found < k) {
      const std::int32_t wanted = k - found < kKept ? k - found : kKept;
      Kept kept;
      float limit = static_cast<float>(kInfinity);
      const auto visit = [&](std::int32_t other, float square) {
        if (other == of || !(square < limit)) return;
        const std::uint64_t key = Kept::KeyOf(Sqrt(square), other);
        if (key < from) return;
        kept.Add(key, wanted);
        if (kept.Last(wanted) != Kept::kNobody) limit = Above(Kept::DistanceOf(kept.Last(wanted)));
      };
      watcher.ForEach(visit, [] { return true; });
      const std::int32_t more = kept.Write(wanted, index + found);
      found += more;
      if (more < wanted) return found;
      from = kept.Last(wanted) + 1;
    }
    reach = Kept::DistanceOf(from - 1);
    return found;
  }

  // Lists those somewhat further than `reach`, a loop in which threads differ by one store, and sorts
  // them. False where they are too few or too many.
  ROLLOUTS_HD static bool FindListed(const Watcher& watcher, std::int32_t of, std::int32_t k,
                                     float& reach, std::int32_t* index) {
    const float limit = reach * 1.25f, most = limit * limit;
    std::int32_t near[kNear + 4];  // as many as four points may make of kNear
    std::int32_t count = 0;
    const auto list = [&](std::int32_t other, float square) {
      const bool is_near = square < most;
      if (is_near) near[count] = other;
      count += is_near;
    };
    watcher.ForEach(list, [&] { return count <= kNear; });
    if (count > kNear) return false;
    Kept kept;
    for (std::int32_t i = 0; i < count; ++i) {
      const std::int32_t other = near[i];
      if (other != of) kept.Add(Kept::KeyOf(Sqrt(watcher.SquareTo(other)), other), k);
    }
    if (kept.Last(k) == Kept::kNobody) return false;
    const float last = Kept::DistanceOf(kept.Last(k));
    // one beyond the limit may be as far, by its rounded distance, as the last one within
    if (last > limit * 0.999f) return false;
    kept.Write(k, index);
    reach = last;
    return true;
  }

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
