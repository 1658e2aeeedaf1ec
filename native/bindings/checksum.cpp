// SPDX-License-Identifier: Apache-2.0
#include "rollouts/support/checksum.h"

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/gil.h"
#include "rollouts/support/errors.h"

namespace py = pybind11;

namespace rollouts {
namespace {

constexpr py::ssize_t kBytesWithGil = 1 << 16;  // some microseconds

// The rows of an array that lie together: `count` of them, `stride` bytes apart.
struct Rows {
  const std::uint8_t* first;
  std::size_t bytes;
  std::size_t count;
  std::size_t stride;
};

// Finds such rows in an array (n, ...): each row must be contiguous, but need not follow the one
// before.
Rows RowsOf(const py::array& array) {
  const auto* first = static_cast<const std::uint8_t*>(array.data());
  const auto all = static_cast<std::size_t>(array.nbytes());
  if (array.flags() & py::array::c_style) return {first, all, 1, 0};
  py::ssize_t expected = array.itemsize();
  for (py::ssize_t axis = array.ndim() - 1; axis > 0; --axis) {
    if (array.strides(axis) != expected) {
      throw SpecError("an array to sum has rows that are not contiguous: copy it first");
    }
    expected *= array.shape(axis);
  }
  const auto count = static_cast<std::size_t>(array.shape(0));
  return {first, all / count, count, static_cast<std::size_t>(array.strides(0))};
}

// The checksum of support/checksum.h over the bytes of all arrays, in their order.
std::uint64_t SumOf(const std::vector<py::array>& arrays) {
  std::vector<Rows> all;
  py::ssize_t bytes = 0;
  for (const py::array& array : arrays) {
    if (array.nbytes() > 0) all.push_back(RowsOf(array));
    bytes += array.nbytes();
  }
  // a short sum keeps the GIL: waiting to get it back could take longer than the sum
  std::optional<ReleaseGil> release;
  if (bytes > kBytesWithGil) release.emplace();
  Checksum sum;
  for (const Rows& rows : all) {
    for (std::size_t i = 0; i < rows.count; ++i) {
      sum.Add(std::span(rows.first + i * rows.stride, rows.bytes));
    }
  }
  return sum.value();
}

}  // namespace

void BindChecksum(py::module_& module) { module.def("checksum", &SumOf, py::arg("arrays")); }

}  // namespace rollouts
