// SPDX-License-Identifier: Apache-2.0
// The K nearest of many points in the plane.
#pragma once

#include "rollouts/core/math.h"

namespace rollouts {

// Borrows arrays of `capacity` points, which begin at multiples of 16 bytes. Points infinitely far
// away are never found. A point's index is its id. PointCells (point_cells.h) has the same members.
struct UnsortedPoints {
  static constexpr bool kAreSorted = false;

  const float *x, *y;
  std::int32_t capacity;

  ROLLOUTS_HD std::int32_t IdOf(std::int32_t point) const { return point; }
  ROLLOUTS_HD float Guess(std::int32_t) const { return static_cast<float>(kInfinity); }
  ROLLOUTS_HD bool AreAll(float, float, float) const { return true; }
  template <typename Visit>
  ROLLOUTS_HD void ForEachRange(float, float, float, Visit&& visit) const {
    visit(0, capacity);
  }
};

template <typename Points>
class NearestPoints {
 public:
  ROLLOUTS_HD explicit NearestPoints(const Points& points) : points_(points) {}

  // Writes the ids of the `k` points nearest to the point with index `of`, the nearest first, and
  // at equal distances the lower id first; returns how many there are. `reach` is the distance
  // within which they are expected, or 0 if that is unknown; it becomes the distance of the last
  // point found.
  ROLLOUTS_HD std::int32_t Find(std::int32_t of, std::int32_t k, float& reach,
                                std::int32_t* id) const {
    if constexpr (kInKernel) {
      return FindInKernel(points_, of, k, reach, id);
    } else {
      if (reach > kLeast && k <= kListed && Rank(of, k, reach, id)) return k;
      return FindInRounds<SortedKeys>(points_, of, k, reach, id);
    }
  }

 private:
  static constexpr std::int32_t kLanes = 16;   // points that one loop compares at once
  static constexpr std::int32_t kListed = 32;  // the most that Rank orders
  static constexpr std::int32_t kNear = 48;    // the most that a kernel's thread lists
  static constexpr float kWider = 1.25f;       // the searched distance, in reaches
  static constexpr float kLeast = 1e-15f;      // distances whose squares are exact enough
  // Points within this share of the searched distance are nearer than all points outside it,
  // however distances are rounded.
  static constexpr float kSurely = 0.999f;

  // A distance's bits followed by the id, so that the order of keys is that of the points.
  struct Key {
    static constexpr std::uint64_t kNobody = ~std::uint64_t{0};

    ROLLOUTS_HD static std::uint64_t Of(float distance, std::int32_t id) {
      return std::uint64_t{__builtin_bit_cast(std::uint32_t, distance)} << 32 |
             static_cast<std::uint32_t>(id);
    }
    ROLLOUTS_HD static float DistanceOf(std::uint64_t key) {
      return __builtin_bit_cast(float, static_cast<std::uint32_t>(key >> 32));
    }
    ROLLOUTS_HD static std::int32_t IdOf(std::uint64_t key) {
      return static_cast<std::int32_t>(key & 0xFFFFFFFFu);
    }
  };

  // The keys of the nearest points so far, in a thread's registers; for this, loops need constant
  // bounds.
  struct Kept {
    static constexpr std::int32_t kMost = 16;
    std::uint64_t key[kMost];

    ROLLOUTS_HD Kept() {
      for (std::int32_t i = 0; i < kMost; ++i) key[i] = Key::kNobody;
    }
    // Inserts a key in its place among the first `k`; the last of them is dropped.
    ROLLOUTS_HD void Add(std::uint64_t one, std::int32_t k) {
      for (std::int32_t i = 0; i < kMost; ++i) {
        if (i >= k) return;
        const bool before = one < key[i];
        const std::uint64_t other = key[i];
        key[i] = before ? one : other;
        one = before ? other : one;
      }
    }
    ROLLOUTS_HD std::uint64_t Last(std::int32_t k) const {
      std::uint64_t last = Key::kNobody;
      for (std::int32_t i = 0; i < kMost; ++i) {
        if (i == k - 1) last = key[i];
      }
      return last;
    }
    // Writes the ids of the first `k`; returns how many there are.
    ROLLOUTS_HD std::int32_t Write(std::int32_t k, std::int32_t* id) const {
      std::int32_t count = 0;
      for (std::int32_t i = 0; i < kMost; ++i) {
        if (i >= k || key[i] == Key::kNobody) continue;
        id[count++] = Key::IdOf(key[i]);
      }
      return count;
    }
  };

