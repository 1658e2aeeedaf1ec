// SPDX-License-Identifier: Apache-2.0
#include "bindings/pool/collect.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/bindings.h"
#include "bindings/gil.h"
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

// The memory of one array of a rollout, once it is seen to be (rows, envs, ...) of `dtype`, or
// (envs,) where `rows` is 0.
std::uint8_t* MemoryOf(const py::dict& arrays, const char* name, const py::dtype& dtype,
                       py::ssize_t rows, py::ssize_t envs, std::int64_t bytes_per_env) {
  const py::array array = Named(arrays, name);
  const bool shaped = rows == 0 ? array.ndim() >= 1 && array.shape(0) == envs
                                : array.ndim() >= 2 && array.shape(0) == rows &&
                                      array.shape(1) == envs;
  const bool fits = shaped && array.dtype().equal(dtype) &&
                    array.nbytes() == std::max<py::ssize_t>(rows, 1) * envs * bytes_per_env;
  const int wanted = py::array::c_style | py::detail::npy_api::NPY_ARRAY_WRITEABLE_;
  if (!fits || (array.flags() & wanted) != wanted) {
    const std::string shape = (rows == 0 ? "(" : "(" + std::to_string(rows) + ", ") +
                              std::to_string(envs) + (rows == 0 ? ",)" : ", ...)");
    throw SpecError(std::string("rollout array ") + name + " has shape " + ShapeString(array) +
                    " and dtype " + py::str(array.dtype()).cast<std::string>() +
                    ", expected a writable C-contiguous one of shape " + shape + " and dtype " +
                    py::str(dtype).cast<std::string>());
  }
  return static_cast<std::uint8_t*>(const_cast<void*>(array.data()));
}

// What a policy with memory goes on from, and what it met.
void ReadStates(const py::dict& arrays, std::int64_t size, policy::RolloutArrays& to) {
  if (size == 0) return;
  const auto f32 = py::dtype::of<float>();
  const py::array kept = Named(arrays, "policy_state");
  to.kept_states = kept.ndim() > 0 && kept.shape(0) == 1 ? 1 : to.steps;
  const auto bytes = static_cast<std::int64_t>(sizeof(float)) * size;
  to.policy_state = reinterpret_cast<float*>(
      MemoryOf(arrays, "policy_state", f32, to.kept_states, to.envs, bytes));
  to.state = reinterpret_cast<float*>(MemoryOf(arrays, "state", f32, 0, to.envs, bytes));
  to.begins = MemoryOf(arrays, "begins", py::dtype::of<bool>(), 0, to.envs, 1);
}

policy::RolloutArrays ReadArrays(const py::dict& arrays, const EnvSpec& spec,
                                 const policy::NativePolicy& policy) {
  const py::array reward = Named(arrays, "reward");
  if (reward.ndim() != 2) {
    throw SpecError("rollout array reward has shape " + ShapeString(reward) + ", expected (T, B)");
  }
  const py::ssize_t steps = reward.shape(0), envs = reward.shape(1);
  const auto cells = [&](const char* name, const py::dtype& dtype, std::int64_t bytes = 0) {
    return MemoryOf(arrays, name, dtype, steps, envs, bytes ? bytes : dtype.itemsize());
  };
  const auto f32 = py::dtype::of<float>();
  const auto f64 = py::dtype::of<double>();
  const auto i32 = py::dtype::of<std::int32_t>();
  const auto boolean = py::dtype::of<bool>();
  const bool discrete = spec.action.n > 0;
  const py::dtype action = discrete ? py::dtype::of<std::int64_t>() : NumpyDType(spec.action.dtype);
  const std::int64_t action_bytes = action.itemsize() * (discrete ? 1 : spec.action.size());
  // as many as the head reads of the network
  std::int64_t num_inputs = policy.network->output_size(0);
  if (!policy::IsDiscrete(policy.head.kind)) num_inputs += policy.network->output_size(1);
  return {.steps = static_cast<std::int32_t>(steps),
          .envs = static_cast<std::int32_t>(envs),
          .obs = MemoryOf(arrays, "obs", NumpyDType(spec.observation.dtype), steps + 1, envs,
                          spec.observation.bytes()),
          .action = cells("action", action, action_bytes),
          .log_prob = reinterpret_cast<float*>(cells("log_prob", f32)),
          .value = reinterpret_cast<float*>(cells("value", f32)),
          .reward = reinterpret_cast<float*>(cells("reward", f32)),
          .terminated = cells("terminated", boolean),
          .truncated = cells("truncated", boolean),
          .bootstrap_value = reinterpret_cast<float*>(cells("bootstrap_value", f32)),
          .episode_return = reinterpret_cast<double*>(cells("episode_return", f64)),
          .episode_length = reinterpret_cast<std::int32_t*>(cells("episode_length", i32)),
          // one row, without an axis of time
          .last_value = reinterpret_cast<float*>(
              MemoryOf(arrays, "last_value", f32, 0, envs, f32.itemsize())),
          .inputs = arrays.contains("inputs")
                        ? reinterpret_cast<float*>(cells("inputs", f32, num_inputs * f32.itemsize()))
                        : nullptr};
}

}  // namespace

py::object CollectRollout(CpuPool& pool, const PyPolicy& policy, const py::dict& arrays,
                          bool keep_final_obs, const py::object& poll) {
  policy::CheckCollects(pool);
  const auto current = policy.current();
  policy::RolloutArrays memory = ReadArrays(arrays, pool.spec(), *current);
  ReadStates(arrays, current->network->state_size(), memory);
  std::vector<policy::FinalObs> kept;
  {
    const ReleaseGil no_gil;
    const auto look_up = [&poll] {
      const AcquireGil gil;
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
      if (!poll.is_none()) poll();
    };
    kept = policy::Collect(pool, *current, memory,
                           {.keep_final_obs = keep_final_obs, .poll = look_up});
  }
  if (!keep_final_obs) return py::none();
  const auto bytes = static_cast<py::ssize_t>(pool.spec().observation.bytes());
  py::array_t<std::uint8_t> final_obs({static_cast<py::ssize_t>(kept.size()), bytes});
  for (std::size_t i = 0; i < kept.size(); ++i) {
    std::memcpy(final_obs.mutable_data(static_cast<py::ssize_t>(i), 0), kept[i].obs.data(),
                kept[i].obs.size());
  }
  return final_obs;
}

}  // namespace rollouts
