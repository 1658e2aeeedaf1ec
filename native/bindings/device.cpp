// SPDX-License-Identifier: Apache-2.0
// Functions of the native core for pools of a GPU: options as bytes, and saved states as columns.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "bindings/bindings.h"
#include "rollouts/device/world_launch.h"
#include "rollouts/support/saved_clock.h"
#include "rollouts/registry/registry.h"
#include "rollouts/support/state.h"

namespace py = pybind11;

namespace rollouts {
namespace {

// One row of the arrays of clocks, as NumPy sees it.
struct ClockRow {
  std::uint64_t seed;
  std::uint32_t env_id;
  std::uint32_t next_episode;
  std::uint32_t draws;
  std::int32_t elapsed_steps;
  double episode_return;
  std::uint32_t stream_id;
  std::uint8_t ended;
};

using Fields = py::array_t<double, py::array::c_style | py::array::forcecast>;
using Clocks = py::array_t<ClockRow, py::array::c_style>;
using Bytes = py::array_t<std::uint8_t, py::array::c_style>;

void PutRow(StateWriter& writer, const ClockRow& row) {
  PutClock(writer, {row.seed, row.env_id, row.next_episode, row.draws, row.elapsed_steps,
                    row.episode_return, row.ended != 0, row.stream_id});
}

ClockRow GetRow(StateReader& reader) {
  const EpisodeClock clock = GetClock(reader, 0);
  return {clock.seed,          clock.env_id,         clock.next_episode, clock.draws,
          clock.elapsed_steps, clock.episode_return, clock.stream_id,    clock.ended};
}

py::bytes Sealed(const StateKind& kind, const std::vector<std::uint8_t>& state) {
  const auto bytes = SealState(kind, state);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Calls `open(sealed)` for each state; `i` counts the states.
template <typename Open>
void OpenEach(const std::vector<std::int32_t>& envs, const std::vector<py::bytes>& states,
              Open&& open) {
  for (std::size_t i = 0; i < envs.size(); ++i) {
    const auto text = static_cast<std::string_view>(states[i]);
    try {
      open(static_cast<py::ssize_t>(i),
           std::span(reinterpret_cast<const std::uint8_t*>(text.data()), text.size()));
    } catch (const SpecError& error) {
      throw SpecError("state " + std::to_string(i) + " for environment " +
                      std::to_string(envs[i]) + " " + error.what());
    }
  }
}

// Writes fields into a state. They are passed as doubles, which can hold a Real and an int32.
void LoadFields(const RegistryEntry& entry, const double* fields, std::vector<std::uint8_t>& state) {
  StateWriter writer(state);
  for (std::int32_t f = 0; f < entry.device.state_fields; ++f) {
    if (entry.device.real_state) {
      writer.Put(static_cast<Real>(fields[f]));
    } else {
      writer.Put(static_cast<std::int32_t>(fields[f]));
    }
  }
}

// Environments as saved states: `envs` are their rows among the columns of `options`.
std::vector<py::bytes> SealStates(const std::string& id, const py::dict& options,
                                  std::int32_t num_envs, const std::vector<std::int32_t>& envs,
                                  const Clocks& clocks, const Fields& fields) {
  const RegistryEntry& entry = FindEntry(id);
  const auto batch = entry.make_batch(OptionColumnsFromDict(options), 0, num_envs);
  std::vector<py::bytes> sealed;
  for (std::size_t i = 0; i < envs.size(); ++i) {
    const ClockRow& row = clocks.at(static_cast<py::ssize_t>(i));
    std::vector<std::uint8_t> state;
    StateWriter writer(state);
    PutRow(writer, row);
    LoadFields(entry, fields.data(static_cast<py::ssize_t>(i), 0), state);
    sealed.push_back(Sealed(MakeStateKind(entry.type, batch->OptionsOf(envs[i])), state));
  }
  return sealed;
}

// The reverse of SealStates: (clocks, fields). Throws SpecError for states of other environments.
py::tuple OpenStates(const std::string& id, const py::dict& options, std::int32_t num_envs,
                     const std::vector<std::int32_t>& envs, const std::vector<py::bytes>& states) {
  const RegistryEntry& entry = FindEntry(id);
  const auto batch = entry.make_batch(OptionColumnsFromDict(options), 0, num_envs);
  Clocks clocks(static_cast<py::ssize_t>(envs.size()));
  Fields fields({static_cast<py::ssize_t>(envs.size()),
                 static_cast<py::ssize_t>(entry.device.state_fields)});
  OpenEach(envs, states, [&](py::ssize_t i, std::span<const std::uint8_t> sealed) {
    const std::int32_t env = envs[static_cast<std::size_t>(i)];
    StateReader reader(OpenState(MakeStateKind(entry.type, batch->OptionsOf(env)), sealed));
    clocks.mutable_at(i) = GetRow(reader);
    batch->CheckState(env, reader.rest());
    for (std::int32_t f = 0; f < entry.device.state_fields; ++f) {
      fields.mutable_at(i, f) = entry.device.real_state
                                    ? static_cast<double>(reader.Get<Real>())
                                    : static_cast<double>(reader.Get<std::int32_t>());
    }
  });
  return py::make_tuple(clocks, fields);
}

// Makes environments one at a time, each with its row of the options: worlds may take many
// megabytes.
class OneByOne {
 public:
  OneByOne(const RegistryEntry& entry, const py::dict& options)
      : entry_(entry), options_(OptionColumnsFromDict(options)) {}

  // The environment of row `env`, alone; borrowed until the next call.
  EnvBatch& At(std::int32_t env) {
    const bool differ = DifferByRow(options_);
    if (differ || !batch_) batch_ = entry_.make_batch(options_, differ ? env : 0, 1);
    return *batch_;
  }

 private:
  const RegistryEntry& entry_;
  const OptionColumns options_;
  std::unique_ptr<EnvBatch> batch_;
};

// Seals worlds of agents (n, world_bytes), as SealStates.
std::vector<py::bytes> SealWorlds(const std::string& id, const py::dict& options,
                                  const std::vector<std::int32_t>& envs, const Clocks& clocks,
                                  const Bytes& worlds) {
  const RegistryEntry& entry = FindEntry(id);
  OneByOne made(entry, options);
  std::vector<py::bytes> sealed;
  for (std::size_t i = 0; i < envs.size(); ++i) {
    const auto row = static_cast<py::ssize_t>(i);
    std::vector<std::uint8_t> state;
    StateWriter writer(state);
    PutRow(writer, clocks.at(row));
    state.insert(state.end(), worlds.data(row, 0), worlds.data(row, 0) + worlds.shape(1));
    sealed.push_back(Sealed(MakeStateKind(entry.type, made.At(envs[i]).OptionsOf(0)), state));
  }
  return sealed;
}

// The reverse of SealWorlds: (clocks, worlds).
py::tuple OpenWorlds(const std::string& id, const py::dict& options,
                     const std::vector<std::int32_t>& envs, const std::vector<py::bytes>& states,
                     std::int64_t world_bytes) {
  const RegistryEntry& entry = FindEntry(id);
  OneByOne made(entry, options);
  const auto count = static_cast<py::ssize_t>(envs.size());
  Clocks clocks(count);
  Bytes worlds({count, static_cast<py::ssize_t>(world_bytes)});
  OpenEach(envs, states, [&](py::ssize_t i, std::span<const std::uint8_t> sealed) {
    EnvBatch& one = made.At(envs[static_cast<std::size_t>(i)]);
    StateReader reader(OpenState(MakeStateKind(entry.type, one.OptionsOf(0)), sealed));
    clocks.mutable_at(i) = GetRow(reader);
    one.CheckState(0, reader.rest());
    std::memcpy(worlds.mutable_data(i, 0), reader.rest().data(),
                static_cast<std::size_t>(world_bytes));
  });
  return py::make_tuple(clocks, worlds);
}

py::dict DeviceFacts(const std::string& id, const py::dict& options, std::int32_t num_envs) {
  const RegistryEntry& entry = FindEntry(id);
  if (!entry.device.configs) {
    throw SpecError(id + " runs on the CPU alone; `rollouts envs` says which run on a GPU");
  }
  const auto configs = entry.device.configs(OptionColumnsFromDict(options), num_envs);
  const auto bytes_of = [](const auto* first, std::size_t count) {
    return py::bytes(reinterpret_cast<const char*>(first), count * sizeof(*first));
  };
  py::dict result;
  result["state_fields"] = entry.device.state_fields;
  result["real_state"] = entry.device.real_state;
  // words of 32 bits on a device
  result["is_state_loaded"] = 4 * entry.device.state_fields <= kMostLoadedState;
  result["config_bytes"] = entry.device.config_bytes;
  result["configs"] = bytes_of(configs.data(), configs.size());
  if (entry.device.worlds) {
    const WorldFacts facts = entry.device.worlds(OptionColumnsFromDict(options), num_envs);
    const EnvSpec spec = entry.make_spec(OptionColumnsFromDict(options));
    DeviceGroup groups[EnvSpec::kMaxGroups];
    DescribeGroups(spec, groups);
    result["world_bytes"] = facts.world_bytes;
    result["team_bytes"] = kTeamStateBytes + facts.agents_bytes;
    result["tables"] = bytes_of(facts.tables.data(), facts.tables.size());
    result["groups"] = bytes_of(groups, static_cast<std::size_t>(spec.num_groups));
    result["action_bytes"] = spec.action.bytes();
  }
  return result;
}

py::dict FactsOfTask(const std::string& id, const py::dict& options, std::int32_t num_envs,
                     bool of_model) {
  const RegistryEntry& entry = FindEntry(id);
  if (!entry.device.task) throw SpecError(id + " is no task that kernels know");
  const TaskFacts facts = entry.device.task(OptionColumnsFromDict(options), num_envs, of_model);
  const auto bytes_of = [](const std::vector<std::uint8_t>& from) {
    return py::bytes(reinterpret_cast<const char*>(from.data()), from.size());
  };
  py::dict result;
  result["type"] = facts.type;
  result["task"] = bytes_of(facts.task);
  result["configs"] = bytes_of(facts.configs);
  result["config_bytes"] = facts.config_bytes;
  result["own_options"] = py::cast(facts.own_options);
  result["contact_forces"] = facts.contact_forces;
  // poses are cheap compared with the other arrays that follow from positions
  constexpr DataArrays kPoses =
      kXpos | kXquat | kXmat | kXipos | kGeomXpos | kGeomXmat | kSiteXpos | kSiteXmat;
  // motion without contacts and constraints, whose forces are most of the work
  constexpr DataArrays kMotion =
      kPoses | kCinert | kCvel | kQfrcActuator | kTenLength | kTenVelocity | kSubtreeCom;
  const bool poses_alone = (facts.reads & ~kPoses) == 0;
  const bool motion_alone = (facts.reads & ~kMotion) == 0;
  result["refresh"] = facts.is_suite      ? "unactuated"
                      : facts.reads == 0  ? "nothing"
                      : poses_alone       ? "kinematics"
                      : motion_alone      ? "motion"
                                          : "forward";
  result["frame_skip"] = facts.frame_skip;
  result["is_suite"] = facts.is_suite;
  result["draws"] = facts.draws;
  result["is_apart"] = facts.is_apart;
  result["places"] = facts.places;
  result["substeps_to_rest"] = facts.substeps_to_rest;
  py::list changes;
  for (const TaskFacts::ModelValue& one : facts.changes) {
    changes.append(py::make_tuple(one.field, one.at, one.value));
  }
  result["changes"] = changes;
  return result;
}

}  // namespace

void BindDevice(py::module_& module) {
  PYBIND11_NUMPY_DTYPE(ClockRow, seed, env_id, next_episode, draws, elapsed_steps, episode_return,
                       stream_id, ended);
  module.attr("CLOCK_DTYPE") = py::dtype::of<ClockRow>();
  module.def("device_facts", &DeviceFacts, py::arg("id"), py::arg("options"), py::arg("num_envs"),
             "What a pool of a GPU must know of environments with these options.");
  module.def("task_facts", &FactsOfTask, py::arg("id"), py::arg("options"), py::arg("num_envs"),
             py::arg("of_model"),
             "What a pool of mujoco_warp must know of a task with these options.");
  module.def("seal_states", &SealStates, py::arg("id"), py::arg("options"), py::arg("num_envs"),
             py::arg("envs"), py::arg("clocks"), py::arg("fields"),
             "Saved states, as CpuPool's, of environments whose clocks and states are given.");
  module.def("open_states", &OpenStates, py::arg("id"), py::arg("options"), py::arg("num_envs"),
             py::arg("envs"), py::arg("states"), "Clocks and fields of saved states.");
  module.def("seal_worlds", &SealWorlds, py::arg("id"), py::arg("options"), py::arg("envs"),
             py::arg("clocks"), py::arg("worlds"), "As seal_states, of worlds of agents.");
  module.def("open_worlds", &OpenWorlds, py::arg("id"), py::arg("options"), py::arg("envs"),
             py::arg("states"), py::arg("world_bytes"), "Clocks and worlds of saved states.");
}

}  // namespace rollouts