  // The same for a thread of the CPU; it moves only the keys that it must.
  struct SortedKeys {
    static constexpr std::int32_t kMost = 64;
    std::uint64_t key[kMost];
    std::int32_t count = 0;

    ROLLOUTS_HD void Add(std::uint64_t one, std::int32_t k) {
      if (count == k && one > key[k - 1]) return;
      std::int32_t place = count < k ? count++ : count - 1;
      for (; place > 0 && key[place - 1] > one; --place) key[place] = key[place - 1];
      key[place] = one;
    }
    ROLLOUTS_HD std::uint64_t Last(std::int32_t k) const {
      return count < k ? Key::kNobody : key[k - 1];
    }
    ROLLOUTS_HD std::int32_t Write(std::int32_t, std::int32_t* id) const {
      for (std::int32_t i = 0; i < count; ++i) id[i] = Key::IdOf(key[i]);
      return count;
    }
  };

  ROLLOUTS_HD static float Square(float dx, float dy) { return dx * dx + dy * dy; }

  // Four numbers that one load of a kernel reads.
  struct alignas(16) Four {
    float at[4];

    ROLLOUTS_HD static Four Of(const float* from) { return *reinterpret_cast<const Four*>(from); }
  };

  // A point, which computes squared distances; a thread loads four other points at once.
  struct Watcher {
    const float *x, *y;
    float own_x, own_y;

    // Calls `visit(other, square)` for the points of a range. Checks `go_on()` after every four,
    // and stops when it is false; returns its last value.
    template <typename Visit, typename GoOn>
    ROLLOUTS_HD bool ForEach(std::int32_t first, std::int32_t last, Visit&& visit,
                             GoOn&& go_on) const {
      for (; first < last && (first & 3) != 0; ++first) visit(first, SquareTo(first));
      for (; first + 4 <= last; first += 4) {
        const Four xs = Four::Of(x + first), ys = Four::Of(y + first);
        for (std::int32_t i = 0; i < 4; ++i) {
          visit(first + i, Square(xs.at[i] - own_x, ys.at[i] - own_y));
        }
        if (!go_on()) return false;
      }
      for (; first < last; ++first) visit(first, SquareTo(first));
      return go_on();
    }
    ROLLOUTS_HD float SquareTo(std::int32_t other) const {
      return Square(x[other] - own_x, y[other] - own_y);
    }
  };

  // Find in a kernel, where the threads of a warp search for the neighbours of different points at
  // the same time. Its arguments are in registers; members would be read from memory again and
  // again.
  ROLLOUTS_NOINLINE static std::int32_t FindInKernel(const Points points, std::int32_t of,
                                                     std::int32_t k, float& reach,
                                                     std::int32_t* id) {
    if (reach > kLeast && k <= Kept::kMost && FindListed(points, of, k, reach, id)) return k;
    return FindInRounds<Kept>(points, of, k, reach, id);
  }

