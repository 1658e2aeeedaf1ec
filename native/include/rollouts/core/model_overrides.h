// SPDX-License-Identifier: Apache-2.0
// Fields of the model behind a heavy environment, such as masses, whose values differ from its
// file's. On the host alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rollouts {

// The values that one environment has for a field.
struct ModelOverride {
  std::string field;         // named as in MuJoCo's mjModel: "body_mass", "opt.gravity"
  std::vector<double> low;   // one for each element
  std::vector<double> high;  // empty: the values are `low`; else each reset draws between both

  bool drawn() const { return !high.empty(); }
};

// The fields that one environment overrides, by name.
using ModelOverrides = std::vector<ModelOverride>;

// A field with its present values, to read.
struct ModelArray {
  enum class Type : std::uint8_t { kDouble, kFloat, kInt, kBool };
  Type type = Type::kDouble;
  std::vector<std::int64_t> shape;
  std::vector<double> values;  // double holds the values of every type
};

}  // namespace rollouts
