// SPDX-License-Identifier: Apache-2.0
// Copies of the arrays of a world of agents, by name, for drawing it; and facts about worlds for
// pools on a GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "rollouts/core/spec.h"

namespace rollouts {

struct WorldArray {
  std::string name;
  DType dtype = DType::kFloat64;
  std::vector<std::int64_t> shape;
  std::vector<std::uint8_t> bytes;
};

using WorldArrays = std::vector<WorldArray>;

// Facts for a pool on a GPU that depend on the type of the worlds.
struct WorldFacts {
  std::int64_t world_bytes = 0;   // size of each world
  std::int64_t agents_bytes = 0;  // for the addresses of its agents' arrays
  std::vector<float> tables;      // equally many numbers for each world
};

// Copies the arrays that it visits.
class WorldReader {
 public:
  // An array of `num_agents` agents, `count` elements each.
  template <typename T>
  void Agents(const char* name, const T* array, std::int64_t num_agents, std::int64_t count) {
    std::vector<std::int64_t> shape{num_agents};
    if (count != 1) shape.push_back(count);
    Copy(name, array, num_agents * count, std::move(shape));
  }

  // A field of the world itself: one value, or an array of them.
  template <typename T>
  void Shared(const char* name, const T& value) {
    Copy(name, &value, 1, {});
  }
  template <typename T, std::size_t kCount>
  void Shared(const char* name, const T (&values)[kCount]) {
    Copy(name, values, kCount, {static_cast<std::int64_t>(kCount)});
  }

  WorldArrays Take() { return std::move(arrays_); }

 private:
  template <typename T>
  void Copy(const char* name, const T* values, std::int64_t count,
            std::vector<std::int64_t> shape) {
    const auto size = static_cast<std::size_t>(count) * sizeof(T);
    if constexpr (requires { values->x, values->y; }) {
      // a point of the plane
      static_assert(sizeof(T) == 2 * sizeof(values->x));
      shape.push_back(2);
      arrays_.push_back({name, TypeOf<decltype(values->x)>(), std::move(shape), {}});
    } else {
      arrays_.push_back({name, TypeOf<T>(), std::move(shape), {}});
    }
    std::vector<std::uint8_t>& bytes = arrays_.back().bytes;
    bytes.resize(size);
    if (size > 0) std::memcpy(bytes.data(), values, size);
  }

  template <typename T>
  static constexpr DType TypeOf() {
    using Plain = std::remove_cv_t<T>;
    static_assert(std::is_arithmetic_v<Plain>);
    if constexpr (std::is_floating_point_v<Plain>) {
      return sizeof(Plain) == 8 ? DType::kFloat64 : DType::kFloat32;
    }
    return sizeof(Plain) == 8 ? DType::kInt64 : sizeof(Plain) == 4 ? DType::kInt32 : DType::kUint8;
  }

  WorldArrays arrays_;
};

}  // namespace rollouts
