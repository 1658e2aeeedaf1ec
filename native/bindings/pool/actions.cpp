// SPDX-License-Identifier: Apache-2.0
#include "bindings/pool/actions.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/pool/groups.h"
#include "rollouts/pool/checked_copy.h"

namespace py = pybind11;

namespace rollouts {
namespace {

// NumPy's array of any object; the conversion may run Python code.
py::array AsArray(const py::object& actions) {
  auto array = py::array::ensure(actions);
  if (!array) {
    PyErr_Clear();
    throw DTypeError("actions must be an array or a sequence of numbers, got " +
                     py::str(py::type::of(actions)).cast<std::string>());
  }
  // a pool of one environment also takes a single row
  if (array.ndim() == 0) {
    throw DTypeError("actions is a scalar, expected an array with one row per environment");
  }
  return array;
}

// Checks that there is one row per environment, in the order in which they are sent.
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

// Tells if the rows of these environments lie one after the other.
bool AreNeighbours(const CpuPool& pool, std::span<const std::int32_t> envs) {
  // compares the span's address, as Send does: a list of the same ids is copied row by row
  return envs.data() == pool.all_envs().data();
}

template <typename Int>
void SendDiscreteAs(CpuPool& pool, const py::array& actions, std::span<const std::int32_t> envs,
                    const BatchView* out) {
  const std::int32_t n = pool.spec().action.n;
  const auto* values = static_cast<const Int*>(actions.data());
  // discrete actions are kept as int32
  auto* rows = reinterpret_cast<std::int32_t*>(pool.ActionRow(0));
  const bool neighbours = AreNeighbours(pool, envs);
  const auto fill = [&](std::int64_t first, std::int64_t count) {
    if (neighbours) return CopyDiscrete(values + first, count, n, rows + first);
    bool good = true;
    for (std::int64_t i = first; i < first + count; ++i) {
      // without a branch for each; one unsigned comparison checks both bounds
      good &= static_cast<std::uint64_t>(values[i]) < static_cast<std::uint64_t>(n);
      rows[envs[i]] = static_cast<std::int32_t>(values[i]);
    }
    return good;
  };
  // a reference, since a copy of the function would be allocated
  if (pool.Send(envs, std::ref(fill), out)) return;
  // searched only now, for the message
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
  // int32 and int64 are read in place, other integers are converted to int64
  if (py::isinstance<py::array_t<std::int32_t, py::array::c_style>>(actions)) {
    SendDiscreteAs<std::int32_t>(pool, actions, envs, out);
  } else {
    using Int64 = py::array_t<std::int64_t, py::array::c_style | py::array::forcecast>;
    SendDiscreteAs<std::int64_t>(pool, Int64(actions), envs, out);
  }
}

// Numbers of any kind become float32, the dtype of action spaces.
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
  // copies arrays that are not float32 in C order
  const auto given_rows = Float(actions);
  const float* values = given_rows.data();
  const auto size = static_cast<std::int64_t>(pool.spec().action.size());
  const auto row_of = [&](std::int64_t env) {
    return reinterpret_cast<float*>(pool.ActionRow(static_cast<std::int32_t>(env)));
  };
  const bool neighbours = AreNeighbours(pool, envs);
  const auto fill = [&](std::int64_t first, std::int64_t count) {
    if (neighbours) return CopyFinite(values + first * size, count * size, row_of(first));
    bool good = true;
    for (std::int64_t i = first; i < first + count; ++i) {
      good &= CopyFinite(values + i * size, size, row_of(envs[i]));
    }
    return good;
  };
  if (pool.Send(envs, std::ref(fill), out)) return;
  // searched only now, for the message
  const auto is_bad = [](float value) { return !std::isfinite(value); };
  const auto at = std::find_if(values, values + envs.size() * size, is_bad) - values;
  throw SpecError("action in row " + std::to_string(at / size) + ", element " +
                  std::to_string(at % size) + " is " + std::to_string(values[at]) +
                  ", expected a finite number");
}

// Elements of a MultiDiscrete space are kept as int32; each is below its own number of values.
void SendMultiDiscrete(CpuPool& pool, const py::object& given, std::span<const std::int32_t> envs,
                       const BatchView* out) {
  const py::array actions = AsArray(given);
  const char kind = actions.dtype().kind();
  if (kind != 'i' && kind != 'u') {
    throw DTypeError("actions has dtype " + py::str(actions.dtype()).cast<std::string>() +
                     ", expected an integer dtype (the action space is MultiDiscrete)");
  }
  CheckShape(pool, actions, envs.size());
  using Int64 = py::array_t<std::int64_t, py::array::c_style | py::array::forcecast>;
  const auto given_rows = Int64(actions);
  const std::int64_t* values = given_rows.data();
  const SpaceSpec& space = pool.spec().action;
  const std::int64_t size = space.size();
  const auto highest = [&](std::int64_t i) {
    return static_cast<std::int64_t>(space.high[space.elementwise ? i % size : 0]);
  };
  const auto fill = [&](std::int64_t first, std::int64_t count) {
    bool good = true;
    for (std::int64_t row = first; row < first + count; ++row) {
      auto* const to = reinterpret_cast<std::int32_t*>(pool.ActionRow(envs[row]));
      for (std::int64_t i = 0; i < size; ++i) {
        const std::int64_t value = values[row * size + i];
        good &= value >= 0 && value <= highest(i);
        to[i] = static_cast<std::int32_t>(value);
      }
    }
    return good;
  };
  if (pool.Send(envs, std::ref(fill), out)) return;
  // searched only now, for the message
  const std::int64_t end = static_cast<std::int64_t>(envs.size()) * size;
  std::int64_t at = 0;
  while (at < end - 1 && values[at] >= 0 && values[at] <= highest(at)) ++at;
  throw SpecError("action in row " + std::to_string(at / size) + ", element " +
                  std::to_string(at % size) + " is " + std::to_string(values[at]) +
                  ", expected 0 to " + std::to_string(highest(at)));
}

}  // namespace

void SendActions(CpuPool& pool, const py::object& actions, std::span<const std::int32_t> envs,
                 const BatchView* out) {
  if (pool.spec().num_groups > 0) {
    SendGroups(pool, actions, envs, out);
    return;
  }
  // only Discrete spaces have an n
  if (pool.spec().action.n > 0) {
    SendDiscrete(pool, actions, envs, out);
  } else if (pool.spec().action.multi_discrete) {
    SendMultiDiscrete(pool, actions, envs, out);
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
    // in 64 bits, so that no id wraps around into the pool
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
