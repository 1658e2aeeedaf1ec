// SPDX-License-Identifier: Apache-2.0
// All environments of a pool behind one virtual call per chunk.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rollouts/core/engine_choice.h"
#include "rollouts/core/step.h"
#include "rollouts/pool/frame.h"
#include "rollouts/pool/model_columns.h"
#include "rollouts/support/errors.h"
#include "rollouts/support/moments.h"
#include "rollouts/support/options.h"
#include "rollouts/support/world_arrays.h"

namespace rollouts {

// Hands out rows of the batch being filled. Take may return fewer rows than asked for, as a chunk
// can straddle two batches; Finish publishes them.
class RowSource {
 public:
  struct Rows {
    BatchView view;
    std::int64_t first = 0;
    std::int32_t count = 0;
    void* buffer = nullptr;
  };
  virtual Rows Take(std::int32_t count) = 0;
  virtual void Finish(const Rows& rows) = 0;
  // Records the failure of one environment; called before its row is finished.
  virtual void Fail(std::int32_t env, const std::string& message) = 0;

 protected:
  ~RowSource() = default;
};

// Commands and actions; arrays are indexed by environment.
struct Work {
  const Command* commands = nullptr;
  const std::uint8_t* actions = nullptr;
  std::int64_t action_bytes = 0;  // bytes of one row
  StepRules rules;
};

// Options for the environments' next episodes: columns with one value, or with one value for each
// environment of the pool.
struct EnvChanges {
  OptionColumns options;
  ModelColumns model;
};

// Kinds of running statistics that wrapped environments keep.
enum class StatisticsOf : std::int32_t { kObservation, kReward };

// Work that needs all rows of a step together, before any of them is read, because updated
// statistics depend on the whole batch.
class BatchFinisher {
 public:
  // Counts rows [first, first + count) of a batch. One thread calls it, before any of the rows is
  // scaled. `commands` are indexed by environment.
  virtual void Count(const BatchView& view, std::int64_t first, std::int32_t count,
                     std::span<const Command> commands) = 0;
  // Scales rows by the statistics counted so far. Threads may call it at once, each for its own
  // rows.
  virtual void Scale(const BatchView& view, std::int64_t first, std::int32_t count) const = 0;

 protected:
  ~BatchFinisher() = default;
};

// Owns the environments. Run may be called from several threads at once for
// disjoint environments; everything else only while none is in flight.
class EnvBatch {
 public:
  virtual ~EnvBatch() = default;
  virtual const EnvSpec& spec() const = 0;
  // Makes environments, each once and before anything else is called for it. Several threads call
  // this at once, each for the environments that it will mostly step. Does nothing where the
  // constructor has made them all.
  virtual void Make(std::int32_t /*first*/, std::int32_t /*count*/) {}
  virtual EpisodeClock& clock(std::int32_t env) = 0;
  virtual void Run(std::span<const std::int32_t> envs, const Work& work, RowSource& rows) = 0;
  // Raw state of a light environment; empty for heavy ones, which have SaveState.
  virtual std::span<std::uint8_t> StateBytes(std::int32_t env) = 0;

  // The environment without its clock, in bytes: Save appends to `out`, Load restores them. Check
  // throws SpecError for bytes that cannot be a state; where it does not, Load may still fail in an
  // engine, and leaves the environment undefined.
  virtual void SaveState(std::int32_t env, std::vector<std::uint8_t>& out) const = 0;
  virtual void CheckState(std::int32_t env, std::span<const std::uint8_t> state) const = 0;
  virtual void LoadState(std::int32_t env, std::span<const std::uint8_t> state) = 0;

  // A frame of an environment, drawn by its engine. Throws SpecError where it draws nothing.
  virtual Frame Render(std::int32_t /*env*/) const {
    throw SpecError("environments of this kind have no engine that draws them");
  }

  // The arrays of a world of agents, and how many steps its episode has had: as they are, or
  // (`first`) as they were when its episode began. Throws SpecError where there is no such world.
  virtual WorldArrays ReadWorld(std::int32_t /*env*/, bool /*first*/) const {
    throw SpecError("environments of this kind have no world of agents");
  }

  // All options of an environment, including those at their default.
  virtual Options OptionsOf(std::int32_t env) const = 0;

  // The engine that steps an environment.
  virtual EngineChoice EngineOf(std::int32_t /*env*/) const { return {}; }
  // Appends the counts of environments that have a choice of engines; the counts outlive the
  // environments.
  virtual void ListTallies(std::vector<std::shared_ptr<const EngineTallies>>& /*out*/) const {}

  // Prepares other options, or other values in the models, for environments. The function returned
  // puts them in place and cannot fail. The environments must be reset next. Environment `env` gets
  // row first_row + env of `changes`. Throws SpecError, and what engines throw.
  virtual std::function<void()> Prepare(std::span<const std::int32_t> envs,
                                        const EnvChanges& changes, std::int32_t first_row) = 0;

  // Fields of the model behind an environment: their values, and the names of those that can be
  // changed. Throws SpecError where there is no model.
  virtual ModelArray ReadModel(std::int32_t /*env*/, const std::string& /*field*/,
                               bool /*of_file*/) const {
    throw SpecError(kNoModel);
  }
  virtual std::vector<std::string> ModelFields(std::int32_t /*env*/) const {
    throw SpecError(kNoModel);
  }

  // The finisher that needs every row of a step, so that no environment can be stepped again before
  // all rows are finished; null where each row is finished alone.
  virtual BatchFinisher* Finisher() { return nullptr; }

  // Null where there are no such statistics. A caller that changes them calls RefreshStatistics.
  virtual RunningMoments* Statistics(StatisticsOf /*of*/) { return nullptr; }
  virtual void RefreshStatistics() {}
  // Tells if batches are counted into the statistics.
  virtual bool updates_statistics() const { return false; }
  virtual void UpdateStatistics(bool /*updates*/) {}

 protected:
  static constexpr const char* kNoModel =
      "environments of this kind have no model with fields; those of MuJoCo have";
};

}  // namespace rollouts
