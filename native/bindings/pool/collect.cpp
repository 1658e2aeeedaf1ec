// SPDX-License-Identifier: Apache-2.0
#include "bindings/pool/collect.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/bindings.h"
#include "bindings/gil.h"
#include "bindings/interrupts.h"
#include "bindings/pool/wrappers.h"
#include "rollouts/policy/rollout.h"
#include "rollouts/support/errors.h"

namespace py = pybind11;

namespace rollouts {
namespace {

py::array Named(const py::dict& arrays, const char* name) {
  if (!arrays.contains(name) || !py::isinstance<py::array>(arrays[name])) {
    throw SpecError(std::string("rollout array ") + name + " is missing or is no array");
  }
  return arrays[name].cast<py::array>();
}

// The memory of one array of a rollout, after checking that it is (steps, rows, ...) of `dtype`, or
// (rows,) where `steps` is 0.
std::uint8_t* MemoryOf(const py::dict& arrays, const char* name, const py::dtype& dtype,
                       py::ssize_t steps, py::ssize_t rows, std::int64_t bytes_per_row) {
  const py::array array = Named(arrays, name);
  const bool shaped = steps == 0 ? array.ndim() >= 1 && array.shape(0) == rows
                                 : array.ndim() >= 2 && array.shape(0) == steps &&
                                       array.shape(1) == rows;
  const bool fits = shaped && array.dtype().equal(dtype) &&
                    array.nbytes() == std::max<py::ssize_t>(steps, 1) * rows * bytes_per_row;
  const int wanted = py::array::c_style | py::detail::npy_api::NPY_ARRAY_WRITEABLE_;
  if (!fits || (array.flags() & wanted) != wanted) {
    const std::string shape = (steps == 0 ? "(" : "(" + std::to_string(steps) + ", ") +
                              std::to_string(rows) + (steps == 0 ? ",)" : ", ...)");
    throw SpecError(std::string("rollout array ") + name + " has shape " + ShapeString(array) +
                    " and dtype " + py::str(array.dtype()).cast<std::string>() +
                    ", expected a writable C-contiguous one of shape " + shape + " and dtype " +
                    py::str(dtype).cast<std::string>());
  }
  return static_cast<std::uint8_t*>(const_cast<void*>(array.data()));
}

// Reads the arrays of states with which a policy with memory begins, and of states during the
// rollout.
void ReadStates(const py::dict& arrays, std::int64_t size, policy::RolloutArrays& to) {
  if (size == 0) return;
  const auto f32 = py::dtype::of<float>();
  const py::array kept = Named(arrays, "policy_state");
  to.kept_states = kept.ndim() > 0 && kept.shape(0) == 1 ? 1 : to.steps;
  const auto bytes = static_cast<std::int64_t>(sizeof(float)) * size;
  to.policy_state = reinterpret_cast<float*>(
      MemoryOf(arrays, "policy_state", f32, to.kept_states, to.rows, bytes));
  to.state = reinterpret_cast<float*>(MemoryOf(arrays, "state", f32, 0, to.rows, bytes));
  to.begins = MemoryOf(arrays, "begins", py::dtype::of<bool>(), 0, to.rows, 1);
}

// `group`: the group of agents, or null for environments with one agent.
policy::RolloutArrays ReadArrays(const py::dict& arrays, const EnvSpec& spec,
                                 const GroupSpec* group, const policy::NativePolicy& policy) {
  const SpaceSpec& observation = group ? group->observation : spec.observation;
  const SpaceSpec& action_space = group ? group->action : spec.action;
  const py::array reward = Named(arrays, "reward");
  if (reward.ndim() != 2) {
    throw SpecError("rollout array reward has shape " + ShapeString(reward) + ", expected (T, B)");
  }
  const py::ssize_t steps = reward.shape(0), rows = reward.shape(1);
  const auto cells = [&](const char* name, const py::dtype& dtype, std::int64_t bytes = 0) {
    return MemoryOf(arrays, name, dtype, steps, rows, bytes ? bytes : dtype.itemsize());
  };
  const auto f32 = py::dtype::of<float>();
  const auto f64 = py::dtype::of<double>();
  const auto i32 = py::dtype::of<std::int32_t>();
  const auto boolean = py::dtype::of<bool>();
  const bool discrete = action_space.n > 0;
  const py::dtype action = discrete ? py::dtype::of<std::int64_t>() : NumpyDType(action_space.dtype);
  const std::int64_t action_bytes = action.itemsize() * (discrete ? 1 : action_space.size());
  // as many as the head reads from the network
  std::int64_t num_inputs = policy.network->output_size(0);
  if (!policy::IsDiscrete(policy.head.kind)) num_inputs += policy.network->output_size(1);
  policy::RolloutArrays memory{
      .steps = static_cast<std::int32_t>(steps),
      .rows = static_cast<std::int32_t>(rows),
      .obs = MemoryOf(arrays, "obs", NumpyDType(observation.dtype), steps + 1, rows,
                      observation.bytes()),
      .action = cells("action", action, action_bytes),
      .log_prob = reinterpret_cast<float*>(cells("log_prob", f32)),
      .value = reinterpret_cast<float*>(cells("value", f32)),
      .reward = reinterpret_cast<float*>(cells("reward", f32)),
      .terminated = cells("terminated", boolean),
      .truncated = cells("truncated", boolean),
      .bootstrap_value = reinterpret_cast<float*>(cells("bootstrap_value", f32)),
      .episode_return = reinterpret_cast<double*>(cells("episode_return", f64)),
      .episode_length = reinterpret_cast<std::int32_t*>(cells("episode_length", i32)),
      .active = group ? cells("active", boolean) : nullptr,
      // one row, without a time axis
      .last_value = reinterpret_cast<float*>(
          MemoryOf(arrays, "last_value", f32, 0, rows, f32.itemsize())),
      .inputs = arrays.contains("inputs")
                    ? reinterpret_cast<float*>(cells("inputs", f32, num_inputs * f32.itemsize()))
                    : nullptr,
      .entropy = arrays.contains("entropy") ? reinterpret_cast<float*>(cells("entropy", f32))
                                            : nullptr};
  if (arrays.contains("action_mask")) {
    memory.action_mask = MemoryOf(arrays, "action_mask", boolean, steps + 1, rows,
                                  policy.network->output_size(0));
  }
  if (arrays.contains("advantage")) {
    memory.advantage = reinterpret_cast<float*>(cells("advantage", f32));
    memory.target = reinterpret_cast<float*>(cells("target", f32));
  }
  if (arrays.contains("digest")) {
    const auto row = [&](const char* name, const py::dtype& dtype) {
      return MemoryOf(arrays, name, dtype, 0, rows, dtype.itemsize());
    };
    memory.digests = {
        .digest = reinterpret_cast<std::uint64_t*>(row("digest", py::dtype::of<std::uint64_t>())),
        .largest_reward = reinterpret_cast<float*>(row("largest_reward", f32)),
        .is_obs_finite = row("is_obs_finite", boolean)};
    memory.num_chosen = reinterpret_cast<std::int32_t*>(row("num_chosen", i32));
  }
  if (discrete && arrays.contains("action_bytes")) {
    memory.action_bytes = cells("action_bytes", py::dtype::of<std::uint8_t>());
  }
  ReadStates(arrays, policy.network->state_size(), memory);
  return memory;
}

template <typename Value>
void ReadRule(const py::handle& given, Value& to) {
  to = given.cast<Value>();
}

void ReadRule(const py::handle& given, policy::ReturnsRule& to) {
  std::tie(to.gamma, to.gae_lambda, to.n) = given.cast<std::tuple<double, double, std::int64_t>>();
  if (to.n < 0) throw SpecError("n is " + std::to_string(to.n) + ", expected at least 1 step");
}

policy::CollectRules ReadRules(const py::dict& given, const std::vector<py::dict>& arrays) {
  policy::CollectRules rules;
  std::size_t num_read = 0;
  std::string known;
  rules.Visit([&](const char* name, auto& to) {
    known += (known.empty() ? "" : ", ") + std::string(name);
    if (!given.contains(name)) return;
    const py::object value = given[name];
    try {
      ReadRule(value, to);
    } catch (const py::cast_error&) {
      throw SpecError("rule " + std::string(name) + " is " + py::repr(value).cast<std::string>() +
                      ", which has another type than expected");
    }
    ++num_read;
  });
  if (num_read < given.size()) {
    throw SpecError("rules are " + py::str(py::list(given)).cast<std::string>() +
                    ", expected some of " + known);
  }
  for (const py::dict& each : arrays) {
    if (each.contains("advantage") && !given.contains("returns")) {
      throw SpecError("there is an array advantage, expected `returns` that says which");
    }
  }
  return rules;
}

// Final observations as rows of bytes.
py::array_t<std::uint8_t> BytesOfFinal(const std::vector<policy::FinalObs>& kept, std::int64_t bytes) {
  py::array_t<std::uint8_t> rows({static_cast<py::ssize_t>(kept.size()),
                                  static_cast<py::ssize_t>(bytes)});
  for (std::size_t i = 0; i < kept.size(); ++i) {
    std::memcpy(rows.mutable_data(static_cast<py::ssize_t>(i), 0), kept[i].obs.data(),
                kept[i].obs.size());
  }
  return rows;
}

}  // namespace

py::object CollectRollouts(CpuPool& pool, const std::vector<const PyPolicy*>& policies,
                           const std::vector<py::dict>& arrays, const py::dict& rules,
                           const py::object& poll, py::object normalize) {
  policy::CheckCollects(pool);
  const EnvSpec& spec = pool.spec();
  const auto num_parts = static_cast<std::size_t>(std::max(spec.num_groups, 1));
  if (policies.size() != num_parts || arrays.size() != num_parts) {
    throw SpecError("policies and arrays of " + std::to_string(policies.size()) + " and " +
                    std::to_string(arrays.size()) + " rollouts, expected " +
                    std::to_string(num_parts) + " of each");
  }
  const policy::CollectRules asked = ReadRules(rules, arrays);
  // held to the end, because another thread may load new weights meanwhile
  std::vector<std::shared_ptr<const policy::NativePolicy>> current;
  std::vector<policy::RolloutArrays> memory;
  for (std::size_t i = 0; i < num_parts; ++i) {
    const GroupSpec* group = spec.num_groups > 0 ? &spec.groups[i] : nullptr;
    current.push_back(policies[i]->current());
    memory.push_back(ReadArrays(arrays[i], spec, group, *current[i]));
  }
  std::vector<policy::PolicyRollout> parts;
  for (std::size_t i = 0; i < num_parts; ++i) parts.push_back({*current[i], memory[i]});
  std::optional<StepNormalizer> normalizer;
  if (!normalize.is_none()) {
    normalizer.emplace(MakeStepNormalizer(normalize, spec, pool.options().num_envs));
  }
  std::vector<std::vector<policy::FinalObs>> kept;
  InterruptWatch::Renew(InterruptWatch::Clock::now());
  {
    const ReleaseGil no_gil;
    const auto look_up = [&poll] {
      const AcquireGil gil;
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
      if (!poll.is_none()) poll();
    };
    kept = policy::Collect(pool, parts,
                           {.rules = asked,
                            .poll = look_up,
                            .finisher = normalizer ? &*normalizer : nullptr});
  }
  if (normalizer) {
    auto to = normalize.cast<py::dict>();
    TakeStepNormalizer(*normalizer, spec, pool.options().num_envs, to);
  }
  if (!asked.keep_final_obs) return py::none();
  py::list final_obs;
  for (std::size_t i = 0; i < num_parts; ++i) {
    const SpaceSpec& observation =
        spec.num_groups > 0 ? spec.groups[i].observation : spec.observation;
    final_obs.append(BytesOfFinal(kept[i], observation.bytes()));
  }
  return std::move(final_obs);
}

}  // namespace rollouts