  // Searches in rounds, each for as many points as `Keys` holds, within a distance that grows as
  // long as the points found may not be the nearest.
  template <typename Keys>
  ROLLOUTS_HD static std::int32_t FindInRounds(const Points& points, std::int32_t of, std::int32_t k,
                                               float& reach, std::int32_t* id) {
    const float x = points.x[of], y = points.y[of];
    float within = reach > kLeast ? reach * kWider : points.Guess(k);
    if (!(within > kLeast)) within = static_cast<float>(kInfinity);
    reach = 0;
    std::uint64_t from = 0;  // keys below this were found in earlier rounds
    std::int32_t found = 0;
    while (found < k) {
      const std::int32_t wanted = k - found < Keys::kMost ? k - found : Keys::kMost;
      Keys keys;
      Collect(points, of, wanted, within, from, keys);
      const std::uint64_t last = keys.Last(wanted);
      const bool is_full = last != Key::kNobody;
      const float furthest = Key::DistanceOf(last);
      if (!points.AreAll(x, y, within) && !(is_full && furthest <= within * kSurely)) {
        within = is_full ? furthest * 1.01f : within * 2;
        continue;
      }
      found += keys.Write(wanted, id + found);
      if (!is_full) return found;
      from = last + 1;
    }
    reach = Key::DistanceOf(from - 1);
    return found;
  }

  // Adds keys that are at least `from` to `keys`, which keeps the `wanted` nearest of them.
  template <typename Keys>
  ROLLOUTS_HD static void Collect(const Points& points, std::int32_t of, std::int32_t wanted,
                                  float within, std::uint64_t from, Keys& keys) {
    // points with larger squares cannot be nearer than the last one kept
    float limit = static_cast<float>(kInfinity);
    const auto add = [&](std::int32_t other, float square) {
      const std::uint64_t key = Key::Of(Sqrt(square), points.IdOf(other));
      if (key < from) return;
      keys.Add(key, wanted);
      if (keys.Last(wanted) != Key::kNobody) limit = Above(Key::DistanceOf(keys.Last(wanted)));
    };
    const float x = points.x[of], y = points.y[of];
    points.ForEachRange(x, y, within, [&](std::int32_t first, std::int32_t last) {
      if constexpr (kInKernel) {
        const Watcher watcher{points.x, points.y, x, y};
        const auto visit = [&](std::int32_t other, float square) {
          if (other != of && square < limit) add(other, square);
        };
        if constexpr (Points::kAreSorted) {
          // a cell has only a few points, and this needs no second copy of the search's code
          for (; first < last; ++first) visit(first, watcher.SquareTo(first));
          return true;
        } else {
          return watcher.ForEach(first, last, visit, [] { return true; });
        }
      } else {
        for (; first < last; first += kLanes) {
          float square[kLanes];
          const std::int32_t begin = BeginOf(points, first);
          std::uint32_t near = Compare(points, begin, first, last, of, limit, square);
          for (; near != 0; near &= near - 1) {
            const std::int32_t lane = LowestBit(near);
            add(begin + lane, square[lane]);
          }
        }
        return true;
      }
    });
  }

  // Lists points within a distance slightly above `reach`, and sorts them. In the loop
  // that lists them, threads of a warp diverge only at one store. False where there are too few or
  // too many.
  ROLLOUTS_HD static bool FindListed(const Points& points, std::int32_t of, std::int32_t k,
                                     float& reach, std::int32_t* id) {
    const float limit = reach * kWider, most = limit * limit;
    const Watcher watcher{points.x, points.y, points.x[of], points.y[of]};
    std::int32_t near[kNear + 8];  // room for seven points beyond kNear
    std::int32_t count = 0;
    const auto list = [&](std::int32_t other, float square) {
      const bool is_near = square < most;
      if (is_near) near[count] = other;
      count += is_near;
    };
    points.ForEachRange(watcher.own_x, watcher.own_y, limit, [&](std::int32_t first, std::int32_t last) {
      return watcher.ForEach(first, last, list, [&] { return count <= kNear; });
    });
    if (count > kNear) return false;
    Kept kept;
    for (std::int32_t i = 0; i < count; ++i) {
      const std::int32_t other = near[i];
      if (other != of) kept.Add(Key::Of(Sqrt(watcher.SquareTo(other)), points.IdOf(other)), k);
    }
    if (kept.Last(k) == Key::kNobody) return false;
    const float last = Key::DistanceOf(kept.Last(k));
    if (last > limit * kSurely) return false;
    kept.Write(k, id);
    reach = last;
    return true;
  }

