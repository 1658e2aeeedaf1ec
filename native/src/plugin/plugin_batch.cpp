// SPDX-License-Identifier: Apache-2.0
#include "plugin/plugin_batch.h"

#include <cstring>
#include <exception>
#include <stdexcept>
#include <utility>

#include "engines/shared_library.h"
#include "plugin/spec_rules.h"
#include "rollouts/plugin/plugin_values.h"
#include "rollouts/support/errors.h"

namespace rollouts {
namespace {

// One call of the table: the errors that its sinks got, and exceptions in the sinks, which must not
// pass through the plug-in.
class Call {
 public:
  ErrorSink error() {
    return {this, [](void* to, const char* message) {
              Keep(to, [&](Call& call) { call.message_ = message; });
            }};
  }
  ByteSink bytes(std::vector<std::uint8_t>& out) {
    bytes_ = &out;
    return {this, [](void* to, const std::uint8_t* bytes, std::int64_t count) {
              Keep(to, [&](Call& call) { call.bytes_->insert(call.bytes_->end(), bytes, bytes + count); });
            }};
  }
  OptionSink options(Options& out) {
    options_ = &out;
    return {this, [](void* to, const char* name, const PluginValue* value) {
              Keep(to, [&](Call& call) { (*call.options_)[name] = FromPlugin(*value); });
            }};
  }
  ArraySink arrays(WorldArrays& out) {
    arrays_ = &out;
    return {this, [](void* to, const char* name, DType dtype, const std::int64_t* shape,
                     std::int32_t num_dims, const std::uint8_t* bytes, std::int64_t num_bytes) {
              Keep(to, [&](Call& call) {
                call.arrays_->push_back(
                    {name, dtype, {shape, shape + num_dims}, {bytes, bytes + num_bytes}});
              });
            }};
  }
  PluginRowSource rows(RowSource& source) {
    source_ = &source;
    const auto take = [](void* to, std::int32_t count, PluginRows* rows) {
      return Keep(to, [&](Call& call) {
        const RowSource::Rows taken = call.source_->Take(count);
        *rows = {taken.view, taken.first, taken.count, taken.buffer};
      });
    };
    const auto finish = [](void* to, const PluginRows* rows) {
      return Keep(to, [&](Call& call) {
        call.source_->Finish({rows->view, rows->first, rows->count, rows->buffer});
      });
    };
    const auto fail = [](void* to, std::int32_t env, const char* message) {
      return Keep(to, [&](Call& call) { call.source_->Fail(env, message); });
    };
    return {this, take, finish, fail};
  }

  // Throws the error that the call ended with, if any.
  void Check(PluginResult result) {
    if (failure_) std::rethrow_exception(failure_);
    if (result == kPluginSpecError) throw SpecError(message_);
    if (result != kPluginOk) throw std::runtime_error(message_);
  }

 private:
  // Runs a sink's action; false once something went wrong.
  template <typename Action>
  static bool Keep(void* to, Action&& action) noexcept {
    Call& call = *static_cast<Call*>(to);
    if (call.failure_) return false;
    try {
      action(call);
    } catch (...) {
      call.failure_ = std::current_exception();
    }
    return !call.failure_;
  }

  std::string message_;
  std::exception_ptr failure_;
  std::vector<std::uint8_t>* bytes_ = nullptr;
  Options* options_ = nullptr;
  WorldArrays* arrays_ = nullptr;
  RowSource* source_ = nullptr;
};

class PluginBatch final : public EnvBatch {
 public:
  PluginBatch(const PluginTable& table, void* batch)
      : table_(table), batch_(batch, table.destroy) {
    table_.spec(batch, &spec_);
    CheckSpec(spec_, table);
  }

  const EnvSpec& spec() const override { return spec_; }

  void Make(std::int32_t first, std::int32_t count) override {
    Call call;
    call.Check(table_.make_envs(batch_.get(), first, count, call.error()));
  }

  EpisodeClock& clock(std::int32_t env) override { return *table_.clock(batch_.get(), env); }

  void Run(std::span<const std::int32_t> envs, const Work& work, RowSource& source) override {
    Call call;
    const PluginWork plain{work.commands, work.actions, work.action_bytes, work.rules};
    call.Check(table_.run(batch_.get(), envs.data(), std::ssize(envs), &plain, call.rows(source),
                          call.error()));
  }

  std::span<std::uint8_t> StateBytes(std::int32_t env) override {
    std::int64_t num_bytes = 0;
    std::uint8_t* const bytes = table_.state_bytes(batch_.get(), env, &num_bytes);
    return {bytes, static_cast<std::size_t>(num_bytes)};
  }

  void SaveState(std::int32_t env, std::vector<std::uint8_t>& out) const override {
    Call call;
    call.Check(table_.save_state(batch_.get(), env, call.bytes(out), call.error()));
  }

