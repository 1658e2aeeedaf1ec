// SPDX-License-Identifier: Apache-2.0
#include "rollouts/data/packed_integers.h"

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "bindings/bindings.h"
#include "bindings/gil.h"
#include "rollouts/support/errors.h"

namespace py = pybind11;

namespace rollouts {
namespace {

constexpr py::ssize_t kBytesWithGil = 1 << 16;  // some microseconds

template <typename T>
py::object Pack(const py::array& array) {
  const std::span<const T> numbers(static_cast<const T*>(array.data()),
                                   static_cast<std::size_t>(array.size()));
  std::optional<ReleaseGil> release;
  if (array.nbytes() > kBytesWithGil) release.emplace();
  const IntegerRange<T> range = RangeOf(numbers);
  release.reset();
  if (range.bits == 64) return py::none();
  const std::size_t size = PackedBytes(numbers.size(), range.bits);
  const py::bytes packed(nullptr, size);
  auto* const to = reinterpret_cast<std::uint8_t*>(PyBytes_AS_STRING(packed.ptr()));
  if (array.nbytes() > kBytesWithGil) release.emplace();
  PackIntegers(numbers, range, to);
  release.reset();
  return py::make_tuple(packed, range.low, range.bits);
}

// (bytes, smallest number, bits of each) of an array of integers that is not empty; None where each
// takes 64 bits.
py::object PackArray(const py::array& given) {
  const py::array array = py::array::ensure(given, py::array::c_style);
  const char kind = array.dtype().kind();
  if (array.size() > 0 && (kind == 'i' || kind == 'u')) {
    const bool is_signed = kind == 'i';
    switch (array.itemsize()) {
      case 1: return is_signed ? Pack<std::int8_t>(array) : Pack<std::uint8_t>(array);
      case 2: return is_signed ? Pack<std::int16_t>(array) : Pack<std::uint16_t>(array);
      case 4: return is_signed ? Pack<std::int32_t>(array) : Pack<std::uint32_t>(array);
      case 8: return is_signed ? Pack<std::int64_t>(array) : Pack<std::uint64_t>(array);
    }
  }
  throw SpecError("an array to pack has dtype " + py::str(array.dtype()).cast<std::string>() +
                  " and " + std::to_string(array.size()) + " elements, expected some integers");
}

}  // namespace

void BindPackedIntegers(py::module_& module) {
  module.def("pack_integers", &PackArray, py::arg("array"));
}

}  // namespace rollouts
