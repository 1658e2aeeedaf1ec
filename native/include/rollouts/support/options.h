// SPDX-License-Identifier: Apache-2.0
// Options of an environment by name: between a Python dict and a Config struct.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "rollouts/core/switch.h"
#include "rollouts/core/short_text.h"
#include "rollouts/support/errors.h"

namespace rollouts {

using OptionValue = std::variant<bool, std::int64_t, double, std::string>;
using Options = std::map<std::string, OptionValue>;

// Options of several environments: for each name, one value for all of them or a value for each.
using OptionColumns = std::map<std::string, std::vector<OptionValue>>;

// True when some option has a value for each environment.
bool DifferByRow(const OptionColumns& given);

// Writes the options of one row into a Config, and collects the names of its fields. Defined out of
// line, because every environment visits its fields: inlined, these functions would be most of what
// a build compiles.
class OptionReader {
 public:
  OptionReader(const OptionColumns& given, std::int32_t row) : given_(given), row_(row) {}

  // Each throws SpecError for a value of another type.
  void operator()(const char* name, bool& field);
  void operator()(const char* name, std::int32_t& field);
  void operator()(const char* name, float& field);
  void operator()(const char* name, double& field);
  void operator()(const char* name, std::string& field);
  void operator()(const char* name, ShortText& field);
  void operator()(const char* name, Switch& field);
  // Reads one of `words` and writes its number.
  template <std::size_t kCount>
  void Word(const char* name, std::int32_t& field, const char* const (&words)[kCount]) {
    ReadWord(name, field, {words, kCount});
  }

  // Throws SpecError when an option was given that no field took.
  void CheckAllTaken() const;

 private:
  // The value given for this row; null: none.
  const OptionValue* Find(const char* name);
  void ReadWord(const char* name, std::int32_t& field, std::span<const char* const> words);
  [[noreturn]] static void ThrowType(const char* name, const OptionValue& value,
                                     const char* expected);

  const OptionColumns& given_;
  const std::int32_t row_;
  std::vector<const char*> names_;
};

// Checks of an environment's options. Each throws SpecError with the
// option, its value and what it must be.
class ConfigCheck {
 public:
  void Finite(const char* name, double value);
  void Positive(const char* name, double value);     // and finite
  void Probability(const char* name, double value);  // 0 to 1
  void Between(const char* name, double value, double least, double most);
  void Odd(const char* name, std::int32_t value);
  void OneOf(const char* name, const std::string& value,
             std::initializer_list<const char*> choices);
};

// Throws SpecError for a Config that the environment cannot run with.
template <typename Env>
void CheckConfig(const typename Env::Config& config) {
  ConfigCheck check;
  if constexpr (requires { Env::CheckConfig(config, check); }) Env::CheckConfig(config, check);
}

// Collects a Config's fields: the defaults, when called on a fresh Config.
class OptionLister {
 public:
  void operator()(const char* name, bool field);
  void operator()(const char* name, std::int32_t field);
  void operator()(const char* name, double field);
  void operator()(const char* name, const std::string& field);
  void operator()(const char* name, const ShortText& field);
  void operator()(const char* name, const Switch& field);
  template <std::size_t kCount>
  void Word(const char* name, std::int32_t field, const char* const (&words)[kCount]) {
    options[name] = std::string(words[field]);
  }
  Options options;
};

// Rethrows the error that is being handled; the message names the row, where rows differ.
[[noreturn]] void RethrowOfRow(const OptionColumns& given, std::int32_t row,
                               const SpecError& error);

// Writes the options given for row `row` over `config`. Every Config that an environment gets comes
// from here. Throws SpecError for options that do not exist or do not fit; the message names the
// row, where rows differ.
template <typename Env>
typename Env::Config ReadConfig(const OptionColumns& given, std::int32_t row,
                                typename Env::Config config = {}) {
  try {
    OptionReader reader(given, row);
    Env::VisitConfig(config, reader);
    reader.CheckAllTaken();
    CheckConfig<Env>(config);
  } catch (const SpecError& error) {
    RethrowOfRow(given, row, error);
  }
  return config;
}

// The Configs of `num_envs` rows from `first_row` on, over an id's `defaults`: only one Config
// where all are equal because every option has one value.
template <typename Env>
std::vector<typename Env::Config> ReadConfigs(const OptionColumns& given, std::int32_t first_row,
                                              std::int32_t num_envs,
                                              const typename Env::Config& defaults = {}) {
  std::vector<typename Env::Config> configs;
  const std::int32_t count = DifferByRow(given) ? num_envs : 1;
  configs.reserve(count);
  for (std::int32_t i = 0; i < count; ++i) {
    configs.push_back(ReadConfig<Env>(given, first_row + i, defaults));
  }
  return configs;
}

// Configs as plain data.
template <typename Config>
std::vector<std::uint8_t> BytesOf(const std::vector<Config>& configs) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(configs.data());
  return {bytes, bytes + configs.size() * sizeof(Config)};
}

// All options of an environment, including those at their default.
template <typename Env>
Options ListOptions(typename Env::Config config) {
  OptionLister lister;
  Env::VisitConfig(config, lister);
  return lister.options;
}

}  // namespace rollouts
