// SPDX-License-Identifier: Apache-2.0
// Compares lanes with MuJoCo: the functions that verifications and tests call.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/bindings.h"
#include "bindings/gil.h"
#include "engines/mujoco_lanes/comparer.h"
#include "rollouts/support/errors.h"

namespace py = pybind11;

namespace rollouts {
namespace {

using StateArray = py::array_t<double, py::array::c_style>;

// Python's arrays of states; they live as long as this.
class GivenStates {
 public:
  GivenStates(const PhysicsModel& model, const StateArray& qpos, const StateArray& qvel, const StateArray& act,
         const StateArray& qacc_warmstart, const StateArray& ctrl) {
    if (qpos.ndim() != 2) {
      throw SpecError("qpos has shape " + ShapeString(qpos) + ", expected (N, nq)");
    }
    count_ = qpos.shape(0);
    const ModelView& sizes = model.view();
    Check("qpos", qpos, sizes.nq);
    Check("qvel", qvel, sizes.nv);
    Check("act", act, sizes.na);
    Check("qacc_warmstart", qacc_warmstart, sizes.nv);
    Check("ctrl", ctrl, sizes.nu);
    view_ = {count_, qpos.data(), qvel.data(), act.data(), qacc_warmstart.data(), ctrl.data()};
  }
  const ComparedStates& view() const { return view_; }

 private:
  void Check(const char* name, const StateArray& array, std::int32_t size) const {
    if (array.ndim() == 2 && array.shape(0) == count_ && array.shape(1) == size) return;
    throw SpecError(std::string(name) + " has shape " + ShapeString(array) + ", expected (" +
                    std::to_string(count_) + ", " + std::to_string(size) + ")");
  }

  py::ssize_t count_ = 0;
  ComparedStates view_;
};

// Arrays of both engines for each name requested, and the rows' marks.
class FoundArrays {
 public:
  FoundArrays(std::vector<ComparedArray> arrays, const std::vector<std::string>& wanted,
        std::size_t always, py::ssize_t count)
      : arrays_(std::move(arrays)), back_(count), warned_(count) {
    for (std::size_t i = 0; i < arrays_.size(); ++i) {
      ComparedArray& array = arrays_[i];
      const bool is_wanted =
          std::find(wanted.begin(), wanted.end(), array.name) != wanted.end();
      if (!is_wanted && i >= always) continue;
      StateArray ours({count, array.size}), theirs({count, array.size});
      // NaN shows which numbers were never written
      std::fill_n(ours.mutable_data(), ours.size(), std::numeric_limits<double>::quiet_NaN());
      array.lanes = ours.mutable_data();
      array.mujoco = theirs.mutable_data();
      found_[py::str(array.name)] = py::make_tuple(ours, theirs);
    }
    found_["handed_back"] = back_;
    found_["warned"] = warned_;
  }
  const std::vector<ComparedArray>& arrays() const { return arrays_; }
  ComparedRows rows() {
    return {reinterpret_cast<std::uint8_t*>(back_.mutable_data()),
            reinterpret_cast<std::uint8_t*>(warned_.mutable_data())};
  }
  py::dict dict() const { return found_; }

 private:
  std::vector<ComparedArray> arrays_;
  py::array_t<bool> back_;
  py::array_t<bool> warned_;
  py::dict found_;
};

void CheckCovered(const LanesComparer& comparer) {
  if (comparer.why_not().empty()) return;
  throw SpecError("lanes do not step the model " + comparer.model().xml_path() + ": " +
                  comparer.why_not());
}

void CheckWidth(std::int32_t width) {
  const auto widths = lanes::Widths();
  if (width == 0 || std::find(widths.begin(), widths.end(), width) != widths.end()) return;
  std::string known;
  for (const std::int32_t one : widths) known += (known.empty() ? "" : ", ") + std::to_string(one);
  throw SpecError("width is " + std::to_string(width) + ", expected 0 or one of " + known);
}

py::dict CompareForward(LanesComparer& comparer, const StateArray& qpos, const StateArray& qvel,
                 const StateArray& act, const StateArray& qacc_warmstart, const StateArray& ctrl,
                 std::int32_t width) {
  CheckCovered(comparer);
  CheckWidth(width);
  const GivenStates states(comparer.model(), qpos, qvel, act, qacc_warmstart, ctrl);
  std::vector<ComparedArray> arrays = comparer.StageArrays();
  const std::size_t all = arrays.size();
  FoundArrays found(std::move(arrays), {}, all, states.view().count);
  const ComparedRows rows = found.rows();
  {
    const ReleaseGil released;
    comparer.Forward(states.view(), width, found.arrays(), rows);
  }
  return found.dict();
}

py::dict CompareStep(LanesComparer& comparer, const StateArray& qpos, const StateArray& qvel, const StateArray& act,
              const StateArray& qacc_warmstart, const StateArray& ctrl, std::int32_t width,
              std::int32_t substeps, bool up_to_date, const std::vector<std::string>& outputs) {
  CheckCovered(comparer);
  CheckWidth(width);
  const GivenStates states(comparer.model(), qpos, qvel, act, qacc_warmstart, ctrl);
  const lanes::StepOptions options{
      .substeps = substeps,
      .ending = up_to_date ? lanes::Ending::kUpToDate : lanes::Ending::kAsStep,
      .width = width};
  FoundArrays found(comparer.StepArrays(), outputs, LanesComparer::kNumState, states.view().count);
  const ComparedRows rows = found.rows();
  {
    const ReleaseGil released;
    comparer.Step(states.view(), options, found.arrays(), rows);
  }
  return found.dict();
}

std::vector<std::string> ArrayNames(const std::vector<ComparedArray>& arrays, std::size_t first) {
  std::vector<std::string> names;
  for (std::size_t i = first; i < arrays.size(); ++i) names.push_back(arrays[i].name);
  return names;
}

}  // namespace

void BindMujocoLanes(py::module_& module) {
  module.def(
      "lanes_widths",
      [] {
        const auto widths = lanes::Widths();
        return std::vector<std::int32_t>(widths.begin(), widths.end());
      },
      "Lanes that this machine steps side by side, most first.");
  py::class_<LanesComparer>(module, "LanesComparer")
      .def(py::init([](const std::string& xml_path) {
             return std::make_unique<LanesComparer>(PhysicsModel::Get(xml_path));
           }),
           py::arg("xml_path"))
      .def_property_readonly("why_not", &LanesComparer::why_not)
      .def_property_readonly(
          "outputs",
          [](const LanesComparer& self) { return ArrayNames(self.StepArrays(), LanesComparer::kNumState); })
      .def_property_readonly("sensed", &LanesComparer::SensedNumbers)
      .def("forward", &CompareForward, py::arg("qpos"), py::arg("qvel"), py::arg("act"),
           py::arg("qacc_warmstart"), py::arg("ctrl"), py::kw_only(), py::arg("width") = 0,
           "{name: (lanes' array, MuJoCo's)} of one evaluation of each state.")
      .def("step", &CompareStep, py::arg("qpos"), py::arg("qvel"), py::arg("act"),
           py::arg("qacc_warmstart"), py::arg("ctrl"), py::kw_only(), py::arg("width") = 0,
           py::arg("substeps") = 1, py::arg("up_to_date") = false,
           py::arg("outputs") = std::vector<std::string>{},
           "{name: (lanes' array, MuJoCo's)} of steps of each state, and of the outputs named.");
}

}  // namespace rollouts
