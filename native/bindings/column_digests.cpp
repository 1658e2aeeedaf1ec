// SPDX-License-Identifier: Apache-2.0
#include "rollouts/data/column_digests.h"

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <optional>
#include <string>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/bindings.h"
#include "bindings/gil.h"
#include "rollouts/support/errors.h"

namespace py = pybind11;

namespace rollouts {
namespace {

using Floats = py::array_t<float, py::array::c_style>;
using Bools = py::array_t<bool, py::array::c_style>;

FloatKind KindOf(const py::dtype& dtype) {
  if (dtype.kind() != 'f') return FloatKind::kNone;
  switch (dtype.itemsize()) {
    case 2: return FloatKind::kFloat16;
    case 4: return FloatKind::kFloat32;
    case 8: return FloatKind::kFloat64;
  }
  throw SpecError("obs has dtype " + py::str(dtype).cast<std::string>() +
                  ", expected numbers of at most 64 bits");
}

// An array whose elements lie together; a copy where they do not.
py::array Together(const py::array& array) { return py::array::ensure(array, py::array::c_style); }

void CheckShapes(const py::array& obs, const py::array& last_obs,
                 const std::vector<const py::array*>& cells) {
  bool fits = obs.ndim() >= 2 && last_obs.ndim() == obs.ndim() - 1 &&
              last_obs.dtype().is(obs.dtype());
  for (py::ssize_t axis = 0; fits && axis < last_obs.ndim(); ++axis) {
    fits = last_obs.shape(axis) == obs.shape(axis + 1);
  }
  for (const py::array* each : cells) {
    fits = fits && each->ndim() == 2 && each->shape(0) == obs.shape(0) &&
           each->shape(1) == obs.shape(1);
  }
  if (!fits) {
    throw SpecError("obs has shape " + ShapeString(obs) + ", expected (T, B, ...), last_obs as one "
                    "of its rows, and (T, B) of all else");
  }
}

const std::uint8_t* BytesOf(const py::array& array) {
  return static_cast<const std::uint8_t*>(array.data());
}

// digest (B,) uint64, largest_reward (B,) float32, is_obs_finite (B,) bool of a rollout's columns.
py::tuple DigestRollout(const py::array& given_obs, const py::array& given_last_obs,
                        const Floats& reward, const Bools& terminated, const Bools& truncated,
                        const std::optional<Bools>& active) {
  const py::array obs = Together(given_obs), last_obs = Together(given_last_obs);
  std::vector<const py::array*> cells{&reward, &terminated, &truncated};
  if (active) cells.push_back(&*active);
  CheckShapes(obs, last_obs, cells);
  const std::vector<std::int64_t> shape(obs.shape() + 2, obs.shape() + obs.ndim());
  RolloutColumns columns{.steps = static_cast<std::int32_t>(obs.shape(0)),
                         .rows = static_cast<std::int32_t>(obs.shape(1)),
                         .obs = BytesOf(obs),
                         .last_obs = BytesOf(last_obs),
                         .cell_bytes = obs.itemsize(),
                         .part = NewestPart(shape, obs.itemsize()),
                         .kind = KindOf(obs.dtype()),
                         .reward = reward.data(),
                         .terminated = BytesOf(terminated),
                         .truncated = BytesOf(truncated),
                         .active = active ? BytesOf(*active) : nullptr};
  for (const std::int64_t size : shape) columns.cell_bytes *= size;
  py::array_t<std::uint64_t> digest(columns.rows);
  Floats largest_reward(columns.rows);
  Bools is_obs_finite(columns.rows);
  const ColumnDigests to{digest.mutable_data(), largest_reward.mutable_data(),
                         reinterpret_cast<std::uint8_t*>(is_obs_finite.mutable_data())};
  {
    const ReleaseGil no_gil;
    DigestColumns(columns, 0, columns.rows, to);
  }
  return py::make_tuple(digest, largest_reward, is_obs_finite);
}

}  // namespace

void BindColumnDigests(py::module_& module) {
  module.def("digest_columns", &DigestRollout, py::arg("obs"), py::arg("last_obs"),
             py::arg("reward"), py::arg("terminated"), py::arg("truncated"),
             py::arg("active") = py::none());
}

}  // namespace rollouts
