// SPDX-License-Identifier: Apache-2.0
#include "rollouts/data/frame_stacks.h"

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/bindings.h"
#include "bindings/gil.h"
#include "rollouts/support/errors.h"

namespace py = pybind11;

namespace rollouts {
namespace {

// Throws SpecError for arrays whose frames FindFrames could not compare.
void Check(const py::array& obs, const py::array& last_obs) {
  const auto fail = [](const std::string& what) { throw SpecError(what); };
  if (obs.ndim() < 3) {
    fail("obs has shape " + ShapeString(obs) + ", expected (T, B, S, ...): stacks of frames");
  }
  bool same = last_obs.ndim() == obs.ndim() - 1 && last_obs.dtype().is(obs.dtype());
  for (py::ssize_t axis = 0; same && axis < last_obs.ndim(); ++axis) {
    same = last_obs.shape(axis) == obs.shape(axis + 1);
  }
  if (!same) {
    fail("last_obs has shape " + ShapeString(last_obs) + ", expected that of a row of obs, " +
         ShapeString(obs) + ", and its dtype");
  }
  // frames are compared and copied as bytes
  const int contiguous = py::array::c_style;
  if ((obs.flags() & contiguous) == 0 || (last_obs.flags() & contiguous) == 0) {
    fail("obs and last_obs must be C-contiguous: use np.ascontiguousarray");
  }
  if (obs.size() == 0) fail("obs has shape " + ShapeString(obs) + ", expected at least one frame");
}

// (frames (F, ...), index (T + 1, B, S) int32) of obs (T, B, S, ...) and last_obs (B, S, ...).
py::tuple PackFrameStacks(const py::array& obs, const py::array& last_obs) {
  Check(obs, last_obs);
  const std::int64_t steps = obs.shape(0), envs = obs.shape(1), depth = obs.shape(2);
  const std::int64_t num_frames = (steps + 1) * envs * depth;
  // the index is of int32
  if (num_frames > std::numeric_limits<std::int32_t>::max()) {
    throw SpecError("obs has shape " + ShapeString(obs) +
                    ", expected fewer than 2**31 frames: make the rollouts shorter");
  }
  py::array_t<std::int32_t> index({steps + 1, envs, depth});
  const FrameStacks stacks{steps,
                           envs,
                           depth,
                           obs.nbytes() / (steps * envs * depth),
                           static_cast<const std::uint8_t*>(obs.data()),
                           static_cast<const std::uint8_t*>(last_obs.data())};
  std::int32_t* const index_data = index.mutable_data();
  std::vector<const std::uint8_t*> found;
  {
    const ReleaseGil no_gil;
    // pointers into obs and last_obs, which the caller holds
    found = FindFrames(stacks, index_data);
  }
  std::vector<py::ssize_t> shape{static_cast<py::ssize_t>(found.size())};
  // the axes of frames follow those of steps, environments and stack
  for (py::ssize_t axis = 3; axis < obs.ndim(); ++axis) shape.push_back(obs.shape(axis));
  // how many frames differ is known only now; making the array needs the GIL
  py::array frames(obs.dtype(), shape);
  auto* out = static_cast<std::uint8_t*>(frames.mutable_data());
  {
    const ReleaseGil no_gil;
    const auto bytes = static_cast<std::size_t>(stacks.frame_bytes);
    for (const std::uint8_t* frame : found) {
      std::memcpy(out, frame, bytes);
      out += bytes;
    }
  }
  return py::make_tuple(frames, index);
}

}  // namespace

void BindFrameStacks(py::module_& module) {
  module.def("pack_frame_stacks", &PackFrameStacks, py::arg("obs"), py::arg("last_obs"));
}

}  // namespace rollouts
