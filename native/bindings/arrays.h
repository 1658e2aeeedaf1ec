// SPDX-License-Identifier: Apache-2.0
// Batches as NumPy arrays: the pool's own, and those that a caller gives as `out`.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "bindings/pool/groups.h"
#include "bindings/step_arrays.h"
#include "rollouts/pool/batch_buffer.h"
#include "rollouts/pool/frame.h"
#include "rollouts/support/world_arrays.h"

namespace rollouts {

std::string ShapeString(const pybind11::array& array);

// A new array. Without `data` its content is not set, except that objects are null.
pybind11::array NewArray(const pybind11::handle& dtype, int ndim,
                         const pybind11::ssize_t* shape,
                         const pybind11::ssize_t* strides = nullptr, void* data = nullptr,
                         int flags = 0);

// array[first:first + count].
pybind11::array RowsOf(const pybind11::array& array, pybind11::ssize_t first,
                       pybind11::ssize_t count);

// (height, width, 3) uint8.
pybind11::array FrameArray(const Frame& frame);

// name -> array.
pybind11::dict WorldDict(const WorldArrays& arrays);

// Names of the info columns, in the order of MakeArrays.
pybind11::tuple InfoNames(const EnvSpec& spec);

// A caller's arrays of one call. No two may share memory, because each is written into.
class ApartArrays {
 public:
  // Throws SpecError where the array (C-contiguous) shares memory with an earlier one; messages
  // call it `where`.
  void Add(const std::string& where, const pybind11::array& array);

 private:
  struct Part {
    std::string where;
    const std::uint8_t* begin;
    const std::uint8_t* end;
  };
  std::vector<Part> parts_;
};

// One of a caller's arrays for environments to write into; messages call it `where`. Throws
// SpecError or DTypeError unless it has this shape and dtype, and is C-contiguous, aligned and
// writable.
pybind11::array CheckedOut(const std::string& where, const pybind11::object& value,
                           const pybind11::dtype& dtype,
                           const std::vector<pybind11::ssize_t>& shape);

// (*kStepArrays, *infos, *begun_infos where the buffer has them, *groups' arrays): arrays over a
// buffer's memory, which they keep alive. final_obs is None where the buffer has none.
pybind11::tuple MakeArrays(const std::shared_ptr<BatchBuffer>& buffer, const EnvSpec& spec);

// The arrays of one buffer, kept as long as the pool keeps it.
class NumpyUsers final : public BufferUsers {
 public:
  explicit NumpyUsers(pybind11::tuple arrays) : arrays_(std::move(arrays)) {}
  ~NumpyUsers() override;
  // Views and tensors made of an array hold a reference to it. Needs the GIL.
  bool None() const override;
  const pybind11::tuple& arrays() const { return arrays_; }

 private:
  pybind11::tuple arrays_;
};

// A caller's arrays, which environments write into in place of the pool's buffer.
class OutArrays {
 public:
  // `out`: a dict of name -> array. Throws SpecError or DTypeError unless each has a
  // field's name and exactly its shape (rows, ...) and dtype, C-contiguous and writable.
  OutArrays(const pybind11::object& out, const EnvSpec& spec, std::size_t rows, bool with_final_obs);
  OutArrays(OutArrays&& other) noexcept { *this = std::move(other); }
  OutArrays& operator=(OutArrays&& other) noexcept;

  // Null where no array was given.
  const BatchView& view() const { return view_; }

  // Puts the caller's arrays into a received tuple, at the places that MakeArrays gives their
  // fields.
  void PutInto(pybind11::tuple& fields) const;

 private:
  std::array<pybind11::object, kNumStepArrays> arrays_;
  GroupOut groups_;
  std::int32_t num_groups_ = 0;
  BatchView view_;
};

}  // namespace rollouts
