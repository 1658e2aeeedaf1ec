// SPDX-License-Identifier: Apache-2.0
// Options of an environment by name: between a Python dict and a Config struct.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "rollouts/pool/errors.h"

namespace rollouts {

using OptionValue = std::variant<bool, std::int64_t, double, std::string>;
using Options = std::map<std::string, OptionValue>;

// Writes given options into a Config; collects the names that exist.
class OptionReader {
 public:
  explicit OptionReader(const Options& given) : given_(given) {}

  template <typename T>
  void operator()(const char* name, T& field) {
    names_.push_back(name);
    const auto found = given_.find(name);
    if (found != given_.end()) Assign(name, found->second, field);
  }

  // Throws SpecError when an option was given that no field took.
  void CheckAllTaken() const;

 private:
  [[noreturn]] static void ThrowType(const char* name, const OptionValue& value,
                                     const char* expected);

  template <typename T>
  static void Assign(const char* name, const OptionValue& value, T& field) {
    if constexpr (std::is_same_v<T, bool>) {
      if (const auto* given = std::get_if<bool>(&value)) { field = *given; return; }
      ThrowType(name, value, "a bool");
    } else if constexpr (std::is_integral_v<T>) {
      const auto* given = std::get_if<std::int64_t>(&value);
      if (given && static_cast<std::int64_t>(static_cast<T>(*given)) == *given) {
        field = static_cast<T>(*given);
        return;
      }
      ThrowType(name, value, "an int that fits 32 bits");
    } else if constexpr (std::is_floating_point_v<T>) {
      if (const auto* given = std::get_if<double>(&value)) { field = static_cast<T>(*given); return; }
      if (const auto* whole = std::get_if<std::int64_t>(&value)) { field = static_cast<T>(*whole); return; }
      ThrowType(name, value, "a float");
    } else {
      if (const auto* given = std::get_if<std::string>(&value)) { field = *given; return; }
      ThrowType(name, value, "a str");
    }
  }

  const Options& given_;
  std::vector<std::string> names_;
};

// Reads a Config's fields: the defaults, when called on a fresh one.
class OptionLister {
 public:
  template <typename T>
  void operator()(const char* name, T& field) {
    if constexpr (std::is_same_v<T, bool>) {
      options[name] = field;
    } else if constexpr (std::is_integral_v<T>) {
      options[name] = static_cast<std::int64_t>(field);
    } else if constexpr (std::is_floating_point_v<T>) {
      options[name] = static_cast<double>(field);
    } else {
      options[name] = std::string(field);
    }
  }
  Options options;
};

}  // namespace rollouts
