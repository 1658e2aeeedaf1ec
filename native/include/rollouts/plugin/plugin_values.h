// SPDX-License-Identifier: Apache-2.0
// Conversions between the options of abi.h and those in types of the standard library; each side
// has its own copy of this code.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rollouts/plugin/abi.h"
#include "rollouts/support/options.h"

namespace rollouts {

// Borrows the text of `value`.
inline PluginValue ToPlugin(const OptionValue& value) {
  PluginValue plain;
  if (const auto* flag = std::get_if<bool>(&value)) {
    plain.flag = *flag;
  } else if (const auto* whole = std::get_if<std::int64_t>(&value)) {
    plain.kind = PluginValue::kInt;
    plain.whole = *whole;
  } else if (const auto* number = std::get_if<double>(&value)) {
    plain.kind = PluginValue::kDouble;
    plain.number = *number;
  } else {
    plain.kind = PluginValue::kText;
    plain.text = std::get<std::string>(value).c_str();
  }
  return plain;
}

inline OptionValue FromPlugin(const PluginValue& plain) {
  switch (plain.kind) {
    case PluginValue::kBool: return plain.flag != 0;
    case PluginValue::kInt: return plain.whole;
    case PluginValue::kDouble: return plain.number;
    case PluginValue::kText: break;
  }
  return std::string(plain.text);
}

inline void PutOptions(const Options& options, OptionSink sink) {
  for (const auto& [name, value] : options) {
    const PluginValue plain = ToPlugin(value);
    sink.put(sink.to, name.c_str(), &plain);
  }
}

inline OptionColumns ColumnsFromPlugin(const PluginColumns& given) {
  OptionColumns columns;
  for (std::int64_t i = 0; i < given.count; ++i) {
    const PluginColumn& column = given.first[i];
    std::vector<OptionValue>& values = columns[column.name];
    for (std::int64_t v = 0; v < column.num_values; ++v) {
      values.push_back(FromPlugin(column.values[v]));
    }
  }
  return columns;
}

// Columns for a call; borrows from the options that it was made from.
class ColumnsToPlugin {
 public:
  explicit ColumnsToPlugin(const OptionColumns& given) {
    for (const auto& [name, values] : given) {
      std::vector<PluginValue>& plain = values_.emplace_back();
      for (const OptionValue& value : values) plain.push_back(ToPlugin(value));
      columns_.push_back({name.c_str(), plain.data(), static_cast<std::int64_t>(plain.size())});
    }
  }
  PluginColumns get() const {
    return {columns_.data(), static_cast<std::int64_t>(columns_.size())};
  }

 private:
  std::vector<std::vector<PluginValue>> values_;  // inner arrays keep their addresses when it grows
  std::vector<PluginColumn> columns_;
};

}  // namespace rollouts
