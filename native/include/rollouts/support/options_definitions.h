// SPDX-License-Identifier: Apache-2.0
// Definitions of options.h's functions. Included by one source of the library, and by every
// environment that users register (plugin/exports.h).
#pragma once

#include "rollouts/support/options.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

namespace rollouts {
namespace {

// Throws for a number that breaks its condition; all numbers have the same message.
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

const OptionValue* OptionReader::Find(const char* name) {
  // noted as known, because a field read it: CheckAllTaken refuses all other options
  names_.push_back(name);
  const auto found = given_.find(name);
  if (found == given_.end()) return nullptr;
  const auto& values = found->second;
  // one value for all, or the row's own
  return &(values.size() == 1 ? values[0] : values[static_cast<std::size_t>(row_)]);
}

void OptionReader::operator()(const char* name, bool& field) {
  const OptionValue* value = Find(name);
  if (!value) return;
  const auto* given = std::get_if<bool>(value);
  // 1 and 0 are not accepted as bools, nor true as an int: each would hide a mistake
  if (!given) ThrowType(name, *value, "a bool");
  field = *given;
}

void OptionReader::operator()(const char* name, std::int32_t& field) {
  const OptionValue* value = Find(name);
  if (!value) return;
  // a float or a bool is not converted, which would hide a mistake
  const auto* given = std::get_if<std::int64_t>(value);
  if (!given || !std::in_range<std::int32_t>(*given)) {
    ThrowType(name, *value, "an int that fits 32 bits");
  }
  field = static_cast<std::int32_t>(*given);
}

void OptionReader::operator()(const char* name, double& field) {
  const OptionValue* value = Find(name);
  if (!value) return;
  if (const auto* given = std::get_if<double>(value)) {
    field = *given;
  } else if (const auto* whole = std::get_if<std::int64_t>(value)) {
    // a whole number is accepted as a float, as in Python
    field = static_cast<double>(*whole);
  } else {
    ThrowType(name, *value, "a float");
  }
}

void OptionReader::operator()(const char* name, float& field) {
  // options are passed as double; they are rounded here, once
  double wide = field;
  (*this)(name, wide);
  field = static_cast<float>(wide);
}

void OptionReader::operator()(const char* name, std::string& field) {
  const OptionValue* value = Find(name);
  if (!value) return;
  const auto* given = std::get_if<std::string>(value);
  if (!given) ThrowType(name, *value, "a str");
  field = *given;
}

void OptionReader::operator()(const char* name, ShortText& field) {
  std::string given = field.chars;
  (*this)(name, given);
  constexpr std::size_t kMost = ShortText::kSize - 1;
  if (given.size() > kMost) {
    throw SpecError(std::string("option '") + name + "' has " + std::to_string(given.size()) +
                    " bytes, expected at most " + std::to_string(kMost));
  }
  field = ShortText(given.c_str());
}

void OptionReader::operator()(const char* name, Switch& field) {
  const OptionValue* value = Find(name);
  if (!value) return;
  if (const auto* is_on = std::get_if<bool>(value)) {
    field = *is_on;
  } else if (const auto* way = std::get_if<std::string>(value)) {
    field = *way;
  } else {
    ThrowType(name, *value, "a bool or a str");
  }
}

void OptionReader::ReadWord(const char* name, std::int32_t& field,
                            std::span<const char* const> words) {
  std::string given = words[static_cast<std::size_t>(field)];
  (*this)(name, given);
  std::string listed;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (given == words[i]) {
      field = static_cast<std::int32_t>(i);
      return;
    }
    listed += (i ? " or '" : "'") + std::string(words[i]) + "'";
  }
  throw SpecError(std::string("option '") + name + "' must be " + listed + ", got '" + given +
                  "'");
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
  // names in the order of OptionValue's types
  static constexpr const char* kGot[] = {"a bool", "an int", "a float", "a str"};
  throw SpecError(std::string("option '") + name + "' must be " + expected + ", got " +
                  kGot[value.index()]);
}

void OptionLister::operator()(const char* name, bool field) { options[name] = field; }

void OptionLister::operator()(const char* name, std::int32_t field) {
  // options have a single type for whole numbers
  options[name] = static_cast<std::int64_t>(field);
}

void OptionLister::operator()(const char* name, double field) { options[name] = field; }

void OptionLister::operator()(const char* name, const std::string& field) {
  options[name] = field;
}

void OptionLister::operator()(const char* name, const ShortText& field) {
  options[name] = std::string(field.chars);
}

void OptionLister::operator()(const char* name, const Switch& field) {
  std::visit([&](const auto& value) { options[name] = value; }, field);
}

void RethrowOfRow(const OptionColumns& given, std::int32_t row, const SpecError& error) {
  // the very same exception, because there is no row to name
  if (!DifferByRow(given)) throw;
  throw SpecError("options of row " + std::to_string(row) + ": " + error.what());
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

void ConfigCheck::Between(const char* name, double value, double least, double most) {
  char expected[64];
  std::snprintf(expected, sizeof(expected), "between %g and %g", least, most);
  Require(value >= least && value <= most, name, value, expected);
}

void ConfigCheck::Odd(const char* name, std::int32_t value) {
  Require(value % 2 != 0, name, value, "an odd number");
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