  void CheckState(std::int32_t env, std::span<const std::uint8_t> state) const override {
    Call call;
    call.Check(
        table_.check_state(batch_.get(), env, state.data(), std::ssize(state), call.error()));
  }

  void LoadState(std::int32_t env, std::span<const std::uint8_t> state) override {
    Call call;
    call.Check(table_.load_state(batch_.get(), env, state.data(), std::ssize(state), call.error()));
  }

  WorldArrays ReadWorld(std::int32_t env, bool first) const override {
    if (!table_.multi_agent) return EnvBatch::ReadWorld(env, first);
    Call call;
    WorldArrays arrays;
    call.Check(table_.read_world(batch_.get(), env, first, call.arrays(arrays), call.error()));
    return arrays;
  }

  Options OptionsOf(std::int32_t env) const override {
    Call call;
    Options options;
    call.Check(table_.options_of(batch_.get(), env, call.options(options), call.error()));
    return options;
  }

  std::function<void()> Prepare(std::span<const std::int32_t> envs, const EnvChanges& changes,
                                std::int32_t first_row) override {
    if (!changes.model.empty()) throw SpecError(kNoModel);
    Call call;
    const ColumnsToPlugin columns(changes.options);
    void* prepared = nullptr;
    call.Check(table_.prepare(batch_.get(), envs.data(), std::ssize(envs), columns.get(), first_row,
                              &prepared, call.error()));
    // shared, because a std::function is copied
    const std::shared_ptr<void> held(prepared, table_.drop_prepared);
    return [this, held] { table_.put_in_place(held.get()); };
  }

 private:
  const PluginTable& table_;
  const std::unique_ptr<void, void (*)(void*)> batch_;
  EnvSpec spec_;
};

}  // namespace

const PluginTable& LoadPlugin(const std::string& path) {
  const auto get_table = reinterpret_cast<PluginFunction>(LoadFunction(path, kPluginFunction));
  const PluginTable& table = *get_table();
  const PluginLayout ours{.version = kPluginVersion, .table_bytes = sizeof(PluginTable)};
  const PluginLayout& theirs = table.layout;
  // the version first, because in another version the fields after it may lie elsewhere
  if (theirs.version != ours.version || theirs.table_bytes != ours.table_bytes ||
      theirs.env_spec_bytes != ours.env_spec_bytes ||
      theirs.batch_view_bytes != ours.batch_view_bytes ||
      theirs.group_view_bytes != ours.group_view_bytes ||
      theirs.episode_clock_bytes != ours.episode_clock_bytes ||
      theirs.step_rules_bytes != ours.step_rules_bytes || theirs.real_bytes != ours.real_bytes) {
    throw EngineError(path + " was made for another release of rollouts");
  }
  return table;
}

Options PluginOptions(const PluginTable& table) {
  Call call;
  Options options;
  call.Check(table.default_options(call.options(options), call.error()));
  return options;
}

EnvSpec PluginSpec(const PluginTable& table, const OptionColumns& options) {
  Call call;
  EnvSpec spec;
  const ColumnsToPlugin columns(options);
  call.Check(table.make_spec(columns.get(), &spec, call.error()));
  CheckSpec(spec, table);
  return spec;
}

std::vector<std::uint8_t> PluginConfigs(const PluginTable& table, const OptionColumns& options,
                                        std::int32_t num_envs) {
  Call call;
  std::vector<std::uint8_t> bytes;
  const ColumnsToPlugin columns(options);
  call.Check(table.configs(columns.get(), num_envs, call.bytes(bytes), call.error()));
  return bytes;
}

WorldFacts PluginWorlds(const PluginTable& table, const OptionColumns& options,
                        std::int32_t num_envs) {
  Call call;
  WorldFacts facts{.agents_bytes = table.agents_bytes, .tables = {}};
  std::vector<std::uint8_t> bytes;
  const ColumnsToPlugin columns(options);
  call.Check(table.worlds(columns.get(), num_envs, &facts.world_bytes, call.bytes(bytes),
                          call.error()));
  facts.tables.resize(bytes.size() / sizeof(float));
  std::memcpy(facts.tables.data(), bytes.data(), bytes.size());
  return facts;
}

std::unique_ptr<EnvBatch> MakePluginBatch(const PluginTable& table, const OptionColumns& options,
                                          std::int32_t first_row, std::int32_t num_envs) {
  // checks the numbers that determine sizes
  PluginSpec(table, options);
  Call call;
  const ColumnsToPlugin columns(options);
  void* batch = nullptr;
  call.Check(table.make(columns.get(), first_row, num_envs, &batch, call.error()));
  return std::make_unique<PluginBatch>(table, batch);
}

}  // namespace rollouts