  // The beginning of the group of points that one loop compares at once and that contains `first`.
  ROLLOUTS_HD static std::int32_t BeginOf(const Points& points, std::int32_t first) {
    const std::int32_t most = points.capacity - kLanes;
    return most < 0 || first <= most ? first : most;
  }

  // One bit for each of kLanes points from `begin` on: it is in [first, last), it is not `of`, and
  // its squared distance is below the limit.
  ROLLOUTS_HD static std::uint32_t Compare(const Points& points, std::int32_t begin,
                                           std::int32_t first, std::int32_t last, std::int32_t of,
                                           float limit, float* square) {
    const float* const xs = points.x + begin;
    const float* const ys = points.y + begin;
    const float x = points.x[of], y = points.y[of];
    std::uint32_t bits = 0;
    if (points.capacity >= kLanes) {
      std::uint32_t near[kLanes];
      // GCC would unroll this loop before it can vectorise it
#pragma GCC ivdep
#pragma GCC unroll 1
      for (std::int32_t i = 0; i < kLanes; ++i) {
        const float dx = xs[i] - x, dy = ys[i] - y;
        square[i] = dx * dx + dy * dy;
        near[i] = static_cast<std::uint32_t>(square[i] < limit) << i;
      }
#pragma GCC unroll 1
      for (std::int32_t i = 0; i < kLanes; ++i) bits |= near[i];
      bits &= ~0u << (first - begin);
      if (last - begin < kLanes) bits &= (1u << (last - begin)) - 1;
    } else {
      for (std::int32_t i = 0; begin + i < last; ++i) {
        square[i] = Square(xs[i] - x, ys[i] - y);
        bits |= static_cast<std::uint32_t>(square[i] < limit) << i;
      }
    }
    const std::int32_t self = of - begin;
    return self >= 0 && self < kLanes ? bits & ~(1u << self) : bits;
  }

  // Lists points within a distance slightly above `reach`, and counts for each how many come before
  // it, so that no branch depends on distances. False where there are too few or too many.
  ROLLOUTS_HD bool Rank(std::int32_t of, std::int32_t k, float& reach, std::int32_t* id) const {
    const float limit = reach * kWider;
    float distance[kListed + kLanes];
    std::int32_t listed[kListed + kLanes];
    std::int32_t count = 0;
    points_.ForEachRange(points_.x[of], points_.y[of], limit, [&](std::int32_t first, std::int32_t last) {
      for (; first < last && count <= kListed; first += kLanes) {
        float square[kLanes];
        const std::int32_t begin = BeginOf(points_, first);
        std::uint32_t near = Compare(points_, begin, first, last, of, limit * limit, square);
        for (; near != 0; near &= near - 1) {
          const std::int32_t lane = LowestBit(near);
          distance[count] = square[lane];
          listed[count++] = points_.IdOf(begin + lane);
        }
      }
      return count <= kListed;
    });
    if (count < k || count > kListed) return false;
    for (std::int32_t i = count; i < kListed; ++i) {
      distance[i] = static_cast<float>(kInfinity);
      listed[i] = 0;
    }
    for (std::int32_t i = 0; i < kListed; ++i) distance[i] = Sqrt(distance[i]);
    std::int32_t rank[kListed] = {};
    for (std::int32_t j = 0; j < count; ++j) {
      const float d = distance[j];
      const std::int32_t before = listed[j];
#pragma GCC ivdep
      for (std::int32_t i = 0; i < kListed; ++i) {
        rank[i] += (d < distance[i]) | ((d == distance[i]) & (before < listed[i]));
      }
    }
    float furthest = 0;
    for (std::int32_t i = 0; i < count; ++i) {
      if (rank[i] >= k) continue;
      id[rank[i]] = listed[i];
      if (rank[i] == k - 1) furthest = distance[i];
    }
    if (furthest > limit * kSurely) return false;
    reach = furthest;
    return true;
  }

  // A number above the squares of all distances that round to this one.
  ROLLOUTS_HD static float Above(float distance) {
    return distance * distance * 1.000001f + 1e-37f;
  }

  const Points points_;
};

}  // namespace rollouts
