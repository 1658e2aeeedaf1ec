// SPDX-License-Identifier: Apache-2.0
#include "bindings/pool/actions.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <string>
#include <vector>

#include "bindings/arrays.h"
#include "rollouts/pool/checked_copy.h"

namespace py = pybind11;

namespace rollouts {
namespace {

// What NumPy makes of anything; converting may run Python code.
py::array AsArray(const py::object& actions) {
  auto array = py::array::ensure(actions);
  if (!array) {
    PyErr_Clear();
    throw DTypeError("actions must be an array or a sequence of numbers, got " +
                     py::str(py::type::of(actions)).cast<std::string>());
  }
  // a pool of one environment takes one row, too
  if (array.ndim() == 0) {
    throw DTypeError("actions is a scalar, expected an array with one row per environment");
  }
  return array;
}

// One row per environment, in the order in which they are sent.
void CheckShape(const CpuPool& pool, const py::array& actions, std::size_t num_rows) {
  const SpaceSpec& space = pool.spec().action;
  std::vector<py::ssize_t> expected{static_cast<py::ssize_t>(num_rows)};
  expected.insert(expected.end(), space.shape, space.shape + space.ndim);
  const std::vector<py::ssize_t> got(actions.shape(), actions.shape() + actions.ndim());
  if (got == expected) return;
  throw SpecError("actions has shape " + ShapeString(actions) + ", expected " +
                  py::str(py::tuple(py::cast(expected))).cast<std::string>() +
                  ": one row per environment that is stepped");
}

bool IsAll(const CpuPool& pool, std::span<const std::int32_t> envs) {
  // the span itself, as Send asks for it: an equal list is sent as a list
  return envs.data() == pool.all_envs().data();
}

// Copies the actions of a whole pool with `copy(first_row, num_rows)`, which says if they are good.
template <typename Copy>
bool CopyAll(CpuPool& pool, Copy&& copy) {
  // several threads copy and none may throw: what is wrong is looked up afterwards
  std::atomic<bool> good{true};
  pool.ForAllRows([&](std::int64_t first, std::int64_t count) {
    if (!copy(first, count)) good.store(false, std::memory_order_relaxed);
  });
  return good.load(std::memory_order_relaxed);
}

template <typename Int>
void CopyDiscreteAs(CpuPool& pool, const py::array& actions, std::span<const std::int32_t> envs) {
  const std::int32_t n = pool.spec().action.n;
  const auto* values = static_cast<const Int*>(actions.data());
  // discrete actions rest as int32; checked while they are copied, which harms no idle environment
  auto* rows = reinterpret_cast<std::int32_t*>(pool.ActionRow(0));
  bool good = true;
  if (IsAll(pool, envs)) {
    good = CopyAll(pool, [&](std::int64_t first, std::int64_t count) {
      return CopyDiscrete(values + first, count, n, rows + first);
    });
  } else {
    for (std::size_t i = 0; i < envs.size(); ++i) {
      // without a branch for each; one comparison without signs finds both ends
      good &= static_cast<std::uint64_t>(values[i]) < static_cast<std::uint64_t>(n);
      rows[envs[i]] = static_cast<std::int32_t>(values[i]);
    }
  }
  if (good) return;
  // only now, for the message: which one it was
  const Int* first = std::find_if(values, values + envs.size(), [&](Int value) {
    return static_cast<std::uint64_t>(value) >= static_cast<std::uint64_t>(n);
  });
  throw SpecError("action " + std::to_string(*first) + " in row " +
                  std::to_string(first - values) + " is out of range, expected 0 to " +
                  std::to_string(n - 1));
}

// Integers of any width: JAX gives int32, NumPy and Gymnasium int64.
void SendDiscrete(CpuPool& pool, const py::object& given, std::span<const std::int32_t> envs,
                  const BatchView* out) {
  py::array actions = AsArray(given);
  const char kind = actions.dtype().kind();
  if (kind != 'i' && kind != 'u') {
    throw DTypeError("actions has dtype " + py::str(actions.dtype()).cast<std::string>() +
                     ", expected an integer dtype (the action space is Discrete)");
  }
  CheckShape(pool, actions, envs.size());
  // int32 and int64 are read where they lie, other integers converted to int64
  if (py::isinstance<py::array_t<std::int32_t, py::array::c_style>>(actions)) {
    // after all that may run Python code, and before the first action row is written
    pool.CheckSend(envs);
    CopyDiscreteAs<std::int32_t>(pool, actions, envs);
  } else {
    using Int64 = py::array_t<std::int64_t, py::array::c_style | py::array::forcecast>;
    const auto converted = Int64(actions);
    pool.CheckSend(envs);
    CopyDiscreteAs<std::int64_t>(pool, converted, envs);
  }
  pool.Send(envs, out);
}

// Numbers of any kind become float32, which action spaces have.
void SendBox(CpuPool& pool, const py::object& given, std::span<const std::int32_t> envs,
             const BatchView* out) {
  py::array actions = AsArray(given);
  const char kind = actions.dtype().kind();
  if (kind != 'f' && kind != 'i' && kind != 'u') {
    throw DTypeError("actions has dtype " + py::str(actions.dtype()).cast<std::string>() +
                     ", expected float32 (the action space is a Box)");
  }
  CheckShape(pool, actions, envs.size());
  using Float = py::array_t<float, py::array::c_style | py::array::forcecast>;
  // makes a copy of what is not float32 in C order
  const auto rows = Float(actions);
  pool.CheckSend(envs);
  const auto size = static_cast<std::int64_t>(pool.spec().action.size());
  const float* values = rows.data();
  // checked while they are copied, which harms no idle environment
  bool good = true;
  if (IsAll(pool, envs)) {
    auto* all = reinterpret_cast<float*>(pool.ActionRow(0));
    good = CopyAll(pool, [&](std::int64_t first, std::int64_t count) {
      return CopyFinite(values + first * size, count * size, all + first * size);
    });
  } else {
    for (std::size_t i = 0; i < envs.size(); ++i) {
      auto* row = reinterpret_cast<float*>(pool.ActionRow(envs[i]));
      good &= CopyFinite(values + i * size, size, row);
    }
  }
  if (!good) {
    // only now, for the message: which one it was
    const auto is_bad = [](float value) { return !std::isfinite(value); };
    const auto at = std::find_if(values, values + envs.size() * size, is_bad) - values;
    throw SpecError("action in row " + std::to_string(at / size) + ", element " +
                    std::to_string(at % size) + " is " + std::to_string(values[at]) +
                    ", expected a finite number");
  }
  pool.Send(envs, out);
}

}  // namespace

void SendActions(CpuPool& pool, const py::object& actions, std::span<const std::int32_t> envs,
                 const BatchView* out) {
  // Discrete spaces have an n, Boxes have none
  if (pool.spec().action.n > 0) {
    SendDiscrete(pool, actions, envs, out);
  } else {
    SendBox(pool, actions, envs, out);
  }
}

std::vector<std::int32_t> ReadEnvIds(const CpuPool& pool, const py::object& env_id) {
  const auto array = py::array::ensure(env_id);
  if (!array || array.ndim() != 1 || (array.dtype().kind() != 'i' && array.dtype().kind() != 'u')) {
    throw DTypeError("env_id must be a one-dimensional integer array, such as info['env_id']");
  }
  const auto ids = py::array_t<std::int64_t, py::array::c_style | py::array::forcecast>(array);
  std::vector<std::int32_t> envs(static_cast<std::size_t>(ids.size()));
  const std::int64_t offset = pool.options().env_id_offset;
  for (std::size_t i = 0; i < envs.size(); ++i) {
    // in 64 bits: no id wraps around into the pool
    const std::int64_t env = ids.data()[i] - offset;
    if (env < 0 || env >= pool.options().num_envs) {
      throw SpecError("env_id " + std::to_string(ids.data()[i]) + " in row " +
                      std::to_string(i) + " is not in this pool: its ids are " +
                      std::to_string(offset) + " to " +
                      std::to_string(offset + pool.options().num_envs - 1));
    }
    envs[i] = static_cast<std::int32_t>(env);
  }
  return envs;
}

}  // namespace rollouts
