// SPDX-License-Identifier: Apache-2.0
#include "bindings/pool/pool_options.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "bindings/bindings.h"
#include "rollouts/support/errors.h"

namespace py = pybind11;

namespace rollouts {

std::vector<Segment> ReadSegments(const py::list& given) {
  using Fields = std::tuple<std::string, std::int32_t, std::int32_t, py::dict>;
  std::vector<Segment> segments;
  for (const py::handle each : given) {
    // `internal`: options that users do not give, such as a ROM's path
    const auto [id, num_envs, limit, internal] = each.cast<Fields>();
    segments.push_back({&FindEntry(id), num_envs, limit, OptionColumnsFromDict(internal)});
  }
  return segments;
}

const RegistryEntry& EntryOf(std::span<const Segment> segments, std::int32_t env) {
  std::int32_t end = 0;
  // environments of a segment follow each other
  const auto own = std::find_if(segments.begin(), segments.end(), [&](const Segment& segment) {
    end += segment.num_envs;
    return env < end;
  });
  return *own->entry;
}

py::dict OptionsByName(CpuPool& pool) {
  const auto num_envs = static_cast<std::size_t>(pool.options().num_envs);
  // a list per option, with a value for each environment
  std::map<std::string, py::list> columns;
  for (std::size_t env = 0; env < num_envs; ++env) {
    for (const auto& [name, value] : pool.OptionsOf(static_cast<std::int32_t>(env))) {
      auto column = columns.find(name);
      if (column == columns.end()) {
        column = columns.emplace(name, py::list(num_envs)).first;
        // None for environments of other ids that do not have this option
        for (std::size_t i = 0; i < num_envs; ++i) column->second[i] = py::none();
      }
      column->second[env] = py::cast(value);
    }
  }
  return py::cast(columns);
}

py::list Engines(CpuPool& pool) {
  py::list engines;
  for (std::int32_t env = 0; env < pool.options().num_envs; ++env) {
    const EngineChoice engine = pool.EngineOf(env);
    engines.append(py::make_tuple(engine.name, engine.why_not_lanes));
  }
  return engines;
}

PoolOptions MakePoolOptions(std::int32_t num_envs, std::int32_t batch_size,
                            std::int32_t num_threads, std::int32_t env_id_offset,
                            std::uint64_t seed, std::int32_t autoreset_mode,
                            std::int32_t max_episode_steps, std::int32_t on_env_error,
                            const std::vector<std::int32_t>& pin_cpus) {
  PoolOptions options;
  options.num_envs = num_envs;
  options.batch_size = batch_size;
  options.num_threads = num_threads;
  options.env_id_offset = env_id_offset;
  options.seed = seed;
  options.rules.autoreset = static_cast<AutoresetMode>(autoreset_mode);
  options.rules.max_episode_steps = max_episode_steps;
  options.on_env_error = static_cast<OnEnvError>(on_env_error);
  options.pin_cpus = pin_cpus;
  // the caller's own thread is never pinned
  if (!pin_cpus.empty() && std::ssize(pin_cpus) != CpuPool::NumWorkers(options)) {
    throw SpecError("pin_cpus names " + std::to_string(pin_cpus.size()) + " CPUs, expected " +
                    std::to_string(CpuPool::NumWorkers(options)) + ": one per worker thread");
  }
  return options;
}

ModelColumns ReadModelColumns(const py::list& given, std::int32_t num_envs) {
  using Doubles = py::array_t<double, py::array::c_style>;
  ModelColumns columns;
  for (const py::handle each : given) {
    const auto [field, by_env, low, high] =
        each.cast<std::tuple<std::string, bool, std::optional<Doubles>, std::optional<Doubles>>>();
    ModelColumn column;
    column.field = field;
    // no values: back to those of the shared model
    column.shared = !low;
    column.by_env = by_env;
    // values of one environment after the other, or the same for all
    const std::int64_t rows = by_env ? num_envs : 1;
    if (low) column.low.assign(low->data(), low->data() + low->size());
    if (high) column.high.assign(high->data(), high->data() + high->size());
    column.size = column.low.size() / static_cast<std::size_t>(rows);
    // sizes are checked here; the environment checks which field it is
    if (column.size * static_cast<std::size_t>(rows) != column.low.size() ||
        (high && high->size() != low->size())) {
      throw SpecError("model field '" + field + "' has not the same number of values for each " +
                      "environment, or for low and high");
    }
    columns.push_back(std::move(column));
  }
  return columns;
}

py::array ModelToArray(const ModelArray& model) {
  const std::vector<py::ssize_t> shape(model.shape.begin(), model.shape.end());
  py::array_t<double> values(shape);
  std::copy(model.values.begin(), model.values.end(), values.mutable_data());
  // in the order of ModelArray::Type
  constexpr const char* kDTypes[] = {"float64", "float32", "int32", "bool"};
  // read as double, returned with the model's dtype
  return values.attr("astype")(kDTypes[static_cast<std::size_t>(model.type)]);
}

}  // namespace rollouts
