// SPDX-License-Identifier: Apache-2.0
// The boundary to an environment that a user registers and that the user's compiler has built:
// plain data and C functions. The compilers and standard libraries of the two sides need not match,
// because no type of the standard library, no virtual call and no exception crosses the boundary.
// Text is valid only until the call returns.
//
// A plug-in exports `const PluginTable* rollouts_plugin()`, whose result lives as long as the
// process. exports.h implements it for an environment; plugin_batch.h is the library's side.
#pragma once

#include "rollouts/core/step.h"

namespace rollouts {

// Increases with every change of the declarations below or of core/'s structs.
inline constexpr std::uint32_t kPluginVersion = 3;
inline constexpr const char* kPluginFunction = "rollouts_plugin";

inline constexpr std::int32_t kNoElement = -1;

// Sizes of structs, which must be equal on both sides.
struct PluginLayout {
  std::uint32_t version = 0;
  std::uint32_t table_bytes = 0;
  std::uint32_t env_spec_bytes = sizeof(EnvSpec);
  std::uint32_t batch_view_bytes = sizeof(BatchView);
  std::uint32_t group_view_bytes = sizeof(GroupView);
  std::uint32_t episode_clock_bytes = sizeof(EpisodeClock);
  std::uint32_t step_rules_bytes = sizeof(StepRules);
  std::uint32_t real_bytes = sizeof(Real);
};

// Results of calls; unless it is kPluginOk, the reason was given to the call's ErrorSink.
enum PluginResult : std::int32_t {
  kPluginOk = 0,
  kPluginSpecError = 1,   // an argument is wrong
  kPluginFailed = 2,      // anything else
  kPluginAbandoned = 3,   // a function of the library that it called failed; the library knows why
};

// An option's value; `kind` says which member.
struct PluginValue {
  enum Kind : std::int32_t { kBool, kInt, kDouble, kText };
  Kind kind = kBool;
  std::int32_t flag = 0;
  std::int64_t whole = 0;
  double number = 0;
  const char* text = nullptr;
};

// An option of several environments: one value for all of them, or one for each.
struct PluginColumn {
  const char* name = nullptr;
  const PluginValue* values = nullptr;
  std::int64_t num_values = 0;
};

struct PluginColumns {
  const PluginColumn* first = nullptr;
  std::int64_t count = 0;
};

// The functions to which a plug-in passes its results, such as errors, each with its first
// argument.
struct ErrorSink {
  void* to;
  void (*put)(void* to, const char* message);
};
struct ByteSink {
  void* to;
  void (*put)(void* to, const std::uint8_t* bytes, std::int64_t count);
};
struct OptionSink {
  void* to;
  void (*put)(void* to, const char* name, const PluginValue* value);
};
struct ArraySink {
  void* to;
  void (*put)(void* to, const char* name, DType dtype, const std::int64_t* shape,
              std::int32_t num_dims, const std::uint8_t* bytes, std::int64_t num_bytes);
};

// Rows of the batch being filled, as RowSource has them (pool/env_batch.h).
struct PluginRows {
  BatchView view;
  std::int64_t first = 0;
  std::int32_t count = 0;
  void* buffer = nullptr;
};
struct PluginRowSource {
  void* source;
  // False: there are no rows, and the run is over.
  bool (*take)(void* source, std::int32_t count, PluginRows* rows);
  bool (*finish)(void* source, const PluginRows* rows);
  bool (*fail)(void* source, std::int32_t env, const char* message);
};

struct PluginWork {
  const Command* commands = nullptr;
  const std::uint8_t* actions = nullptr;
  std::int64_t action_bytes = 0;
  StepRules rules;
};

// `batch` was returned by `make`. Each function means the same as EnvBatch's function of that name,
// including which threads may call it.
struct PluginTable {
  PluginLayout layout;
  std::int32_t multi_agent;
  // DTypes of what Observe writes and Step reads; kNoElement: none, or a type that has no DType.
  std::int32_t obs_element;
  std::int32_t action_element;
  // Facts for a GPU's pool (DeviceLayout).
  std::int32_t state_fields;
  std::int32_t real_state;
  std::int32_t config_bytes;
  PluginResult (*configs)(PluginColumns options, std::int32_t num_envs, ByteSink out,
                          ErrorSink error);
  // For several agents. `worlds` writes the tables of all worlds one after the other.
  std::int32_t agents_bytes;
  PluginResult (*worlds)(PluginColumns options, std::int32_t num_envs, std::int64_t* world_bytes,
                         ByteSink tables, ErrorSink error);
  PluginResult (*default_options)(OptionSink options, ErrorSink error);
  PluginResult (*make_spec)(PluginColumns options, EnvSpec* spec, ErrorSink error);
  PluginResult (*make)(PluginColumns options, std::int32_t first_row, std::int32_t num_envs,
                       void** batch, ErrorSink error);
  void (*destroy)(void* batch);
  void (*spec)(const void* batch, EnvSpec* spec);
  PluginResult (*make_envs)(void* batch, std::int32_t first, std::int32_t count, ErrorSink error);
  EpisodeClock* (*clock)(void* batch, std::int32_t env);
  PluginResult (*run)(void* batch, const std::int32_t* envs, std::int64_t num_envs,
                      const PluginWork* work, PluginRowSource rows, ErrorSink error);
  std::uint8_t* (*state_bytes)(void* batch, std::int32_t env, std::int64_t* num_bytes);
  PluginResult (*save_state)(const void* batch, std::int32_t env, ByteSink out, ErrorSink error);
  PluginResult (*check_state)(const void* batch, std::int32_t env, const std::uint8_t* bytes,
                              std::int64_t num_bytes, ErrorSink error);
  PluginResult (*load_state)(void* batch, std::int32_t env, const std::uint8_t* bytes,
                             std::int64_t num_bytes, ErrorSink error);
  PluginResult (*options_of)(const void* batch, std::int32_t env, OptionSink options,
                             ErrorSink error);
  PluginResult (*read_world)(const void* batch, std::int32_t env, std::int32_t first,
                             ArraySink arrays, ErrorSink error);
  // Makes environments with other options, ready to be put in place.
  PluginResult (*prepare)(void* batch, const std::int32_t* envs, std::int64_t num_envs,
                          PluginColumns options, std::int32_t first_row, void** prepared,
                          ErrorSink error);
  void (*put_in_place)(void* prepared);
  void (*drop_prepared)(void* prepared);
};

using PluginFunction = const PluginTable* (*)();

}  // namespace rollouts
