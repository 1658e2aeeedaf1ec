// SPDX-License-Identifier: Apache-2.0
#include "rollouts/pool/options.h"

#include <algorithm>

namespace rollouts {

void OptionReader::CheckAllTaken() const {
  for (const auto& [name, value] : given_) {
    if (std::find(names_.begin(), names_.end(), name) != names_.end()) continue;
    std::string known;
    for (const auto& option : names_) known += (known.empty() ? "" : ", ") + option;
    throw SpecError("unknown option '" + name + "'; this environment takes: " +
                    (known.empty() ? "no options" : known));
  }
}

void OptionReader::ThrowType(const char* name, const OptionValue& value, const char* expected) {
  static constexpr const char* kGot[] = {"a bool", "an int", "a float", "a str"};
  throw SpecError(std::string("option '") + name + "' must be " + expected + ", got " +
                  kGot[value.index()]);
}

}  // namespace rollouts
