// SPDX-License-Identifier: Apache-2.0
// Our side of a plug-in's functions: what they say becomes exceptions, and ours do not pass through.
#include <cstdint>
#include <stdexcept>
#include <string>

#include "plugin/plugin_batch.h"
#include "units.h"

namespace rollouts {
namespace {

enum class Gives { kRows, kNoRows, kNoFinish, kNoFailure };

// Rows of a batch, or exceptions in their place.
class Rows final : public RowSource {
 public:
  explicit Rows(Gives gives) : gives_(gives) {}
  RowSource::Rows Take(std::int32_t count) override {
    if (gives_ == Gives::kNoRows) throw std::logic_error("no rows");
    RowSource::Rows rows;
    rows.first = 7;
    rows.count = count;
    return rows;
  }
  void Finish(const RowSource::Rows& rows) override {
    if (gives_ == Gives::kNoFinish) throw std::logic_error("no finish");
    finished = rows.first + rows.count;
  }
  void Fail(std::int32_t env, const std::string& message) override {
    if (gives_ == Gives::kNoFailure) throw std::logic_error("no failure");
    failed = message + " " + std::to_string(env);
  }
  std::int64_t finished = 0;
  std::string failed;

 private:
  const Gives gives_;
};

EnvSpec SpecOf(DType dtype) {
  EnvSpec spec;
  spec.observation.dtype = dtype;
  spec.observation.ndim = 1;
  spec.observation.shape[0] = 2;
  spec.action.n = 3;
  spec.step_cost_ns = 11;
  return spec;
}

int made = 0;
PluginResult run_result = kPluginOk;

// A plug-in in plain functions, whose environment 3 fails.
PluginTable FakeTable() {
  PluginTable table{};
  table.obs_element = static_cast<std::int32_t>(DType::kFloat32);
  table.action_element = static_cast<std::int32_t>(DType::kInt32);
  table.make_spec = [](PluginColumns, EnvSpec* spec, ErrorSink) {
    *spec = SpecOf(DType::kFloat32);
    return kPluginOk;
  };
  table.make = [](PluginColumns options, std::int32_t, std::int32_t, void** batch, ErrorSink error) {
    if (options.count > 0) {
      error.put(error.to, options.first[0].name);
      return kPluginSpecError;
    }
    *batch = &made;
    ++made;
    return kPluginOk;
  };
  table.destroy = [](void*) { --made; };
  table.spec = [](const void*, EnvSpec* spec) { *spec = SpecOf(DType::kFloat32); };
  table.run = [](void*, const std::int32_t*, std::int64_t num_envs, const PluginWork*,
                 PluginRowSource rows, ErrorSink error) {
    if (run_result != kPluginOk) {
      error.put(error.to, "it broke");
      return run_result;
    }
    PluginRows taken;
    if (!rows.take(rows.source, static_cast<std::int32_t>(num_envs), &taken) ||
        !rows.fail(rows.source, 3, "failed") || !rows.finish(rows.source, &taken)) {
      return kPluginAbandoned;
    }
    return kPluginOk;
  };
  return table;
}

// Runs two environments with such rows.
void Run(Rows& rows) {
  static const PluginTable table = FakeTable();
  const auto batch = MakePluginBatch(table, {}, 0, 2);
  const std::int32_t envs[] = {0, 1};
  batch->Run(envs, {}, rows);
}

TEST(PluginBatch, HandsRowsAndFailuresOn) {
  Rows rows(Gives::kRows);
  Run(rows);
  CHECK_EQ(rows.finished, 9);
  CHECK_EQ(rows.failed, "failed 3");
  CHECK_EQ(made, 0);
}

TEST(PluginBatch, RethrowsWhatRowsThrewWhenThePluginHasReturned) {
  for (const Gives gives : {Gives::kNoRows, Gives::kNoFinish, Gives::kNoFailure}) {
    Rows rows(gives);
    const std::string said = units::MessageOf<std::logic_error>([&] { Run(rows); });
    CHECK(said == "no rows" || said == "no finish" || said == "no failure");
    CHECK_EQ(rows.finished, 0);
  }
  CHECK_EQ(made, 0);
}

TEST(PluginBatch, TurnsResultsIntoExceptions) {
  Rows rows(Gives::kRows);
  run_result = kPluginFailed;
  CHECK_EQ(units::MessageOf<std::runtime_error>([&] { Run(rows); }), "it broke");
  run_result = kPluginSpecError;
  CHECK_EQ(units::MessageOf<SpecError>([&] { Run(rows); }), "it broke");
  run_result = kPluginOk;
  const PluginTable table = FakeTable();
  const OptionColumns options = {{"wrong", {OptionValue(true)}}};
  CHECK_EQ(units::MessageOf<SpecError>([&] { MakePluginBatch(table, options, 0, 1); }), "wrong");
}

TEST(PluginBatch, RefusesASpecThatItsElementsDoNotFit) {
  PluginTable table = FakeTable();
  table.spec = [](const void*, EnvSpec* spec) { *spec = SpecOf(DType::kInt16); };
  const std::string said = units::MessageOf<SpecError>([&] { MakePluginBatch(table, {}, 0, 1); });
  CHECK_EQ(said,
           "the observation has .dtype kInt16, which needs `using Obs = std::int16_t`, got float");
  CHECK_EQ(made, 0);
}

}  // namespace
}  // namespace rollouts
