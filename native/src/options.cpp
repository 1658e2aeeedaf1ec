// SPDX-License-Identifier: Apache-2.0
#include "rollouts/pool/options.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace rollouts {
namespace {

void Require(bool condition, const char* name, double value, const char* expected) {
  if (condition) return;
  char given[32];
  std::snprintf(given, sizeof(given), "%g", value);
  throw SpecError(std::string("option '") + name + "' must be " + expected + ", got " + given);
}

}  // namespace

bool DifferByRow(const OptionColumns& given) {
  return std::any_of(given.begin(), given.end(),
                     [](const auto& column) { return column.second.size() > 1; });
}

void OptionReader::CheckAllTaken() const {
  for (const auto& [name, values] : given_) {
    if (std::find(names_.begin(), names_.end(), name) != names_.end()) continue;
    std::string known;
    for (const std::string option : names_) known += (known.empty() ? "" : ", ") + option;
    throw SpecError("unknown option '" + name + "'; this environment takes: " +
                    (known.empty() ? "no options" : known));
  }
}

void OptionReader::ThrowType(const char* name, const OptionValue& value, const char* expected) {
  static constexpr const char* kGot[] = {"a bool", "an int", "a float", "a str"};
  throw SpecError(std::string("option '") + name + "' must be " + expected + ", got " +
                  kGot[value.index()]);
}

void ConfigCheck::Finite(const char* name, double value) {
  Require(std::isfinite(value), name, value, "a finite number");
}

void ConfigCheck::Positive(const char* name, double value) {
  Require(std::isfinite(value) && value > 0, name, value, "a finite number above 0");
}

void ConfigCheck::Probability(const char* name, double value) {
  Require(value >= 0 && value <= 1, name, value, "between 0 and 1");
}

void ConfigCheck::OneOf(const char* name, const std::string& value,
                        std::initializer_list<const char*> choices) {
  std::string listed;
  for (const char* choice : choices) {
    if (value == choice) return;
    listed += (listed.empty() ? "'" : " or '") + std::string(choice) + "'";
  }
  throw SpecError(std::string("option '") + name + "' must be " + listed + ", got '" + value + "'");
}

}  // namespace rollouts
