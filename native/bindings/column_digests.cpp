// SPDX-License-Identifier: Apache-2.0
#include "rollouts/data/column_digests.h"

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/bindings.h"
#include "bindings/gil.h"
#include "rollouts/support/checksum.h"
#include "rollouts/support/errors.h"

namespace py = pybind11;

namespace rollouts {
namespace {

template <typename T>
using Contiguous = py::array_t<T, py::array::c_style>;
using Floats = Contiguous<float>;
using Bools = Contiguous<bool>;

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

template <typename T>
std::span<const std::uint8_t> BytesOf(std::span<const T> numbers) {
  return {reinterpret_cast<const std::uint8_t*>(numbers.data()), numbers.size_bytes()};
}

// The last row of an array (T, B).
template <typename T>
std::span<const T> LastRow(const Contiguous<T>& array, py::ssize_t rows) {
  if (array.ndim() != 2 || array.shape(0) < 1 || array.shape(1) != rows) {
    throw SpecError("an array has shape " + ShapeString(array) + ", expected (T, " +
                    std::to_string(rows) + ") as there are digests");
  }
  return {array.data(array.shape(0) - 1, 0), static_cast<std::size_t>(rows)};
}

// The findings about one group's columns, and other results of its fragment.
struct GroupResults {
  explicit GroupResults(const py::tuple& given)
      : digest(given[0].cast<Contiguous<std::uint64_t>>()),
        largest_reward(given[1].cast<Floats>()),
        is_obs_finite(given[2].cast<Bools>()),
        episode_return(given[3].cast<Contiguous<double>>()),
        episode_length(given[4].cast<Contiguous<std::int32_t>>()) {
    if (!given[5].is_none()) final_obs = Together(given[5].cast<py::array>());
    if (largest_reward.size() != digest.size() || is_obs_finite.size() != digest.size()) {
      throw SpecError("largest_reward and is_obs_finite have other shapes than digest");
    }
  }

  void AddTo(Checksum& sum) const {
    const py::ssize_t rows = digest.size();
    sum.Add(BytesOf(std::span(digest.data(), static_cast<std::size_t>(rows))));
    // running sums are compared after the last step only
    sum.Add(BytesOf(LastRow(episode_return, rows)));
    sum.Add(BytesOf(LastRow(episode_length, rows)));
    if (final_obs) sum.Add({BytesOf(*final_obs), static_cast<std::size_t>(final_obs->nbytes())});
  }

  py::tuple Summary() const {
    const float* reward = largest_reward.data();
    const bool* finite = is_obs_finite.data();
    // magnitudes have the same order as their bits; infinity and nan are last
    std::uint32_t largest = 0;
    bool all_finite = true;
    for (py::ssize_t i = 0; i < digest.size(); ++i) {
      largest = std::max(largest, std::bit_cast<std::uint32_t>(reward[i]));
      all_finite &= finite[i];
    }
    return py::make_tuple(std::bit_cast<float>(largest), all_finite);
  }

  Contiguous<std::uint64_t> digest;  // (B,), as are the next two
  Floats largest_reward;
  Bools is_obs_finite;
  Contiguous<double> episode_return;  // (T, B), as is the next
  Contiguous<std::int32_t> episode_length;
  std::optional<py::array> final_obs;  // empty where they are not kept
};

// (checksum of a fragment, (largest_reward, is_obs_finite) of each group). Keeps the GIL, because
// getting it back may take longer than the sum.
py::tuple SumFragment(const std::vector<py::tuple>& groups) {
  Checksum sum;
  py::tuple summaries(groups.size());
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const GroupResults results(groups[i]);
    results.AddTo(sum);
    summaries[i] = results.Summary();
  }
  return py::make_tuple(sum.value(), summaries);
}

}  // namespace

void BindColumnDigests(py::module_& module) {
  module.def("digest_columns", &DigestRollout, py::arg("obs"), py::arg("last_obs"),
             py::arg("reward"), py::arg("terminated"), py::arg("truncated"),
             py::arg("active") = py::none());
  module.def("sum_fragment", &SumFragment, py::arg("groups"));
}

}  // namespace rollouts
